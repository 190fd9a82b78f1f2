package selector

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// modelFleet is a fleet of all kinds of workers, and what has happened to the ranks
// of each.
type modelFleet struct {
	table   *load.Table
	workers []*load.Worker
	picked  map[modelRank]int64 // requests that were picked for a rank
	sent    map[modelRank]int64 // of these, those that have been dispatched
	known   map[modelRank]int64 // of these, those that its newest report knows
	idle    bool                // nothing is in flight
}

type modelRank struct {
	worker *load.Worker
	rank   int
}

// newModelFleet makes workers with a feed that is complete, incomplete or stale, fed
// by the host, with a connector, and with nothing at all.
func newModelFleet(t *testing.T, rnd *rand.Rand) *modelFleet {
	t.Helper()
	table, clock := newTestTable()
	f := &modelFleet{table: table, picked: make(map[modelRank]int64), sent: make(map[modelRank]int64), known: make(map[modelRank]int64), idle: rnd.IntN(3) == 0}
	report := func() load.Report {
		r := load.Report{Running: rnd.Int64N(5), Waiting: rnd.Int64N(3)}
		switch rnd.IntN(4) {
		case 0:
			r.KVUsage = load.Known(math.NaN())
		case 1, 2:
			r.KVUsage = load.Known(float64(rnd.IntN(9)) / 8)
		}
		return r
	}
	for i := range 1 + rnd.IntN(5) {
		w := table.Add(name(i), "")
		f.workers = append(f.workers, w)
		ranks := 1 + rnd.IntN(4)
		known := f.sent
		reserve := func() {
			for range rnd.IntN(6) {
				rank := rnd.IntN(ranks+1) - 1
				e, _ := table.View().Find(w)
				k := w.Reserve(rank, 0)
				t.Cleanup(k.Done)
				sent := rnd.IntN(2) == 0
				if sent {
					k.Dispatched()
				}
				if e.Ranks() > 0 {
					f.picked[modelRank{w, rank}]++
				}
				if e.Ranks() > 0 && sent {
					f.sent[modelRank{w, rank}]++
				}
			}
		}
		put := func(p putter, rank int) {
			mustPut(t, p, rank, report())
			f.known[modelRank{w, rank}] = known[modelRank{w, rank}]
			if !f.idle && rnd.IntN(2) == 0 {
				reserve()
			}
		}
		switch rnd.IntN(6) {
		case 0, 1, 2:
			feed := w.Advertise(ranks)
			silent := rnd.IntN(6) // as a rule none of them
			for rank := range ranks {
				if rank != silent {
					put(feed, rank)
				}
			}
		case 3:
			for rank := range ranks {
				mustPut(t, w, rank, report()) // and again, once it has them all
			}
			for rank := range ranks {
				put(w, rank)
			}
		case 4:
			c := must(load.NewConnector(w, load.ConnectorConfig{Ranks: ranks, Shared: rnd.IntN(3) == 0}))
			if !c.Status().Shared {
				known = f.picked
			}
			put(observer{c}, rnd.IntN(ranks))
			put(observer{c}, rnd.IntN(ranks))
		}
		if !f.idle {
			reserve()
		}
		if rnd.IntN(8) == 0 {
			w.SetHealthy(false)
		}
		clock.advance([]time.Duration{0, 1, testWindow / 3}[rnd.IntN(3)])
	}
	return f
}

// observer puts a report in the way of a connector.
type observer struct{ *load.Connector }

func (o observer) Put(rank int, r load.Report) error {
	return o.Observe(load.Batch{Rank: rank, HasLoad: true, Load: r})
}

// modelRequest restricts a pick in a random way, or as a rule in none.
func modelRequest(rnd *rand.Rand, workers []*load.Worker) (r Request) {
	some := workers[:1+rnd.IntN(len(workers))]
	switch rnd.IntN(10) {
	case 0:
		r.Candidates = some
	case 1:
		r.Exclude = some
	case 2:
		r.Worker = some[len(some)-1]
	case 3:
		r.Filter = func(w *load.Worker) bool { return slices.Contains(some, w) }
	}
	switch rnd.IntN(8) {
	case 0:
		r.Rank = load.Known(rnd.IntN(4))
	case 1:
		r.Rank = load.Known(load.NoRank)
	}
	return r
}

// modelPlace is a rank of a worker, or a worker whose engine chooses the rank.
type modelPlace struct {
	modelRank
	score float64
	basis Basis
}

// modelEstimate is what a rank of a worker that does not report is taken to have.
func modelEstimate(d *Decision, own float64) float64 {
	var depth, ours, ranks float64
	for i := range d.Len() {
		if e := d.Entry(i); e.Trusted() {
			d, o := e.Summands()
			depth, ours, ranks = depth+float64(d), ours+float64(o), ranks+float64(e.Ranks())
		}
	}
	estimate := own + math.Max(depth-ours, 0)/ranks
	if ours > 0 {
		estimate = math.Max(estimate, own*depth/ours)
	}
	return estimate
}

// places lists what there is to compare for a request.
func (f *modelFleet) places(s *Selector, r Request) (places []modelPlace) {
	d := s.newDecision(&r)
	if r.restricts() {
		d.restrict()
	}
	d.weigh(s.signal)
	for i := range d.Len() {
		e, c := d.Entry(i), d.Candidate(i)
		if e.Ranks() == 0 {
			score := float64(c.Load)
			if c.Basis == Estimated {
				score = modelEstimate(d, float64(e.Own().InFlight))
			}
			places = append(places, modelPlace{modelRank{e.Worker(), load.NoRank}, score, c.Basis})
		}
		for rank := range e.Ranks() {
			if only := r.Rank.Or(load.NoRank); only != load.NoRank && only != rank {
				continue
			}
			p := modelPlace{modelRank{e.Worker(), rank}, float64(e.OwnOn(rank).InFlight), c.Basis}
			report, ok := e.Report(rank)
			switch {
			case c.Basis == Engine && ok:
				p.score = load.RankScore(int64(p.score), f.picked[p.modelRank]-f.known[p.modelRank], report)
			case c.Basis == Estimated:
				p.score = modelEstimate(d, p.score)
			}
			places = append(places, p)
		}
	}
	return places
}

func TestDPRankAgreesWithComparingAllRanksOfRandomFleets(t *testing.T) {
	rnd := rand.New(rand.NewPCG(4, 4))
	met := make(map[string]int) // a model that never gets anywhere proves nothing
	for i := range fewer(3000) {
		f := newModelFleet(t, rnd)
		r := modelRequest(rnd, f.workers)
		s := New(f.table, Config{Policy: DPRank(), Signal: Signal(rnd.IntN(3))})
		turns := make(map[modelRank]int)
		const rounds = 3
		var equals []modelPlace
		for n := 1; n > 0; n-- {
			places := f.places(s, r)
			p, err := s.Pick(r)
			if len(places) == 0 {
				if err == nil {
					t.Fatalf("fleet %d: %v, of nothing", i, p)
				}
				met["nothing"]++
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			lowest := slices.MinFunc(places, func(a, b modelPlace) int { return cmp.Compare(a.score, b.score) }).score
			equals = slices.DeleteFunc(places, func(p modelPlace) bool { return p.score != lowest })
			if len(turns) == 0 {
				n = rounds * len(equals)
			}
			if pinned, ok := r.Rank.Get(); ok && p.Rank != pinned {
				t.Fatalf("fleet %d: %v, and the request is pinned to rank %d", i, p, pinned)
			}
			at := slices.IndexFunc(equals, func(q modelPlace) bool {
				return q.worker == p.Worker && (q.rank == p.Rank || q.rank == load.NoRank || r.Rank == load.Known(load.NoRank))
			})
			if at < 0 {
				t.Fatalf("fleet %d, signal %v: %v, want one of %+v", i, s.signal, p, equals)
			}
			if want := int64(math.Round(lowest)); p.Load != want || p.Basis != equals[at].basis || (p.Reason == Pinned) != (r.Worker != nil) {
				t.Fatalf("fleet %d, signal %v: %v, want a load of %d of %+v", i, s.signal, p, want, equals[at])
			}
			turns[equals[at].modelRank]++
			met[fmt.Sprint(p.Basis)]++
			before := f.own(p)
			p.Done()
			if p.Rank != load.NoRank && equals[at].rank != load.NoRank {
				if after := f.own(p); after != before-1 {
					t.Fatalf("fleet %d: the rank of %v had %d requests with it, and %d after it", i, p, before, after)
				}
				f.picked[modelRank{p.Worker, p.Rank}]++
				f.sent[modelRank{p.Worker, p.Rank}]++
			}
		}
		// Each of the equals had its turn, and exactly as many, where all workers take
		// part. A request that is over may still be taken to have come since the
		// report, where others are in flight.
		if !r.restricts() && f.idle {
			for place, n := range turns {
				if n != rounds {
					t.Fatalf("fleet %d: %+v came %d times, of %d for each of %+v", i, place, n, rounds, equals)
				}
			}
			if len(equals) > 1 {
				met["ties"]++
			}
		}
	}
	for _, what := range []string{"nothing", "ties", "engine", "local", "estimated"} {
		if met[what] == 0 {
			t.Errorf("there was never %s: %v", what, met)
		}
	}
}

// own is what is in flight on the rank of a pick.
func (f *modelFleet) own(p Pick) int64 {
	e, _ := f.table.View().Find(p.Worker)
	return e.OwnOn(p.Rank).InFlight
}
