package selector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

func (x *Explanation) outOf(t testing.TB, id string) Out { t.Helper(); return x.of(t, id).Out }

// wantSound checks what holds for every explanation of a pick.
func wantSound(t testing.TB, p Pick, x *Explanation, table *load.Table) {
	t.Helper()
	type place struct {
		w    *load.Worker
		rank int
	}
	seen := make(map[place]bool)
	workers := make(map[*load.Worker]bool)
	for i, w := range x.Workers {
		if at := (place{w.Worker, w.Rank}); seen[at] {
			t.Errorf("%s, rank %d, is there twice", w.ID, w.Rank)
		} else {
			seen[at] = true
		}
		workers[w.Worker] = true
		var sum time.Duration
		for _, term := range w.Terms {
			sum += term.Cost
			if term.Name == "" || term.Cost < 0 || term.Amount <= 0 {
				t.Errorf("%s has a term %+v", w.ID, term)
			}
		}
		if sum != w.Cost {
			t.Errorf("%s costs %v, and its terms %v", w.ID, w.Cost, sum)
		}
		if w.ID != w.Worker.ID() || w.Chosen != (i == 0) {
			t.Errorf("at %d: %+v", i, w)
		}
		if w.Out != Compared && (w.Cost != 0 || w.Basis != None || w.Terms != nil) {
			t.Errorf("%s is out, and has %+v", w.ID, w)
		}
		if i > 0 && w.Out == Compared && x.Workers[i-1].Out != Compared {
			t.Errorf("%s comes after some that were not compared", w.ID)
		}
		if i > 0 && x.Workers[i-1].Out != Compared {
			if before := x.Workers[i-1]; w.Out < before.Out || w.Out == before.Out && w.ID < before.ID {
				t.Errorf("%s (%v) comes after %s (%v)", w.ID, w.Out, before.ID, before.Out)
			}
		}
		if i > 1 && w.Out == Compared && w.Cost < x.Workers[i-1].Cost {
			t.Errorf("%s comes after one that costs more", w.ID)
		}
	}
	for _, w := range table.Workers() {
		if !workers[w] {
			t.Errorf("%s is missing", w.ID())
		}
	}
	if x.Err != nil || x.Tries < 1 || x.Reason != p.Reason || x.Policy != p.Policy {
		t.Errorf("of %v: %v", p, x)
	}
	chosen := x.Workers[0]
	if chosen.Out != Compared || chosen.Worker != p.Worker || chosen.Basis != p.Basis || chosen.Load != p.Load {
		t.Errorf("%v is explained as %v", p, chosen)
	}
	if p.Policy != LeastWorkName {
		return
	}
	// What is compared is a float of seconds; each of at most ten terms is rounded to ns.
	if diff := p.Wait - chosen.Cost; diff.Abs() > 10 {
		t.Errorf("%v was compared by %v, and is explained by %v", p, p.Wait, chosen)
	}
	for _, w := range x.Workers {
		if w.Out == Compared && w.Cost < chosen.Cost-10 {
			t.Errorf("%v was chosen, and is less than\n%v", w, chosen)
		}
	}
	if x.Learned == nil {
		t.Errorf("%s does not say what it has learned", p.Policy)
	}
}

func TestAnExplanationOfLeastWorkSaysWhatWasCompared(t *testing.T) {
	// Whatever the fleet, the request and the replica.
	for seed := range uint64(fewer(300)) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		table, clock := newTestTable()
		ranks := rnd.IntN(3) == 0
		maybe := func(n int64) load.Maybe[int64] {
			if rnd.IntN(3) == 0 {
				return load.Maybe[int64]{}
			}
			return load.Known(rnd.Int64N(n))
		}
		var workers []*load.Worker
		for i := range 1 + rnd.IntN(90) {
			w := table.Add(fmt.Sprintf("w%03d", rnd.IntN(1000)*100+i), "")
			workers = append(workers, w)
			if rnd.IntN(8) == 0 {
				continue
			}
			f := w.Advertise(1 + rnd.IntN(3))
			for rank := range f.Ranks() {
				r := load.Report{Running: rnd.Int64N(50), Waiting: rnd.Int64N(5), WaitingTokens: maybe(20_000), KVCapacity: maybe(100_000)}
				if rnd.IntN(3) > 0 {
					r.KVUsage = load.Known(rnd.Float64())
				}
				mustPut(t, f, rank, r)
				for range rnd.IntN(3) {
					k := w.Reserve(rnd.IntN(3)-1, rnd.Int64N(10_000))
					t.Cleanup(k.Done)
					if rnd.IntN(2) == 0 {
						k.Dispatched()
					}
				}
			}
			if rnd.IntN(20) == 0 {
				w.SetAside()
			}
			clock.advance(time.Duration(rnd.IntN(100)) * time.Millisecond)
		}
		peers := 1 + rnd.IntN(6)
		s := New(table, Config{
			Policy: LeastWork(LeastWorkConfig{Ranks: ranks}), Rand: seeded(seed),
			Peers: replica(rnd.IntN(peers+1)%peers, peers*rnd.IntN(2)), // or unknown
		})
		for range 4 {
			r := Request{PromptTokens: maybe(30_000), Unstreamed: rnd.IntN(4) == 0}
			some := []*load.Worker{workers[rnd.IntN(len(workers))], workers[rnd.IntN(len(workers))], workers[0]}
			switch rnd.IntN(6) {
			case 0:
				r.Candidates = some
			case 1:
				r.Filter = func(w *load.Worker) bool { return w.ID() >= some[0].ID() }
			case 2:
				r.Rank = load.Known(rnd.IntN(2))
			}
			for _, w := range some[:rnd.IntN(3)] {
				r.Prefix = append(r.Prefix, PrefixMatch{w, rnd.Int64N(20_000) - 100})
			}
			before := make(map[*load.Worker]load.Own)
			for _, w := range workers {
				before[w] = w.Own()
			}
			p, x, err := s.PickExplained(r)
			if errors.Is(err, ErrNoCandidates) {
				continue
			} else if err != nil {
				t.Fatal(err)
			}
			wantSound(t, p, x, table)
			if x.PromptTokens != r.PromptTokens || p.Worker.InFlight() != before[p.Worker].InFlight+1 {
				t.Errorf("%v, %v", p, x)
			}
			if !ranks {
				for _, w := range x.Workers {
					if w.Out == Compared {
						wantAmount(t, w, "own_requests", float64(before[w.Worker].InFlight))
						wantAmount(t, w, "own_tokens", float64(before[w.Worker].PendingTokens))
					}
				}
			}
			if t.Failed() {
				t.Fatalf("seed %d, %+v:\n%v\n%v", seed, r, p, x)
			}
			t.Cleanup(p.Done)
		}
	}
}

func TestAnExplanationNamesAWorkerWithAPrefixOnce(t *testing.T) {
	table, workers := withDepths(t, 5, 5, 5)
	r := prompt(1000)
	r.Prefix = []PrefixMatch{{workers[1], 900}, {workers[2], 0}}
	p, x, err := leastWork1(table).PickExplained(r)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Done()
	wantSound(t, p, x, table)
	wantAmount(t, x.of(t, "a"), "prompt_tokens", 1000)
	wantAmount(t, x.of(t, "b"), "prompt_tokens", 100)
	wantAmount(t, x.of(t, "c"), "prompt_tokens", 1000)
}

func TestAnExplanationSaysWhyAWorkerWasNotCompared(t *testing.T) {
	table, _ := newTestTable()
	add := func(id string, ranks int) *load.Worker {
		w := table.Add(id, "")
		w.Advertise(ranks)
		return w
	}
	ill, aside := add("ill", 1), add("aside", 2)
	one, two, three := add("one", 2), add("two", 1), add("three", 2)
	ill.SetHealthy(false)
	aside.SetAside()
	every := func(*load.Worker) bool { return true }
	for _, c := range []struct {
		name string
		r    Request
		out  map[string]Out // those that are not named are compared
	}{
		{"all", Request{}, map[string]Out{}},
		{"pinned", Request{Worker: two}, map[string]Out{"aside": NotListed, "one": NotListed, "three": NotListed}},
		{"pinned to one that is set aside", Request{Worker: aside}, map[string]Out{"aside": Compared, "one": NotListed, "two": NotListed, "three": NotListed}},
		{"pinned, so nothing else counts", Request{Worker: two, Exclude: []*load.Worker{two, one}, Candidates: []*load.Worker{one}}, map[string]Out{"aside": NotListed, "one": NotListed, "three": NotListed}},
		{"listed", Request{Candidates: []*load.Worker{one, three, aside}}, map[string]Out{"two": NotListed}},
		{"excluded", Request{Exclude: []*load.Worker{one}}, map[string]Out{"one": IsExcluded}},
		{"listed and excluded", Request{Candidates: []*load.Worker{one, two}, Exclude: []*load.Worker{one}}, map[string]Out{"one": IsExcluded, "three": NotListed, "aside": NotListed}},
		{"filtered", Request{Filter: func(w *load.Worker) bool { return w == two }}, map[string]Out{"one": FilteredOut, "three": FilteredOut}},
		{"of a rank", Request{Rank: load.Known(1)}, map[string]Out{"two": LacksRank}},
		{"of any rank", Request{Rank: load.Known(load.NoRank)}, map[string]Out{}},
		{"aside, since one other is left", Request{Filter: every, Exclude: []*load.Worker{one, two}}, map[string]Out{"one": IsExcluded, "two": IsExcluded}},
		{"none but who is aside is left", Request{Exclude: []*load.Worker{one, two, three}}, map[string]Out{"one": IsExcluded, "two": IsExcluded, "three": IsExcluded, "aside": Compared}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, x, err := leastWork1(table).PickExplained(c.r)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Done()
			for _, id := range []string{"ill", "aside", "one", "two", "three"} {
				want, named := c.out[id]
				switch {
				case id == "ill":
					want = NotHealthy
				case id == "aside" && !named:
					want = IsSetAside
				}
				if got := x.outOf(t, id); got != want {
					t.Errorf("%s: %v, want %v", id, got, want)
				}
			}
			if c.r.Worker == nil {
				wantSound(t, p, x, table)
			}
			if why := x.of(t, "ill").Why; why != load.NoFeed {
				t.Errorf("the reports of who is not healthy are %v", why)
			}
		})
	}
}

func TestAnExplanationTellsAFilterFromBeingSetAside(t *testing.T) {
	table, _ := newTestTable()
	one, two, three := table.Add("one", ""), table.Add("two", ""), table.Add("three", "")
	two.SetAside()
	three.SetAside()
	r := Request{Exclude: []*load.Worker{one}, Filter: func(w *load.Worker) bool { return w != three }}
	x := explained(t, leastWork1(table), r)
	if one, two, three := x.outOf(t, "one"), x.outOf(t, "two"), x.outOf(t, "three"); one != IsExcluded || two != Compared || three != FilteredOut {
		t.Errorf("%v, %v and %v: one that is set aside takes part, and so would the other if the filter had let it", one, two, three)
	}
}

func TestAnExplanationOfNoPickSaysWhereTheCandidatesWent(t *testing.T) {
	table, _ := newTestTable()
	s := leastWork1(table)
	_, x, err := s.PickExplained(prompt(7))
	if !errors.Is(err, ErrNoCandidates) || !errors.Is(x.Err, ErrNoCandidates) || len(x.Workers) != 0 || x.Tries != 0 || x.Reason != 0 || x.PromptTokens != load.Known[int64](7) {
		t.Errorf("%v: %+v", err, x)
	}
	if got, want := x.String(), "least_work: selector: no candidates: no worker is known, prompt of 7 tokens"; got != want {
		t.Errorf("it reads %q, want %q", got, want)
	}

	a, b, c, d := table.Add("a", ""), table.Add("b", ""), table.Add("c", ""), table.Add("d", "")
	a.SetHealthy(false)
	b.SetAside()
	_, x, err = s.PickExplained(Request{Exclude: []*load.Worker{c}, Filter: func(w *load.Worker) bool { return false }})
	if err == nil || x.Err != err {
		t.Fatal(err, x.Err)
	}
	for w, want := range map[*load.Worker]Out{a: NotHealthy, b: FilteredOut, c: IsExcluded, d: FilteredOut} {
		if got := x.outOf(t, w.ID()); got != want {
			t.Errorf("%s: %v, want %v", w.ID(), got, want)
		}
	}
	want := "least_work: " + err.Error() + ", prompt of unknown tokens\n  not_healthy: 1\n  excluded: 1\n  filtered_out: 2"
	if got := x.String(); got != want {
		t.Errorf("it reads\n%s\nwant\n%s", got, want)
	}
}

func TestAnExplanationSaysHowOftenTheChoiceWasMade(t *testing.T) {
	table, workers := withDepths(t, 0, 0)
	for rivals, want := range map[int]int{0: 1, 1: 2, 2: 3, 3: 4, 9: 4} {
		left := rivals
		s := New(table, Config{Policy: &hosted{name: "host", choose: func(d *Decision) Choice {
			c := d.Candidate(0)
			if left > 0 {
				left--
				workers[0].Reserve(load.NoRank, 0).Done()
			}
			d.Compared(c, load.NoRank, Term{"first", 1, 2}, Term{"second", 3, 4})
			return Choice{Candidate: c, Reason: Turn}
		}}})
		p, x, err := s.PickExplained(Request{})
		if err != nil {
			t.Fatal(err)
		}
		p.Done()
		wantSound(t, p, x, table)
		if x.Tries != want || len(x.Workers) != 2 || x.Workers[0].Cost != 6 || len(x.Workers[0].Terms) != 2 || x.Workers[1].Out != NotDrawn {
			t.Errorf("%d rivals: %v", rivals, x)
		}
		if says := strings.Contains(x.String(), fmt.Sprintf("at the %d. try", want)); says != (want > 1) {
			t.Errorf("%d rivals: %v", rivals, x)
		}
	}
}

func TestAnExplanationOfEachPolicySaysWhatItCompared(t *testing.T) {
	for policy, want := range map[string]string{
		RoundRobinName:   "a 3, b 1, c 4, d 1",
		RandomName:       "a 3, b 1, c 4, d 1",
		LeastRequestName: "a 3, b 1, c 4, d 1",
		LeastDepthName:   "a 3, b 1, c 4, d 1",
		CacheAwareName:   "a 3, b 1, c 4, d 1",
		DPRankName:       "a 3, b 1, c 4, d 1",
		PowerOfTwoName:   "two",
		LeastWorkName:    "a 3, b 2, c 3, d 2",
	} {
		table, _ := withDepths(t, 3, 1, 4, 1)
		s := New(table, Config{Policy: must(NewPolicy(policy, nil)), Peers: alone})
		for range 20 {
			p, x, err := s.PickExplained(Request{})
			if err != nil {
				t.Fatal(err)
			}
			p.Done()
			var compared []string
			for _, w := range x.Workers {
				if w.Out == Compared {
					compared = append(compared, fmt.Sprintf("%s %d", w.ID, w.Load))
				}
				if w.Basis != Engine && w.Out == Compared {
					t.Errorf("%s: %v", policy, w)
				}
			}
			slices.Sort(compared)
			if got := strings.Join(compared, ", "); got != want && (want != "two" || len(compared) != 2) {
				t.Errorf("%s compared %s, want %s", policy, got, want)
			}
			if x.Workers[0].Worker != p.Worker || !x.Workers[0].Chosen || x.Policy != policy || x.Reason != p.Reason || x.Tries != 1 {
				t.Errorf("%v is explained as\n%v", p, x)
			}
			if (x.Learned != nil) != (policy == LeastWorkName) {
				t.Errorf("%s has learned %v", policy, x.Learned)
			}
		}
	}
}

func TestAnExplanationOfDPRankNamesRanks(t *testing.T) {
	table, _ := newTestTable()
	withRanks(t, table, "a", running(9), running(2))
	withRanks(t, table, "b", running(3), running(7))
	table.Add("c", "") // of unknown ranks
	p, x, err := dpRankSelector(table).PickExplained(Request{})
	if err != nil {
		t.Fatal(err)
	}
	p.Done()
	var got []string
	for _, w := range x.Workers {
		got = append(got, fmt.Sprintf("%s%d:%d", w.ID, w.Rank, w.Load))
	}
	if want := "[a1:2 b0:3 c-1:5 b1:7 a0:9]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestAPolicyOfAHostIsAskedToExplainItselfOnlyWhereSomebodyWantsToKnow(t *testing.T) {
	table, _ := withDepths(t, 3, 1)
	var asked []bool
	s := New(table, Config{Policy: &hosted{name: "host", choose: func(d *Decision) Choice {
		asked = append(asked, d.Explaining())
		d.Compared(d.Candidate(1), load.NoRank)
		return Choice{Candidate: d.Candidate(1), Reason: Turn}
	}}})
	mustPick(t, s, Request{})
	x := explained(t, s, Request{})
	mustPick(t, s, Request{})
	if want := []bool{false, true, false}; !slices.Equal(asked, want) {
		t.Errorf("it was asked %v, want %v", asked, want)
	}
	if x.of(t, "b").Out != Compared || x.of(t, "a").Out != NotDrawn || x.of(t, "b").Terms != nil {
		t.Errorf("%v", x)
	}
}

func TestAnExplanationMayBeKept(t *testing.T) {
	table, workers := withDepths(t, 3, 1, 4)
	s := leastWork1(table)
	x := explained(t, s, prompt(100))
	before, text := must(json.Marshal(x)), x.String()
	for i := range 50 {
		explained(t, s, Request{PromptTokens: load.Known(int64(i)), Candidates: workers[i%3:]})
	}
	table.Remove(workers[1])
	if after := must(json.Marshal(x)); !bytes.Equal(before, after) || x.String() != text {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
}

func TestAPickThatIsExplainedIsCountedOnce(t *testing.T) {
	anyPolicy(t, func(t *testing.T, policy Policy) {
		table, workers := withDepths(t, 0, 0, 0)
		s := New(table, Config{Policy: policy, Explain: func(*Explanation) {}, ExplainEvery: 1})
		for range 10 {
			p, _, err := s.PickExplained(prompt(10))
			if err != nil {
				t.Fatal(err)
			}
			mustPick(t, s, prompt(10))
			t.Cleanup(p.Done)
		}
		n, tokens := int64(0), int64(0)
		for _, w := range workers {
			n, tokens = n+w.InFlight(), tokens+w.Own().PendingTokens
		}
		if n != 20 || tokens != 200 {
			t.Errorf("20 picks count %d, with %d tokens", n, tokens)
		}
	})
}

func TestOnePickInSoManyIsExplained(t *testing.T) {
	for every, want := range map[int][2]int{1: {5000, 5000}, 2: {2300, 2700}, 10: {420, 580}, 0: {1, 15}, -5: {1, 15}} {
		table, workers := withDepths(t, 0, 0)
		n := 0
		var last *Explanation
		s := New(table, Config{Rand: seeded(9), ExplainEvery: every, Explain: func(x *Explanation) {
			n++
			last = x
			if workers[0].InFlight()+workers[1].InFlight() != 1 {
				t.Error("it is told of a pick that is not made")
			}
		}})
		for range 5000 {
			p, err := s.Pick(prompt(10))
			if err != nil {
				t.Fatal(err)
			}
			if every == 1 && (last.Workers[0].Worker != p.Worker || last.Reason != p.Reason) {
				t.Fatalf("%v is explained as %v", p, last)
			}
			p.Done()
		}
		if n < want[0] || n > want[1] {
			t.Errorf("one in %d: %d of 5000 are explained, want %d to %d", every, n, want[0], want[1])
		}
	}
}

func TestAPickThatFailsIsExplainedToo(t *testing.T) {
	table, _ := newTestTable()
	n := 0
	s := New(table, Config{ExplainEvery: 1, Explain: func(x *Explanation) {
		n++
		if !errors.Is(x.Err, ErrNoCandidates) {
			t.Errorf("the error is %v", x.Err)
		}
	}})
	if _, err := s.Pick(Request{}); err == nil || n != 1 {
		t.Errorf("%v, explained %d times", err, n)
	}
}

func TestAnExplanationReadsWell(t *testing.T) {
	table, clock := newTestTable()
	a, b := table.Add("a", ""), table.Add("b", "")
	table.Add("c", "").SetHealthy(false)
	holdPrompt(t, a, 600)
	mustPut(t, a.Advertise(1), 0, load.Report{Running: 3, WaitingTokens: load.Known[int64](1000)})
	clock.advance(250 * time.Millisecond)
	b.Advertise(1)
	p, x, err := leastWork1(table).PickExplained(prompt(1000))
	if err != nil {
		t.Fatal(err)
	}
	p.Done()
	want := `least_work: least_waiting, prompt of 1000 tokens
* b: load 2 (estimated), cost 76ms = 20ms others_tokens (400) + 50ms prompt_tokens (1000) + 4ms others_requests (2) + 2ms request (1), reports: never_reported
  a: load 3 (engine), cost 108ms = 30ms own_tokens (600) + 20ms others_tokens (400) + 50ms prompt_tokens (1000) + 2ms own_requests (1) + 4ms others_requests (2) + 2ms request (1), reported 250ms ago
  not_healthy: 1`
	if got := x.String(); got != want {
		t.Errorf("it reads\n%s\nwant\n%s", got, want)
	}
	if got := x.of(t, "c").String(); got != "  c: not_healthy" {
		t.Errorf("who is out reads %q", got)
	}
	if got := (Considered{ID: "a", Rank: 3, Load: 7, Basis: Local}).String(); got != "  a rank 3: load 7 (local)" {
		t.Errorf("a rank reads %q", got)
	}
}

func TestAnExplanationIsLogged(t *testing.T) {
	table, workers := withDepths(t, 9, 8, 7, 6, 5, 4)
	workers[0].SetHealthy(false)
	p, x, err := New(table, Config{Policy: LeastDepth(LeastDepthConfig{})}).PickExplained(prompt(50))
	if err != nil {
		t.Fatal(err)
	}
	p.Done()
	log := func(x *Explanation) string {
		var out bytes.Buffer
		slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})).Info("pick", "x", x)
		return strings.TrimSpace(out.String())
	}
	want := `level=INFO msg=pick x.policy=least_depth x.reason=least_loaded x.prompt_tokens=50 x.1="* f: load 4 (engine)" x.2="e: load 5 (engine)" x.3="d: load 6 (engine)" x.4="c: load 7 (engine)" x.compared=5 x.out.not_healthy=1`
	if got := log(x); got != want {
		t.Errorf("it is logged as\n%s\nwant\n%s", got, want)
	}
	_, x, err = New(load.NewTable(load.Config{}), Config{}).PickExplained(Request{})
	want = `level=INFO msg=pick x.policy=least_work x.reason="` + err.Error() + `" x.compared=0`
	if got := log(x); got != want {
		t.Errorf("no pick is logged as\n%s\nwant\n%s", got, want)
	}
}

func TestAnExplanationIsEncodedAsJSON(t *testing.T) {
	table, _ := withDepths(t, 3)
	table.Add("b", "").SetHealthy(false)
	x := explained(t, New(table, Config{Policy: LeastDepth(LeastDepthConfig{})}), prompt(50))
	x.Workers[0].Terms = []Term{{"own_tokens", 3, 150}}
	want := `{"policy":"least_depth","reason":"least_loaded","prompt_tokens":50,"tries":1,"workers":[` +
		`{"worker":"a","rank":-1,"chosen":true,"out":"compared","reports":"trusted","basis":"engine","load":3,"age_ns":0,"terms":[{"name":"own_tokens","amount":3,"cost_ns":150}]},` +
		`{"worker":"b","rank":-1,"chosen":false,"out":"not_healthy","reports":"no_feed","basis":"none","load":0,"age_ns":0}]}`
	if got := must(json.Marshal(x)); string(got) != want {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
	x = explained(t, leastWork1(table), Request{})
	var back map[string]any
	if err := json.Unmarshal(must(json.Marshal(x)), &back); err != nil {
		t.Fatal(err)
	}
	learned, ok := back["learned"].(map[string]any)
	if !ok || learned["per_token_ns"] != 50_000.0 || back["prompt_tokens"] != nil {
		t.Errorf("%v", back)
	}
	_, x, _ = New(load.NewTable(load.Config{}), Config{}).PickExplained(Request{})
	want = `{"policy":"least_work","prompt_tokens":null,"tries":0,"workers":null,"error":"` + x.Err.Error() + `"}`
	if got := must(json.Marshal(x)); string(got) != want {
		t.Errorf("no pick is\n%s\nwant\n%s", got, want)
	}
}

func TestAnOutHasAName(t *testing.T) {
	names := make(map[string]bool)
	for o := Compared; o <= NotDrawn; o++ {
		names[o.String()] = true
	}
	if len(names) != int(NotDrawn)+1 || names["unknown"] || Out(200).String() != "unknown" {
		t.Errorf("%v", names)
	}
}
