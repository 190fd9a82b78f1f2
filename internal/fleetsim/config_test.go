package fleetsim_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
	"github.com/plimsoll-go/plimsoll/internal/fleetsim/trace"
	"github.com/plimsoll-go/plimsoll/load"
)

func TestBadConfigurationsAreRefused(t *testing.T) {
	good := func() fleetsim.Config {
		return fleetsim.Config{Trace: steady(3, ms, 10, 2), Engines: fleetsim.Fleet(2, plain), Chooser: roundRobin}
	}
	run(t, good())
	for name, spoil := range map[string]func(*fleetsim.Config){
		"no trace":            func(c *fleetsim.Config) { c.Trace = nil },
		"no engines":          func(c *fleetsim.Config) { c.Engines = nil },
		"no chooser":          func(c *fleetsim.Config) { c.Chooser = nil },
		"negative gateways":   func(c *fleetsim.Config) { c.Gateways = -1 },
		"shares of others":    func(c *fleetsim.Config) { c.Shares = []float64{1, 1} },
		"negative share":      func(c *fleetsim.Config) { c.Shares = []float64{-1} },
		"no shares at all":    func(c *fleetsim.Config) { c.Shares = []float64{0} },
		"share that is none":  func(c *fleetsim.Config) { c.Shares = []float64{math.NaN()} },
		"negative network":    func(c *fleetsim.Config) { c.Network = -1 },
		"negative period":     func(c *fleetsim.Config) { c.Reports.Period = -1 },
		"jitter of a period":  func(c *fleetsim.Config) { c.Reports.Jitter = 1 },
		"no such wire":        func(c *fleetsim.Config) { c.Reports.Wire = fleetsim.Piggyback + 1 },
		"loss above 1":        func(c *fleetsim.Config) { c.Faults.Loss = 1.1 },
		"hidden is no number": func(c *fleetsim.Config) { c.Faults.Hidden = math.NaN() },
		"unstreamed above 1":  func(c *fleetsim.Config) { c.Unstreamed = 1.1 },
		"unstreamed negative": func(c *fleetsim.Config) { c.Unstreamed = -0.1 },
		"unstreamed is none":  func(c *fleetsim.Config) { c.Unstreamed = math.NaN() },
		"no such mute":        func(c *fleetsim.Config) { c.Faults.Mute = []int{2} },
		"no such frozen":      func(c *fleetsim.Config) { c.Faults.Frozen = []int{-1} },
		"warm-up above 1":     func(c *fleetsim.Config) { c.WarmUp = load.Known(1.5) },
		"negative sample":     func(c *fleetsim.Config) { c.Sample = -1 },
		"negative speed":      func(c *fleetsim.Config) { c.Engines[1].Speed = -1 },
		"speed is no number":  func(c *fleetsim.Config) { c.Engines[1].Speed = math.NaN() },
		"negative ranks":      func(c *fleetsim.Config) { c.Engines[1].Ranks = -1 },
		"no chunk":            func(c *fleetsim.Config) { c.Engines[1].ChunkTokens = -1 },
		"event of no kind":    func(c *fleetsim.Config) { c.Events = []fleetsim.Event{{}} },
		"event of no engine":  func(c *fleetsim.Config) { c.Events = []fleetsim.Event{{Kind: fleetsim.Crash, Engine: 2}} },
		"event of no gateway": func(c *fleetsim.Config) { c.Events = []fleetsim.Event{{Kind: fleetsim.RestartGateway, Gateway: 1}} },
		"event before time":   func(c *fleetsim.Config) { c.Events = []fleetsim.Event{{Kind: fleetsim.Join, At: -1}} },
		"event of no speed":   func(c *fleetsim.Config) { c.Events = []fleetsim.Event{{Kind: fleetsim.SetSpeed}} },
		"no prompt":           func(c *fleetsim.Config) { c.Trace.Requests[1].Prompt = 0 },
		"no output":           func(c *fleetsim.Config) { c.Trace.Requests[1].Output = 0 },
		"out of order":        func(c *fleetsim.Config) { c.Trace.Requests[1].At = time.Second },
		"does not fit":        func(c *fleetsim.Config) { c.Engines[1].KVTokens = 11 },
	} {
		t.Run(name, func(t *testing.T) {
			c := good()
			spoil(&c)
			if _, err := fleetsim.Run(c); !errors.Is(err, fleetsim.ErrConfig) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func TestACallersConfigurationStaysAsItIs(t *testing.T) {
	c := fleetsim.Config{
		Trace: steady(3, ms, 10, 2), Engines: fleetsim.Fleet(2, fleetsim.EngineConfig{}), Chooser: roundRobin,
		Events: []fleetsim.Event{{Kind: fleetsim.SetSpeed, Speed: 3}},
	}
	run(t, c)
	if (c.Engines[0] != fleetsim.EngineConfig{}) {
		t.Errorf("%+v", c.Engines[0])
	}
}

func TestNoRequestsNoResults(t *testing.T) {
	r := run(t, fleetsim.Config{Trace: new(trace.Trace), Engines: fleetsim.Fleet(2, plain), Chooser: leastDepth})
	if len(r.Requests) != 0 || r.Summary() != (fleetsim.Summary{}) {
		t.Errorf("%+v", r.Summary())
	}
}

func TestSaturatedIsTheWorkOfFullBatches(t *testing.T) {
	// In a full batch of 10 requests, a step takes 20 ms. Each request needs a share of
	// 1 of the step that computes its prompt, and of 99 others: 100 steps for ten.
	engine := fleetsim.EngineConfig{Base: 10 * ms, PrefillPerToken: ms, PerRequest: ms, PerKVToken: -1, MaxRunning: 10}
	perRequest := (100*10*ms + 10*1*ms + 10*99*ms) / 10
	for _, c := range []struct {
		name    string
		engines []fleetsim.EngineConfig
		speed   float64
	}{
		{"one", fleetsim.Fleet(1, engine), 1},
		{"four", fleetsim.Fleet(4, engine), 4},
		{"mixed speeds", []fleetsim.EngineConfig{engine, faster(engine, 3)}, 4},
		{"ranks", []fleetsim.EngineConfig{ranked(engine, 4)}, 4},
		{"absent", []fleetsim.EngineConfig{engine, {Absent: true}}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := fleetsim.Saturated(steady(1200, time.Hour, 1, 100), c.engines)
			if err != nil {
				t.Fatal(err)
			}
			want := float64(1200*perRequest) / c.speed
			if math.Abs(float64(got)-want) > 0.02*want {
				t.Errorf("%v, want about %v", got, time.Duration(want))
			}
		})
	}
	if _, err := fleetsim.Saturated(steady(1, 0, 1, 1_000_000), fleetsim.Fleet(1, engine)); !errors.Is(err, fleetsim.ErrConfig) {
		t.Errorf("error is %v", err)
	}
}

func faster(c fleetsim.EngineConfig, speed float64) fleetsim.EngineConfig { c.Speed = speed; return c }
func ranked(c fleetsim.EngineConfig, ranks int) fleetsim.EngineConfig     { c.Ranks = ranks; return c }

func TestLoadIsAShareOfSaturated(t *testing.T) {
	engines := fleetsim.Fleet(4, fleetsim.EngineConfig{})
	tr := trace.Generate("", trace.Mix{Seed: 1, Requests: 3000})
	span, err := fleetsim.Saturated(tr, engines)
	if err != nil {
		t.Fatal(err)
	}
	var c fleetsim.Calibrations
	ttft := make(map[float64]time.Duration)
	for _, share := range []float64{0.3, 0.9, 1.5} {
		scaled, err := c.AtLoad(tr, engines, share)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := scaled.Span().Seconds(), span.Seconds()/share; math.Abs(got-want) > 1e-3*want {
			t.Errorf("at %v the arrivals take %v s, want %v", share, got, want)
		}
		r := run(t, fleetsim.Config{Trace: scaled, Engines: engines, Chooser: fleetsim.Instant})
		ttft[share] = r.Summary().TTFT.P50
	}
	// A prompt of the median length takes some 20 ms.
	if ttft[0.3] > 60*ms || ttft[0.9] < ttft[0.3] || ttft[1.5] < 10*ttft[0.9] {
		t.Errorf("half of the first tokens come within %v", ttft)
	}
	if _, err := c.AtLoad(tr, fleetsim.Fleet(1, fleetsim.EngineConfig{KVTokens: 100}), 1); !errors.Is(err, fleetsim.ErrConfig) {
		t.Errorf("error is %v", err)
	}
	if _, err := c.AtLoad(tr, engines, 0); !errors.Is(err, fleetsim.ErrConfig) {
		t.Errorf("error is %v", err)
	}
}
