package selector

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

// What has gone wrong in the field, as far as a selection is concerned.

func TestTwoReportAQueueAndAThirdNeverDoesSoTheThirdIsNotTakenForIdle(t *testing.T) {
	anyPolicy(t, func(t *testing.T, policy Policy) {
		for _, queue := range []int64{1, 10, 1000} {
			for seed := range uint64(10) {
				table, workers := withDepths(t, queue, queue, silent)
				s := New(table, Config{Policy: policy, Rand: seeded(seed)})
				for range 6 {
					mustPick(t, s, Request{}).Dispatched()
				}
				if n := workers[2].InFlight(); n == 6 {
					t.Errorf("queues of %d, seed %d: the worker that never reported took all six", queue, seed)
				}
			}
		}
	})
}

func TestMixingTwoSignalsMakesTheSilentWorkerLookIdle(t *testing.T) {
	// Why Mixed is not the default.
	table, workers := withDepths(t, 10, 10, silent)
	s := New(table, Config{Policy: LeastDepth(LeastDepthConfig{}), Signal: Mixed})
	for range 6 {
		mustPick(t, s, Request{}).Dispatched()
	}
	if n := workers[2].InFlight(); n != 6 {
		t.Errorf("the silent worker took %d of six", n)
	}
}

func TestABootingWorkerIsNotTakenForIdle(t *testing.T) {
	for seed := range uint64(10) {
		table, workers := withDepths(t, 10, 10, silent)
		mustPut(t, workers[2].Advertise(1), 0, load.Report{KVCapacity: load.Known[int64](0)})
		s := New(table, Config{Rand: seeded(seed)})
		for range 6 {
			mustPick(t, s, Request{}).Dispatched()
		}
		if n := workers[2].InFlight(); n == 6 {
			t.Errorf("seed %d: the booting worker took all six", seed)
		}
	}
}

func TestOneReportAndThenSilenceForeverIsGoneFromEveryDecision(t *testing.T) {
	table, clock := newTestTable()
	a, b := table.Add("a", ""), table.Add("b", "")
	reportDepth(t, a, 0) // once, idle
	fb := b.Advertise(1)
	mustPut(t, fb, 0, load.Report{Running: 10})
	s := New(table, Config{Policy: LeastDepth(LeastDepthConfig{})})
	if p := mustPick(t, s, Request{}); p.Worker != a || p.Basis != Engine || p.Load != 0 {
		t.Errorf("while fresh: %v", p)
	}
	clock.advance(testWindow + 1)
	mustPut(t, fb, 0, load.Report{Running: 10})
	wantWeighed(t, weigh(t, table, Mixed, Request{}), weighed{"a", 1, Local}, weighed{"b", 10, Engine})
	wantWeighed(t, weigh(t, table, Uniform, Request{}), weighed{"a", 1, Local}, weighed{"b", 0, Local})
	wantWeighed(t, weigh(t, table, Calibrated, Request{}), weighed{"a", 11, Estimated}, weighed{"b", 10, Engine})
	if p := mustPick(t, s, Request{}); p.Worker != b {
		t.Errorf("once stale: %v", p)
	}
	if st := a.Status(); st.Why != load.Stale || st.Depth.IsKnown() {
		t.Errorf("its status is %v with depth %v", st.Why, st.Depth)
	}
}

// Whatever a worker said before it fell silent, every policy goes on as if it had said
// anything else.
func TestWhatAWorkerSaidBeforeItFellSilentChangesNoChoice(t *testing.T) {
	for _, name := range PolicyNames() {
		t.Run(name, func(t *testing.T) {
			var first string
			for _, said := range []load.Report{
				{},
				{Running: 7, WaitingTokens: load.Known[int64](10)},
				{Running: 1000, Waiting: 1000, WaitingTokens: load.Known[int64](1 << 30), KVUsage: load.Known(1.0)},
			} {
				policy, err := NewPolicy(name, nil)
				if err != nil {
					t.Fatal(err)
				}
				table, clock := newTestTable()
				silenced := table.Add("a", "")
				mustPut(t, silenced.Advertise(1), 0, said)
				clock.advance(testWindow + 1)
				for i, depth := range []int64{5, 9} {
					w := table.Add(name+fmt.Sprint(i), "")
					mustPut(t, w.Advertise(1), 0, load.Report{Running: depth, WaitingTokens: load.Known(100 * depth)})
				}
				s := New(table, Config{Policy: policy, Rand: seeded(7)})
				var chosen string
				for range 60 {
					p := mustPick(t, s, Request{PromptTokens: load.Known[int64](100), Prefix: []PrefixMatch{{silenced, 80}}})
					p.Dispatched()
					chosen += " " + p.Worker.ID()
				}
				if first == "" {
					first = chosen
				}
				if chosen != first {
					t.Errorf("having said %+v it makes the choices\n%s, having been idle\n%s", said, chosen, first)
				}
			}
		})
	}
}

func TestWhateverBecomesOfARequestItsWorkerEndsWithNothingInFlight(t *testing.T) {
	for name, handle := range map[string]func(p Pick){
		"it goes well": func(p Pick) {
			defer p.Done()
			p.Dispatched()
			p.FirstToken()
		},
		"the client goes away before the first header": func(p Pick) { defer p.Done() },
		"the client goes away in the middle":           func(p Pick) { defer p.Done(); p.Dispatched() },
		"the handler panics": func(p Pick) {
			defer func() { recover() }()
			defer p.Done()
			p.Dispatched()
			panic("handler")
		},
		"Done is called twice": func(p Pick) { defer p.Done(); p.FirstToken(); p.Done() },
		"Done is called from another goroutine": func(p Pick) {
			over := make(chan struct{})
			go func() { defer close(over); p.Done() }()
			<-over
		},
		"Done is called from several goroutines at once": func(p Pick) {
			var all sync.WaitGroup
			for range 5 {
				all.Go(p.Done)
			}
			p.Done()
			all.Wait()
		},
		"Done is called on a copy": func(p Pick) { q := p; q.Done(); p.Done() },
		"marks come after Done":    func(p Pick) { p.Done(); p.Dispatched(); p.FirstToken() },
	} {
		t.Run(name, func(t *testing.T) {
			anyPolicy(t, func(t *testing.T, policy Policy) {
				table, workers := withDepths(t, 1)
				s := New(table, Config{Policy: policy})
				for range 3 {
					p, err := s.Pick(Request{PromptTokens: load.Known[int64](10), Rank: load.Known(0)})
					if err != nil {
						t.Fatal(err)
					}
					if n := workers[0].InFlight(); n != 1 {
						t.Fatalf("%d in flight right after the pick", n)
					}
					handle(p)
				}
				if own := workers[0].Own(); own != (load.Own{}) {
					t.Errorf("it ends with %+v", own)
				}
				if st := workers[0].Status(); st.Picked != 3 || st.Leaked != 0 || st.Ranks[0].InFlight != 0 {
					t.Errorf("its status ends with %+v", st)
				}
			})
		})
	}
}

func TestAHundredGoroutinesThatPickAtOnceSpreadOverFourIdleWorkers(t *testing.T) {
	anyPolicy(t, func(t *testing.T, policy Policy) {
		low, high := int64(15), int64(35)
		switch policy.Name() {
		case RoundRobinName:
			low, high = 25, 25
		case RandomName: // looks at nothing
			low, high = 10, 45
		}
		for _, fleet := range [][]int64{{0, 0, 0, 0}, {silent, silent, silent, silent}, {0, silent, 0, silent}} {
			table, workers := withDepths(t, fleet...)
			s := New(table, Config{Policy: policy, Rand: seeded(1)})
			start := make(chan struct{})
			picks := make([]Pick, 100)
			var all sync.WaitGroup
			for i := range picks {
				all.Go(func() {
					<-start
					var err error
					if picks[i], err = s.Pick(Request{}); err != nil {
						t.Error(err)
					}
				})
			}
			close(start)
			all.Wait()
			var sum int64
			for _, w := range workers {
				n := w.InFlight()
				sum += n
				if n < low || n > high {
					t.Errorf("fleet %v: worker %s has %d of the hundred, want %d to %d", fleet, w.ID(), n, low, high)
				}
			}
			if sum != 100 {
				t.Errorf("fleet %v: %d in flight", fleet, sum)
			}
			for _, p := range picks {
				p.Done()
			}
			for _, w := range workers {
				if w.InFlight() != 0 {
					t.Errorf("fleet %v: worker %s ends with %d in flight", fleet, w.ID(), w.InFlight())
				}
			}
		}
	})
}

func TestSequentialPicksBetweenTwoReportsFillIdleWorkersEvenly(t *testing.T) {
	for _, policy := range []Policy{LeastRequest(LeastRequestConfig{}), LeastDepth(LeastDepthConfig{}), CacheAware(CacheAwareConfig{}), RoundRobin()} {
		table, workers := withDepths(t, 0, 0, 0, 0)
		s := New(table, Config{Policy: policy})
		for range 100 {
			mustPick(t, s, Request{})
		}
		for _, w := range workers {
			if n := w.InFlight(); n != 25 {
				t.Errorf("%s: worker %s has %d of a hundred, want 25", policy.Name(), w.ID(), n)
			}
		}
	}
}

func TestEqualLoadsSpreadOverAllWorkers(t *testing.T) {
	for name, fleet := range map[string][]int64{
		"idle": {0, 0, 0, 0}, "busy": {7, 7, 7, 7}, "silent": {silent, silent, silent, silent}, "some silent": {3, silent, 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			anyPolicy(t, func(t *testing.T, policy Policy) {
				table, workers := withDepths(t, fleet...)
				s := New(table, Config{Policy: policy, Rand: seeded(3)})
				within(t, pickAndDone(t, s, Request{}, 400), workers, 60, 140)
				within(t, pickAndDone(t, s, Request{Candidates: workers}, 400), workers, 60, 140)
				restricted := Request{Filter: func(w *load.Worker) bool { return w != workers[1] }}
				counts := pickAndDone(t, s, restricted, 300)
				if counts[workers[1]] != 0 {
					t.Error("a worker was picked that the filter refuses")
				}
				within(t, counts, []*load.Worker{workers[0], workers[2], workers[3]}, 60, 140)
			})
		})
	}
}

func TestTheFirstPickOfANewSelectorIsNotAlwaysOfTheSameWorker(t *testing.T) {
	// A gateway that restarts, or rebuilds its selector with each configuration.
	for _, name := range PolicyNames() {
		t.Run(name, func(t *testing.T) {
			table, workers := withDepths(t, 0, 0, 0, 0)
			for _, config := range []string{"", `{"ties":"rotate"}`} {
				counts := make(map[*load.Worker]int)
				for range 200 {
					policy, err := NewPolicy(name, []byte(config))
					if errors.Is(err, ErrBadConfig) {
						return // it has no ties to break
					} else if err != nil {
						t.Fatal(err)
					}
					p, err := New(table, Config{Policy: policy}).Pick(Request{})
					if err != nil {
						t.Fatal(err)
					}
					counts[p.Worker]++
					p.Done()
				}
				within(t, counts, workers, 8, 192) // 50 each: less than 8 once in 10^13 runs
			}
		})
	}
}

func TestAlternatingKindsOfRequestsSpreadEachOverItsOwnWorkers(t *testing.T) {
	anyPolicy(t, func(t *testing.T, policy Policy) {
		table, workers := withDepths(t, 0, 0, 0, 0)
		s := New(table, Config{Policy: policy, Rand: seeded(4)})
		counts := make(map[*load.Worker]int)
		for i := range 400 {
			r := Request{Candidates: workers[:2]}
			if i%2 == 1 {
				r.Candidates = workers[2:]
			}
			p, err := s.Pick(r)
			if err != nil {
				t.Fatal(err)
			}
			counts[p.Worker]++
			p.Done()
		}
		within(t, counts, workers, 60, 140)
	})
}

func TestAnUnhealthyIdleWorkerTakesNoPartAndTiltsNothing(t *testing.T) {
	anyPolicy(t, func(t *testing.T, policy Policy) {
		table, workers := withDepths(t, 100, 0, 100)
		workers[1].SetHealthy(false)
		s := New(table, Config{Policy: policy, Rand: seeded(2)})
		owned := Request{PromptTokens: load.Known[int64](10), Prefix: []PrefixMatch{{workers[0], 10}, {workers[1], 10}}}
		for _, r := range []Request{{}, owned, {Candidates: workers}, {Filter: func(*load.Worker) bool { return true }}} {
			for range 50 {
				p, err := s.Pick(r)
				if err != nil {
					t.Fatal(err)
				}
				if p.Worker == workers[1] || p.Candidates != 2 || p.Reason == Imbalance {
					t.Fatalf("%v", p)
				}
				p.Done()
			}
		}
	})
}

func TestAWorkerThatReportsNotANumberDoesNotWinForever(t *testing.T) {
	anyPolicy(t, func(t *testing.T, policy Policy) {
		table, workers := withDepths(t, 5, 5, 5, 5)
		mustPut(t, workers[0].Advertise(1), 0, load.Report{Running: 5, KVUsage: load.Known(math.NaN()), EngineTime: load.Known(math.Inf(1))})
		s := New(table, Config{Policy: policy, Rand: seeded(5)})
		within(t, pickAndDone(t, s, Request{}, 400), workers, 60, 140)
	})
}

// A comparison with a number that is none is false, whichever way it is made: what is
// looked at first would win against everything.
func TestAKVUsageThatIsNotANumberAtTheFirstRankScannedDoesNotWinForever(t *testing.T) {
	for _, first := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		anyPolicy(t, func(t *testing.T, policy Policy) {
			table, _ := newTestTable()
			workers := []*load.Worker{table.Add("a", ""), table.Add("b", "")}
			for i, w := range workers {
				f := w.Advertise(2)
				for rank := range 2 {
					r := load.Report{Running: 4, Waiting: 4, KVUsage: load.Known(0.2)}
					if i == 0 && rank == 0 {
						r.KVUsage = load.Known(first)
					}
					mustPut(t, f, rank, r)
				}
			}
			s := New(table, Config{Policy: policy, Rand: seeded(9)})
			ranks := make(map[string]int)
			for range 80 {
				p := mustPick(t, s, Request{})
				ranks[fmt.Sprint(p.Worker.ID(), p.Rank)]++
			}
			if policy.Name() == DPRankName {
				for _, rank := range []string{"a0", "a1", "b0", "b1"} {
					if n := ranks[rank]; n != 20 {
						t.Errorf("with %v at the first rank: %v", first, ranks)
						break
					}
				}
			}
			if n := workers[0].InFlight(); n < 20 || n > 60 {
				t.Errorf("with %v at its first rank a worker has %d of 80", first, n)
			}
		})
	}
}

func TestAReportThatIsRefusedIsNeverTheBest(t *testing.T) {
	table, workers := withDepths(t, 10, silent)
	f := workers[1].Advertise(1)
	for _, r := range []load.Report{{Running: -1}, {Waiting: -1}, {Running: math.MinInt64, Waiting: math.MinInt64}} {
		if f.Put(0, r) == nil {
			t.Fatal("it was taken")
		}
	}
	wantWeighed(t, weigh(t, table, Calibrated, Request{}), weighed{"a", 10, Engine}, weighed{"b", 10, Estimated})
}

func TestADepthThatOverflowsIsNeverTheBest(t *testing.T) {
	table, workers := withDepths(t, 10, silent)
	f := workers[1].Advertise(2)
	for rank := range 2 {
		mustPut(t, f, rank, load.Report{Running: math.MaxInt64, Waiting: math.MaxInt64})
	}
	for _, policy := range []Policy{LeastDepth(LeastDepthConfig{}), PowerOfTwo(), CacheAware(CacheAwareConfig{})} {
		s := New(table, Config{Policy: policy})
		for range 20 {
			if p := mustPick(t, s, Request{}); p.Worker != workers[0] {
				t.Fatalf("%v", p)
			}
		}
	}
}

func TestALateReleaseOfAnOldIncarnationLeavesTheNewOnesPickAlone(t *testing.T) {
	table, workers := withDepths(t, 0)
	s := New(table, Config{})
	first := mustPick(t, s, Request{})
	table.Remove(workers[0])
	again := table.Add("a", "")
	second := mustPick(t, s, Request{})
	if second.Worker != again || again.InFlight() != 1 {
		t.Fatalf("picked %v, %d in flight", second, again.InFlight())
	}
	first.Done()
	if n := again.InFlight(); n != 1 {
		t.Errorf("%d in flight after the old request's release, want 1", n)
	}
	second.Done()
	if n := again.InFlight(); n != 0 {
		t.Errorf("%d in flight at the end", n)
	}
}

func TestAnOverloadMarkOnlyDivertsAsLongAsThereIsAnyoneElse(t *testing.T) {
	anyPolicy(t, func(t *testing.T, policy Policy) {
		table, workers := withDepths(t, 0, 90, 90)
		s := New(table, Config{Policy: policy, Rand: seeded(6)})
		workers[0].SetAside()
		if counts := pickAndDone(t, s, Request{}, 50); counts[workers[0]] != 0 {
			t.Error("the overloaded worker was picked")
		}
		if counts := pickAndDone(t, s, Request{Candidates: workers[:2]}, 50); counts[workers[0]] != 0 {
			t.Error("the overloaded worker was picked out of two candidates")
		}
		owned := Request{PromptTokens: load.Known[int64](10), Prefix: []PrefixMatch{{workers[0], 10}}}
		if counts := pickAndDone(t, s, owned, 50); counts[workers[0]] != 0 {
			t.Error("the overloaded worker was picked for its prefix")
		}
		for name, r := range map[string]Request{
			"pinned to it":           {Worker: workers[0]},
			"with it as a candidate": {Candidates: workers[:1]},
			"with a filter for it":   {Filter: func(w *load.Worker) bool { return w == workers[0] }},
		} {
			if p, err := s.Pick(r); err != nil || p.Worker != workers[0] || p.Candidates != 1 {
				t.Errorf("a request %s: %v, %v", name, p, err)
			} else {
				p.Done()
			}
		}
		workers[1].SetAside()
		workers[2].SetAside()
		if p := mustPick(t, s, Request{}); p.Candidates != 3 {
			t.Errorf("with all overloaded %d take part", p.Candidates)
		}
	})
}

func TestEachAttemptOfARequestIsAPickOfItsOwn(t *testing.T) {
	anyPolicy(t, func(t *testing.T, policy Policy) {
		table, workers := withDepths(t, 0, 0, 0)
		s := New(table, Config{Policy: policy})
		tried := make(map[*load.Worker]bool)
		attempt := func(fail bool) {
			p, err := s.Pick(Request{ID: "one", PromptTokens: load.Known[int64](7), Filter: func(w *load.Worker) bool { return !tried[w] }})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Done()
			if tried[p.Worker] {
				t.Errorf("worker %s is tried again", p.Worker.ID())
			}
			tried[p.Worker] = true
			if own := p.Worker.Own(); own != (load.Own{InFlight: 1, Unstarted: 1, PendingTokens: 7}) {
				t.Errorf("worker %s has %+v", p.Worker.ID(), own)
			}
			if !fail {
				p.Dispatched()
				p.FirstToken()
			}
		}
		attempt(true)
		attempt(true)
		attempt(false)
		if _, err := s.Pick(Request{Filter: func(w *load.Worker) bool { return !tried[w] }}); !errors.Is(err, ErrNoCandidates) {
			t.Errorf("a fourth attempt: %v", err)
		}
		for _, w := range workers {
			if own := w.Own(); own != (load.Own{}) || w.Status().Picked != 1 {
				t.Errorf("worker %s ends with %+v of %d", w.ID(), own, w.Status().Picked)
			}
		}
	})
}

// Which replica this is of how many is learned from a list that changes, and may be
// read while it does.
func TestPicksStayValidWhileAReplicaLearnsItsIndex(t *testing.T) {
	anyPolicy(t, func(t *testing.T, policy Policy) {
		table, workers := withDepths(t, 3, 0, silent, 8, 1, silent, 2)
		var asked uint64
		places := [][2]int{
			{0, 0}, {0, 1}, {0, 2}, {1, 2}, {6, 7}, {0, 7}, {40, 100}, {99, 100}, {0, 1 << 30}, {1<<30 - 1, 1 << 30},
			{5, 3}, {-1, 2}, {0, -1}, {1, 0}, {math.MinInt, math.MaxInt}, {math.MaxInt, math.MaxInt}, // that no list can mean
		}
		s := New(table, Config{Policy: policy, Rand: seeded(8), Peers: func() (int, int) {
			asked++
			at := places[asked%uint64(len(places))]
			return at[0], at[1]
		}})
		for i := range 1000 {
			r := prompt(50)
			if i%3 == 0 {
				r.Candidates = workers[2:5]
			}
			p, err := s.Pick(r)
			if err != nil {
				t.Fatal(err)
			}
			p.Dispatched()
			p.FirstToken()
			p.Done()
		}
		for _, w := range workers {
			if own := w.Own(); own != (load.Own{}) {
				t.Errorf("worker %s ends with %+v", w.ID(), own)
			}
		}
		if policy.Name() == LeastWorkName && asked == 0 {
			t.Error("nobody asked which replica this is")
		}
	})
}

func TestPicksCountOnTheRankThatTheyArePinnedTo(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	w.Advertise(3)
	s := New(table, Config{})
	p := mustPick(t, s, Request{Rank: load.Known(2)})
	if p.Rank != 2 {
		t.Errorf("the rank is %d, want 2", p.Rank)
	}
	q := mustPick(t, s, Request{})
	if q.Rank != load.NoRank {
		t.Errorf("the rank of a request without one is %d", q.Rank)
	}
	var list []int64
	for _, r := range w.Status().Ranks {
		list = append(list, r.InFlight)
	}
	if got := fmt.Sprint(list); got != "[0 0 1]" || w.InFlight() != 2 {
		t.Errorf("in flight by rank: %s, and %d in all", got, w.InFlight())
	}
}

// The same under load: others' requests and ours are on both workers that report.
func TestUnreportedWorkerAmongBusyOnesDoesNotTakeEveryRequest(t *testing.T) {
	for seed := range uint64(200) {
		table, _ := newTestTable()
		for _, id := range []string{"a", "b"} {
			w := table.Add(id, "")
			for _, k := range hold(t, w, 10) {
				k.Dispatched()
			}
			reportDepth(t, w, 20)
		}
		silent := table.Add("c", "")
		s := New(table, Config{Policy: LeastDepth(LeastDepthConfig{}), Rand: seeded(seed)})
		const requests = 40
		for range requests {
			mustPick(t, s, Request{}).Dispatched()
		}
		// It gets our share of 10 first. From there each further request of ours
		// stands for one of somebody else's too, as on the other two, so of the
		// next 30 it gets 6.
		if n := silent.InFlight(); n < 15 || n > 17 {
			t.Fatalf("seed %d: %d of %d requests went to the worker that never reported", seed, n, requests)
		}
	}
}

// together makes all pickers choose before any of them is counted: the moment at
// which picking and counting must be one step, which goroutines that merely start
// at once seldom meet.
type together struct {
	Policy
	chosen sync.WaitGroup // those that have not chosen yet
	first  atomic.Int64   // of those, whose first choice it is
}

func (p *together) Choose(d *Decision) Choice {
	c := p.Policy.Choose(d)
	if p.first.Add(-1) >= 0 {
		p.chosen.Done()
		p.chosen.Wait()
	}
	return c
}

func TestPickersThatAllChoseTheSameIdleWorkerDoNotAllGetIt(t *testing.T) {
	const pickers = 8
	for name, policy := range map[string]Policy{
		LeastRequestName: LeastRequest(LeastRequestConfig{}),
		LeastDepthName:   LeastDepth(LeastDepthConfig{}),
		CacheAwareName:   CacheAware(CacheAwareConfig{}),
	} {
		t.Run(name, func(t *testing.T) {
			table, workers := withDepths(t, 0, 0, 0, 0)
			p := &together{Policy: policy}
			p.chosen.Add(pickers)
			p.first.Store(pickers)
			// The same random number for all makes all of them choose the same one.
			s := New(table, Config{Policy: p, Rand: fixed(42)})
			var all sync.WaitGroup
			for range pickers {
				all.Go(func() { mustPick(t, s, Request{}) })
			}
			all.Wait()
			for _, w := range workers {
				// Who loses a race three times is counted anyway.
				if n := w.InFlight(); n < 1 || n > 4 {
					t.Errorf("worker %s has %d of %d, want about %d", w.ID(), n, pickers, pickers/len(workers))
				}
			}
		})
	}
}
