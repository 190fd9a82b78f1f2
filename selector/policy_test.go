package selector

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

func TestEveryPolicyIsMadeFromItsName(t *testing.T) {
	want := []string{CacheAwareName, LeastDepthName, LeastRequestName, PowerOfTwoName, RandomName, RoundRobinName}
	names := PolicyNames()
	for _, name := range want {
		if !slices.Contains(names, name) {
			t.Errorf("there is no policy %s", name)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("the names are not sorted: %v", names)
	}
	for _, name := range names {
		for _, config := range []string{"", " \n\t", "{}", " {} \n", "null"} {
			p, err := NewPolicy(name, []byte(config))
			if err != nil || p.Name() != name {
				t.Errorf("NewPolicy(%q, %q): %v, %v", name, config, p, err)
			}
		}
	}
}

func TestAPolicyThatIsMadeFromItsNameHasItsDefaults(t *testing.T) {
	for name, want := range map[string]Policy{
		RandomName:       Random(),
		PowerOfTwoName:   PowerOfTwo(),
		RoundRobinName:   RoundRobin(),
		LeastRequestName: LeastRequest(LeastRequestConfig{}),
		LeastDepthName:   LeastDepth(LeastDepthConfig{}),
		CacheAwareName:   CacheAware(CacheAwareConfig{}),
	} {
		got, err := NewPolicy(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if reflect.TypeOf(got) != reflect.TypeOf(want) {
			t.Errorf("%s is a %T, want a %T", name, got, want)
		}
	}
	p, err := NewPolicy(CacheAwareName, []byte(`{"match_threshold": null, "balance_abs": null}`))
	if err != nil {
		t.Fatal(err)
	}
	if c := p.(*cacheAware); c.threshold != 0.5 || c.abs != 32 || c.rel != 1.1 || c.ties != TiesRandom {
		t.Errorf("the defaults are %v, %v, %v, %v", c.threshold, c.abs, c.rel, c.ties)
	}
}

func TestAPolicyTakesItsConfigurationFromJSON(t *testing.T) {
	p, err := NewPolicy(CacheAwareName, []byte(`{"match_threshold":0,"balance_abs":0,"balance_rel":2.5,"ties":"rotate"}`))
	if err != nil {
		t.Fatal(err)
	}
	if c := p.(*cacheAware); c.threshold != 0 || c.abs != 0 || c.rel != 2.5 || c.ties != TiesRotate {
		t.Errorf("it has %v, %v, %v, %v", c.threshold, c.abs, c.rel, c.ties) // a given 0 is not the default
	}
	for _, name := range []string{LeastRequestName, LeastDepthName, CacheAwareName} {
		for _, ties := range []string{"random", "rotate"} {
			if _, err := NewPolicy(name, []byte(`{"ties":"`+ties+`"}`)); err != nil {
				t.Errorf("%s with ties %s: %v", name, ties, err)
			}
		}
	}
}

func TestABadConfigurationIsRefusedAndSaysWhatIsWrong(t *testing.T) {
	for _, tt := range []struct{ name, config, part string }{
		{LeastDepthName, `{`, ""},
		{LeastDepthName, `[]`, ""},
		{LeastDepthName, `"ties"`, ""},
		{LeastDepthName, `7`, ""},
		{LeastDepthName, `{"tie":"random"}`, `"tie"`},
		{LeastDepthName, `{"ties":"fair"}`, `"fair"`},
		{LeastDepthName, `{"ties":1}`, ""},
		{LeastDepthName, `{"balance_abs":1}`, `"balance_abs"`}, // another policy's
		{LeastDepthName, `{}{}`, ""},
		{LeastDepthName, `{}}`, ""},
		{LeastDepthName, `{}]`, ""},
		{LeastDepthName, `{} x`, ""},
		{RoundRobinName, `{"ties":"random"}`, `"ties"`}, // it has none
		{RandomName, `{"seed":1}`, `"seed"`},
		{PowerOfTwoName, `{"d":2}`, `"d"`},
		{CacheAwareName, `{"match_threshold":-0.1}`, "match_threshold"},
		{CacheAwareName, `{"match_threshold":1.1}`, "match_threshold"},
		{CacheAwareName, `{"match_threshold":"0.5"}`, "match_threshold"},
		{CacheAwareName, `{"match_threshold":NaN}`, ""},
		{CacheAwareName, `{"match_threshold":1e999}`, ""},
		{CacheAwareName, `{"balance_abs":-1}`, "balance_abs"},
		{CacheAwareName, `{"balance_abs":0.5}`, "balance_abs"},
		{CacheAwareName, `{"balance_abs":9223372036854775808}`, "balance_abs"},
		{CacheAwareName, `{"balance_rel":0.99}`, "balance_rel"},
		{CacheAwareName, `{"balance_rel":-2}`, "balance_rel"},
	} {
		p, err := NewPolicy(tt.name, []byte(tt.config))
		if !errors.Is(err, ErrBadConfig) || p != nil {
			t.Errorf("%s with %s: %v, %v", tt.name, tt.config, p, err)
			continue
		}
		if errors.Is(err, ErrUnknownPolicy) || !strings.Contains(err.Error(), tt.name) || !strings.Contains(err.Error(), tt.part) {
			t.Errorf("%s with %s: the error is %q, want %q and %q in it", tt.name, tt.config, err, tt.name, tt.part)
		}
	}
}

func TestAnUnknownPolicyIsRefusedWithASuggestion(t *testing.T) {
	for name, suggestion := range map[string]string{
		"round-robin":       `did you mean "round_robin"`,
		"RoundRobin":        `did you mean "round_robin"`,
		"LEAST REQUEST":     `did you mean "least_request"`,
		"power_of_two_v2":   `did you mean "power_of_two"`,
		"cache":             `did you mean "cache_aware"`,
		"p2c":               `did you mean "power_of_two"`,
		"":                  "",
		"magic":             "",
		"least_request\x00": `did you mean "least_request"`,
	} {
		p, err := NewPolicy(name, nil)
		if !errors.Is(err, ErrUnknownPolicy) || errors.Is(err, ErrBadConfig) || p != nil {
			t.Errorf("%q: %v, %v", name, p, err)
			continue
		}
		text := err.Error()
		if !strings.Contains(text, suggestion) || suggestion == "" && strings.Contains(text, "did you mean") {
			t.Errorf("%q: the error is %q, want %q in it", name, text, suggestion)
		}
		for _, have := range PolicyNames() {
			if !strings.Contains(text, have) {
				t.Errorf("%q: the error does not list %s: %q", name, have, text)
			}
		}
	}
}

// hosted is a host's own policy.
type hosted struct {
	name   string
	calls  atomic.Int64
	choose func(d *Decision) Choice
}

func (p *hosted) Name() string { return p.name }

func (p *hosted) Choose(d *Decision) Choice {
	p.calls.Add(1)
	return p.choose(d)
}

func TestAHostsPolicySeesWhatThePackagesOwnSee(t *testing.T) {
	table, workers := withDepths(t, 3, silent, 9, 0)
	workers[3].SetHealthy(false)
	var request Request
	policy := &hosted{name: "host", choose: func(d *Decision) Choice {
		request = d.Request
		if d.Len() != 2 || d.View().Len() != 3 {
			t.Errorf("%d candidates of %d", d.Len(), d.View().Len())
		}
		if a, c := d.Entry(0), d.Entry(1); a.Worker() != workers[0] || c.Worker() != workers[2] || a.Depth() != 3 || !c.Trusted() {
			t.Error("the candidates are others")
		}
		if n := d.Random(); n != 42 {
			t.Errorf("the random number is %d", n)
		}
		if c := d.Local(1); c.Basis != Local || c.Load != 0 || c.index != 1 {
			t.Errorf("locally the second is %+v", c)
		}
		return Choice{Candidate: d.Candidate(1), Reason: LeastLoaded}
	}}
	s := New(table, Config{Policy: policy, Rand: fixed(42)})
	p := mustPick(t, s, Request{ID: "session-7", Filter: func(w *load.Worker) bool { return w != workers[1] }})
	if p.Worker != workers[2] || p.Policy != "host" || p.Load != 9 || p.Basis != Engine || request.ID != "session-7" || policy.calls.Load() != 1 {
		t.Errorf("%v, after %d calls for %q", p, policy.calls.Load(), request.ID)
	}
}

func TestAHostsPolicyThatMakesItsCandidateItselfStillPicks(t *testing.T) {
	table, workers := withDepths(t, 0, 0)
	policy := &hosted{name: "host", choose: func(d *Decision) Choice { return Choice{Candidate: Candidate{index: 1}} }}
	s := New(table, Config{Policy: policy})
	for i := range 5 {
		if p := mustPick(t, s, Request{}); p.Worker != workers[1] || workers[1].InFlight() != int64(i+1) {
			t.Fatalf("%v, %d in flight", p, workers[1].InFlight())
		}
	}
	if n := policy.calls.Load(); n > 5*maxTries {
		t.Errorf("it was asked %d times for five picks", n)
	}
}

func TestAChoiceIsMadeAgainIfAnotherPickTookTheWorkerMeanwhile(t *testing.T) {
	table, workers := withDepths(t, 0, 0)
	rivals := 0
	policy := &hosted{name: "host", choose: func(d *Decision) Choice {
		best := d.Candidate(0)
		if c := d.Candidate(1); c.Load < best.Load {
			best = c
		}
		if rivals > 0 { // the other pick comes in between choosing and counting
			rivals--
			hold(t, d.Entry(int(best.index)).Worker(), 1)
		}
		return Choice{Candidate: best}
	}}
	s := New(table, Config{Policy: policy})
	rivals = 1
	if p := mustPick(t, s, Request{}); p.Worker != workers[1] || policy.calls.Load() != 2 || p.Load != 0 {
		t.Errorf("after one rival on a: %v at %d calls, want b at 2", p, policy.calls.Load())
	}
	if a, b := workers[0].InFlight(), workers[1].InFlight(); a != 1 || b != 1 {
		t.Errorf("%d and %d in flight, want one each", a, b)
	}

	// Rivals without end: it gives up being exact, and is counted once all the same.
	policy.calls.Store(0)
	rivals = 1000
	mustPick(t, s, Request{})
	if n := policy.calls.Load(); n != maxTries {
		t.Errorf("it was asked %d times, want %d", n, maxTries)
	}
	if sum := workers[0].InFlight() + workers[1].InFlight(); sum != 2+maxTries+1 {
		t.Errorf("%d in flight, want %d", sum, 2+maxTries+1)
	}
}

func TestABlindChoiceIsNotMadeAgain(t *testing.T) {
	table, workers := withDepths(t, 0, 0)
	policy := &hosted{name: "host", choose: func(d *Decision) Choice {
		c := d.Candidate(0)
		hold(t, workers[0], 1)
		return Choice{Candidate: c, Blind: true}
	}}
	if p := mustPick(t, New(table, Config{Policy: policy}), Request{}); p.Worker != workers[0] || policy.calls.Load() != 1 || workers[0].InFlight() != 2 {
		t.Errorf("%v after %d calls, %d in flight", p, policy.calls.Load(), workers[0].InFlight())
	}
}

func TestAPinIsNoPolicysBusiness(t *testing.T) {
	table, workers := withDepths(t, 0, 0)
	policy := &hosted{name: "host", choose: func(*Decision) Choice { panic("asked") }}
	if p := mustPick(t, New(table, Config{Policy: policy}), Request{Worker: workers[1]}); p.Worker != workers[1] {
		t.Errorf("%v", p)
	}
}

func TestReasonsHaveNames(t *testing.T) {
	for r, want := range map[Reason]string{
		Turn: "turn", Chance: "chance", LeastLoaded: "least_loaded", LessLoaded: "less_loaded_of_two",
		Imbalance: "imbalance", NoMatch: "no_match", PrefixOwner: "prefix_owner", Pinned: "pinned", 0: "unknown",
	} {
		if b, err := r.MarshalText(); err != nil || string(b) != want {
			t.Errorf("reason %d is %s (%v), want %s", r, b, err, want)
		}
	}
}
