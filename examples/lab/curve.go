package main

import (
	"math"
	"slices"
	"time"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
)

// curveShares are the shares of requests at which a distribution is recorded:
// evenly spaced on the axis of curves, where each tenth of what is slower has as
// much room as the one before.
var curveShares = func() (shares []float64) {
	const decades, perDecade = 3, 16
	for i := range decades*perDecade + 1 {
		shares = append(shares, 1-math.Pow(10, -float64(i)/perDecade))
	}
	return shares
}()

// curve returns the times to first token at curveShares.
func curve(r *fleetsim.Result) []seconds {
	var times []time.Duration
	for _, o := range r.Requests[int(warmUp*float64(len(r.Requests))):] {
		if !o.Hidden && !o.Failed {
			times = append(times, o.TTFT())
		}
	}
	if len(times) == 0 {
		return nil
	}
	slices.Sort(times)
	points := make([]seconds, len(curveShares))
	for i, share := range curveShares {
		points[i] = inSeconds(times[max(int(math.Ceil(share*float64(len(times))))-1, 0)])
	}
	return points
}
