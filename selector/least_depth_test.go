package selector

import (
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

func TestLeastDepthTakesTheShortestQueueWithOwnRequestsSinceTheReport(t *testing.T) {
	table, workers := withDepths(t, 4, 2, 9)
	s := New(table, Config{Policy: LeastDepth(LeastDepthConfig{})})
	for i, want := range []struct {
		worker int
		load   int64
	}{{1, 2}, {1, 3}} { // and then both a and b stand at 4
		p := mustPick(t, s, Request{})
		if p.Worker != workers[want.worker] || p.Load != want.load || p.Basis != Engine || p.Reason != LeastLoaded || p.Policy != LeastDepthName {
			t.Errorf("pick %d: %v, want worker %s at %d", i, p, workers[want.worker].ID(), want.load)
		}
	}
	for range 10 { // up to 9 on both
		if p := mustPick(t, s, Request{}); p.Worker == workers[2] {
			t.Errorf("%v, want a or b", p)
		}
	}
	if a, b := workers[0].InFlight(), workers[1].InFlight(); a != 5 || b != 7 {
		t.Errorf("a and b have %d and %d of ours, want 5 and 7", a, b)
	}
}

func TestLeastDepthForgetsOwnRequestsThatANewReportCounts(t *testing.T) {
	table, workers := withDepths(t, 1, 3)
	f := workers[0].Advertise(1)
	mustPut(t, f, 0, load.Report{Running: 1})
	s := New(table, Config{Policy: LeastDepth(LeastDepthConfig{})})
	for range 3 {
		mustPick(t, s, Request{Worker: workers[0]}).Dispatched()
	}
	mustPut(t, f, 0, load.Report{Running: 2}) // two of them are over already
	if p := mustPick(t, s, Request{}); p.Worker != workers[0] || p.Load != 2 {
		t.Errorf("%v, want a at 2", p)
	}
}

func TestLeastDepthTakesSilentWorkersAtTheirEstimate(t *testing.T) {
	table, workers := withDepths(t, silent, silent, silent)
	for i, depth := range []int64{8, 12} {
		for _, k := range hold(t, workers[i], 5) {
			k.Dispatched()
		}
		reportDepth(t, workers[i], depth) // others have 5 on each, on average
	}
	hold(t, workers[2], 2)
	s := New(table, Config{Policy: LeastDepth(LeastDepthConfig{})})
	if p := mustPick(t, s, Request{}); p.Worker != workers[2] || p.Load != 7 || p.Basis != Estimated {
		t.Errorf("%v, want c at an estimated 7", p)
	}
	// c stands at 8 now, as a does.
	if p := mustPick(t, s, Request{Candidates: workers[1:]}); p.Worker != workers[2] || p.Load != 10 {
		// Among b and c alone others have 7 on each.
		t.Errorf("%v, want c at an estimated 10", p)
	}
}
