package selector

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// mayBePicked are the workers that a request may go to now.
func mayBePicked(table *load.Table, r *Request) (some []*load.Worker) {
	v := table.View()
	aside := make(map[*load.Worker]bool)
	for i := range v.Healthy() {
		w := v.At(i).Worker()
		ok := true
		if r.Worker != nil {
			ok = w == r.Worker
		} else {
			ok = (r.Candidates == nil || slices.Contains(r.Candidates, w)) && !slices.Contains(r.Exclude, w) && (r.Filter == nil || r.Filter(w))
		}
		if rank, pinned := r.Rank.Get(); pinned && rank != load.NoRank && v.At(i).Ranks() > 0 && !v.At(i).HasRank(rank) {
			ok = false
		}
		if ok {
			some = append(some, w)
			aside[w] = i >= v.Len()
		}
	}
	if slices.ContainsFunc(some, func(w *load.Worker) bool { return !aside[w] }) {
		some = slices.DeleteFunc(some, func(w *load.Worker) bool { return aside[w] })
	}
	return some
}

func TestLeastWorkPicksOnlyWhoIsThere(t *testing.T) {
	// Whatever came, went, fell ill, was set aside or changed its ranks since the model was
	// made.
	for _, ranks := range []bool{false, true} {
		t.Run(fmt.Sprintf("ranks %v", ranks), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(5, 5))
			table, clock := newTestTable()
			peers := [2]int{0, 0}
			s := New(table, Config{
				Policy: LeastWork(LeastWorkConfig{Ranks: ranks}), Rand: seeded(3),
				Peers: func() (int, int) { return peers[0], peers[1] },
			})
			var ever []*load.Worker
			var picks []Pick
			none := 0
			for step := range fewer(30_000) {
				id := fmt.Sprint("w", rnd.IntN(12))
				w, ok := table.Worker(id)
				switch what := rnd.IntN(14); {
				case !ok && what < 4:
					ever = append(ever, table.Add(id, ""))
				case !ok:
				case what == 5:
					table.Remove(w)
				case what == 6:
					w.SetHealthy(rnd.IntN(2) == 0)
				case what == 7:
					w.SetAside()
				case what == 8:
					w.Advertise(1 + rnd.IntN(3))
				case what == 9:
					ever = append(ever, table.Add(id, "")) // in its place
				case what > 9:
					w.Put(rnd.IntN(3), load.Report{Running: rnd.Int64N(9), WaitingTokens: load.Known(rnd.Int64N(900))})
				}
				switch rnd.IntN(40) {
				case 0:
					clock.advance(time.Duration(rnd.Int64N(int64(2 * modelFor))))
				case 1:
					clock.advance(time.Duration(rnd.Int64N(int64(testWindow))))
				case 2:
					peers = [2]int{rnd.IntN(4), rnd.IntN(5)}
				}
				r := Request{PromptTokens: load.Known(rnd.Int64N(3000)), Unstreamed: rnd.IntN(3) == 0}
				if len(ever) > 0 {
					recent := func() *load.Worker { return ever[max(len(ever)-1-rnd.IntN(20), 0)] }
					switch rnd.IntN(8) {
					case 0:
						r.Candidates = []*load.Worker{recent(), recent(), recent()}
					case 1:
						r.Exclude = []*load.Worker{recent(), recent()}
					case 2:
						r.Filter = func(w *load.Worker) bool { return w.ID() > "w3" }
					case 3:
						r.Worker = recent()
					case 4:
						r.Rank = load.Known(rnd.IntN(4) - 1)
					case 5:
						r.Prefix = []PrefixMatch{{recent(), rnd.Int64N(3000)}, {recent(), rnd.Int64N(3000)}}
					}
				}
				allowed := mayBePicked(table, &r)
				p, err := s.Pick(r)
				if err != nil {
					if none++; len(allowed) > 0 || !errors.Is(err, ErrNoCandidates) {
						t.Fatalf("step %d, %+v: %v, and %d may be picked", step, r, err, len(allowed))
					}
					continue
				}
				e, here := table.View().Find(p.Worker)
				if !here || !slices.Contains(allowed, p.Worker) || p.Candidates != len(allowed) {
					t.Fatalf("step %d, %+v: %v, of %d", step, r, p, len(allowed))
				}
				if rank, pinned := r.Rank.Get(); pinned && p.Rank != rank ||
					!pinned && p.Rank != load.NoRank && (!ranks || !e.HasRank(p.Rank)) {
					t.Fatalf("step %d, %+v: %v, of %d ranks", step, r, p, e.Ranks())
				}
				picks = append(picks, p)
				for len(picks) > 30 {
					at := rnd.IntN(len(picks))
					if rnd.IntN(2) == 0 {
						picks[at].FirstToken()
					}
					picks[at].Done()
					picks = slices.Delete(picks, at, at+1)
				}
			}
			for _, p := range picks {
				p.Done()
			}
			for _, w := range ever {
				if w.Own() != (load.Own{}) {
					t.Errorf("%s ends with %+v", w.ID(), w.Own())
				}
			}
			if none > fewer(30_000)/2 {
				t.Errorf("%d picks of %d found nobody", none, fewer(30_000))
			}
		})
	}
}

func TestAWorkerThatComesIsPickedWithTheNextModelAndOneThatGoesNotAtAll(t *testing.T) {
	table, clock := newTestTable()
	a, b := table.Add("a", ""), table.Add("b", "")
	s := leastWork1(table)
	holdPrompt(t, a, 5000)
	for _, c := range []struct {
		name        string
		leave, come func()
	}{
		{"health", func() { b.SetHealthy(false) }, func() { b.SetHealthy(true) }},
		{"set aside", func() { b.SetAside() }, func() { mustPut(t, b, 0, load.Report{}) }},
		{"removed", func() { table.Remove(b) }, func() { b = table.Add("b", "") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if p := must(s.Pick(prompt(10))); p.Worker != b {
				t.Fatalf("%v", p)
			} else {
				p.Done()
			}
			c.leave()
			for range 20 {
				p := must(s.Pick(prompt(10)))
				if p.Worker != a {
					t.Fatalf("%v is gone", p)
				}
				p.Done()
			}
			c.come()
			clock.advance(modelFor)
			for range 20 {
				p := must(s.Pick(prompt(10)))
				if p.Worker != b {
					t.Fatalf("%v, want the one that has come", p)
				}
				p.Done()
			}
		})
	}
}

func TestAWorkerIsNotTakenForTheOneThatStoodInItsPlace(t *testing.T) {
	for name, request := range map[string]func(b, c *load.Worker) Request{
		"all":        func(b, c *load.Worker) Request { return prompt(10) },
		"restricted": func(b, c *load.Worker) Request { return Request{Candidates: []*load.Worker{b, c}} },
		"with a prefix": func(b, c *load.Worker) Request {
			return Request{PromptTokens: load.Known[int64](10), Prefix: []PrefixMatch{{b, 10}, {c, 1}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			table, _ := newTestTable()
			a, b, c := table.Add("a", ""), table.Add("b", ""), table.Add("c", "")
			s := leastWork1(table)
			holdPrompt(t, b, 5000)
			must(s.Pick(prompt(10))).Done() // which makes a model
			table.Remove(a)                 // and b and c move up
			x := explained(t, s, request(b, c))
			if w := x.Workers[0]; w.ID != "c" || x.of(t, "b").amount("own_tokens") != 5000 {
				t.Errorf("%v", x)
			}
		})
	}
}

func TestAReportTakesEffectWithTheNextModel(t *testing.T) {
	table, clock := newTestTable()
	a, b := table.Add("a", ""), table.Add("b", "")
	mustPut(t, a.Advertise(1), 0, load.Report{WaitingTokens: load.Known[int64](100)})
	mustPut(t, b.Advertise(1), 0, load.Report{WaitingTokens: load.Known[int64](200)})
	s := leastWork1(table)
	for i, want := range []*load.Worker{a, b, a} {
		mustPut(t, b, 0, load.Report{WaitingTokens: load.Known(int64(200 - 150*(i%2)))})
		clock.advance(modelFor)
		p := must(s.Pick(prompt(10)))
		if p.Worker != want {
			t.Errorf("%d: %v, want %s", i, p, want.ID())
		}
		p.Done()
	}
}

func TestAPickDoesNotWaitForWhoeverLearns(t *testing.T) {
	table, clock := newTestTable()
	a := table.Add("a", "")
	s := leastWork1(table)
	mu := &s.policy.(*leastWork).learner.mu
	for range 3 { // also where there is no model yet
		mu.Lock()
		p := must(s.Pick(prompt(10)))
		p.FirstToken()
		p.Done()
		mu.Unlock()
		if p.Worker != a {
			t.Errorf("%v", p)
		}
		clock.advance(time.Second)
		must(s.Pick(prompt(10))).Done()
		clock.advance(time.Second)
	}
}

func TestABurstSpreadsOverEqualWorkers(t *testing.T) {
	table, workers := withDepths(t, 0, 0, 0, 0)
	s := leastWork1(table)
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() { mustPick(t, s, prompt(100)) })
	}
	all.Wait()
	for _, w := range workers {
		if n := w.InFlight(); n < 45 || n > 55 {
			t.Errorf("of 200 requests at once over 4 equals %s has %d", w.ID(), n)
		}
	}
}

func TestLeastWorkGoesOnWhileEverythingElseChanges(t *testing.T) {
	// Like TestPicksGoOnWhileEverythingElseChanges, with all that only this policy has:
	// several selectors of a table, which learn from requests of both kinds, of a
	// gateway that is one and then another replica, by ranks and not, and explain.
	table, clock := newTestTable()
	var peers atomic.Pointer[[2]int]
	peers.Store(&[2]int{0, 1})
	var explained atomic.Int64
	var selectors []*Selector
	for _, ranks := range []bool{false, true} {
		selectors = append(selectors, New(table, Config{
			Policy:  LeastWork(LeastWorkConfig{Ranks: ranks}),
			Peers:   func() (int, int) { p := peers.Load(); return p[0], p[1] },
			Explain: func(x *Explanation) { explained.Add(int64(len(x.String()))) }, ExplainEvery: 20,
		}))
	}
	selectors = append(selectors, New(table, Config{Policy: CacheAware(CacheAwareConfig{})}))
	table.Add("stays", "").Advertise(2)
	for i := range 20 {
		table.Add(fmt.Sprint(i), "").Advertise(1 + i%3)
	}

	var changers, pickers sync.WaitGroup
	stop := make(chan struct{})
	forever := func(seed uint64, change func(rnd *rand.Rand)) {
		changers.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, 0))
			for {
				select {
				case <-stop:
					return
				default:
					change(rnd)
				}
			}
		})
	}
	forever(1, func(rnd *rand.Rand) {
		id := fmt.Sprint(rnd.IntN(20))
		switch w, ok := table.Worker(id); {
		case !ok || rnd.IntN(8) == 0:
			table.Add(id, "").Advertise(1 + rnd.IntN(3))
		case rnd.IntN(8) == 0:
			table.Remove(w)
		case rnd.IntN(4) == 0:
			w.SetAside()
		default:
			w.SetHealthy(rnd.IntN(4) > 0)
		}
	})
	forever(2, func(rnd *rand.Rand) {
		if w, ok := table.Worker(fmt.Sprint(rnd.IntN(20))); ok {
			w.Put(rnd.IntN(3), load.Report{Running: rnd.Int64N(50), Waiting: rnd.Int64N(3), WaitingTokens: load.Known(rnd.Int64N(9000)), KVUsage: load.Known(rnd.Float64())})
		}
		clock.advance(time.Duration(rnd.Int64N(int64(modelFor))))
		n := rnd.IntN(6)
		peers.Store(&[2]int{rnd.IntN(n + 1), n})
	})
	forever(3, func(*rand.Rand) {
		for _, s := range selectors[:2] {
			s.policy.(Learner).Learned()
		}
	})
	for g := range 4 {
		pickers.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 9))
			stays, _ := table.Worker("stays")
			var picks []Pick
			for range fewer(1600) {
				s := selectors[rnd.IntN(3)]
				r := Request{PromptTokens: load.Known(rnd.Int64N(4000)), Unstreamed: rnd.IntN(2) == 0}
				switch rnd.IntN(6) {
				case 0:
					r.Prefix = []PrefixMatch{{stays, 900}}
				case 1:
					r.Candidates = []*load.Worker{stays}
				case 2:
					r.Worker = stays
				}
				p, err := s.Pick(r)
				if err != nil {
					t.Error(err)
					return
				}
				p.Dispatched()
				if picks = append(picks, p); len(picks) > 40 {
					if !r.Unstreamed || rnd.IntN(2) == 0 {
						picks[0].FirstToken()
					}
					picks[0].Done()
					picks = picks[1:]
				}
			}
			for _, p := range picks {
				p.Done()
			}
		})
	}
	pickers.Wait()
	close(stop)
	changers.Wait()
	for _, w := range table.Workers() {
		if own := w.Own(); own != (load.Own{}) {
			t.Errorf("%s ends with %+v", w.ID(), own)
		}
	}
	if explained.Load() == 0 {
		t.Error("no pick was explained")
	}
}

func TestOnePickFindsOutForAllThatAWorkerIsGone(t *testing.T) {
	if raceEnabled {
		return
	}
	table, _ := newTestTable()
	best, other := table.Add("a", ""), table.Add("b", "")
	holdPrompt(t, other, 1000)
	s := leastWork1(table)
	must(s.Pick(prompt(10))).Done()
	table.Remove(best)
	must(s.Pick(prompt(10))).Done()
	if got := testing.AllocsPerRun(100, func() { must(s.Pick(prompt(10))).Done() }); got != 0 {
		t.Errorf("each pick after that allocates %v times", got)
	}
}

func TestAPickOfLeastWorkCostsNoAllocation(t *testing.T) {
	if raceEnabled {
		return
	}
	for _, n := range []int{8, 64, 200} {
		for _, ranks := range []bool{false, true} {
			for _, peers := range []int{0, 1, 3} {
				table, clock := newTestTable()
				for i := range n {
					f := table.Add(fmt.Sprintf("w%03d", i), "").Advertise(2)
					if i%5 > 0 {
						mustPut(t, f, 0, load.Report{Running: int64(i % 7), KVUsage: load.Known(0.97), KVCapacity: load.Known[int64](9000)})
						mustPut(t, f, 1, load.Report{Waiting: int64(i % 3)})
					}
				}
				workers := table.Workers()
				s := New(table, Config{Policy: LeastWork(LeastWorkConfig{Ranks: ranks}), Peers: replica(0, peers)})
				for i := range 200 { // so that there is a line
					clock.advance(time.Millisecond)
					p := must(s.Pick(prompt(int64(100 * i))))
					clock.advance(time.Duration(i) * time.Millisecond)
					p.FirstToken()
					p.Done()
				}
				for what, r := range map[string]Request{
					"plain":         prompt(1000),
					"unknown":       {},
					"unstreamed":    {PromptTokens: load.Known[int64](1000), Unstreamed: true},
					"with a prefix": {PromptTokens: load.Known[int64](1000), Prefix: []PrefixMatch{{workers[7], 900}}},
					"restricted":    {PromptTokens: load.Known[int64](1000), Candidates: workers[2:7], Unstreamed: true},
					"with a rank":   {Rank: load.Known(1)},
					"pinned":        {Worker: workers[2]},
				} {
					must(s.Pick(r)).Done()
					if got := testing.AllocsPerRun(200, func() {
						p := must(s.Pick(r))
						p.Dispatched()
						p.FirstToken()
						p.Done()
					}); got != 0 {
						t.Errorf("%d workers, ranks %v, %d replicas: a pick %s allocates %v times", n, ranks, peers, what, got)
					}
				}
			}
		}
	}
}
