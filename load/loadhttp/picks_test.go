package loadhttp

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

func TestOfAPickTheBestAreKept(t *testing.T) {
	x := &selector.Explanation{Policy: "least_work", Reason: selector.LeastWaiting, Tries: 2}
	for i := range 1000 {
		w := selector.Considered{ID: fmt.Sprint("w", i), Rank: i % 2, Chosen: i == 0, Terms: []selector.Term{{Name: "x", Amount: math.Inf(1)}}}
		if i >= 32 {
			w.Out = selector.NotDrawn
		}
		x.Workers = append(x.Workers, w)
	}
	e := explained(x, time.Time{})
	if e.Worker != "w0" || e.Rank != 0 || e.Reason != "least_waiting" || e.Tries != 2 || e.Compared != 32 || e.Out["not_drawn"] != 968 {
		t.Errorf("it is %+v", e)
	}
	if len(e.Best) != best || !e.Best[0].Chosen || e.Best[best-1].Worker != fmt.Sprint("w", best-1) {
		t.Errorf("the best are %+v", e.Best)
	}
	if e.Best[0].Terms[0].Amount != 0 || !math.IsInf(x.Workers[0].Terms[0].Amount, 1) {
		t.Error("an amount that JSON cannot have is kept, or changed where it was")
	}
}

func TestAPickOfNobodySaysWhy(t *testing.T) {
	e := explained(&selector.Explanation{Policy: "random", Err: errors.New("no candidates: 3 known, 0 healthy")}, time.Time{})
	if e.Worker != "" || e.Rank != load.NoRank || e.Reason != "" || e.Error != "no candidates: 3 known, 0 healthy" || e.Best == nil {
		t.Errorf("it is %+v", e)
	}
}

func TestTheLastPicksAreKept(t *testing.T) {
	h, _ := newTest(t, Config{Picks: 3})
	h.Explain(nil)
	for i := range 5 {
		list, last := h.picks.since(0)
		if len(list) != min(i, 3) || last != uint64(i) {
			t.Fatalf("after %d picks there are %d, the last %d", i, len(list), last)
		}
		h.Explain(&selector.Explanation{Policy: fmt.Sprint(i)})
	}
	for since, want := range map[uint64]string{0: "432", 2: "432", 3: "43", 4: "4", 5: "", 9: ""} {
		list, _ := h.picks.since(since)
		got := ""
		for _, e := range list {
			got += e.Policy
		}
		if got != want {
			t.Errorf("since %d there are %q, want %q", since, got, want)
		}
	}
}

// A fleet that changes all the time must not be kept in the ring.
func TestAPickDoesNotKeepItsWorkers(t *testing.T) {
	h, table := newTest(t, Config{})
	collected := make(chan struct{})
	func() {
		w, _ := worker(t, table, "a", 1, 0)
		runtime.AddCleanup(w, func(struct{}) { close(collected) }, struct{}{})
		pick, err := selector.New(table, selector.Config{Policy: selector.Random(), Explain: h.Explain, ExplainEvery: 1}).Pick(selector.Request{})
		if err != nil {
			t.Fatal(err)
		}
		pick.Done()
		table.Remove(w)
	}()
	h.sample()
	for range 1000 {
		runtime.GC()
		select {
		case <-collected:
			if list, _ := h.picks.since(0); list[0].Worker != "a" {
				t.Errorf("the pick is %+v", list[0])
			}
			return
		default:
			runtime.Gosched()
		}
	}
	t.Error("a worker that was removed is still kept")
}
