package main

import (
	"time"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
)

// heat is the load of every engine over the time of the arrivals, coarse enough
// to look at.
type heat struct {
	Engines int     `json:"engines"`
	Columns int     `json:"columns"`
	Span    seconds `json:"span"`
	Scale   float64 `json:"scale"`  // requests that a level stands for
	Levels  []byte  `json:"levels"` // of all engines in the first column, then in the second, and so on; base64
}

const heatColumns = 120

// newHeat averages a series of loads into columns.
func newHeat(r *fleetsim.Result) *heat {
	s := &r.Series
	last := r.Requests[len(r.Requests)-1].Arrived
	n := min(s.Len(), int(last/s.Every)+1)
	h := &heat{Engines: s.Engines, Columns: min(heatColumns, n), Span: inSeconds(time.Duration(n) * s.Every)}
	means := make([]float64, 0, h.Engines*h.Columns)
	var highest float64
	for c := range h.Columns {
		from, to := c*n/h.Columns, (c+1)*n/h.Columns
		for e := range h.Engines {
			var sum float64
			for i := from; i < to; i++ {
				sum += float64(s.At(i)[e])
			}
			mean := sum / float64(to-from)
			means = append(means, mean)
			highest = max(highest, mean)
		}
	}
	h.Scale = max(highest, 1) / 255
	h.Levels = make([]byte, len(means))
	for i, m := range means {
		h.Levels[i] = byte(m/h.Scale + 0.5)
	}
	return h
}
