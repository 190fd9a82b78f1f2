package selector

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

func TestAPinnedWorkerIsObeyedWhateverItsLoad(t *testing.T) {
	anyPolicy(t, func(t *testing.T, policy Policy) {
		table, workers := withDepths(t, 0, 5000, 0)
		hold(t, workers[1], 10)
		s := New(table, Config{Policy: policy})
		p := mustPick(t, s, Request{
			Worker:     workers[1],
			Candidates: []*load.Worker{workers[0]}, // overridden, like the filter
			Filter:     func(*load.Worker) bool { return false },
			Prefix:     []PrefixMatch{{workers[0], 100}}, PromptTokens: load.Known[int64](100),
		})
		if p.Worker != workers[1] || p.Reason != Pinned || p.Candidates != 1 || p.Basis != Engine {
			t.Errorf("%v, want b, pinned", p)
		}
		if _, ranks := policy.(RankPolicy); !ranks && (p.Rank != load.NoRank || policy.Name() != LeastWorkName && p.Load != 5010) {
			t.Errorf("%v, want load 5010 and no rank", p)
		}
		if workers[1].InFlight() != 11 {
			t.Errorf("%d in flight, want 11", workers[1].InFlight())
		}
	})
}

func TestAPinnedWorkerWithoutReportsWeighsWhatIsOnItOfOurs(t *testing.T) {
	table, workers := withDepths(t, 100, silent)
	hold(t, workers[1], 2)
	for _, signal := range []Signal{Calibrated, Mixed, Uniform} {
		p := mustPick(t, New(table, Config{Policy: LeastDepth(LeastDepthConfig{}), Signal: signal}), Request{Worker: workers[1]})
		if p.Basis != Local || p.Load != 2 {
			t.Errorf("%v: %v", signal, p)
		}
		p.Done()
	}
}

func TestAPinnedWorkerThatIsNotThereIsRefused(t *testing.T) {
	table, workers := withDepths(t, 0, 0, 0)
	_, strangers := withDepths(t, 0)
	workers[0].SetHealthy(false)
	table.Remove(workers[1])
	table.Add("b", "") // a new incarnation is another worker
	s := New(table, Config{})
	for name, w := range map[string]*load.Worker{
		"unhealthy": workers[0], "removed": workers[1], "of another table": strangers[0],
	} {
		p, err := s.Pick(Request{Worker: w})
		var none *NoCandidatesError
		if !errors.Is(err, ErrNoCandidates) || !errors.As(err, &none) || !none.Pinned || none.Known != 3 || none.Healthy != 2 {
			t.Errorf("%s: error is %#v", name, err)
		}
		if p.Worker != nil || w.InFlight() != 0 {
			t.Errorf("%s: picked %v, %d in flight", name, p, w.InFlight())
		}
		p.Done() // inert
	}
}

func TestAPinnedRankIsObeyedAndAnUnknownOneRefused(t *testing.T) {
	anyPolicy(t, func(t *testing.T, policy Policy) {
		table, _ := newTestTable()
		two, four, unknown := table.Add("two", ""), table.Add("four", ""), table.Add("unknown", "")
		two.Advertise(2)
		four.Advertise(4)
		s := New(table, Config{Policy: policy})
		for _, tt := range []struct {
			rank int
			on   map[*load.Worker]bool
		}{
			{0, map[*load.Worker]bool{two: true, four: true, unknown: true}},
			{1, map[*load.Worker]bool{two: true, four: true, unknown: true}},
			{2, map[*load.Worker]bool{four: true, unknown: true}},
			{3, map[*load.Worker]bool{four: true, unknown: true}},
			{4, map[*load.Worker]bool{unknown: true}}, // the engine will say if it does not have it
			{1 << 40, map[*load.Worker]bool{unknown: true}},
		} {
			seen := make(map[*load.Worker]bool)
			for range 60 {
				p := mustPick(t, s, Request{Rank: load.Known(tt.rank)})
				if !tt.on[p.Worker] || p.Rank != tt.rank || p.Candidates != len(tt.on) {
					t.Fatalf("rank %d: %v, rank %d of %d", tt.rank, p, p.Rank, p.Candidates)
				}
				seen[p.Worker] = true
				p.Done()
			}
			if len(seen) != len(tt.on) {
				t.Errorf("rank %d: only %d of %d workers were picked", tt.rank, len(seen), len(tt.on))
			}
		}
		if p, err := s.Pick(Request{Rank: load.Known(load.NoRank)}); err != nil || p.Rank != load.NoRank {
			t.Errorf("no rank, said in words: %v (%v)", p, err)
		}
		for _, rank := range []int{-2, -5, math.MinInt} {
			if _, err := s.Pick(Request{Rank: load.Known(rank)}); !errors.Is(err, ErrNoCandidates) {
				t.Errorf("rank %d: error is %v", rank, err)
			}
		}
		for _, r := range []Request{
			{Rank: load.Known(2), Worker: two},
			{Rank: load.Known(2), Candidates: []*load.Worker{two}},
			{Rank: load.Known(4), Filter: func(w *load.Worker) bool { return w != unknown }},
		} {
			if p, err := s.Pick(r); !errors.Is(err, ErrNoCandidates) {
				t.Errorf("picked %v, %v", p, err)
			}
		}
		if p := mustPick(t, s, Request{Rank: load.Known(1), Worker: two}); p.Worker != two || p.Rank != 1 || p.Reason != Pinned {
			t.Errorf("both pinned: %v", p)
		}
	})
}

func TestCandidatesThatAreGoneOrListedTwiceCountForWhatTheyAre(t *testing.T) {
	anyPolicy(t, func(t *testing.T, policy Policy) {
		table, workers := withDepths(t, 0, 0, 0, 0, 0)
		_, strangers := withDepths(t, 0)
		table.Remove(workers[0])
		workers[1].SetHealthy(false)
		a, b := workers[2], workers[4]
		s := New(table, Config{Policy: policy, Rand: seeded(9)})
		r := Request{Candidates: []*load.Worker{b, workers[0], b, nil, workers[1], a, b, strangers[0], b}}
		p := mustPick(t, s, r)
		p.Done()
		if p.Candidates != 2 {
			t.Errorf("%d took part, want 2", p.Candidates)
		}
		// Listed four times, and no more likely for it.
		within(t, pickAndDone(t, s, r, 1000), []*load.Worker{a, b}, 430, 570)
	})
}

func TestAnEmptyListOfCandidatesIsNotTheSameAsNone(t *testing.T) {
	table, _ := withDepths(t, 0)
	s := New(table, Config{})
	if _, err := s.Pick(Request{Candidates: []*load.Worker{}}); !errors.Is(err, ErrNoCandidates) {
		t.Errorf("none allowed: %v", err)
	}
	mustPick(t, s, Request{Candidates: nil})
}

func TestAFilterIsAskedOnceAboutEachWorkerThatCouldTakePart(t *testing.T) {
	table, workers := withDepths(t, 0, 0, 0, 0)
	workers[3].SetHealthy(false)
	s := New(table, Config{Policy: LeastDepth(LeastDepthConfig{})})
	for name, tt := range map[string]struct {
		candidates []*load.Worker
		want       int
	}{
		"all": {nil, 3}, "some": {[]*load.Worker{workers[2], workers[0], workers[2], workers[3], workers[2]}, 2},
	} {
		asked := make(map[*load.Worker]int)
		p := mustPick(t, s, Request{Candidates: tt.candidates, Filter: func(w *load.Worker) bool {
			asked[w]++
			return w == workers[2]
		}})
		if p.Worker != workers[2] || p.Candidates != 1 {
			t.Errorf("%s: %v", name, p)
		}
		if len(asked) != tt.want || asked[workers[3]] != 0 {
			t.Errorf("%s: asked about %d workers, want %d", name, len(asked), tt.want)
		}
		for w, n := range asked {
			if n != 1 {
				t.Errorf("%s: asked %d times about %s", name, n, w.ID())
			}
		}
	}
}

func TestAFilterThatPanicsLeavesTheSelectorUsable(t *testing.T) {
	table, workers := withDepths(t, 0, 0)
	s := New(table, Config{})
	for range 10 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			s.Pick(Request{Filter: func(*load.Worker) bool { panic("filter") }})
		}()
		mustPick(t, s, Request{}).Done()
	}
	for _, w := range workers {
		if w.InFlight() != 0 {
			t.Errorf("worker %s ends with %d in flight", w.ID(), w.InFlight())
		}
	}
}

func TestRestrictionsOfOnePickDoNotReachTheNext(t *testing.T) {
	// Decisions are recycled.
	table, workers := withDepths(t, 5, 5, 5, silent)
	s := New(table, Config{Policy: LeastDepth(LeastDepthConfig{}), Rand: seeded(1)})
	only := func(w *load.Worker) bool { return w == workers[0] }
	for range 100 {
		for _, r := range []Request{
			{Filter: only}, {Candidates: workers[:1]}, {Worker: workers[0]}, {Worker: workers[0], Rank: load.Known(0)},
			{Filter: func(*load.Worker) bool { return false }},
		} {
			if p, err := s.Pick(r); err == nil {
				p.Done()
			}
		}
		if p := mustPick(t, s, Request{}); p.Candidates != 4 || p.Rank != load.NoRank || p.Reason == Pinned {
			t.Fatalf("%v", p)
		} else {
			p.Done()
		}
	}
}

func TestTheErrorSaysWhereTheCandidatesWent(t *testing.T) {
	everybody, nobody := (func(*load.Worker) bool)(nil), func(*load.Worker) bool { return false }
	for _, tt := range []struct {
		name           string
		workers, ill   int
		filter         func(*load.Worker) bool
		pin            bool
		known, healthy int
		text           string
	}{
		{"an empty table", 0, 0, everybody, false, 0, 0, "selector: no candidates: no worker is known"},
		{"an empty table and a pin", 0, 0, everybody, true, 0, 0, "selector: no candidates: no worker is known"},
		{"nobody healthy", 3, 3, everybody, false, 3, 0, "selector: no candidates: none of 3 workers is healthy"},
		{"nobody allowed", 3, 1, nobody, false, 3, 2, "selector: no candidates: the request's own restrictions leave none of 2 healthy workers"},
		{"a pin to nobody", 3, 1, everybody, true, 3, 2, "selector: no candidates: the pinned worker or rank is not among the 2 healthy of 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table, workers := withDepths(t, make([]int64, tt.workers)...)
			for _, w := range workers[:tt.ill] {
				w.SetHealthy(false)
			}
			r := Request{Filter: tt.filter}
			if tt.pin {
				_, strangers := withDepths(t, 0)
				r.Worker = strangers[0]
			}
			anyPolicy(t, func(t *testing.T, policy Policy) {
				p, err := New(table, Config{Policy: policy}).Pick(r)
				var none *NoCandidatesError
				if !errors.Is(err, ErrNoCandidates) || !errors.As(err, &none) {
					t.Fatalf("error is %v", err)
				}
				if *none != (NoCandidatesError{tt.known, tt.healthy, tt.pin}) || err.Error() != tt.text {
					t.Errorf("error is %q, %+v", err, *none)
				}
				if errors.Is(err, ErrUnknownPolicy) || errors.Is(err, ErrBadConfig) {
					t.Error("it is other errors as well")
				}
				if p != (Pick{}) {
					t.Errorf("with it comes a pick: %+v", p)
				}
			})
		})
	}
}

func TestNoReportEverMakesAPickFail(t *testing.T) {
	anyPolicy(t, func(t *testing.T, policy Policy) {
		for name, spoil := range map[string]func(w *load.Worker, c *clock){
			"never heard of": func(*load.Worker, *clock) {},
			"never reported": func(w *load.Worker, _ *clock) { w.Advertise(8) },
			"incomplete":     func(w *load.Worker, _ *clock) { mustPut(t, w.Advertise(2), 0, load.Report{}) },
			"stale": func(w *load.Worker, c *clock) {
				mustPut(t, w.Advertise(1), 0, load.Report{})
				c.advance(testWindow + 1)
			},
			"booting":          func(w *load.Worker, _ *clock) { mustPut(t, w, 0, load.Report{KVCapacity: load.Known[int64](0)}) },
			"not publishing":   func(w *load.Worker, _ *clock) { w.SetNotPublishing("no") },
			"no answer":        func(w *load.Worker, _ *clock) { w.SetNoAnswer("no") },
			"aside":            func(w *load.Worker, _ *clock) { w.SetAside() },
			"endlessly loaded": func(w *load.Worker, _ *clock) { mustPut(t, w, 0, load.Report{Running: math.MaxInt64, Waiting: 1}) },
		} {
			for _, signal := range []Signal{Calibrated, Mixed, Uniform} {
				table, c := newTestTable()
				workers := []*load.Worker{table.Add("a", ""), table.Add("b", "")}
				for _, w := range workers {
					spoil(w, c)
				}
				s := New(table, Config{Policy: policy, Signal: signal})
				for range 8 {
					if p, err := s.Pick(Request{}); err != nil || p.Worker == nil {
						t.Errorf("%s, %v: %v, %v", name, signal, p, err)
					} else {
						p.Done()
					}
				}
			}
		}
	})
}

// A retry names the workers that it has failed on, and needs no closure for it.
func TestExcludedWorkersTakeNoPart(t *testing.T) {
	table := load.NewTable(load.Config{})
	var ws []*load.Worker
	for _, id := range []string{"a", "b", "c"} {
		ws = append(ws, table.Add(id, ""))
	}
	s := New(table, Config{Policy: LeastRequest(LeastRequestConfig{})})
	for range 20 {
		p, err := s.Pick(Request{Exclude: ws[:2]})
		if err != nil || p.Worker != ws[2] || p.Candidates != 1 {
			t.Fatalf("picked %v (%v)", p, err)
		}
	}
	if _, err := s.Pick(Request{Exclude: ws}); !errors.Is(err, ErrNoCandidates) {
		t.Errorf("with everybody excluded: %v", err)
	}
	if p, err := s.Pick(Request{Exclude: ws, Worker: ws[0]}); err != nil || p.Worker != ws[0] {
		t.Errorf("a pin gives way to an exclusion: %v (%v)", p, err)
	}
	if got := table.Workers(); !slices.Equal(got, ws) {
		t.Errorf("the table's workers are %v", got)
	}
}

func TestAnExclusionLeavesTheOverloadedWorkerIfNobodyElseIsLeft(t *testing.T) {
	anyPolicy(t, func(t *testing.T, policy Policy) {
		table, workers := withDepths(t, 0, 0, 0)
		workers[1].SetAside()
		s := New(table, Config{Policy: policy})
		if p := mustPick(t, s, Request{Exclude: workers[:1]}); p.Worker != workers[2] || p.Candidates != 1 {
			t.Errorf("with one excluded and one overloaded: %v", p)
		}
		if p := mustPick(t, s, Request{Exclude: []*load.Worker{workers[2], nil, workers[0], workers[2]}}); p.Worker != workers[1] {
			t.Errorf("with all but the overloaded one excluded: %v", p)
		}
	})
}

func TestAnExcludedOwnerOwnsNothingAndTiltsNothing(t *testing.T) {
	table, workers := withDepths(t, 9, 100, 3, silent)
	r := Request{
		Exclude:      workers[1:2],
		PromptTokens: load.Known[int64](100),
		Prefix:       []PrefixMatch{{workers[1], 100}, {workers[0], 60}},
	}
	wantWeighed(t, weigh(t, table, Calibrated, r), weighed{"a", 9, Engine}, weighed{"c", 3, Engine}, weighed{"d", 6, Estimated})
	if p := mustPick(t, New(table, Config{Policy: CacheAware(CacheAwareConfig{})}), r); p.Worker != workers[0] || p.Reason != PrefixOwner {
		t.Errorf("%v, want the longest match of those that are left", p)
	}
}
