package load

import (
	"sync/atomic"
	"testing"
	"time"
)

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
			all, _ := e.Totals()
			rank, _ := e.RankTotals(0)
			depth += d + n + e.Own().Unstarted + r.Running + e.OwnAtReport() + int64(v.Age(e)) + int64(e.Why())
			depth += all.Running + rank.Running + e.Worker().Count().InFlight() + e.Worker().CountOn(0).PendingTokens()
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
	var told atomic.Int64
	hear := func(_ *Worker, took time.Duration, note uint64) { told.Add(int64(took) + int64(note)) }
	watch := &Watch{FirstToken: hear, Done: hear}
	v := table.View()
	wantAllocs(t, "a reservation that somebody watches, with all its marks", 0, func() {
		k := v.Reserve(w, Booking{Rank: 0, PromptTokens: 100, Watch: watch, Note: 1})
		k.Dispatched()
		k.FirstToken()
		k.Done()
	})
	wantAllocs(t, "a conditional reservation that somebody watches", 0, func() {
		k, ok := v.ReserveIf(w, w.Count().Seen(), Booking{Rank: NoRank, PromptTokens: 100, Watch: watch, Note: 1})
		if !ok {
			t.Fatal("refused")
		}
		k.AssumeStarted()
		k.Done()
	})
}
