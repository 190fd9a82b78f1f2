package selector

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

func leastWorkOfRanks1(table *load.Table) *Selector {
	return New(table, Config{Policy: LeastWork(LeastWorkConfig{Ranks: true}), Peers: alone, Rand: seeded(1)})
}

// waitingTokens is a report of a rank with nothing but these.
func waitingTokens(n int64) *load.Report { return &load.Report{WaitingTokens: load.Known(n)} }

// onRankPrompt puts a request with a prompt on a rank, until the test ends.
func onRankPrompt(t testing.TB, w *load.Worker, rank int, tokens int64) load.Ticket {
	t.Helper()
	k := w.Reserve(rank, tokens)
	t.Cleanup(k.Done)
	k.Dispatched()
	return k
}

func TestLeastWorkChoosesTheRankToo(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b []*load.Report
		own  [4]int64 // prompt tokens, on a's ranks and then on b's
		want string
	}{
		{"fewest waiting tokens", []*load.Report{waitingTokens(900), waitingTokens(300)}, []*load.Report{waitingTokens(400), waitingTokens(700)}, [4]int64{}, "a1"},
		{"on the other worker", []*load.Report{waitingTokens(900), waitingTokens(300)}, []*load.Report{waitingTokens(200), waitingTokens(700)}, [4]int64{}, "b0"},
		{"own prompts since the report count", []*load.Report{waitingTokens(900), waitingTokens(300)}, []*load.Report{waitingTokens(400), waitingTokens(700)}, [4]int64{0, 500, 0, 0}, "b0"},
		{"a worker that has not reported all of its ranks has the mean on each", []*load.Report{waitingTokens(900), waitingTokens(800)}, []*load.Report{waitingTokens(0), nil}, [4]int64{}, "a1"},
		{"requests count too", []*load.Report{{Running: 9, WaitingTokens: load.Known[int64](0)}, {Running: 3, WaitingTokens: load.Known[int64](0)}}, []*load.Report{running(5), running(6)}, [4]int64{}, "a1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, _ := newTestTable()
			workers := []*load.Worker{withRanks(t, table, "a", c.a...), withRanks(t, table, "b", c.b...)}
			for i, tokens := range c.own {
				if tokens > 0 {
					onRankPrompt(t, workers[i/2], i%2, tokens)
				}
			}
			s := leastWorkOfRanks1(table)
			for range 4 {
				p, err := s.Pick(prompt(100))
				if err != nil {
					t.Fatal(err)
				}
				if got := fmt.Sprint(p.Worker.ID(), p.Rank); got != c.want || p.Reason != LeastWaiting || p.Policy != LeastWorkName || p.Basis != Engine {
					t.Errorf("%v, want %s", p, c.want)
				}
				p.Done()
			}
		})
	}
}

func TestLeastWorkCostsARankByWhatIsThere(t *testing.T) {
	table, _ := newTestTable()
	a := table.Add("a", "")
	f := a.Advertise(2)
	onRankPrompt(t, a, 0, 400) // reported
	holdPrompt(t, a, 5000)     // on a rank that nobody knows: to either rank's books it is somebody else's
	mustPut(t, f, 0, load.Report{Running: 3, WaitingTokens: load.Known[int64](1400)})
	mustPut(t, f, 1, load.Report{Running: 6, WaitingTokens: load.Known[int64](200)})
	onRankPrompt(t, a, 0, 100) // since
	mute := withRanks(t, table, "mute", nil, nil)
	onRankPrompt(t, mute, 1, 70)

	x := explained(t, leastWorkOfRanks1(table), prompt(1000))
	var got []string
	for _, w := range x.Workers {
		got = append(got, fmt.Sprintf("%s%d %v", w.ID, w.Rank, w.Cost.Round(time.Microsecond)))
	}
	slices.Sort(got)
	// The mean of a rank is 4 requests and 600 tokens.
	want := []string{
		fmt.Sprintf("a0 %v", 50*time.Microsecond*(500+1000+1000)+2*time.Millisecond*(2+3+1)),
		fmt.Sprintf("a1 %v", 50*time.Microsecond*(200+1000)+2*time.Millisecond*(5+1)),
		fmt.Sprintf("mute0 %v", 50*time.Microsecond*(600+1000)+2*time.Millisecond*(4+1)),
		fmt.Sprintf("mute1 %v", 50*time.Microsecond*(70+600+1000)+2*time.Millisecond*(1+4+1)),
	}
	if !slices.Equal(got, want) {
		t.Errorf("ranks cost\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestLeastWorkCountsTheRequestOnItsRank(t *testing.T) {
	table, _ := newTestTable()
	w := withRanks(t, table, "a", running(0), running(0))
	s := leastWorkOfRanks1(table)
	var ranks [2]int
	for i := range 10 {
		p := mustPick(t, s, prompt(70))
		ranks[p.Rank]++
		if lead := ranks[0] - ranks[1]; lead < -1 || lead > 1 {
			t.Fatalf("after %d picks the ranks have %v", i+1, ranks)
		}
	}
	e, _ := table.View().Find(w)
	if got := e.OwnOn(0); got != (load.Own{InFlight: 5, Unstarted: 5, PendingTokens: 350}) {
		t.Errorf("rank 0 has %+v", got)
	}
}

func TestLeastWorkOfRanksObeysPins(t *testing.T) {
	table, _ := newTestTable()
	a := withRanks(t, table, "a", waitingTokens(900), waitingTokens(100))
	b := withRanks(t, table, "b", waitingTokens(500), waitingTokens(200), waitingTokens(300))
	s := leastWorkOfRanks1(table)
	for _, c := range []struct {
		name    string
		request Request
		worker  *load.Worker
		rank    int
		reason  Reason
	}{
		{"a worker", Request{Worker: b}, b, 1, Pinned},
		{"a rank", Request{Rank: load.Known(0)}, b, 0, LeastWaiting},
		{"a rank that one worker has", Request{Rank: load.Known(2)}, b, 2, LeastWaiting},
		{"a worker and a rank", Request{Worker: a, Rank: load.Known(0)}, a, 0, Pinned},
		{"a rank of the engine's choice", Request{Rank: load.Known(load.NoRank)}, a, load.NoRank, LeastWaiting},
		{"of some", Request{Candidates: []*load.Worker{b}}, b, 1, LeastWaiting},
		{"of some, a rank", Request{Candidates: []*load.Worker{b, a}, Rank: load.Known(1)}, a, 1, LeastWaiting},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 5 {
				p, err := s.Pick(c.request)
				if err != nil {
					t.Fatal(err)
				}
				if p.Worker != c.worker || p.Rank != c.rank || p.Reason != c.reason {
					t.Errorf("%v, want %s, rank %d, %v", p, c.worker.ID(), c.rank, c.reason)
				}
				p.Done()
			}
		})
	}
	for name, r := range map[string]Request{
		"a rank that nobody has":              {Rank: load.Known(3)},
		"a rank that the worker has not":      {Rank: load.Known(2), Worker: a},
		"a rank that cannot be":               {Rank: load.Known(-2)},
		"a rank that none of these has":       {Rank: load.Known(2), Candidates: []*load.Worker{a}},
		"a rank of a worker that is left out": {Rank: load.Known(2), Exclude: []*load.Worker{b}},
	} {
		if p, err := s.Pick(r); !errors.Is(err, ErrNoCandidates) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
}

func TestLeastWorkLeavesTheRankToAnEngineWhoseRanksAreNotKnown(t *testing.T) {
	table, _ := newTestTable()
	a := table.Add("a", "")
	s := leastWorkOfRanks1(table)
	if p := mustPick(t, s, prompt(100)); p.Worker != a || p.Rank != load.NoRank {
		t.Errorf("%v, want a without a rank", p)
	}
	// It is told of one all the same, if the request asks for it.
	if p := mustPick(t, s, Request{Rank: load.Known(6)}); p.Worker != a || p.Rank != 6 {
		t.Errorf("%v, want rank 6 of a", p)
	}
}

func TestLeastWorkComparesAWorkerOfUnknownRanksAsOneRank(t *testing.T) {
	table, _ := newTestTable()
	eight := make([]*load.Report, 8)
	for i := range eight {
		eight[i] = &load.Report{Running: 5, WaitingTokens: load.Known[int64](100)}
	}
	withRanks(t, table, "a", eight...)
	unknown := table.Add("b", "")
	s := leastWorkOfRanks1(table)
	for range 90 {
		mustPick(t, s, prompt(100)).Dispatched()
	}
	if n := unknown.InFlight(); n != 10 {
		t.Errorf("of 90 requests over 9 ranks the one of the unknown worker took %d", n)
	}
}

func TestLeastWorkSpreadsOverAllRanksOfWorkersThatHaveDifferentNumbersOfThem(t *testing.T) {
	table, _ := newTestTable()
	for i, n := range []int{1, 2, 8, 3} {
		reports := make([]*load.Report, n)
		for rank := range reports {
			reports[rank] = waitingTokens(0)
		}
		withRanks(t, table, name(i), reports...)
	}
	s := leastWorkOfRanks1(table)
	per := make(map[string]int)
	for range 14 * 5 {
		p := mustPick(t, s, prompt(100))
		per[fmt.Sprint(p.Worker.ID(), p.Rank)]++
	}
	for at, n := range per {
		if n != 5 {
			t.Errorf("%s has %d of 70 requests over 14 ranks", at, n)
		}
	}
	if len(per) != 14 {
		t.Errorf("%v", per)
	}
}

func TestLeastWorkOfRanksFollowsRanksThatComeAndGo(t *testing.T) {
	table, clock := newTestTable()
	a := table.Add("a", "")
	s := leastWorkOfRanks1(table)
	for i, n := range []int{3, 1, 4, 2, 8, 1} {
		f := a.Advertise(n)
		if i%2 == 0 {
			for rank := range n {
				mustPut(t, f, rank, load.Report{})
			}
		}
		// At once, of a model that is older than that.
		for range 20 {
			for _, r := range []Request{prompt(10), {Worker: a}, {Candidates: []*load.Worker{a}}, {Rank: load.Known(n - 1)}} {
				p, err := s.Pick(r)
				if err != nil || p.Rank >= n || p.Rank < 0 || p.Rank != r.Rank.Or(p.Rank) {
					t.Fatalf("%v (%v), of %d ranks", p, err, n)
				}
				p.Done()
			}
		}
		clock.advance(modelFor)
		seen := make(map[int]bool)
		for range 200 {
			p := must(s.Pick(prompt(10)))
			seen[p.Rank] = true
			p.Done()
		}
		if len(seen) != n {
			t.Errorf("of %d ranks %v were picked", n, seen)
		}
	}
}

func TestLeastWorkDoesNotChooseARankThatAHostHasNotFed(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	mustPut(t, w, 0, load.Report{Running: 7})
	mustPut(t, w, 2, load.Report{Running: 5})
	s := leastWorkOfRanks1(table)
	for range 20 {
		if p := mustPick(t, s, Request{}); p.Rank == 1 || p.Rank == load.NoRank {
			t.Errorf("%v, and nobody knows of a rank 1", p)
		}
	}
}

func TestPicksAtTheSameTimeDoNotTakeOneRank(t *testing.T) {
	table, _ := newTestTable()
	w := withRanks(t, table, "a", running(0), running(0), running(0), running(0))
	s := leastWorkOfRanks1(table)
	var mu sync.Mutex
	var per [4]int
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			p := mustPick(t, s, prompt(10))
			mu.Lock()
			per[p.Rank]++
			mu.Unlock()
		})
	}
	all.Wait()
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

func TestRanksOfAWorkerMayBeOfDifferentSlices(t *testing.T) {
	table, _ := newTestTable()
	idle := []*load.Report{running(0), running(0), running(0)}
	withRanks(t, table, "a", idle...)
	withRanks(t, table, "b", idle...)
	for i, want := range []string{"[a0 a1]", "[a2 b0]", "[b1 b2]"} {
		s := New(table, Config{Policy: LeastWork(LeastWorkConfig{Ranks: true}), Peers: replica(i, 3), Rand: seeded(1)})
		at := make(map[string]bool)
		for range 50 {
			p := mustPick(t, s, prompt(1))
			at[fmt.Sprint(p.Worker.ID(), p.Rank)] = true
			p.Done()
		}
		var got []string
		for id := range at {
			got = append(got, id)
		}
		slices.Sort(got)
		if fmt.Sprint(got) != want {
			t.Errorf("slice %d is %v, want %v", i, got, want)
		}
	}
}

func TestLeastWorkDrawsFromRanksThatAreTooManyToBeScanned(t *testing.T) {
	table, _ := newTestTable()
	for i := range 10 {
		reports := make([]*load.Report, 10)
		for rank := range reports {
			reports[rank] = waitingTokens(0)
		}
		withRanks(t, table, name(i), reports...)
	}
	s := leastWorkOfRanks1(table)
	rnd := rand.New(rand.NewPCG(1, 1))
	at := make(map[string]int)
	for range 4000 {
		r := prompt(rnd.Int64N(10))
		p, err := s.Pick(r)
		if err != nil {
			t.Fatal(err)
		}
		at[fmt.Sprint(p.Worker.ID(), p.Rank)]++
		p.Done()
	}
	for id, n := range at {
		if n < 10 || n > 80 {
			t.Errorf("%s was picked %d times of 4000", id, n)
		}
	}
	if len(at) != 100 {
		t.Errorf("%d of 100 ranks were picked", len(at))
	}
}

func TestLeastWorkKnowsAllOfAGroupThatIsItsOwn(t *testing.T) {
	// Where every request of the engine is ours, nothing is others', whatever it reports and
	// however long ago.
	for _, ranks := range []bool{false, true} {
		table, clock := newTestTable()
		w := table.Add("a", "")
		c := must(load.NewConnector(w, load.ConnectorConfig{Ranks: 2}))
		k := w.Reserve(0, 600)
		t.Cleanup(k.Done)
		must(c.Register("a request", k))
		if err := c.Observe(load.Batch{Rank: 0, HasLoad: true, Load: load.Report{Running: 7, Waiting: 2}}); err != nil {
			t.Fatal(err)
		}
		clock.advance(time.Minute)
		withRanks(t, table, "b", &load.Report{Running: 6, WaitingTokens: load.Known[int64](6000)})
		table.Add("c", "")
		s := New(table, Config{Policy: LeastWork(LeastWorkConfig{Ranks: ranks}), Peers: alone})
		x := explained(t, s, prompt(10))
		own := 0.0
		for _, w := range x.Workers {
			own += w.amount("own_tokens")
			if w.ID == "a" && (w.amount("others_requests") != 0 || w.amount("others_tokens") != 0 || w.Basis != Engine) {
				t.Errorf("ranks: %v: %v", ranks, w)
			}
			if w.ID == "c" { // of three ranks that report, one has others'
				wantAmount(t, w, "others_requests", 2)
				wantAmount(t, w, "others_tokens", 2000)
			}
		}
		if own != 600 {
			t.Errorf("ranks: %v: %v tokens of its own", ranks, own)
		}
	}
}

func TestAGroupThatIsItsOwnCountsForAGatewaysShareOfTheLoad(t *testing.T) {
	// By what is there, and not by what the engine says of it.
	table, _ := newTestTable()
	w := table.Add("a", "")
	c := must(load.NewConnector(w, load.ConnectorConfig{Ranks: 1}))
	hold(t, w, 8)
	if err := c.Observe(load.Batch{Rank: 0, HasLoad: true, Load: load.Report{Running: 1}}); err != nil {
		t.Fatal(err)
	}
	x := explained(t, New(table, Config{Peers: replica(0, 2)}), prompt(10))
	if want := 37500 * time.Microsecond; x.Learned.Bias != want {
		t.Errorf("of a gateway that has all of the load the bias is %v, want %v", x.Learned.Bias, want)
	}
}
