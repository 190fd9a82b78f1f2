package gateway

import (
	"encoding/json"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

// Counts are counted since the start of the gateway.
type Counts struct {
	Requests int64 `json:"requests"`
	Failures int64 `json:"failures"` // attempts that were followed by another one, or by an error

	// Picks counts attempts by policy and by what the pick was based on: engine,
	// estimated, local, or none for a policy that looks at no load.
	Picks map[string]map[string]int64 `json:"picks"`

	LastFailure string `json:"last_failure"`
}

type counts struct {
	mu sync.Mutex
	c  Counts
}

func (c *counts) request() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.c.Requests++
}

func (c *counts) failure(f *failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.c.Failures++
	c.c.LastFailure = f.err.Error()
}

func (c *counts) pick(p selector.Pick) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c.Picks == nil {
		c.c.Picks = make(map[string]map[string]int64)
	}
	if c.c.Picks[p.Policy] == nil {
		c.c.Picks[p.Policy] = make(map[string]int64)
	}
	c.c.Picks[p.Policy][p.Basis.String()]++
}

// Counts returns the counters.
func (g *Gateway) Counts() Counts {
	g.counts.mu.Lock()
	defer g.counts.mu.Unlock()
	c := g.counts.c
	c.Picks = make(map[string]map[string]int64)
	for policy, byBasis := range g.counts.c.Picks {
		c.Picks[policy] = maps.Clone(byBasis)
	}
	return c
}

// Status is what /status answers.
type Status struct {
	Uptime      Duration      `json:"uptime"`
	Draining    bool          `json:"draining"`
	Eligible    int           `json:"eligible"` // engines that may be picked
	Counts      Counts        `json:"counts"`
	LoadSockets *zmqsub.Stats `json:"load_sockets"`

	Policy  string            `json:"policy"`
	Learned *selector.Learned `json:"learned,omitempty"` // by a policy that learns

	Workers []load.WorkerStatus `json:"workers"` // what is known of their load, and why they are trusted or not
	Fleet   discovery.Status    `json:"fleet"`   // where they come from and what they publish

	Peers *discovery.PeersStatus `json:"peers,omitempty"` // the replicas of the gateway, where they are listed
}

// Status returns what a person may want to know.
func (g *Gateway) Status() Status {
	policy := g.routing.Load().policy
	st := Status{
		Uptime:   Duration(time.Since(g.began).Round(time.Millisecond)),
		Draining: g.draining.Load(),
		Eligible: g.table.View().Len(),
		Counts:   g.Counts(),
		Policy:   policy.Name(),
		Workers:  g.table.Status(),
		Fleet:    g.fleet.Status(),
	}
	if learner, ok := policy.(selector.Learner); ok {
		learned := learner.Learned()
		st.Learned = &learned
	}
	if g.peers != nil {
		s := g.peers.Status()
		st.Peers = &s
	}
	if g.subscriber != nil {
		s := g.subscriber.Stats()
		st.LoadSockets = &s
	}
	return st
}

func (g *Gateway) serveStatus(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(g.Status()) // an error here is a client that has left
}

// serveHealth is for load balancers: 503 takes this gateway out of rotation.
func (g *Gateway) serveHealth(w http.ResponseWriter, _ *http.Request) {
	switch {
	case g.draining.Load():
		http.Error(w, "draining", http.StatusServiceUnavailable)
	case g.table.View().Len() == 0:
		http.Error(w, "no engine to pick", http.StatusServiceUnavailable)
	default:
		_, _ = w.Write([]byte("ok\n"))
	}
}
