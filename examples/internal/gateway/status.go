package gateway

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load/loadhttp"
	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

// newPage returns the status page. It knows the engines' load, the picks and what the
// policy has learned.
func (g *Gateway) newPage() *loadhttp.Handler {
	return loadhttp.New(g.table, loadhttp.Config{
		Title:  "Plimsoll gateway",
		Policy: g.policy,
		WhyOut: g.health.whyOut,
		Notice: g.notice,
	})
}

// notice is what the page has to say of the gateway itself.
func (g *Gateway) notice() string {
	if g.draining.Load() {
		return "The gateway is draining."
	}
	return ""
}

// Status is what /gateway.json answers: what neither the page nor a metric has.
type Status struct {
	Began    time.Time `json:"began"`
	Ready    bool      `json:"ready"`
	NotReady string    `json:"not_ready,omitempty"` // why not
	Drained  []string  `json:"drained"`             // engines, by an operator

	Fleet       discovery.Status       `json:"fleet"`           // where engines come from and what they publish
	Peers       *discovery.PeersStatus `json:"peers,omitempty"` // the replicas of the gateway, where they are listed
	LoadSockets zmqsub.Stats           `json:"load_sockets"`
}

// Status returns what a person may want to know besides the page.
func (g *Gateway) Status() Status {
	st := Status{Began: g.began, Fleet: g.fleet.Status(), LoadSockets: g.LoadSockets(), Drained: g.health.drainedIDs()}
	err := g.ready()
	if st.Ready = err == nil; !st.Ready {
		st.NotReady = err.Error()
	}
	if g.peers != nil {
		s := g.peers.Status()
		st.Peers = &s
	}
	return st
}

func (g *Gateway) serveStatus(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(g.Status()) // an error here is a client that has left
}
