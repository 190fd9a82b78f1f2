package baseline

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// fleet is a table of workers "a", "b", ... on a clock that stands still until a
// worker reports.
type fleet struct {
	t       testing.TB
	table   *load.Table
	now     time.Time
	workers []*load.Worker
	feeds   []*load.Feed
}

// newFleet makes a fleet of workers that have sent these reports. Those without a
// report advertise that they will.
func newFleet(t testing.TB, reports ...*load.Report) *fleet {
	t.Helper()
	f := &fleet{t: t, now: time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)}
	f.table = load.NewTable(load.Config{Clock: func() time.Time { return f.now }})
	for i, r := range reports {
		f.add(1)
		if r != nil {
			f.report(i, 0, *r)
		}
	}
	return f
}

func (f *fleet) add(ranks int) {
	w := f.table.Add(string(rune('a'+len(f.workers))), "")
	f.workers = append(f.workers, w)
	f.feeds = append(f.feeds, w.Advertise(ranks))
}

func (f *fleet) report(worker, rank int, r load.Report) {
	f.t.Helper()
	f.now = f.now.Add(time.Millisecond)
	if err := f.feeds[worker].Put(rank, r); err != nil {
		f.t.Fatal(err)
	}
}

// goStale lets all reports be too old to be trusted.
func (f *fleet) goStale() { f.now = f.now.Add(load.DefaultWindow + 1) }

// hold puts so many requests of this gateway on a rank of a worker, with prompts of
// that many tokens each.
func (f *fleet) hold(worker, rank, n int, tokens int64) (tickets []load.Ticket) {
	for range n {
		k := f.workers[worker].Reserve(rank, tokens)
		k.Dispatched()
		f.t.Cleanup(k.Done)
		tickets = append(tickets, k)
	}
	return tickets
}

func (f *fleet) entry(worker int) load.Entry { return f.table.View().At(worker) }

func (f *fleet) selector(p selector.Policy) *selector.Selector {
	return selector.New(f.table, selector.Config{Policy: p, Rand: rand.New(rand.NewPCG(1, 2)).Uint64})
}

// pick picks, and leaves the request in flight until the test ends.
func (f *fleet) pick(s *selector.Selector, r selector.Request) selector.Pick {
	f.t.Helper()
	p, err := s.Pick(r)
	if err != nil {
		f.t.Fatal(err)
	}
	p.Dispatched()
	f.t.Cleanup(p.Done)
	return p
}

// picked is the workers of n picks, each over before the next.
func (f *fleet) picked(s *selector.Selector, r selector.Request, n int) (ids string) {
	f.t.Helper()
	for range n {
		p, err := s.Pick(r)
		if err != nil {
			f.t.Fatal(err)
		}
		ids += p.Worker.ID()
		p.Done()
	}
	return ids
}

func prompt(tokens int64) selector.Request {
	return selector.Request{PromptTokens: load.Known(tokens)}
}

func queue(waiting, tokens int64) *load.Report {
	return &load.Report{Waiting: waiting, WaitingTokens: load.Known(tokens)}
}

func busy(running int64, kv float64) *load.Report {
	return &load.Report{Running: running, KVUsage: load.Known(kv)}
}
