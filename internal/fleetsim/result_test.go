package fleetsim

import (
	"testing"
	"time"
)

func TestSummary(t *testing.T) {
	const s = time.Second
	r := Result{
		Requests: []Outcome{
			{Arrived: 0, FirstToken: 90 * s, Over: 99 * s, Prompt: 1, Output: 2, Attempts: 1, Retractions: 9}, // warm-up
			{Arrived: 1 * s, FirstToken: 2 * s, Over: 6 * s, Prompt: 100, Output: 5, Attempts: 1, Cached: 30},
			{Arrived: 2 * s, FirstToken: 5 * s, Over: 5 * s, Prompt: 100, Output: 1, Attempts: 2, Retractions: 2},
			{Arrived: 3 * s, FirstToken: 99 * s, Over: 99 * s, Prompt: 100, Output: 1, Attempts: 1, Hidden: true},
			{Arrived: 4 * s, Over: 80 * s, Prompt: 100, Output: 1, Attempts: 2, Failed: true, Retractions: 1},
			{Arrived: 5 * s, FirstToken: 7 * s, Over: 10 * s, Prompt: 100, Output: 2, Attempts: 1},
		},
		// Two engines, once a second: before, during and after what is measured.
		Series: Series{Every: s, Engines: 2, Loads: []int32{9, 0, 1, 1, 3, 1, 0, 0, 2, 2, 2, 6, 9, 0}},
		warm:   1,
	}
	want := Summary{
		Requests: 4, Failed: 1, Retried: 2, Retractions: 3,
		TTFT:        Quantiles{Mean: 2 * s, P50: 2 * s, P90: 3 * s, P99: 3 * s, Max: 3 * s},
		TPOT:        Quantiles{Mean: 2 * s, P50: 1 * s, P90: 3 * s, P99: 3 * s, Max: 3 * s},
		Response:    Quantiles{Mean: 13 * s / 3, P50: 5 * s, P90: 5 * s, P99: 5 * s, Max: 5 * s},
		MaxOverMean: (1 + 1.5 + 1 + 1.5) / 4,
		CacheHits:   0.1,
	}
	if got := r.Summary(); got != want {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
}

func TestQuantilesAreOfTheTimesThatThereAre(t *testing.T) {
	var times []time.Duration
	for i := range 1000 {
		times = append(times, time.Duration(1000-i))
	}
	if got, want := quantiles(times), (Quantiles{500, 500, 900, 990, 1000}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := quantiles([]time.Duration{7}), (Quantiles{7, 7, 7, 7, 7}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
