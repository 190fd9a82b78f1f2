package fleetsim_test

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
	"github.com/plimsoll-go/plimsoll/internal/fleetsim/trace"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// probe looks at each decision before another policy makes it.
type probe struct {
	selector.Policy
	look func(fleetsim.Gateway, *selector.Decision)
	at   fleetsim.Gateway
}

func (p probe) Choose(d *selector.Decision) selector.Choice {
	p.look(p.at, d)
	return p.Policy.Choose(d)
}

func probed(p fleetsim.Policy, look func(fleetsim.Gateway, *selector.Decision)) fleetsim.Policy {
	return func(g fleetsim.Gateway) selector.Policy { return probe{p(g), look, g} }
}

// steady is a request every so often.
func steady(n int, every time.Duration, prompt, output int) *trace.Trace {
	t := new(trace.Trace)
	for i := range n {
		t.Requests = append(t.Requests, trace.Request{At: time.Duration(i) * every, Prompt: prompt, Output: output})
	}
	return t
}

func TestReportsSayWhatTheRankHas(t *testing.T) {
	engine := plain
	engine.KVTokens, engine.MaxRunning = 10_000, 1
	// Long answers, one at a time: from the third request on, one runs and the others
	// wait. The last comes when all reports tell of the one before.
	tr := requests(
		trace.Request{At: 1000 * ms, Prompt: 100, Output: 1000},
		trace.Request{At: 1001 * ms, Prompt: 200, Output: 10},
		trace.Request{At: 1002 * ms, Prompt: 300, Output: 10},
		trace.Request{At: 3000 * ms, Prompt: 1, Output: 1},
	)
	type seen struct {
		Running, Waiting                                int64
		WaitingTokens, KVUsed, KVCapacity, MaxRunning   load.Maybe[int64]
		PrefillTokens, PrefillBusyUS                    load.Maybe[int64]
		KVUsage                                         bool
		Source                                          load.Source
		Depth, InFlight, OwnAtReport, Unstarted, Tokens int64
	}
	known := load.Known[int64]
	unknown := load.Maybe[int64]{}
	full := seen{
		1, 2, known(500), unknown, known(10_000), known(1),
		known(100), known(110_000),
		true, load.SourcePush, 3, 3, 3, 2, 500,
	}
	short := full
	short.WaitingTokens, short.MaxRunning, short.PrefillTokens, short.PrefillBusyUS = unknown, unknown, unknown, unknown
	batch := short
	batch.KVCapacity, batch.Source = known(156), load.SourceBatch
	for wire, want := range map[fleetsim.Wire]seen{
		fleetsim.LoadSnapshot: full, fleetsim.LoadStat: full, fleetsim.LoadStatShort: short, fleetsim.Piggyback: batch,
	} {
		t.Run(wire.String(), func(t *testing.T) {
			var got seen
			var used int64
			look := func(_ fleetsim.Gateway, d *selector.Decision) {
				e := d.Entry(0)
				r, ok := e.Report(0)
				if !ok {
					return
				}
				own := e.Own()
				got = seen{
					r.Running, r.Waiting, r.WaitingTokens, unknown, r.KVCapacity, r.MaxRunning,
					r.PrefillTokens, r.PrefillBusyUS, r.KVUsage.IsKnown(), r.Source,
					e.Depth(), own.InFlight, e.OwnAtReport(), own.Unstarted, own.PendingTokens,
				}
				used = r.KVUsed.Or(-1)
			}
			run(t, fleetsim.Config{
				Trace: tr, Engines: fleetsim.Fleet(1, engine), Chooser: probed(leastRequest, look), Reports: fleetsim.Reports{Wire: wire},
			})
			if got != want {
				t.Errorf("the last pick saw\n%+v, want\n%+v", got, want)
			}
			// Of the first request, a token for each of some 180 steps.
			if wire == fleetsim.Piggyback {
				used *= 64
			}
			if used < 250 || used > 290 {
				t.Errorf("%d tokens of KV cache in use", used)
			}
		})
	}
}

// The engine's last word is that it is busy; the gateway whose requests are all
// that there are knows better, as soon as it has seen them end.
func TestPiggybackedLoadOfARankWithoutRequestsIsNone(t *testing.T) {
	look := func(_ fleetsim.Gateway, d *selector.Decision) {
		e := d.Entry(0)
		if r, ok := e.Report(0); ok && (r.Running != 0 || r.Waiting != 0) || !e.Trusted() {
			t.Errorf("an idle engine reports %+v, trusted %v", r, e.Trusted())
		}
	}
	run(t, fleetsim.Config{
		Trace: steady(20, 10*time.Second, 10, 20), Engines: fleetsim.Fleet(1, plain), Chooser: probed(leastRequest, look),
		Reports: fleetsim.Reports{Wire: fleetsim.Piggyback},
	})
	// With a second gateway, nobody knows: the report stays until it is stale.
	busy, stale := 0, 0
	look = func(_ fleetsim.Gateway, d *selector.Decision) {
		if r, ok := d.Entry(0).Report(0); ok && r.Running == 1 {
			busy++
			if !d.Entry(0).Trusted() {
				stale++
			}
		}
	}
	run(t, fleetsim.Config{
		Trace: steady(20, 10*time.Second, 10, 20), Engines: fleetsim.Fleet(1, plain), Chooser: probed(leastRequest, look), Gateways: 2,
		Reports: fleetsim.Reports{Wire: fleetsim.Piggyback},
	})
	if busy != 18 || stale != 18 {
		t.Errorf("the engine's last word was there %d times, stale %d times, want 18 of both", busy, stale)
	}
}

func TestReportsComeOnceAPeriod(t *testing.T) {
	for _, c := range []struct {
		name           string
		prompt, output int
		want           float64 // reports in 100 seconds
	}{
		{"idle", 1, 1, 1000},
		{"in steps of 90 ms", 80, 1, 100 * 1000 / 180.0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var reports uint64
			var age time.Duration
			look := func(_ fleetsim.Gateway, d *selector.Decision) {
				reports = d.Entry(0).Worker().Status().Ranks[0].Reports
				age = max(age, d.View().Age(d.Entry(0)))
			}
			every := time.Second
			if c.prompt > 1 {
				every = 90 * ms
			}
			run(t, fleetsim.Config{
				Trace: steady(int(100*time.Second/every)+1, every, c.prompt, c.output), Engines: fleetsim.Fleet(1, plain), Chooser: probed(leastRequest, look),
			})
			if math.Abs(float64(reports)-c.want) > 0.05*c.want {
				t.Errorf("%d reports in 100 s, want about %v", reports, c.want)
			}
			if age > 200*ms {
				t.Errorf("one of them was %v old when the next came", age)
			}
		})
	}
}

func TestLossesAreOfOneReportToOneGateway(t *testing.T) {
	reports := make([]uint64, 2)
	look := func(g fleetsim.Gateway, d *selector.Decision) {
		reports[g.Index] = d.Entry(0).Worker().Status().Ranks[0].Reports
	}
	c := fleetsim.Config{
		Trace: steady(1001, 100*ms, 1, 1), Engines: fleetsim.Fleet(1, plain), Chooser: probed(leastRequest, look), Gateways: 2,
		Faults: fleetsim.Faults{Loss: 0.5},
	}
	run(t, c)
	if reports[0] == reports[1] || min(reports[0], reports[1]) < 440 || max(reports[0], reports[1]) > 560 {
		t.Errorf("reports of some 1000: %d", reports)
	}
	c.Faults.Loss = 1
	c.Chooser = probed(leastRequest, func(_ fleetsim.Gateway, d *selector.Decision) {
		if _, ok := d.Entry(0).Report(0); ok {
			t.Error("there is a report")
		}
	})
	run(t, c)
}

func TestMuteEnginesAdvertiseAndSayNothing(t *testing.T) {
	picks := 0
	look := func(_ fleetsim.Gateway, d *selector.Decision) {
		picks++
		if picks < 10 {
			return
		}
		for i := range d.Len() {
			status := d.Entry(i).Worker().Status()
			want := load.Trusted
			if i == 1 {
				want = load.NeverReported
			}
			if status.Why != want {
				t.Fatalf("%s is %v, want %v", status.ID, status.Why, want)
			}
		}
	}
	run(t, fleetsim.Config{
		Trace: steady(100, 100*ms, 1, 1), Engines: fleetsim.Fleet(3, plain), Chooser: probed(leastRequest, look),
		Faults: fleetsim.Faults{Mute: []int{1}},
	})
}

func TestFrozenEnginesRepeatTheirFirstBusyReport(t *testing.T) {
	var runs [2][]int64
	look := func(_ fleetsim.Gateway, d *selector.Decision) {
		for i := range d.Len() {
			if r, ok := d.Entry(i).Report(0); ok && r.Running > 0 {
				runs[i] = append(runs[i], r.Running)
				if d.View().Age(d.Entry(i)) > time.Second {
					t.Error("a frozen engine is silent")
				}
			}
		}
	}
	run(t, fleetsim.Config{
		Trace: steady(100, 100*ms, 10, 500), Engines: fleetsim.Fleet(2, plain), Chooser: probed(roundRobin, look),
		Faults: fleetsim.Faults{Frozen: []int{0}},
	})
	if len(runs[0]) < 50 || slices.Max(runs[0]) != slices.Min(runs[0]) {
		t.Errorf("the frozen one says %v", runs[0])
	}
	if len(runs[1]) < 50 || slices.Max(runs[1]) < 20 {
		t.Errorf("the other says %v", runs[1])
	}
}

func TestHiddenRequestsGoPastTheGatewaysToAnyEngine(t *testing.T) {
	const n = 4000
	var others int64
	look := func(_ fleetsim.Gateway, d *selector.Decision) {
		for i := range d.Len() {
			if e := d.Entry(i); e.Depth()-e.OwnAtReport() > 0 {
				others++
			}
		}
	}
	c := fleetsim.Config{
		Trace: steady(n, 5*ms, 10, 20), Engines: fleetsim.Fleet(8, plain), Chooser: probed(leastRequest, look),
		Faults: fleetsim.Faults{Hidden: 0.25}, WarmUp: load.Known(0.0),
	}
	r := run(t, c)
	var hidden int
	var on [8]int
	for _, o := range r.Requests {
		if o.Hidden {
			hidden++
			on[o.Engine]++
		}
	}
	if math.Abs(float64(hidden)-n/4) > n/40 || r.Summary().Requests != n-hidden {
		t.Errorf("%d of %d are hidden, and %d measured", hidden, n, r.Summary().Requests)
	}
	if slices.Min(on[:]) < hidden/8-hidden/24 {
		t.Errorf("they are on %v", on)
	}
	if others == 0 {
		t.Error("no report ever tells of them")
	}
}

func TestSharesAreOfTheArrivals(t *testing.T) {
	r := run(t, fleetsim.Config{
		Trace: steady(6000, ms, 1, 1), Engines: fleetsim.Fleet(8, plain), Chooser: roundRobin,
		Gateways: 4, Shares: []float64{3, 1, 1, 1},
	})
	var got [4]int
	for _, o := range r.Requests {
		got[o.Gateway]++
	}
	for i, want := range []int{3000, 1000, 1000, 1000} {
		if math.Abs(float64(got[i]-want)) > 120 {
			t.Errorf("gateway %d has %d of 6000 requests, want about %d", i, got[i], want)
		}
	}
}

func TestArrivalsDoNotDependOnThePolicy(t *testing.T) {
	engines := fleetsim.Fleet(8, fleetsim.EngineConfig{})
	tr := mix(t, 1000, engines)
	type arrival struct {
		at      time.Duration
		gateway int
		hidden  bool
	}
	var first []arrival
	for i, chooser := range []fleetsim.Chooser{roundRobin, leastDepth, fleetsim.Instant, random} {
		r := run(t, fleetsim.Config{Trace: tr, Engines: engines, Chooser: chooser, Gateways: 4, Faults: fleetsim.Faults{Hidden: 0.3, Loss: 0.1}})
		var got []arrival
		hiddenOn := 0
		for _, o := range r.Requests {
			got = append(got, arrival{o.Arrived, o.Gateway, o.Hidden})
			if o.Hidden {
				hiddenOn += o.Engine
			}
		}
		if i == 0 {
			first = got
		} else if !slices.Equal(got, first) {
			t.Errorf("the arrivals of run %d are not those of the first", i)
		}
	}
	r := run(t, fleetsim.Config{Seed: 1, Trace: tr, Engines: engines, Chooser: roundRobin, Gateways: 4})
	same := 0
	for i, o := range r.Requests {
		if o.Gateway == first[i].gateway {
			same++
		}
	}
	if same > 400 {
		t.Errorf("with another seed, %d of 1000 requests arrive at the same of four gateways", same)
	}
}

func TestCrashedEnginesFailWhatTheyHoldAndGatewaysTryOnceMore(t *testing.T) {
	// Two engines get the requests by turns. The first crashes.
	config := fleetsim.Config{
		Trace: steady(10, 10*ms, 100, 10), Engines: fleetsim.Fleet(2, plain), Chooser: roundRobin,
		Events: []fleetsim.Event{{At: 95 * ms, Kind: fleetsim.Crash, Engine: 0}},
		WarmUp: load.Known(0.0),
	}
	r := run(t, config)
	retried := 0
	for i, o := range r.Requests {
		if o.Failed || o.Engine != 1 {
			t.Errorf("request %d: %+v", i, o)
		}
		if o.Attempts == 2 {
			retried++
		}
	}
	if s := r.Summary(); retried != 5 || s.Retried != 5 || s.Failed != 0 {
		t.Errorf("%d requests were sent twice, want 5; %+v", retried, s)
	}

	// The second too, later: what was sent on to it fails for good.
	config.Events = append(config.Events, fleetsim.Event{At: 300 * ms, Kind: fleetsim.Crash, Engine: 1})
	r = run(t, config)
	failed := 0
	for i, o := range r.Requests {
		if o.Failed != (o.Over == 301*ms) {
			t.Errorf("request %d: %+v", i, o)
		}
		if o.Failed {
			failed++
		}
	}
	if s := r.Summary(); failed < 5 || s.Failed != failed {
		t.Errorf("%d requests have failed; %+v", failed, s)
	}

	// Nobody is left to choose.
	config.Trace = steady(1, 0, 100, 10)
	config.Events = []fleetsim.Event{{Kind: fleetsim.Crash, Engine: 0}, {Kind: fleetsim.Crash, Engine: 1}}
	config.Trace.Requests[0].At = 10 * ms
	for _, chooser := range []fleetsim.Chooser{roundRobin, fleetsim.Instant} {
		config.Chooser = chooser
		if o := run(t, config).Requests[0]; !o.Failed || o.Engine != -1 || o.Over != 10*ms {
			t.Errorf("%+v", o)
		}
	}
}

// Until the gateways remove it, an engine that has crashed gets requests: one from
// each, since they set it aside when that has failed.
func TestAnEngineThatFailsIsSetAsideBeforeItIsRemoved(t *testing.T) {
	const gateways = 3
	r := run(t, fleetsim.Config{
		Trace: steady(400, 5*ms, 10, 1), Engines: fleetsim.Fleet(4, plain), Chooser: leastRequest, Gateways: gateways,
		Events:    []fleetsim.Event{{At: 1000*ms + 1, Kind: fleetsim.Crash, Engine: 0}},
		Detection: time.Minute,
		WarmUp:    load.Known(0.0),
	})
	retried := 0
	for _, o := range r.Requests {
		if o.Failed || o.Arrived > 1001*ms && o.Engine == 0 {
			t.Fatalf("%+v", o)
		}
		if o.Attempts == 2 {
			retried++
		}
	}
	if retried < gateways || retried > 3*gateways {
		t.Errorf("%d requests were sent twice", retried)
	}
}

func TestEnginesComeAndComeBack(t *testing.T) {
	engines := fleetsim.Fleet(3, plain)
	engines[2].Absent = true
	var most, least int
	least = 3
	look := func(_ fleetsim.Gateway, d *selector.Decision) {
		most, least = max(most, d.Len()), min(least, d.Len())
	}
	r := run(t, fleetsim.Config{
		Trace: steady(100, 100*ms, 10, 1), Engines: engines, Chooser: probed(roundRobin, look),
		Events: []fleetsim.Event{
			{At: 2 * time.Second, Kind: fleetsim.Join, Engine: 2},
			{At: 4 * time.Second, Kind: fleetsim.Crash, Engine: 0},
			{At: 4*time.Second + 500*ms, Kind: fleetsim.Crash, Engine: 1},
			{At: 6 * time.Second, Kind: fleetsim.Join, Engine: 0},
			{At: 7 * time.Second, Kind: fleetsim.Join, Engine: 0}, // is there
		},
	})
	if most != 3 || least != 1 {
		t.Errorf("between %d and %d candidates, want 1 and 3", least, most)
	}
	for i, o := range r.Requests {
		bad := false
		switch s := o.Arrived.Seconds(); {
		case s < 2:
			bad = o.Engine == 2
		case s > 4 && s < 6:
			bad = o.Engine == 0
		case s > 4.6:
			bad = o.Engine == 1
		}
		if bad || o.Failed {
			t.Errorf("request %d: %+v", i, o)
		}
	}
}

func TestSlowDownsTakeEffectAtTheNextStep(t *testing.T) {
	r := run(t, fleetsim.Config{
		Trace: requests(trace.Request{Prompt: 10, Output: 4}), Engines: fleetsim.Fleet(1, plain), Chooser: roundRobin,
		Events: []fleetsim.Event{{At: 25 * ms, Kind: fleetsim.SetSpeed, Engine: 0, Speed: 0.5}, {At: 45 * ms, Kind: fleetsim.SetSpeed, Engine: 0, Speed: 2}},
	})
	// 1 to 21, 21 to 31, 31 to 51 and 51 to 56
	times(t, r, [2]time.Duration{22 * ms, 57 * ms})
}

func TestARestartedGatewayKnowsNothing(t *testing.T) {
	var seen [2][]int64
	made := make(map[int]int)
	chooser := fleetsim.Policy(func(g fleetsim.Gateway) selector.Policy {
		made[g.Index]++
		if g.Count != 2 {
			t.Errorf("gateway %+v", g)
		}
		return probe{selector.RoundRobin(), func(g fleetsim.Gateway, d *selector.Decision) {
			seen[g.Index] = append(seen[g.Index], d.Entry(0).Own().InFlight)
		}, g}
	})
	for _, wire := range []fleetsim.Wire{fleetsim.LoadSnapshot, fleetsim.Piggyback} {
		clear(made)
		seen = [2][]int64{}
		r := run(t, fleetsim.Config{
			Trace: steady(40, 100*ms, 10, 300), Engines: fleetsim.Fleet(1, plain), Chooser: chooser, Gateways: 2,
			Events:  []fleetsim.Event{{At: 2001 * ms, Kind: fleetsim.RestartGateway, Gateway: 1}},
			Reports: fleetsim.Reports{Wire: wire, Period: 100 * ms},
		})
		if made[0] != 1 || made[1] != 2 {
			t.Errorf("policies were made %v times", made)
		}
		restarted := slices.Index(seen[1][1:], 0) + 1
		if restarted < 5 || seen[1][restarted-1] < 5 {
			t.Errorf("the books of the gateway that restarts: %v", seen[1])
		}
		if !slices.IsSorted(seen[0]) {
			t.Errorf("the books of the other: %v", seen[0])
		}
		for _, o := range r.Requests {
			if o.Failed || o.Attempts != 1 {
				t.Errorf("%+v", o)
			}
		}
	}
}

func TestPromptsMayBeUnknownToGateways(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		look := func(_ fleetsim.Gateway, d *selector.Decision) {
			if n, ok := d.Request.PromptTokens.Get(); ok == unknown || ok && n != 10 {
				t.Errorf("unknown %v: prompt tokens are %v", unknown, d.Request.PromptTokens)
			}
		}
		run(t, fleetsim.Config{Trace: steady(3, ms, 10, 1), Engines: fleetsim.Fleet(1, plain), Chooser: probed(roundRobin, look), PromptUnknown: unknown})
	}
}

func TestUnstreamedAnswersHaveNoFirstTokenBeforeTheirEnd(t *testing.T) {
	// Prompts of 20 ms and answers of 500 ms: there are some 16 at a time, and one of
	// them has no first token yet.
	streamed := fleetsim.Config{Trace: steady(200, 30*ms, 10, 49), Engines: fleetsim.Fleet(1, plain), WarmUp: load.Known(0.0)}
	var inFlight, unstarted int64 // at most
	streamed.Chooser = probed(roundRobin, func(_ fleetsim.Gateway, d *selector.Decision) {
		own := d.Entry(0).Own()
		inFlight, unstarted = max(inFlight, own.InFlight), max(unstarted, own.Unstarted)
	})
	want := run(t, streamed)
	if inFlight < 15 || unstarted > 2 {
		t.Errorf("streamed: %d in flight at most, %d of them without a first token", inFlight, unstarted)
	}

	whole := streamed
	whole.Unstreamed = 1
	most := inFlight
	inFlight = 0
	whole.Chooser = probed(roundRobin, func(_ fleetsim.Gateway, d *selector.Decision) {
		own := d.Entry(0).Own()
		inFlight = max(inFlight, own.InFlight)
		if own.Unstarted != own.InFlight || own.PendingTokens != 10*own.InFlight {
			t.Errorf("unstreamed: books are %+v", own)
		}
	})
	got := run(t, whole)
	if inFlight != most {
		t.Errorf("%d in flight at most, and %d where answers are streamed", inFlight, most)
	}
	// For engines and clients it is the same, and the summary measures the engine.
	if got.Summary() != want.Summary() {
		t.Errorf("got\n%+v, want\n%+v", got.Summary(), want.Summary())
	}
}

func TestWhichAnswersAreUnstreamedDependsOnSeedAndTraceAlone(t *testing.T) {
	engines := fleetsim.Fleet(8, fleetsim.EngineConfig{})
	tr := mix(t, 1000, engines)
	unstreamed := func(c fleetsim.Config) (list []bool, n int) {
		c.Trace, c.Engines, c.Gateways = tr, engines, 4
		for _, o := range run(t, c).Requests {
			list = append(list, o.Unstreamed)
			if o.Unstreamed {
				n++
			}
		}
		return list, n
	}
	first, n := unstreamed(fleetsim.Config{Chooser: roundRobin, Unstreamed: 0.5})
	if n < 440 || n > 560 {
		t.Errorf("%d of 1000 are unstreamed, want about half", n)
	}
	for name, c := range map[string]fleetsim.Config{
		"another policy": {Chooser: leastDepth},
		"an oracle":      {Chooser: fleetsim.Instant},
		"faults":         {Chooser: leastDepth, Faults: fleetsim.Faults{Hidden: 0.3, Loss: 0.1}, Reports: fleetsim.Reports{Period: time.Second}},
	} {
		c.Unstreamed = 0.5
		if again, _ := unstreamed(c); !slices.Equal(again, first) {
			t.Errorf("with %s, others are unstreamed", name)
		}
	}
	if other, _ := unstreamed(fleetsim.Config{Seed: 1, Chooser: roundRobin, Unstreamed: 0.5}); slices.Equal(other, first) {
		t.Error("with another seed, the same are unstreamed")
	}
	few, n := unstreamed(fleetsim.Config{Chooser: roundRobin, Unstreamed: 0.2})
	for i := range few {
		if few[i] && !first[i] {
			t.Fatalf("request %d is in a fifth of them and not in half of them", i)
		}
	}
	if n < 150 || n > 250 {
		t.Errorf("%d of 1000 are unstreamed, want about a fifth", n)
	}
}

// Who does not learn from first tokens must not notice.
func TestUnstreamedAnswersChangeNothingElse(t *testing.T) {
	engines := fleetsim.Fleet(8, fleetsim.EngineConfig{})
	c := fleetsim.Config{Trace: mix(t, 1000, engines), Engines: engines, Gateways: 4, Faults: fleetsim.Faults{Hidden: 0.2, Loss: 0.1}}
	for name, at := range map[string]struct {
		chooser fleetsim.Chooser
		wire    fleetsim.Wire
		marks   bool // which answers are unstreamed is in the result
	}{
		"instant":       {fleetsim.Instant, fleetsim.LoadSnapshot, true},
		"work_left":     {fleetsim.WorkLeft, fleetsim.LoadSnapshot, true},
		"least_request": {leastRequest, fleetsim.LoadSnapshot, true},
		"random":        {random, fleetsim.LoadStat, true},
		"batches":       {policy(fewestPending), fleetsim.Piggyback, false}, // which bring first tokens
	} {
		t.Run(name, func(t *testing.T) {
			c := c
			c.Chooser, c.Reports.Wire = at.chooser, at.wire
			want := run(t, c)
			c.Unstreamed = 1
			got := run(t, c)
			for i := range got.Requests {
				if got.Requests[i].Unstreamed != at.marks {
					t.Fatalf("request %d: unstreamed is %v", i, got.Requests[i].Unstreamed)
				}
				got.Requests[i].Unstreamed = false
			}
			if !reflect.DeepEqual(got, want) {
				t.Error("the results differ")
			}
		})
	}

	c.Chooser = policy(fewestPending)
	streamed := run(t, c).Summary()
	c.Unstreamed = 1
	if whole := run(t, c).Summary(); whole.TTFT == streamed.TTFT {
		t.Errorf("who goes by first tokens does not notice either: %+v", whole)
	}
}

// pending goes by first tokens alone: the fewest own prompt tokens without one.
type pending struct{}

func fewestPending() selector.Policy { return pending{} }

func (pending) Name() string { return "pending" }

func (pending) Choose(d *selector.Decision) selector.Choice {
	best := 0
	for i := range d.Len() {
		if d.Entry(i).Own().PendingTokens < d.Entry(best).Own().PendingTokens {
			best = i
		}
	}
	return selector.Choice{Candidate: d.Candidate(best), Reason: selector.LeastLoaded}
}

// What a gateway believes to be cached comes from what it has sent itself.
func TestPrefixesAreThoseThatTheGatewayHasSent(t *testing.T) {
	engine := plain
	engine.PrefixCache = true
	engine.KVTokens = 10 * 512
	prompt := func(blocks ...uint64) trace.Request {
		return trace.Request{Prompt: 512*len(blocks) + 1, Output: 1, Blocks: blocks}
	}
	list := []trace.Request{
		prompt(1, 2, 3),                        // to engine 0, the policy takes turns
		prompt(1, 4),                           // to 1
		prompt(1, 2, 5),                        // matches two blocks on 0, one on 1
		prompt(1, 4, 2),                        // nothing more of 1, 4 on 0; two on 1
		prompt(9, 2, 3),                        // nothing
		prompt(11, 12, 13, 14, 15, 16, 17, 18), // to 1, which has room for ten blocks, and has had 5 others
		prompt(1, 2, 5),                        // on 0 what it was; of 1, gone
	}
	for i := range list {
		list[i].At = time.Duration(i) * 10 * time.Second
	}
	var got []map[string]int64
	look := func(_ fleetsim.Gateway, d *selector.Decision) {
		matches := make(map[string]int64)
		for _, m := range d.Request.Prefix {
			matches[m.Worker.ID()] = m.Tokens / 512
		}
		got = append(got, matches)
	}
	run(t, fleetsim.Config{
		Trace: requests(list...), Engines: fleetsim.Fleet(2, engine), Chooser: probed(policy(func() selector.Policy { return new(alternate) }), look),
	})
	want := []map[string]int64{
		{}, {"engine-0": 1}, {"engine-0": 2, "engine-1": 1}, {"engine-0": 1, "engine-1": 2}, {}, {}, {"engine-0": 3},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("matches are\n%v, want\n%v", got, want)
	}

	// Two gateways do not know of each other's.
	far := fleetsim.Config{Trace: requests(list[0], list[2]), Engines: fleetsim.Fleet(1, engine), Gateways: 2}
	for far.Seed = 0; ; far.Seed++ {
		far.Chooser = roundRobin
		if r := run(t, far); r.Requests[0].Gateway != r.Requests[1].Gateway {
			break
		}
	}
	far.Chooser = probed(roundRobin, func(_ fleetsim.Gateway, d *selector.Decision) {
		if len(d.Request.Prefix) > 0 {
			t.Errorf("a gateway knows of %v", d.Request.Prefix)
		}
	})
	run(t, far)
}

// alternate takes the first candidate, then the second, and so on: unlike
// round_robin, it begins with the first.
type alternate struct{ n int }

func (*alternate) Name() string { return "alternate" }
func (p *alternate) Choose(d *selector.Decision) selector.Choice {
	p.n++
	return selector.Choice{Candidate: d.Candidate((p.n - 1) % d.Len()), Reason: selector.Turn}
}

func TestTheRestOfAChunkedPromptIsWaiting(t *testing.T) {
	engine := plain
	engine.ChunkTokens = 300
	var got []int64
	look := func(_ fleetsim.Gateway, d *selector.Decision) {
		if r, ok := d.Entry(0).Report(0); ok {
			got = append(got, r.Running, r.Waiting, r.WaitingTokens.Or(-1))
		}
	}
	// Steps of 310 ms. When the second request is picked, the last report is of the
	// end of the first step, with the second chunk under way.
	run(t, fleetsim.Config{
		Trace:   requests(trace.Request{At: time.Second, Prompt: 1000, Output: 1}, trace.Request{At: 1500 * ms, Prompt: 1, Output: 1}),
		Engines: fleetsim.Fleet(1, engine), Chooser: probed(leastRequest, look),
	})
	if want := []int64{0, 0, 0, 1, 0, 400}; !slices.Equal(got, want) {
		t.Errorf("running, waiting and waiting tokens are %v, want %v", got, want)
	}
}
