package main

import (
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
)

// simulated is a run of 1,000 requests over a second, on two engines: the k-th
// waits k milliseconds for its first token, and the second engine has twice the
// load of the first.
func simulated() *fleetsim.Result {
	r := &fleetsim.Result{Series: fleetsim.Series{Every: time.Millisecond, Engines: 2}}
	for i := range 1000 {
		at := time.Duration(i) * time.Millisecond
		r.Requests = append(r.Requests, fleetsim.Outcome{Arrived: at, FirstToken: at + time.Duration(i+1)*time.Millisecond})
	}
	for i := range int32(1500) { // it goes on after the last arrival
		r.Series.Loads = append(r.Series.Loads, i, 2*i)
	}
	return r
}

func TestHeatIsTheMeanLoadOfEachColumn(t *testing.T) {
	h := newHeat(simulated())
	if h.Engines != 2 || h.Columns != heatColumns || h.Span != 1 {
		t.Fatalf("%d engines, %d columns, %v", h.Engines, h.Columns, h.Span)
	}
	for _, column := range []int{0, heatColumns / 2, heatColumns - 1} {
		middle := (float64(column) + 0.5) * 1000 / heatColumns
		for engine := range 2 {
			want := middle * float64(engine+1)
			if have := h.at(column, engine); have < want-15 || have > want+15 {
				t.Errorf("engine %d has %.0f in column %d, want about %.0f", engine, have, column, want)
			}
		}
	}
}

func TestTheCurveLeavesOutTheWarmUpAndWhatTheGatewaysDidNotSee(t *testing.T) {
	r := simulated()
	r.Requests[999].Hidden = true
	r.Requests[998].Failed = true
	c := curve(r)
	if first, last := c[0], c[len(c)-1]; first != 0.101 || last != 0.998 {
		t.Errorf("from %v to %v, want 101 to 998 ms", first, last)
	}
}
