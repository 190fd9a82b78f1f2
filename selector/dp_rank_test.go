package selector

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

// withRanks is a worker with a report for each rank; a nil one never comes.
func withRanks(t testing.TB, table *load.Table, id string, ranks ...*load.Report) *load.Worker {
	t.Helper()
	w := table.Add(id, "")
	f := w.Advertise(len(ranks))
	for rank, r := range ranks {
		if r != nil {
			mustPut(t, f, rank, *r)
		}
	}
	return w
}

func running(n int64) *load.Report { return &load.Report{Running: n} }

// onRank puts so many requests of this gateway on a rank, until the test ends.
func onRank(t testing.TB, w *load.Worker, rank, n int) {
	t.Helper()
	for range n {
		t.Cleanup(w.Reserve(rank, 0).Done)
	}
}

func dpRankSelector(table *load.Table) *Selector { return New(table, Config{Policy: DPRank()}) }

func TestDPRankTakesTheRankWithTheLowestScoreOfAllWorkers(t *testing.T) {
	full := &load.Report{Running: 1, Waiting: 2, KVUsage: load.Known(1.0)} // 3 + 6
	for _, c := range []struct {
		name string
		a, b []*load.Report
		own  [4]int // on a's ranks, then on b's
		want string
		load int64
	}{
		{"fewest requests", []*load.Report{running(4), running(2)}, []*load.Report{running(3), running(5)}, [4]int{}, "a1", 2},
		{"on the other worker", []*load.Report{running(4), running(6)}, []*load.Report{running(5), running(3)}, [4]int{}, "b1", 3},
		{"own requests are the floor", []*load.Report{running(4), running(2)}, []*load.Report{running(3), running(5)}, [4]int{0, 9, 0, 0}, "b0", 3},
		{"own requests since the report are added", []*load.Report{running(4), running(2)}, []*load.Report{running(3), running(5)}, [4]int{0, 2, 0, 0}, "b0", 3},
		{"a queue on a full cache weighs more", []*load.Report{full, running(8)}, []*load.Report{running(20), full}, [4]int{}, "a1", 8},
		{"NaN usage is unknown", []*load.Report{{Running: 5, Waiting: 1, KVUsage: load.Known(math.NaN())}, running(5)}, []*load.Report{running(9), running(9)}, [4]int{}, "a1", 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 4 { // wherever the turn stands
				table, _ := newTestTable()
				workers := []*load.Worker{withRanks(t, table, "a", c.a...), withRanks(t, table, "b", c.b...)}
				for i, n := range c.own {
					onRank(t, workers[i/2], i%2, n)
				}
				p := mustPick(t, dpRankSelector(table), Request{})
				if got := fmt.Sprint(p.Worker.ID(), p.Rank); got != c.want || p.Load != c.load || p.Basis != Engine || p.Reason != LeastLoaded || p.Policy != DPRankName {
					t.Errorf("%v, want %s at %d", p, c.want, c.load)
				}
			}
		})
	}
}

func TestDPRankSpreadsABurstOverRanksThatOthersHaveFilled(t *testing.T) {
	table, _ := newTestTable()
	w := withRanks(t, table, "a", running(21), running(20), running(21), running(21))
	s := dpRankSelector(table)
	var per [4]int
	for range 41 {
		p := mustPick(t, s, Request{})
		p.Dispatched()
		per[p.Rank]++
	}
	if per != [4]int{10, 11, 10, 10} {
		t.Errorf("41 requests between two reports spread as %v", per)
	}
	// A report that counts them takes their place.
	for rank := range 4 {
		mustPut(t, w, rank, load.Report{Running: int64(31 - rank)})
	}
	if p := mustPick(t, s, Request{}); p.Rank != 3 || p.Load != 28 {
		t.Errorf("%v, want rank 3 at 28", p)
	}
}

func TestDPRankCountsTheRequestOnTheRank(t *testing.T) {
	table, _ := newTestTable()
	w := withRanks(t, table, "a", running(0), running(0))
	s := dpRankSelector(table)
	p := mustPick(t, s, Request{PromptTokens: load.Known[int64](70)})
	e, _ := table.View().Find(w)
	if got := e.OwnOn(p.Rank); got != (load.Own{InFlight: 1, Unstarted: 1, PendingTokens: 70}) {
		t.Errorf("the rank has %+v", got)
	}
	p.Done()
	if got := e.OwnOn(p.Rank); got != (load.Own{}) {
		t.Errorf("the rank ends with %+v", got)
	}
}

func TestDPRankTakesTurnsAmongEqualRanks(t *testing.T) {
	table, _ := newTestTable()
	idle := []*load.Report{running(0), running(0), running(0)}
	a, b := withRanks(t, table, "a", idle...), withRanks(t, table, "b", idle...)
	for name, r := range map[string]Request{
		"all":        {},
		"restricted": {Candidates: []*load.Worker{b, a}},
		"filtered":   {Filter: func(*load.Worker) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			counts := make(map[string]int)
			s := dpRankSelector(table)
			for range 6000 {
				p, err := s.Pick(r)
				if err != nil {
					t.Fatal(err)
				}
				counts[fmt.Sprint(p.Worker.ID(), p.Rank)]++
				p.Done()
			}
			if len(counts) != 6 {
				t.Fatalf("idle ranks were picked so often: %v", counts)
			}
			for at, n := range counts {
				if n < 850 || n > 1150 {
					t.Errorf("rank %s was picked %d times of 6000, want about 1000", at, n)
				}
			}
		})
	}
}

func TestDPRankSpreadsABurst(t *testing.T) {
	table, _ := newTestTable()
	w := withRanks(t, table, "a", running(0), running(0), running(0), running(0))
	s := dpRankSelector(table)
	var mu sync.Mutex
	var per [4]int
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			p := mustPick(t, s, Request{})
			mu.Lock()
			per[p.Rank]++
			mu.Unlock()
		})
	}
	wg.Wait()
	for _, n := range per {
		if n < 20 || n > 30 {
			t.Errorf("100 requests at once spread as %v over 4 idle ranks", per)
			break
		}
	}
	if w.InFlight() != 100 {
		t.Errorf("%d in flight", w.InFlight())
	}
}

func TestDPRankObeysPins(t *testing.T) {
	table, _ := newTestTable()
	a := withRanks(t, table, "a", running(9), running(1))
	b := withRanks(t, table, "b", running(5), running(2), running(3))
	s := dpRankSelector(table)
	for _, c := range []struct {
		name    string
		request Request
		worker  *load.Worker
		rank    int
		load    int64
		reason  Reason
	}{
		{"a worker", Request{Worker: b}, b, 1, 2, Pinned},
		{"a rank", Request{Rank: load.Known(0)}, b, 0, 5, LeastLoaded},
		{"a rank that one worker has", Request{Rank: load.Known(2)}, b, 2, 3, LeastLoaded},
		{"a worker and a rank", Request{Worker: a, Rank: load.Known(0)}, a, 0, 9, Pinned},
		{"a rank of the engine's choice", Request{Rank: load.Known(load.NoRank)}, a, load.NoRank, 1, LeastLoaded},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 5 {
				p, err := s.Pick(c.request)
				if err != nil {
					t.Fatal(err)
				}
				if p.Worker != c.worker || p.Rank != c.rank || p.Load != c.load || p.Reason != c.reason {
					t.Errorf("%v, want %s, rank %d, load %d, %v", p, c.worker.ID(), c.rank, c.load, c.reason)
				}
				p.Done()
			}
		})
	}
	if _, err := s.Pick(Request{Rank: load.Known(3)}); err == nil {
		t.Error("a rank that nobody has was picked")
	}
}

func TestDPRankOfAWorkerWithoutFreshReportsGoesByWhatIsOurs(t *testing.T) {
	table, _ := newTestTable()
	w := withRanks(t, table, "a", running(9), nil) // incomplete
	onRank(t, w, 0, 1)
	onRank(t, w, 1, 2)
	p := mustPick(t, dpRankSelector(table), Request{})
	if p.Rank != 0 || p.Load != 1 || p.Basis != Local {
		t.Errorf("%v, want rank 0 at our own 1", p)
	}
}

func TestDPRankSpreadsTheEstimateOfASilentWorkerOverItsRanks(t *testing.T) {
	for _, c := range []struct {
		own    [2]int // on the ranks of the silent worker
		worker string
		rank   int
		load   int64
		basis  Basis
	}{
		{[2]int{0, 0}, "b", load.NoRank, 30, Estimated}, // others have 30 on each rank of a; either rank
		{[2]int{0, 2}, "b", 0, 30, Estimated},
		{[2]int{7, 5}, "b", 1, 35, Estimated},
		{[2]int{11, 11}, "a", load.NoRank, 40, Engine}, // depth is four times our own on a
	} {
		table, _ := newTestTable()
		a := table.Add("a", "")
		f := a.Advertise(2)
		for rank := range 2 {
			for range 10 {
				k := a.Reserve(rank, 0)
				t.Cleanup(k.Done)
				k.Dispatched()
			}
			mustPut(t, f, rank, load.Report{Running: 40})
		}
		b := withRanks(t, table, "b", nil, nil)
		for rank, n := range c.own {
			onRank(t, b, rank, n)
		}
		p := mustPick(t, dpRankSelector(table), Request{})
		if p.Worker.ID() != c.worker || p.Load != c.load || p.Basis != c.basis || c.rank != load.NoRank && p.Rank != c.rank {
			t.Errorf("with %v of ours on the silent worker: %v, want %s, rank %d, at %d (%v)", c.own, p, c.worker, c.rank, c.load, c.basis)
		}
	}
}

func TestDPRankDoesNotTakeASilentWorkerOfManyRanksForIdle(t *testing.T) {
	table, _ := newTestTable()
	for i := range 3 {
		withRanks(t, table, name(i), running(1))
	}
	silent := withRanks(t, table, "silent", make([]*load.Report, 8)...)
	s := dpRankSelector(table)
	for range 11 { // as many as there are ranks
		mustPick(t, s, Request{})
	}
	if n := silent.InFlight(); n != 8 {
		t.Errorf("of 11 requests over 11 ranks, 8 of them silent, those took %d", n)
	}
}

func TestDPRankDoesNotChooseARankThatAHostHasNotFed(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	mustPut(t, w, 0, load.Report{Running: 7})
	mustPut(t, w, 2, load.Report{Running: 5})
	s := dpRankSelector(table)
	for range 8 {
		if p := mustPick(t, s, Request{}); p.Rank == 1 {
			t.Errorf("%v, and nobody knows of a rank 1", p)
		}
	}
	if p, err := s.Pick(Request{Rank: load.Known(1)}); err == nil {
		t.Errorf("%v, and nobody has a rank 1", p)
	}
}

func TestDPRankComparesAWorkerOfUnknownRanksAsOneRank(t *testing.T) {
	table, _ := newTestTable()
	eight := make([]*load.Report, 8)
	for i := range eight {
		eight[i] = running(5)
	}
	withRanks(t, table, "a", eight...)
	unknown := table.Add("b", "")
	s := dpRankSelector(table)
	for range 90 {
		mustPick(t, s, Request{}).Dispatched()
	}
	if n := unknown.InFlight(); n < 5 || n > 15 {
		t.Errorf("of 90 requests over 9 ranks the one of the unknown worker took %d", n)
	}
}

func TestTiesOfARestrictedRequestFavourNobody(t *testing.T) {
	table, _ := newTestTable()
	busy, idle := running(1), running(0)
	a := withRanks(t, table, "a", busy, idle, idle, busy, busy)
	counts := make(map[int]int)
	s := dpRankSelector(table)
	for range 2000 {
		p, err := s.Pick(Request{Worker: a})
		if err != nil {
			t.Fatal(err)
		}
		counts[p.Rank]++
		p.Done()
	}
	if len(counts) != 2 || counts[1] < 850 || counts[1] > 1150 {
		t.Errorf("two idle ranks among five were picked so often: %v", counts)
	}
}

func TestDPRankLeavesTheRankToAnEngineWhoseRanksAreNotKnown(t *testing.T) {
	table, _ := newTestTable()
	a := table.Add("a", "")
	hold(t, a, 3)
	p := mustPick(t, dpRankSelector(table), Request{})
	if p.Worker != a || p.Rank != load.NoRank || p.Load != 3 || p.Basis != Local {
		t.Errorf("%v, want a without a rank, at 3", p)
	}
	b := table.Add("b", "")
	if p := mustPick(t, dpRankSelector(table), Request{}); p.Worker != b || p.Rank != load.NoRank {
		t.Errorf("%v, want b without a rank", p)
	}
}

func TestDPRankPicksAmongGroupsAndTheirConnectorsReleaseThePicks(t *testing.T) {
	table, _ := newTestTable()
	connectors := make(map[*load.Worker]*load.Connector)
	for _, id := range []string{"a", "b"} {
		w := table.Add(id, "")
		connectors[w] = must(load.NewConnector(w, load.ConnectorConfig{Ranks: 2}))
	}
	s := dpRankSelector(table)
	at := make(map[string]int)
	for i := range 8 {
		p := mustPick(t, s, Request{})
		if p.Basis != Engine || p.Rank == load.NoRank {
			t.Errorf("%v, want a rank of a group that is idle by our own word", p)
		}
		c := connectors[p.Worker]
		if _, err := c.Register(fmt.Sprint(i), p.Ticket); err != nil {
			t.Fatal(err)
		}
		at[fmt.Sprint(p.Worker.ID(), p.Rank)]++
	}
	if len(at) != 4 {
		t.Errorf("8 requests spread as %v over 4 idle ranks", at)
	}
	for i := range 8 {
		for _, c := range connectors {
			for rank := range 2 {
				b := load.Batch{Rank: rank, HasLoad: true, Load: load.Report{Running: 4, Waiting: 4}, Finished: [][]byte{fmt.Append(nil, i)}}
				if err := c.Observe(b); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for w := range connectors {
		if e, _ := table.View().Find(w); w.InFlight() != 0 || e.Depth() != 0 {
			t.Errorf("%s ends with %d in flight, at depth %d", w.ID(), w.InFlight(), e.Depth())
		}
	}
}

func TestARankThatAChoiceCannotHoldIsLeftToTheEngine(t *testing.T) {
	for rank, want := range map[int]int{0: 0, 7: 7, 65534: 65534, 65535: load.NoRank, -1: load.NoRank, math.MaxInt: load.NoRank} {
		if got := (Choice{}).OnRank(3).OnRank(rank).rank(); got != want {
			t.Errorf("rank %d becomes %d, want %d", rank, got, want)
		}
	}
}
