package gateway

import (
	"log/slog"

	"github.com/plimsoll-go/plimsoll/discovery"
)

// Peers tells which replica of the gateway this one is, of how many, so that
// least_work can prefer a slice of the engines of its own. Nothing of it set: there
// may be other replicas, and there are no slices.
type Peers struct {
	// Where all replicas are, this one too. Any of the three; their union is taken.
	// Nobody connects to them: they are listed for their number and their order.
	List []string `json:"list"` // URLs
	File string   `json:"file"` // as workers_file
	DNS  *DNS     `json:"dns"`  // such as the gateway's own headless service
	// Self is which of them this one is: host, host:port or URL, as it is listed.
	// Default: the one at an address of this machine.
	Self string `json:"self"`

	// Or, instead of all that, where both never change: Replica, from 0, of Replicas.
	Replica  int `json:"replica"`
	Replicas int `json:"replicas"`
}

func (p Peers) listed() bool { return len(p.List) > 0 || p.File != "" || p.DNS != nil }

func (p Peers) validate(wrong func(format string, args ...any)) {
	for _, u := range p.List {
		if err := discovery.CheckURL(u); err != nil {
			wrong("peers: list: %w", err)
		}
	}
	if p.DNS != nil {
		p.DNS.validate("peers: dns", wrong)
	}
	if err := discovery.CheckSelf(p.Self); err != nil {
		wrong("peers: self: %w", err)
	}
	if p.Self != "" && !p.listed() {
		wrong("peers: self is %q, and there is no list, file or dns to find it in", p.Self)
	}
	if p.Replica == 0 && p.Replicas == 0 {
		return
	}
	if p.Replica < 0 || p.Replica >= p.Replicas {
		wrong("peers: replica is %d of %d, want replicas of 1 or more, and replica from 0 to one less", p.Replica, p.Replicas)
	}
	if p.listed() {
		wrong("peers: replica and replicas exclude list, file and dns, which tell the same")
	}
}

// replica returns what tells the selector which replica this one is, and what has to
// run for it, if anything has.
func (p Peers) replica(logger *slog.Logger) (tell func() (replica, replicas int), run *discovery.Peers) {
	if p.listed() {
		run = &discovery.Peers{Source: source(p.List, p.File, p.DNS, logger), Self: p.Self, Logger: logger}
		return run.Replica, run
	}
	return func() (int, int) { return p.Replica, p.Replicas }, nil
}
