package fleetsim

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim/trace"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// Config describes a run. Trace, Engines and Chooser are needed; what else is left
// at its zero value takes the default that is named. Where none of something makes
// sense too, a negative value says so.
type Config struct {
	Seed    uint64
	Trace   *trace.Trace
	Engines []EngineConfig // see Fleet
	Chooser Chooser

	Gateways int       // 0 means 1
	Shares   []float64 // of the requests that arrive at each gateway, relative to each other; nil means equal
	Signal   selector.Signal
	Window   time.Duration // of freshness; 0 means load.DefaultWindow

	// PromptUnknown keeps the length of prompts from the gateways.
	PromptUnknown bool

	// Unstreamed is the share of requests whose answers come whole. A gateway sees
	// nothing of such an answer before its end, and marks the first token with the
	// first byte of the body, which comes with the last. It has no meaning for
	// Piggyback: batches bring the first token of every request.
	Unstreamed float64

	// Network is the time that a request, a token or a report takes between gateway
	// and engine; 0 means 1 ms. A report to one gateway takes up to Jitter longer;
	// 0 means half of Network, and -1 no longer.
	Network time.Duration
	Jitter  time.Duration

	Reports Reports
	Faults  Faults
	Events  []Event

	// Detection is how long it takes until gateways remove an engine that has
	// crashed. Requests that they send there meanwhile fail as soon as they arrive.
	// 0 means Network.
	Detection time.Duration

	// WarmUp is the share of the requests, the first ones, that the Summary leaves
	// out; unknown means 0.1.
	WarmUp load.Maybe[float64]

	// Sample is how often the load of all engines is recorded; 0 means 100 ms.
	Sample time.Duration
}

// EngineConfig describes an engine: one or more ranks, each a scheduler with a KV
// cache of its own. A step of a rank takes
//
//	(Base + prompt tokens·PrefillPerToken + decoding requests·PerRequest
//	  + their tokens in the KV cache·PerKVToken) / Speed
//
// The defaults are those of a model of 8 B parameters on one H100.
type EngineConfig struct {
	Ranks int     // 0 means 1
	Speed float64 // 0 means 1

	Base            time.Duration // 0 means 6.7 ms
	PrefillPerToken time.Duration // 0 means 33.333 µs: 30,000 tokens a second
	PerRequest      time.Duration // 0 means 20 µs; -1, nothing
	PerKVToken      time.Duration // 0 means 50 ns; -1, nothing

	ChunkTokens int // prompt tokens that a step computes at most; 0 means 8,192
	KVTokens    int // KV cache of a rank; 0 means 400,000
	MaxRunning  int // requests that a rank runs at most; 0 means 256

	// KVReserve is how many tokens of KV cache are left free when a request is
	// admitted, so that those that run can grow; 0 means a hundredth of KVTokens, and
	// -1 none.
	KVReserve int

	// PrefixCache keeps the blocks of prompts in what the running requests leave
	// of the KV cache, the least recently used going first.
	PrefixCache bool

	// Lockstep makes all ranks step together, at the pace of the slowest, as they do
	// where a layer's experts are spread over them.
	Lockstep bool

	// Absent: the engine is not there until an event lets it join.
	Absent bool
}

// Fleet returns n engines of one kind.
func Fleet(n int, c EngineConfig) []EngineConfig { return slices.Repeat([]EngineConfig{c}, n) }

func (c EngineConfig) withDefaults() EngineConfig {
	setDefault(&c.Ranks, 1)
	setDefault(&c.Speed, 1)
	setDefault(&c.Base, 6700*time.Microsecond)
	setDefault(&c.PrefillPerToken, time.Second/30_000)
	setDefaultOrNone(&c.PerRequest, 20*time.Microsecond)
	setDefaultOrNone(&c.PerKVToken, 50*time.Nanosecond)
	setDefault(&c.ChunkTokens, 8192)
	setDefault(&c.KVTokens, 400_000)
	setDefault(&c.MaxRunning, 256)
	setDefaultOrNone(&c.KVReserve, c.KVTokens/100)
	return c
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// setDefaultOrNone is setDefault for what may be nothing.
func setDefaultOrNone[T int | time.Duration | float64](v *T, def T) {
	setDefault(v, def)
	*v = max(*v, 0)
}

// Wire is how load is reported.
type Wire uint8

const (
	LoadSnapshot  Wire = iota // SGLang's map
	LoadStat                  // SGLang's array with all eleven elements
	LoadStatShort             // the array of six elements: no waiting tokens, no counters
	Piggyback                 // on TokenSpeed's output batches, through a load.Connector
)

func (w Wire) String() string {
	switch w {
	case LoadSnapshot:
		return "load_snapshot"
	case LoadStat:
		return "load_stat"
	case LoadStatShort:
		return "load_stat_short"
	case Piggyback:
		return "piggyback"
	}
	return "unknown"
}

// Reports says when ranks report, and over which wire.
type Reports struct {
	Wire Wire

	// Period is how long a rank waits from one report to the next, at least: one
	// that is in the middle of a step reports at its end. 0 means 100 ms. It has no
	// meaning for Piggyback.
	Period time.Duration

	// Jitter is by what share of itself a period is longer or shorter, at most;
	// 0 means 0.05, and -1 not at all.
	Jitter float64
}

// Faults are in effect throughout a run. The numbers in Mute and Frozen are
// indices of engines.
type Faults struct {
	Loss   float64 // probability that a report does not reach a gateway
	Mute   []int   // engines that advertise reports and never send one
	Frozen []int   // engines that repeat their first report that is not idle for ever

	// Hidden is the share of requests that reach engines without any gateway: each
	// goes to an engine at random.
	Hidden float64
}

// EventKind is what happens at an Event.
type EventKind uint8

const (
	SetSpeed       EventKind = iota + 1 // Engine works at Speed from its next step on
	Crash                               // Engine is gone, and all that it held fails
	Join                                // Engine comes, or comes again, with nothing
	RestartGateway                      // Gateway loses its table, its books and its policy
)

// Event is something that happens at a time.
type Event struct {
	At      time.Duration
	Kind    EventKind
	Engine  int
	Gateway int
	Speed   float64
}

// ErrConfig is what the error of Run is for a Config that cannot be run.
var ErrConfig = errors.New("fleetsim: bad configuration")

func badConfig(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
}

// withDefaults returns a config of its own with all defaults filled in.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Trace == nil:
		return c, badConfig("no trace")
	case len(c.Trace.Requests) > trace.MaxRequests:
		return c, badConfig("%d requests, more than %d", len(c.Trace.Requests), trace.MaxRequests)
	case len(c.Engines) == 0:
		return c, badConfig("no engines")
	case c.Chooser == nil:
		return c, badConfig("no chooser")
	}
	setDefault(&c.Gateways, 1)
	setDefault(&c.Window, load.DefaultWindow)
	setDefault(&c.Network, time.Millisecond)
	setDefaultOrNone(&c.Jitter, c.Network/2)
	setDefault(&c.Detection, c.Network)
	setDefault(&c.Sample, 100*time.Millisecond)
	setDefault(&c.Reports.Period, 100*time.Millisecond)
	setDefaultOrNone(&c.Reports.Jitter, 0.05)
	if !c.WarmUp.IsKnown() {
		c.WarmUp = load.Known(0.1)
	}
	c.Engines = slices.Clone(c.Engines)
	smallest := 0
	for i := range c.Engines {
		c.Engines[i] = c.Engines[i].withDefaults()
		if err := c.Engines[i].check(); err != nil {
			return c, badConfig("engine %d: %v", i, err)
		}
		if c.Engines[i].KVTokens < c.Engines[smallest].KVTokens {
			smallest = i
		}
	}
	return c, c.check(c.Engines[smallest].KVTokens)
}

func (c *EngineConfig) check() error {
	if c.Ranks < 0 || c.Ranks > 1024 || !(c.Speed > 0) || c.Base <= 0 || c.PrefillPerToken <= 0 || c.ChunkTokens < 1 || c.KVTokens < 1 || c.MaxRunning < 1 {
		return errors.New("a number is out of range")
	}
	return nil
}

func (c *Config) check(kv int) error {
	if c.Gateways < 0 || c.Gateways > 1<<16 {
		return badConfig("%d gateways", c.Gateways)
	}
	if c.Shares != nil && len(c.Shares) != c.Gateways {
		return badConfig("%d shares for %d gateways", len(c.Shares), c.Gateways)
	}
	var shares float64
	for _, s := range c.Shares {
		if !(s >= 0) {
			return badConfig("a share of %v", s)
		}
		shares += s
	}
	if c.Shares != nil && !(shares > 0 && shares <= math.MaxFloat64) {
		return badConfig("shares of %v in all", shares)
	}
	if c.Network <= 0 || c.Detection < 0 || c.Reports.Period <= 0 || !(c.Reports.Jitter < 1) || c.Sample <= 0 {
		return badConfig("a time is out of range")
	}
	if c.Reports.Wire > Piggyback {
		return badConfig("wire %v", c.Reports.Wire)
	}
	if f := &c.Faults; !(f.Loss >= 0 && f.Loss <= 1) || !(f.Hidden >= 0 && f.Hidden <= 1) {
		return badConfig("a probability is out of range")
	}
	if !(c.Unstreamed >= 0 && c.Unstreamed <= 1) {
		return badConfig("a share of %v is unstreamed", c.Unstreamed)
	}
	if w := c.WarmUp.Or(0); !(w >= 0 && w <= 1) {
		return badConfig("a warm-up of %v", w)
	}
	var last time.Duration
	for i, r := range c.Trace.Requests {
		switch {
		case r.Prompt < 1 || r.Output < 1 || r.At < last:
			return badConfig("request %d: %d prompt and %d output tokens, at %v", i, r.Prompt, r.Output, r.At)
		case r.Prompt+r.Output > kv:
			// An engine would refuse it, and what that says about a policy is nothing.
			return badConfig("request %d takes %d tokens of KV cache, of %d; see trace.Limit", i, r.Prompt+r.Output, kv)
		}
		last = r.At
	}
	for _, list := range [][]int{c.Faults.Mute, c.Faults.Frozen} {
		for _, e := range list {
			if e < 0 || e >= len(c.Engines) {
				return badConfig("no engine %d", e)
			}
		}
	}
	for _, e := range c.Events {
		bad := e.At < 0
		switch e.Kind {
		case SetSpeed:
			bad = bad || e.Engine < 0 || e.Engine >= len(c.Engines) || !(e.Speed > 0)
		case Crash, Join:
			bad = bad || e.Engine < 0 || e.Engine >= len(c.Engines)
		case RestartGateway:
			bad = bad || e.Gateway < 0 || e.Gateway >= c.Gateways
		default:
			bad = true
		}
		if bad {
			return badConfig("event %+v", e)
		}
	}
	return nil
}
