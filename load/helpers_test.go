package load

import (
	"sync/atomic"
	"testing"
	"time"
)

// clock is a table's clock that moves only when the test says so.
type clock struct{ elapsed atomic.Int64 }

var clockStart = time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)

func (c *clock) now() time.Time { return clockStart.Add(time.Duration(c.elapsed.Load())) }

func (c *clock) advance(d time.Duration) { c.elapsed.Add(int64(d)) }

const testWindow = 5 * time.Second

func newTestTable() (*Table, *clock) {
	c := new(clock)
	return NewTable(Config{Window: testWindow, Clock: c.now}), c
}

// advertised is a new worker with one fresh report for each rank.
func advertised(t *testing.T, table *Table, id string, ranks ...Report) (*Worker, *Feed) {
	t.Helper()
	w := table.Add(id, "")
	f := w.Advertise(len(ranks))
	for rank, r := range ranks {
		mustPut(t, f, rank, r)
	}
	return w, f
}

type putter interface {
	Put(rank int, r Report) error
}

func mustPut(t *testing.T, p putter, rank int, r Report) {
	t.Helper()
	if err := p.Put(rank, r); err != nil {
		t.Fatalf("Put(%d): %v", rank, err)
	}
}

// entry is what a view taken now says of the worker.
func entry(t *testing.T, w *Worker) Entry {
	t.Helper()
	e, ok := w.table.View().Find(w)
	if !ok {
		t.Fatalf("worker %s is not in the view", w.ID())
	}
	return e
}

func wantTrusted(t *testing.T, w *Worker, depth int64) {
	t.Helper()
	e := entry(t, w)
	st := w.Status()
	if !e.Trusted() || !st.Trusted || st.Why != Trusted || st.Reason != "" {
		t.Fatalf("worker %s: view says trusted %v, status %v (%s), want trusted", w.ID(), e.Trusted(), st.Why, st.Reason)
	}
	if e.Depth() != depth || st.Depth != Known(depth) {
		t.Fatalf("worker %s: depth is %d in the view, %v in the status, want %d", w.ID(), e.Depth(), st.Depth, depth)
	}
}

func wantUntrusted(t *testing.T, w *Worker, why Why) {
	t.Helper()
	e := entry(t, w)
	st := w.Status()
	if e.Trusted() || st.Trusted || st.Why != why {
		t.Fatalf("worker %s: view says trusted %v, status %v (%s), want %v", w.ID(), e.Trusted(), st.Why, st.Reason, why)
	}
	if st.Reason == "" {
		t.Fatalf("worker %s: %v without a reason in words", w.ID(), why)
	}
	if st.Depth.IsKnown() {
		t.Fatalf("worker %s: %v, and still its depth is known: %v", w.ID(), why, st.Depth)
	}
}

// depthNow is the reported depth plus what the reports cannot have counted.
func depthNow(t *testing.T, w *Worker) int64 {
	t.Helper()
	depth, _ := entry(t, w).DepthNow()
	return depth
}

// reserve reserves and holds on to the ticket until the test ends: one that is
// dropped would be released by the garbage collector in the middle of the test.
func reserve(t *testing.T, w *Worker, rank int, promptTokens int64) Ticket {
	t.Helper()
	k := w.Reserve(rank, promptTokens)
	t.Cleanup(k.Done)
	return k
}

// must is for what cannot fail in a test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
