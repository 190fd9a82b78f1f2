package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load/loadhttp"
	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

// newPage returns the status page. It knows the engines' load, the picks and what the
// policy has learned.
func (g *Gateway) newPage() *loadhttp.Handler {
	title := "Plimsoll gateway"
	if host, err := os.Hostname(); err == nil {
		title += " on " + host
	}
	return loadhttp.New(g.table, loadhttp.Config{
		Title:  title,
		Policy: g.policy,
		WhyOut: g.health.whyOut,
		Notice: g.notice,
	})
}

// notice is what the page has to say of the gateway itself.
func (g *Gateway) notice() string {
	switch at, refused := g.reloads.newest(); {
	case g.draining.Load():
		return "The gateway is draining."
	case refused != nil:
		return fmt.Sprintf("The configuration of %s was refused, and the one before stays: %v.", at.Format(time.TimeOnly), refused)
	}
	return ""
}

// Status is what /gateway.json answers: what neither the page nor a metric has.
type Status struct {
	Began    time.Time `json:"began"`
	Ready    bool      `json:"ready"`
	NotReady string    `json:"not_ready,omitempty"` // why not
	// Of the configuration file, if there is one.
	ConfigRead    time.Time `json:"config_read,omitzero"`     // when it was last
	ConfigRefused string    `json:"config_refused,omitempty"` // why it was then; one before it is in effect

	Drained []string `json:"drained"` // engines, by an operator

	Fleet       discovery.Status       `json:"fleet"`           // where engines come from and what they publish
	Peers       *discovery.PeersStatus `json:"peers,omitempty"` // the replicas of the gateway, where they are listed
	LoadSockets zmqsub.Stats           `json:"load_sockets"`
}

// Status returns what a person may want to know besides the page.
func (g *Gateway) Status() Status {
	st := Status{Began: g.began, Fleet: g.fleet.Status(), LoadSockets: g.LoadSockets(), Drained: g.health.drainedIDs()}
	var refused error
	if st.ConfigRead, refused = g.reloads.newest(); refused != nil {
		st.ConfigRefused = refused.Error()
	}
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
