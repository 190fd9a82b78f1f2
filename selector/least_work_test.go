package selector

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// alone is a gateway that knows that it is the only one.
func alone() (replica, replicas int) { return 0, 1 }

// replica is a gateway that knows which of how many it is.
func replica(i, n int) func() (int, int) { return func() (int, int) { return i, n } }

// leastWork1 is a selector of the only gateway.
func leastWork1(table *load.Table) *Selector {
	return New(table, Config{Peers: alone, Rand: seeded(1)})
}

// prompt is a request with so many prompt tokens.
func prompt(tokens int64) Request { return Request{PromptTokens: load.Known(tokens)} }

// holdPrompt puts a request of this gateway on the worker, until the test ends.
func holdPrompt(t testing.TB, w *load.Worker, tokens int64) load.Ticket {
	t.Helper()
	k := w.Reserve(load.NoRank, tokens)
	t.Cleanup(k.Done)
	k.Dispatched()
	return k
}

// explained is how a pick comes about, which is done at once.
func explained(t testing.TB, s *Selector, r Request) *Explanation {
	t.Helper()
	p, x, err := s.PickExplained(r)
	if err != nil {
		t.Fatal(err)
	}
	p.Done()
	return x
}

// of is what an explanation says of a worker.
func (x *Explanation) of(t testing.TB, id string) Considered {
	t.Helper()
	for _, w := range x.Workers {
		if w.ID == id {
			return w
		}
	}
	t.Fatalf("nothing is said of %s in\n%v", id, x)
	return Considered{}
}

// amount is how much of something a worker was compared by.
func (x Considered) amount(name string) float64 {
	for _, term := range x.Terms {
		if term.Name == name {
			return term.Amount
		}
	}
	return 0
}

func wantAmount(t testing.TB, w Considered, name string, want float64) {
	t.Helper()
	if got := w.amount(name); math.Abs(got-want) > 1e-6*math.Max(1, want) {
		t.Errorf("%s of %s: %v, want %v", name, w.ID, got, want)
	}
}

// wantCost allows a nanosecond for the rounding of each term.
func wantCost(t testing.TB, w Considered, want time.Duration) {
	t.Helper()
	if diff := w.Cost - want; diff < -10 || diff > 10 {
		t.Errorf("%s costs %v, want %v: %v", w.ID, w.Cost, want, w)
	}
}

// A decision that can be followed by hand; DESIGN.md tells it in words.
//
// Two workers have reported this instant. Nothing has been learned yet: a prompt token
// takes 50 µs and a request is worth 40 of them, 2 ms.
//
//	          reported            own at the report    others
//	worker    depth  waiting tok  requests  tokens     requests  tokens
//	a         12     3,000        2         1,000      10        2,000
//	b          4     6,000        0             0       4        6,000
//	mean of the others                                  7        4,000
//
// With one gateway g is 1/2: requests of others count half of what they differ from
// the mean (8.5 and 5.5), tokens all of it. The request has 1,000 tokens.
//
//	a: 50 µs · (1,000 own + 2,000 + 1,000) + 2 ms · (2 own + 8.5 + 1) = 200 + 23 ms
//	b: 50 µs · (    0 own + 6,000 + 1,000) + 2 ms · (0 own + 5.5 + 1) = 350 + 13 ms
func TestLeastWorkByHand(t *testing.T) {
	table, _ := newTestTable()
	a, b := table.Add("a", ""), table.Add("b", "")
	for range 2 {
		k := a.Reserve(load.NoRank, 500)
		t.Cleanup(k.Done)
		k.Dispatched()
	}
	mustPut(t, a.Advertise(1), 0, load.Report{Running: 10, Waiting: 2, WaitingTokens: load.Known[int64](3000)})
	mustPut(t, b.Advertise(1), 0, load.Report{Running: 1, Waiting: 3, WaitingTokens: load.Known[int64](6000)})

	policy := LeastWork(LeastWorkConfig{}).(*leastWork)
	s := New(table, Config{Policy: policy, Peers: func() (int, int) { return 0, 1 }})
	p := mustPick(t, s, Request{PromptTokens: load.Known[int64](1000)})
	if p.Worker != a || p.Basis != Engine || p.Reason != LeastWaiting {
		t.Fatalf("%v, want a", p)
	}
	m := policy.model.Load()
	for i, want := range []float64{0.200 + 0.023, 0.350 + 0.013} {
		c := &m.cells[i]
		count := c.worker.Count()
		if i == 0 { // as it was before the pick
			count.Picked--
			count.TokensPicked -= 1000
		}
		if got := c.cost(count, 1000); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s costs %v s, want %v", c.worker.ID(), got, want)
		}
	}
}

func TestLeastWorkIsThePolicyOfASelectorThatIsGivenNone(t *testing.T) {
	table, _ := withDepths(t, 0, 0)
	if p := mustPick(t, New(table, Config{}), Request{}); p.Policy != LeastWorkName {
		t.Errorf("the default policy is %s", p.Policy)
	}
}

func TestLeastWorkCountsPromptTokensAndNotRequestsAlone(t *testing.T) {
	table, _ := newTestTable()
	few, many := table.Add("few", ""), table.Add("many", "")
	holdPrompt(t, few, 12_000)
	for range 6 {
		holdPrompt(t, many, 100)
	}
	s := leastWork1(table)
	if p := mustPick(t, s, prompt(100)); p.Worker != many || p.Load != 6 || p.Basis != Local {
		t.Errorf("%v, want the worker of many short prompts", p)
	}
}

func TestLeastWorkKnowsItsOwnRequestsExactlyAndAtOnce(t *testing.T) {
	table, _ := newTestTable()
	a := table.Add("a", "")
	s := leastWork1(table)
	cost := func(tokens, requests int) time.Duration {
		return time.Duration(tokens)*50*time.Microsecond + time.Duration(requests)*2*time.Millisecond
	}
	wantCost(t, explained(t, s, prompt(300)).of(t, "a"), cost(300, 1))
	p := mustPick(t, s, prompt(5000))
	if p.Wait != cost(5000, 1) {
		t.Errorf("it expects a wait of %v, want %v", p.Wait, cost(5000, 1))
	}
	q := mustPick(t, s, prompt(70))
	for _, step := range []struct {
		mark             func()
		tokens, requests int
	}{
		{func() {}, 5070, 2},
		{p.Dispatched, 5070, 2},
		{p.FirstToken, 70, 2},
		{q.Done, 0, 1},
		{p.Done, 0, 0},
	} {
		step.mark()
		wantCost(t, explained(t, s, prompt(300)).of(t, "a"), cost(300+step.tokens, 1+step.requests))
	}
	holdPrompt(t, a, 900) // of whoever else reserves there
	wantCost(t, explained(t, s, prompt(300)).of(t, "a"), cost(1200, 2))
}

func TestLeastWorkTakesWhatOthersHaveFromTheReports(t *testing.T) {
	for _, c := range []struct {
		name             string
		own              []int64 // prompt tokens of own requests that a's report counts
		started          int     // of those, with a first token by then
		a                load.Report
		requests, tokens float64
	}{
		{"all", nil, 0, load.Report{Running: 5, Waiting: 3, WaitingTokens: load.Known[int64](2500)}, 8, 2500},
		{"but not its own", []int64{300, 200}, 0, load.Report{Running: 5, Waiting: 3, WaitingTokens: load.Known[int64](2500)}, 6, 2000},
		{"its own that has started waits for nothing", []int64{300, 200}, 1, load.Report{Running: 5, Waiting: 3, WaitingTokens: load.Known[int64](2500)}, 6, 2300},
		{"no waiting tokens on the wire", []int64{300, 200}, 1, load.Report{Running: 5, Waiting: 3}, 6, 2 * 1000},
		{"fewer than its own", []int64{300, 200}, 0, load.Report{Running: 1, WaitingTokens: load.Known[int64](100)}, 0, 0},
		{"fewer waiting than its own", []int64{300, 200}, 0, load.Report{Running: 9}, 7, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, _ := newTestTable()
			a, b := table.Add("a", ""), table.Add("b", "")
			for i, tokens := range c.own {
				k := holdPrompt(t, a, tokens)
				if i < c.started {
					k.FirstToken()
				}
			}
			mustPut(t, a.Advertise(1), 0, c.a)
			mustPut(t, b.Advertise(1), 0, load.Report{Running: 20, WaitingTokens: load.Known[int64](7000)})
			w := explained(t, leastWork1(table), Request{}).of(t, "a")
			wantAmount(t, w, "others_requests", (c.requests+20)/2+0.5*(c.requests-(c.requests+20)/2))
			wantAmount(t, w, "others_tokens", c.tokens)
			if w.Basis != Engine || w.Load != int64(math.Round(float64(len(c.own))+w.amount("others_requests"))) {
				t.Errorf("%v", w)
			}
		})
	}
}

func TestLeastWorkBelievesAReportLessTheOlderItIsAndTheMoreGatewaysThereAre(t *testing.T) {
	// Nothing has been learned: first tokens are taken to come after 0.1 s, answers to
	// take 5 s.
	for _, gateways := range []struct {
		replicas int
		g        float64
	}{{1, 0.5}, {4, 0.25}, {16, 0.125}, {100, 0.05}, {10_000, 0.05}} {
		for _, age := range []time.Duration{0, 30 * time.Millisecond, time.Second, testWindow} {
			t.Run(fmt.Sprintf("%d gateways, %v", gateways.replicas, age), func(t *testing.T) {
				table, clock := newTestTable()
				a, b := table.Add("a", ""), table.Add("b", "")
				mustPut(t, a.Advertise(1), 0, load.Report{Running: 30, WaitingTokens: load.Known[int64](9000)})
				mustPut(t, b.Advertise(1), 0, load.Report{Running: 10, WaitingTokens: load.Known[int64](1000)})
				clock.advance(age)
				s := New(table, Config{Peers: replica(0, gateways.replicas)})
				requests := 10 * gateways.g * math.Exp(-age.Seconds()/5)
				tokens := 4000 * min(1, 2*gateways.g) * math.Exp(-age.Seconds()/0.1)
				x := explained(t, s, Request{Candidates: []*load.Worker{a, b}}) // or perhaps one were not drawn
				wantAmount(t, x.of(t, "a"), "others_requests", 20+requests)
				wantAmount(t, x.of(t, "b"), "others_requests", 20-requests)
				wantAmount(t, x.of(t, "a"), "others_tokens", 5000+tokens)
				wantAmount(t, x.of(t, "b"), "others_tokens", 5000-tokens)
			})
		}
	}
}

func TestLeastWorkGivesWhoeverHasNoFreshReportTheMean(t *testing.T) {
	busy := load.Report{Running: 1000, WaitingTokens: load.Known[int64](1 << 20)}
	for name, become := range map[string]func(t *testing.T, w *load.Worker, c *clock){
		"new":              func(*testing.T, *load.Worker, *clock) {},
		"mute":             func(_ *testing.T, w *load.Worker, _ *clock) { w.Advertise(1) },
		"not publishing":   func(_ *testing.T, w *load.Worker, _ *clock) { w.SetNotPublishing("says so") },
		"no answer":        func(_ *testing.T, w *load.Worker, _ *clock) { w.SetNoAnswer("says nothing") },
		"a rank is silent": func(t *testing.T, w *load.Worker, _ *clock) { mustPut(t, w.Advertise(2), 0, busy) },
		"booting": func(t *testing.T, w *load.Worker, _ *clock) {
			mustPut(t, w.Advertise(1), 0, load.Report{KVCapacity: load.Known[int64](0)})
		},
		"stale, and was idle": func(t *testing.T, w *load.Worker, c *clock) {
			mustPut(t, w.Advertise(1), 0, load.Report{})
			c.advance(testWindow + 1)
		},
		"stale, and was busy, with a full cache": func(t *testing.T, w *load.Worker, c *clock) {
			r := busy
			r.KVUsage, r.KVCapacity = load.Known(1.0), load.Known[int64](1000)
			mustPut(t, w.Advertise(1), 0, r)
			c.advance(testWindow + 1)
		},
		"advertised anew": func(t *testing.T, w *load.Worker, c *clock) {
			mustPut(t, w.Advertise(1), 0, load.Report{})
			w.Advertise(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			table, clock := newTestTable()
			a, b, c := table.Add("a", ""), table.Add("b", ""), table.Add("c", "")
			become(t, c, clock)
			mustPut(t, a.Advertise(1), 0, load.Report{Running: 30, WaitingTokens: load.Known[int64](9000)})
			mustPut(t, b.Advertise(1), 0, load.Report{Running: 10, WaitingTokens: load.Known[int64](1000)})
			holdPrompt(t, c, 700)
			x := explained(t, leastWork1(table), prompt(100))
			w := x.of(t, "c")
			ranks := float64(1)
			if name == "a rank is silent" {
				ranks = 2
			}
			wantAmount(t, w, "others_requests", 20*ranks)
			wantAmount(t, w, "others_tokens", 5000*ranks)
			wantAmount(t, w, "own_tokens", 700)
			wantAmount(t, w, "kv_tokens_over", 0)
			if w.Basis != Estimated {
				t.Errorf("%v", w)
			}
			if got := x.Learned.Others; got != 20 {
				t.Errorf("others have %v requests on a rank, want 20", got)
			}
		})
	}
}

func TestLeastWorkWithoutAnyReportGoesByItsOwn(t *testing.T) {
	table, workers := withDepths(t, silent, silent, silent)
	holdPrompt(t, workers[0], 100)
	holdPrompt(t, workers[1], 50)
	holdPrompt(t, workers[2], 51)
	if p := mustPick(t, leastWork1(table), Request{}); p.Worker != workers[1] || p.Basis != Local || p.Load != 1 {
		t.Errorf("%v, want b", p)
	}
}

func TestLeastWorkSharesWhatIsThereAmongRanksThatTheEngineChoosesFrom(t *testing.T) {
	table, _ := newTestTable()
	one := withRanks(t, table, "one", &load.Report{Running: 10, WaitingTokens: load.Known[int64](4000)})
	four := &load.Report{Running: 10, WaitingTokens: load.Known[int64](4000)}
	withRanks(t, table, "four", four, four, four, four)
	withRanks(t, table, "mute", nil, nil)
	holdPrompt(t, one, 0)
	x := explained(t, leastWork1(table), prompt(1000))
	// What is its own on the first has come after the report, which so tells of others only.
	wantCost(t, x.of(t, "one"), 50*time.Microsecond*5000+2*time.Millisecond*12)
	wantCost(t, x.of(t, "four"), 50*time.Microsecond*5000+2*time.Millisecond*11)
	wantCost(t, x.of(t, "mute"), 50*time.Microsecond*5000+2*time.Millisecond*11)
	wantAmount(t, x.of(t, "four"), "others_tokens", 16_000)
	wantAmount(t, x.of(t, "mute"), "others_tokens", 8000)
}

func TestLeastWorkTakesAnyPromptThatAHostMayCountInErrorAndStillChoosesTheLeast(t *testing.T) {
	for _, tokens := range []int64{0, -1, -1_000_000_000, math.MinInt64, 1 << 31, 1 << 47, 1 << 53, math.MaxInt64} {
		for _, restricted := range []bool{false, true} {
			table, clock := newTestTable()
			workers := []*load.Worker{table.Add("a", ""), table.Add("b", ""), table.Add("c", "")}
			r := prompt(tokens)
			if restricted {
				r.Candidates = workers
			}
			s := leastWork1(table)
			for range 20 {
				clock.advance(modelFor)
				for i, w := range workers {
					mustPut(t, w, 0, load.Report{
						Running: 10, WaitingTokens: load.Known(int64(i) * 1000),
						KVUsage: load.Known(0.5), KVCapacity: load.Known[int64](100_000),
					})
				}
				p, err := s.Pick(r)
				if err != nil {
					t.Fatal(err)
				}
				if p.Worker != workers[0] || p.Wait <= 0 {
					t.Fatalf("a prompt of %d tokens: %v, want a", tokens, p)
				}
				if pending := p.Worker.Own().PendingTokens; pending < 0 || pending > 1<<31 {
					t.Fatalf("a prompt of %d tokens is booked with %d", tokens, pending)
				}
				p.Done()
			}
			for _, w := range explained(t, s, r).Workers {
				for _, term := range w.Terms {
					if term.Cost < 0 || term.Amount < 0 || math.IsNaN(term.Amount) {
						t.Errorf("a prompt of %d tokens: %v", tokens, w)
					}
				}
			}
		}
	}
}

func TestLeastWorkIsNotSpoiltByAnEngineThatHasLostCount(t *testing.T) {
	// Seven have reported one after another, the least loaded first.
	fill := func(table *load.Table, clock *clock, absurd *load.Report) {
		for i := range 8 {
			w := table.Add(name(i), "")
			w.Advertise(1)
			r := load.Report{Running: int64(4 + 2*i), Waiting: int64(i), WaitingTokens: load.Known(int64(2000 * i))}
			if i == 5 {
				if absurd == nil {
					continue
				}
				r = *absurd
			}
			if err := w.Put(0, r); err != nil {
				panic(err)
			}
			clock.advance(12 * time.Millisecond)
		}
	}
	table, clock := newTestTable()
	fill(table, clock, nil)
	honest := explained(t, New(table, Config{}), prompt(500))
	if honest.Workers[0].ID != "a" {
		t.Fatalf("without it:\n%v", honest)
	}
	for _, claim := range []load.Report{
		{Running: 4, WaitingTokens: load.Known[int64](1 << 62)},
		{Running: 4, WaitingTokens: load.Known[int64](math.MaxInt32)},
		{Running: 4, WaitingTokens: load.Known[int64](5_000_000)},
		{Running: math.MaxInt64, Waiting: math.MaxInt64},
		{Running: 1 << 40, Waiting: 1 << 20, WaitingTokens: load.Known[int64](1 << 40)},
		{Running: 4, Waiting: 1 << 31},
		{Running: 4, KVUsage: load.Known(1.0), KVCapacity: load.Known[int64](1), WaitingTokens: load.Known[int64](1 << 62)},
		{Running: 4, KVUsage: load.Known(0.1), KVCapacity: load.Known[int64](1000), Waiting: 1 << 62},
	} {
		table, clock := newTestTable()
		fill(table, clock, &claim)
		x := explained(t, New(table, Config{}), prompt(500))
		if w := x.Workers[0]; w.ID != "a" {
			t.Errorf("one claims %s:\n%v", must(json.Marshal(claim)), x)
		}
		if w := x.Workers[len(x.Workers)-1]; w.ID != "f" || w.Load > 1<<20 {
			t.Errorf("one claims %s, and is not the last choice:\n%v", must(json.Marshal(claim)), x)
		}
		if f := x.of(t, "f"); claim.KVUsage.IsKnown() && (f.amount("kv_tokens_over") < 1<<30 || f.amount("kv_tokens_over") > 1<<32) {
			t.Errorf("one claims %s, which is %v tokens too many", must(json.Marshal(claim)), f.amount("kv_tokens_over"))
		}
		// And who is known to be busy still looks busy.
		if before, after := honest.of(t, "h").Cost-honest.of(t, "a").Cost, x.of(t, "h").Cost-x.of(t, "a").Cost; after < before/2 {
			t.Errorf("one claims %s: the busiest is worse than the best by %v, and without it by %v", must(json.Marshal(claim)), after, before)
		}
	}
}

func TestWorkersThatAreJustBusierThanOthersCountInFullForTheMean(t *testing.T) {
	for _, c := range []struct {
		requests, tokens [4]int64
		want             [2]float64
	}{
		{[4]int64{10, 10, 10, 38}, [4]int64{3000, 3000, 3000, 19_000}, [2]float64{17, 7000}},
		{[4]int64{0, 0, 0, 8}, [4]int64{0, 0, 0, 8000}, [2]float64{2, 2000}},
		{[4]int64{0, 0, 40, 40}, [4]int64{0, 0, 50_000, 50_000}, [2]float64{20, 25_000}},
	} {
		table, _ := newTestTable()
		for i := range 4 {
			mustPut(t, table.Add(name(i), "").Advertise(1), 0, load.Report{Running: c.requests[i], WaitingTokens: load.Known(c.tokens[i])})
		}
		table.Add("mute", "")
		w := explained(t, leastWork1(table), Request{}).of(t, "mute")
		wantAmount(t, w, "others_requests", c.want[0])
		wantAmount(t, w, "others_tokens", c.want[1])
	}
	// Who is not to be picked takes no part in it.
	table, _ := newTestTable()
	for i, running := range []int64{4, 6, 30, 40} {
		w := table.Add(name(i), "")
		mustPut(t, w.Advertise(1), 0, load.Report{Running: running})
		switch i {
		case 2:
			w.SetAside()
		case 3:
			w.SetHealthy(false)
		}
	}
	if got := explained(t, leastWork1(table), Request{}).Learned.Others; got != 5 {
		t.Errorf("the mean of 4 and 6 is %v", got)
	}
	// Of two, either may be right.
	table, _ = newTestTable()
	mustPut(t, table.Add("a", "").Advertise(1), 0, load.Report{})
	mustPut(t, table.Add("b", "").Advertise(1), 0, load.Report{Running: 300})
	if got := explained(t, leastWork1(table), Request{}).Learned.Others; got != 150 {
		t.Errorf("the mean of 0 and 300 is %v", got)
	}
}

func TestRequestsThatWaitAreTakenForMeanPromptsOnAWireWithoutTheirTokens(t *testing.T) {
	table, clock := newTestTable()
	a := table.Add("a", "")
	a.Advertise(1)
	s := leastWork1(table)
	for range 500 {
		clock.advance(modelFor)
		must(s.Pick(prompt(300))).Done()
	}
	mustPut(t, a, 0, load.Report{Running: 5, Waiting: 2})
	clock.advance(modelFor)
	about(t, "what waits", explained(t, s, prompt(300)).of(t, "a").amount("others_tokens"), 600, 0.01)
}

func TestAnEngineThatHasLostCountDoesNotMakeUpGateways(t *testing.T) {
	table, workers := withDepths(t, 0, 0, 0, 0)
	for _, w := range workers {
		hold(t, w, 10)
	}
	for i, w := range workers {
		r := load.Report{Running: 20}
		if i == 2 {
			r.Running = 1 << 50
		}
		mustPut(t, w, 0, r)
	}
	if got := explained(t, New(table, Config{}), Request{}).Learned.Replicas; got < 2 || got > 5 {
		t.Errorf("there seem to be %v gateways, want a few", got)
	}
}

func TestLeastWorkTellsHowManyGatewaysThereAreByItsShareOfTheLoad(t *testing.T) {
	for _, c := range []struct {
		own, depth int64
		want       float64
	}{{10, 10, 1}, {10, 20, 2}, {10, 160, 16}, {10, 7, 1}, {0, 50, 1}} {
		table, workers := withDepths(t, 0, 0, silent)
		for _, w := range workers { // as much on the one that tells nothing
			hold(t, w, int(c.own))
		}
		for _, w := range workers[:2] {
			mustPut(t, w, 0, load.Report{Running: c.depth})
		}
		x := explained(t, New(table, Config{}), Request{})
		if got := x.Learned.Replicas; got != c.want {
			t.Errorf("%d of %d are ours: there seem to be %v gateways, want %v", c.own, c.depth, got, c.want)
		}
		if got := explained(t, New(table, Config{Peers: replica(0, 3)}), Request{}).Learned.Replicas; got != 3 {
			t.Errorf("there are 3 gateways, which are taken for %v", got)
		}
	}
}

func TestLeastWorkSeesThatAKVCacheIsGoingToBeFull(t *testing.T) {
	// From 95 % on an engine lets requests wait. A cache that would have to be twice as
	// large costs half a response, of which 5 s is the guess of who has not seen any.
	full := func(share float64) time.Duration { return time.Duration(share * 2.5 * float64(time.Second)) }
	capacity := load.Known[int64](100_000)
	for _, c := range []struct {
		name   string
		before int64 // own tokens that were picked before the report
		report load.Report
		since  int64 // and after it
		prompt int64
		over   float64 // tokens
		cost   time.Duration
	}{
		{name: "there is room", report: load.Report{KVUsage: load.Known(0.9), KVCapacity: capacity}, prompt: 4990},
		{name: "a little too long", report: load.Report{KVUsage: load.Known(0.9), KVCapacity: capacity}, prompt: 5010, over: 10, cost: full(1e-4)},
		{name: "a long prompt", report: load.Report{KVUsage: load.Known(0.9), KVCapacity: capacity}, prompt: 9000, over: 4000, cost: full(0.04)},
		{name: "what has been sent since", report: load.Report{KVUsage: load.Known(0.9), KVCapacity: capacity}, since: 3000, prompt: 6000, over: 4000, cost: full(0.04)},
		{name: "what had been sent before is in the report", before: 3000, report: load.Report{Running: 1, KVUsage: load.Known(0.9), KVCapacity: capacity}, prompt: 9000, over: 4000, cost: full(0.04)},
		{name: "what waits needs room too", report: load.Report{KVUsage: load.Known(0.9), KVCapacity: capacity, Waiting: 1, WaitingTokens: load.Known[int64](1500)}, prompt: 4500, over: 1000, cost: full(0.01)},
		{name: "what waits, by the mean prompt", report: load.Report{KVUsage: load.Known(0.93), KVCapacity: capacity, Waiting: 2}, prompt: 1000, over: 1000, cost: full(0.01)},
		{name: "full", report: load.Report{KVUsage: load.Known(1.0), KVCapacity: capacity}, prompt: 1000, over: 6000, cost: full(0.06)},
		{name: "used and capacity make the usage", report: load.Report{KVUsed: load.Known[int64](100_000), KVCapacity: capacity}, prompt: 1000, over: 6000, cost: full(0.06)},
		{name: "full, in pages", report: load.Report{KVUsage: load.Known(1.0), KVCapacity: capacity, Source: load.SourceBatch}, prompt: 90_000, cost: full(0.05)},
		{name: "full, of unknown capacity", report: load.Report{KVUsage: load.Known(1.0)}, prompt: 90_000, cost: full(0.05)},
		{name: "not full, of unknown capacity", report: load.Report{KVUsage: load.Known(0.94)}, prompt: 90_000},
		{name: "of unknown usage", report: load.Report{KVCapacity: capacity}, prompt: 90_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, _ := newTestTable()
			a := table.Add("a", "")
			a.Advertise(1)
			if c.before > 0 {
				holdPrompt(t, a, c.before).FirstToken()
			}
			mustPut(t, a, 0, c.report)
			if c.since > 0 {
				holdPrompt(t, a, c.since).FirstToken()
			}
			w := explained(t, leastWork1(table), prompt(c.prompt)).of(t, "a")
			if got := w.amount("kv_tokens_over"); math.Abs(got-c.over) > 1 { // it is rounded
				t.Errorf("%v tokens over, want %v", got, c.over)
			}
			var got time.Duration
			for _, term := range w.Terms {
				if term.Name == "kv_tokens_over" || term.Name == "kv_full" {
					got += term.Cost
				}
			}
			if diff := got - c.cost; diff.Abs() > full(1.0/100_000) {
				t.Errorf("that costs %v, want %v: %v", got, c.cost, w)
			}
		})
	}
}

func TestLeastWorkAvoidsAKVCacheThatIsFull(t *testing.T) {
	table, _ := newTestTable()
	for _, id := range []string{"full", "pages", "free"} {
		usage, source, running := 1.0, load.SourcePush, int64(2)
		switch id {
		case "free":
			usage, running = 0.3, 20
		case "pages":
			source = load.SourceBatch
		}
		mustPut(t, table.Add(id, "").Advertise(1), 0, load.Report{Running: running, KVUsage: load.Known(usage), KVCapacity: load.Known[int64](50_000), Source: source})
	}
	if p := mustPick(t, leastWork1(table), prompt(500)); p.Worker.ID() != "free" {
		t.Errorf("%v, want the one with room", p)
	}
}
