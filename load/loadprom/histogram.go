package loadprom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	firstTokenName   = "plimsoll_first_token_seconds"
	pickDurationName = "plimsoll_pick_duration_seconds"
)

// NewFirstToken returns a histogram for the host to fill with the time from a pick to its
// first token: with that of every answer that is streamed, and of no other.
func NewFirstToken() prometheus.Histogram {
	return histogram(firstTokenName, "Time from a pick to the first token of its answer.",
		.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60)
}

// NewPickDuration returns a histogram for the host to fill with what Pick takes.
func NewPickDuration() prometheus.Histogram {
	return histogram(pickDurationName, "Time that a pick takes.",
		250e-9, 500e-9, 1e-6, 2.5e-6, 5e-6, 10e-6, 50e-6, 250e-6, 1e-3, 10e-3)
}

// histogram returns one that a server which knows native histograms gets as such, with a
// resolution of a tenth, and any other one by its buckets.
func histogram(name, help string, buckets ...float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	})
}
