package load

import "testing"

// wantAllocs asserts how often f allocates. The race detector allocates by itself.
func wantAllocs(t *testing.T, what string, want float64, f func()) {
	t.Helper()
	if raceEnabled {
		return
	}
	if got := testing.AllocsPerRun(1000, f); got > want {
		t.Errorf("%s allocates %v times, want %v", what, got, want)
	}
}

func TestReadingsCostNoAllocation(t *testing.T) {
	table, clock := newTestTable()
	w, _ := advertised(t, table, "a", Report{Running: 1}, Report{})
	advertised(t, table, "b", Report{})
	held := reserve(t, w, 0, 10)
	held.Dispatched()
	var depth int64
	look := func() {
		v := table.View()
		for i := range v.Len() {
			e := v.At(i)
			d, _ := e.DepthNow()
			n, _ := e.InFlight()
			r, _ := e.Report(0)
			depth += d + n + e.Own().Unstarted + r.Running + e.OwnAtReport() + int64(v.Age(e))
		}
		trusted, sum, _ := v.Trusted()
		at, _ := v.Position(w)
		depth += sum + int64(trusted+at) + w.InFlight()
	}
	wantAllocs(t, "a look at a view", 0, look)
	clock.advance(testWindow + 1)
	wantAllocs(t, "a look at a view that has gone stale", 0, look) // the first look renews it for all
}

func TestARequestCostsTheBooksNoAllocation(t *testing.T) {
	table, _ := newTestTable()
	w, _ := advertised(t, table, "a", Report{})
	e := entry(t, w)
	wantAllocs(t, "a reservation with all its marks", 0, func() {
		k := w.Reserve(0, 100)
		k.Dispatched()
		k.FirstToken()
		k.Done()
	})
	wantAllocs(t, "a conditional reservation", 0, func() {
		_, seen := e.InFlight()
		k, ok := w.ReserveIf(seen, NoRank, 100)
		if !ok {
			t.Fatal("refused")
		}
		k.Done()
	})
}
