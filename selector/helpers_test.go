package selector

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

const testWindow = 5 * time.Second

// clock is a table's clock that moves only when the test says so.
type clock struct{ elapsed atomic.Int64 }

func (c *clock) now() time.Time {
	return time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(c.elapsed.Load()))
}

func (c *clock) advance(d time.Duration) { c.elapsed.Add(int64(d)) }

func newTestTable() (*load.Table, *clock) {
	c := new(clock)
	return load.NewTable(load.Config{Window: testWindow, Clock: c.now}), c
}

// silent is the depth of a worker that advertises its load and never reports.
const silent = -1

// withDepths is a table of workers "a", "b", ... of one rank that have reported
// these depths.
func withDepths(t testing.TB, depths ...int64) (*load.Table, []*load.Worker) {
	t.Helper()
	table, _ := newTestTable()
	workers := make([]*load.Worker, len(depths))
	for i, depth := range depths {
		workers[i] = table.Add(name(i), "")
		reportDepth(t, workers[i], depth)
	}
	return table, workers
}

func name(i int) string { return string(rune('a' + i)) }

func reportDepth(t testing.TB, w *load.Worker, depth int64) {
	t.Helper()
	f := w.Advertise(1)
	if depth == silent {
		return
	}
	mustPut(t, f, 0, load.Report{Running: depth})
}

type putter interface {
	Put(rank int, r load.Report) error
}

func mustPut(t testing.TB, p putter, rank int, r load.Report) {
	t.Helper()
	if err := p.Put(rank, r); err != nil {
		t.Fatal(err)
	}
}

// hold puts so many requests of this gateway on the worker, until the test ends.
func hold(t testing.TB, w *load.Worker, n int) (tickets []load.Ticket) {
	t.Helper()
	for range n {
		k := w.Reserve(load.NoRank, 0)
		t.Cleanup(k.Done)
		tickets = append(tickets, k)
	}
	return tickets
}

// seeded is a source of random numbers that is the same in every run.
func seeded(seed uint64) func() uint64 {
	var mu sync.Mutex
	source := rand.NewPCG(seed, seed)
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return source.Uint64()
	}
}

// fixed is a source of random numbers that are all the same.
func fixed(n uint64) func() uint64 { return func() uint64 { return n } }

// mustPick picks, and holds on to the pick until the test ends.
func mustPick(t testing.TB, s *Selector, r Request) Pick {
	t.Helper()
	p, err := s.Pick(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Done)
	return p
}

// pickAndDone picks n times, each request being over before the next is picked,
// and counts the picks of each worker.
func pickAndDone(t testing.TB, s *Selector, r Request, n int) map[*load.Worker]int {
	t.Helper()
	counts := make(map[*load.Worker]int)
	for range n {
		p, err := s.Pick(r)
		if err != nil {
			t.Fatal(err)
		}
		counts[p.Worker]++
		p.Done()
	}
	return counts
}

// anyPolicy makes each policy of the package with its defaults.
func anyPolicy(t *testing.T, run func(t *testing.T, policy Policy)) {
	for _, name := range PolicyNames() {
		t.Run(name, func(t *testing.T) {
			policy, err := NewPolicy(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			run(t, policy)
		})
	}
}

// weighed is a candidate's load as a decision sees it.
type weighed struct {
	ID    string
	Load  int64
	Basis Basis
}

// weigh is what a policy would see of each candidate, without picking any.
func weigh(t testing.TB, table *load.Table, signal Signal, r Request) (list []weighed) {
	t.Helper()
	s := New(table, Config{Signal: signal})
	d := s.newDecision(&r)
	if r.restricts() {
		d.restrict()
	}
	d.weigh(signal)
	for i := range d.Len() {
		c := d.Candidate(i)
		if int(c.index) != i {
			t.Fatalf("candidate %d has index %d", i, c.index)
		}
		list = append(list, weighed{d.Entry(i).Worker().ID(), c.Load, c.Basis})
	}
	return list
}

func wantWeighed(t testing.TB, got []weighed, want ...weighed) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the loads are %v, want %v", got, want)
	}
}

// within checks that each of n workers has its share, give or take.
func within(t testing.TB, counts map[*load.Worker]int, workers []*load.Worker, low, high int) {
	t.Helper()
	for _, w := range workers {
		if c := counts[w]; c < low || c > high {
			t.Errorf("worker %s was picked %d times, want %d to %d", w.ID(), c, low, high)
		}
	}
}

// must is for what cannot fail in a test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
