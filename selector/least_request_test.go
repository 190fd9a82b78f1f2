package selector

import "testing"

func TestLeastRequestTakesTheFewestOwnRequestsWhateverEnginesReport(t *testing.T) {
	table, workers := withDepths(t, 0, 1000, silent, 0)
	s := New(table, Config{Policy: LeastRequest(LeastRequestConfig{})})
	hold(t, workers[0], 3)
	hold(t, workers[1], 1)
	hold(t, workers[2], 2)
	hold(t, workers[3], 2)
	if p := mustPick(t, s, Request{}); p.Worker != workers[1] || p.Load != 1 || p.Basis != Local || p.Reason != LeastLoaded || p.Policy != LeastRequestName {
		t.Errorf("%v, want b at 1", p)
	}
	// They stand at 3, 2, 2 and 2 now.
	for range 3 {
		if p := mustPick(t, s, Request{}); p.Worker == workers[0] || p.Load != 2 {
			t.Errorf("%v, want one of those with 2", p)
		}
	}
	for _, w := range workers {
		if w.InFlight() != 3 {
			t.Errorf("worker %s has %d, want 3", w.ID(), w.InFlight())
		}
	}
}

func TestLeastRequestComparesRequestsInFlightAndNotRequestsEver(t *testing.T) {
	table, workers := withDepths(t, 0, 0)
	for range 100 {
		workers[0].Reserve(0, 0).Done()
	}
	hold(t, workers[1], 1)
	s := New(table, Config{Policy: LeastRequest(LeastRequestConfig{})})
	if p := mustPick(t, s, Request{}); p.Worker != workers[0] || p.Load != 0 {
		t.Errorf("%v, want a", p)
	}
}
