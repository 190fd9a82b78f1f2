package main

import (
	"time"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
	"github.com/plimsoll-go/plimsoll/internal/fleetsim/trace"
	"github.com/plimsoll-go/plimsoll/load"
)

// cell is one situation in which all policies are tried. It stands in the JSON as
// it is.
type cell struct {
	Name  string `json:"name"`
	Group string `json:"group"`
	Doc   string `json:"doc"`

	Trace    string  `json:"trace"`
	Load     float64 `json:"load"`                // share of what the fleet can do
	Requests int     `json:"requests_per_engine"` // on average

	Engines  int       `json:"engines"`
	Speeds   []float64 `json:"speeds,omitempty"` // dealt to the engines in turn
	Ranks    []int     `json:"ranks,omitempty"`  // dealt likewise; none means 1 each
	Lockstep bool      `json:"lockstep,omitempty"`
	KV       int       `json:"kv_tokens,omitempty"`      // of a rank; 0 means fleetsim's default
	Context  int       `json:"context_tokens,omitempty"` // that a request may need at most; 0 means all of the KV cache
	Cache    bool      `json:"prefix_cache,omitempty"`

	Gateways int       `json:"gateways"`
	Shares   []float64 `json:"shares,omitempty"` // of the requests, by gateway
	Wire     wire      `json:"wire"`
	Period   seconds   `json:"report_period_s"`

	Loss   float64 `json:"reports_lost,omitempty"`
	Mute   []int   `json:"mute_engines,omitempty"`
	Frozen []int   `json:"frozen_engines,omitempty"`
	Hidden float64 `json:"hidden_requests,omitempty"`

	PromptUnknown bool       `json:"prompt_unknown,omitempty"`     // to the gateways
	Unstreamed    float64    `json:"unstreamed_answers,omitempty"` // share of all
	Events        []incident `json:"events,omitempty"`
}

// incident is something that happens while requests arrive.
type incident struct {
	At      float64 `json:"at"`   // share of the time of the arrivals
	What    string  `json:"what"` // a key of incidents
	Engine  int     `json:"engine,omitempty"`
	Gateway int     `json:"gateway,omitempty"`
	Speed   float64 `json:"speed,omitempty"`
}

var incidents = map[string]fleetsim.EventKind{
	"speed": fleetsim.SetSpeed, "crash": fleetsim.Crash, "join": fleetsim.Join, "restart": fleetsim.RestartGateway,
}

// seconds is a duration that JSON has in seconds.
type seconds float64

func inSeconds(d time.Duration) seconds { return seconds(d.Seconds()) }

func (s seconds) duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// anonymous returns what makes the cell the experiment that it is.
func (c cell) anonymous() cell {
	c.Name, c.Group, c.Doc = "", "", ""
	return c
}

// fleet returns the engines of the cell.
func (c *cell) fleet() []fleetsim.EngineConfig {
	fleet := fleetsim.Fleet(c.Engines, fleetsim.EngineConfig{
		Lockstep: c.Lockstep, KVTokens: c.KV, PrefixCache: c.Cache,
	})
	for i := range fleet {
		if len(c.Speeds) > 0 {
			fleet[i].Speed = c.Speeds[i%len(c.Speeds)]
		}
		if len(c.Ranks) > 0 {
			fleet[i].Ranks = c.Ranks[i%len(c.Ranks)]
		}
	}
	return fleet
}

// ranks is how many the fleet has in all.
func (c *cell) ranks() (n int) {
	for _, e := range c.fleet() {
		n += max(e.Ranks, 1)
	}
	return n
}

// defaultKV is how much KV cache fleetsim gives a rank that is not told.
const defaultKV = 400_000

// context is how many tokens a request may need.
func (c *cell) context() int {
	kv := c.KV
	if kv == 0 {
		kv = defaultKV
	}
	if c.Context > 0 {
		return min(c.Context, kv)
	}
	return kv
}

// config returns what fleetsim runs. What is not of the chooser is the same for
// all choosers: they see the same arrivals.
func (c *cell) config(seed int, t *trace.Trace, chooser fleetsim.Chooser) fleetsim.Config {
	var events []fleetsim.Event
	for _, e := range c.Events {
		at := time.Duration(e.At * float64(t.Span()))
		events = append(events, fleetsim.Event{At: at, Kind: incidents[e.What], Engine: e.Engine, Gateway: e.Gateway, Speed: e.Speed})
	}
	return fleetsim.Config{
		Seed:     uint64(seed),
		Trace:    t,
		Engines:  c.fleet(),
		Chooser:  chooser,
		Gateways: c.Gateways,
		Shares:   c.Shares,
		Reports:  fleetsim.Reports{Wire: fleetsim.Wire(c.Wire), Period: c.Period.duration()},
		Events:   events,
		WarmUp:   load.Known(warmUp),

		PromptUnknown: c.PromptUnknown,
		Unstreamed:    c.Unstreamed,
		Faults:        fleetsim.Faults{Loss: c.Loss, Mute: c.Mute, Frozen: c.Frozen, Hidden: c.Hidden},
	}
}

// warmUp is the share of the requests that is not measured.
const warmUp = 0.1

// weight is how long a run of the cell takes, relative to other cells. More
// gateways mean more reports to put.
func (c *cell) weight() float64 {
	return float64(c.ranks()*c.Requests) * (1 + float64(c.Gateways)*0.02/float64(c.Period))
}
