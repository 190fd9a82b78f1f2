package fleetsim_test

import (
	"reflect"
	"testing"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
	"github.com/plimsoll-go/plimsoll/internal/fleetsim/trace"
	"github.com/plimsoll-go/plimsoll/selector"
)

func policy(f func() selector.Policy) fleetsim.Policy {
	return func(fleetsim.Gateway) selector.Policy { return f() }
}

var (
	roundRobin   = policy(selector.RoundRobin)
	leastRequest = policy(func() selector.Policy { return selector.LeastRequest(selector.LeastRequestConfig{}) })
	leastDepth   = policy(func() selector.Policy { return selector.LeastDepth(selector.LeastDepthConfig{}) })
	powerOfTwo   = policy(selector.PowerOfTwo)
	random       = policy(selector.Random)
)

// mix is a trace at 95 % of what the engines can do.
func mix(t *testing.T, requests int, engines []fleetsim.EngineConfig) *trace.Trace {
	t.Helper()
	var c fleetsim.Calibrations
	whole := trace.Generate("mix", trace.Mix{Seed: 7, Requests: requests, BurstRate: 3}).Limit(20_000)
	scaled, err := c.AtLoad(whole, engines, 0.95)
	if err != nil {
		t.Fatal(err)
	}
	return scaled
}

func run(t *testing.T, c fleetsim.Config) *fleetsim.Result {
	t.Helper()
	r, err := fleetsim.Run(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEqualConfigsGiveEqualResults(t *testing.T) {
	engines := fleetsim.Fleet(8, fleetsim.EngineConfig{})
	tr := mix(t, 1000, engines)
	for name, chooser := range map[string]fleetsim.Chooser{
		"round_robin": roundRobin, "least_request": leastRequest, "least_depth": leastDepth, "power_of_two": powerOfTwo,
		"random": random, "instant": fleetsim.Instant, "work_left": fleetsim.WorkLeft,
	} {
		t.Run(name, func(t *testing.T) {
			c := fleetsim.Config{Seed: 3, Trace: tr, Engines: engines, Chooser: chooser, Gateways: 3}
			a := run(t, c)
			if b := run(t, c); !reflect.DeepEqual(a, b) {
				t.Error("two runs of one config differ")
			}
			c.Seed++
			if _, ok := chooser.(fleetsim.Policy); ok && reflect.DeepEqual(a, run(t, c)) {
				t.Error("the seed makes no difference")
			}
		})
	}
}

func TestAllThatCanHappenHappensAgainInTheSameWay(t *testing.T) {
	engine := fleetsim.EngineConfig{Ranks: 2, PrefixCache: true, KVTokens: 60_000}
	engines := append(fleetsim.Fleet(6, engine), fleetsim.EngineConfig{Absent: true})
	tr := mix(t, 1000, engines[:4])
	half := tr.Span() / 2
	for _, variant := range []struct {
		wire   fleetsim.Wire
		policy func() selector.Policy
	}{
		{fleetsim.LoadSnapshot, selector.DPRank},
		{fleetsim.LoadStatShort, selector.PowerOfTwo},
		{fleetsim.Piggyback, selector.DPRank},
		{fleetsim.Piggyback, selector.PowerOfTwo},
	} {
		t.Run(variant.wire.String(), func(t *testing.T) {
			c := fleetsim.Config{
				Seed: 3, Trace: tr, Engines: engines, Chooser: policy(variant.policy), Gateways: 3, Shares: []float64{2, 1, 1},
				Reports:    fleetsim.Reports{Wire: variant.wire},
				Unstreamed: 0.5,
				Faults:     fleetsim.Faults{Hidden: 0.1, Loss: 0.2, Mute: []int{1}, Frozen: []int{2}},
				Events: []fleetsim.Event{
					{At: half, Kind: fleetsim.Crash, Engine: 3},
					{At: half, Kind: fleetsim.RestartGateway, Gateway: 2},
					{At: half, Kind: fleetsim.SetSpeed, Engine: 0, Speed: 0.5},
					{At: half, Kind: fleetsim.Join, Engine: 6},
				},
			}
			a, b := run(t, c), run(t, c)
			if !reflect.DeepEqual(a, b) {
				t.Error("two runs of one config differ")
			}
			if s := a.Summary(); s.Retried == 0 {
				t.Errorf("nothing was on the engine that crashed: %+v", s)
			}
		})
	}
}

func TestEveryRequestEnds(t *testing.T) {
	engines := fleetsim.Fleet(8, fleetsim.EngineConfig{})
	r := run(t, fleetsim.Config{Trace: mix(t, 2000, engines), Engines: engines, Chooser: leastDepth, Gateways: 4})
	for i, o := range r.Requests {
		if o.Failed || o.FirstToken <= o.Arrived || o.Over < o.FirstToken || o.Attempts != 1 {
			t.Fatalf("request %d: %+v", i, o)
		}
	}
}
