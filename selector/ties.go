package selector

import (
	"fmt"
	"sync/atomic"

	"github.com/plimsoll-go/plimsoll/load"
)

// Ties says which of several equally loaded workers is chosen.
type Ties uint8

const (
	// TiesRandom chooses each of them with the same probability.
	TiesRandom Ties = iota
	// TiesRotate chooses the next one after the last choice, and one at random where
	// a request restricts its candidates: whose turn it is among all would favour the
	// one that comes after those that take no part. It moves every request on from
	// the worker that has the prefix of the one before.
	TiesRotate
)

func (t Ties) String() string {
	switch t {
	case TiesRandom:
		return "random"
	case TiesRotate:
		return "rotate"
	}
	return "unknown"
}

// MarshalText encodes the choice as its name.
func (t Ties) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText decodes "random" or "rotate".
func (t *Ties) UnmarshalText(b []byte) error {
	switch string(b) {
	case "random":
		*t = TiesRandom
	case "rotate":
		*t = TiesRotate
	default:
		return fmt.Errorf("unknown ties %q (have random, rotate)", b)
	}
	return nil
}

// rotation is whose turn it is. It starts anywhere: selectors that are rebuilt, or
// several that start at once, must not all begin with the first worker. The zero
// rotation has not started.
type rotation struct {
	next  atomic.Uint64 // candidate whose turn it is, where all take part; 0 before the start
	turns atomic.Uint64 // taken where only some do
}

// begin starts a rotation at a place of the selector's random source.
func (r *rotation) begin(d *Decision) {
	if r.next.Load() == 0 {
		r.turns.CompareAndSwap(0, d.random())
		r.next.CompareAndSwap(0, max(d.random()>>1, 1)) // with room to count up
	}
}

// ties says how equals are told apart among n places, of candidates or of their
// ranks: at which place to start, and of those that come after which one takes the
// place of the first.
func (r *rotation) ties(d *Decision, t Ties, n int) (start int, m minimum) {
	if t == TiesRandom || d.some {
		return 0, minimum{state: d.random() | 1}
	}
	r.begin(d)
	return int(r.next.Load() % uint64(n)), minimum{}
}

// among returns whose turn it is among n candidates that are not always the same.
// A plain count would resonate with how they alternate: two kinds of requests by
// turns, each with two workers of its own, would leave one of either two without
// any. Multiples of the golden ratio are even over every regular subsequence.
func (r *rotation) among(d *Decision, n int) int {
	r.begin(d)
	const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	return below(r.turns.Add(1)*golden, n)
}

// turn is for whoever takes the place whatever stands there.
func (r *rotation) turn(d *Decision, n int) int {
	if d.some {
		return r.among(d, n)
	}
	r.begin(d)
	return int((r.next.Add(1) - 1) % uint64(n))
}

// chose says which place was chosen.
func (r *rotation) chose(d *Decision, place int) {
	if !d.some {
		r.next.Store(uint64(place) + 1)
	}
}

// minimum decides, for candidates that come one after another, whether the next
// one takes the place of the best so far. It is small, and apart from that best,
// so that both stay in registers: kept in one struct they would go through memory
// for every candidate, at several times the cost.
type minimum struct {
	equals uint64 // how many so far are as good as the best; 0: there is none
	state  uint64 // of a small generator; 0: of equals, the first stays
}

func (m *minimum) take(load, best int64) bool {
	if load > best && m.equals != 0 {
		return false
	}
	return m.takes(load < best)
}

// takes is take for a load that is less than the best, or equal to it.
func (m *minimum) takes(less bool) bool {
	if less || m.equals == 0 {
		m.equals = 1
		return true
	}
	return m.state != 0 && m.replaces()
}

// replaces keeps the k-th of k equals with probability 1/k, which leaves each
// equally likely without knowing how many there will be.
func (m *minimum) replaces() bool {
	m.equals++
	m.state ^= m.state << 13
	m.state ^= m.state >> 7
	m.state ^= m.state << 17
	return (m.state>>32)*m.equals>>32 == 0
}

// least returns the least loaded candidate, and the highest load there is. own
// compares own requests in flight instead of loads.
func (r *rotation) least(d *Decision, t Ties, own bool) (best Candidate, highest int64) {
	n := d.Len()
	start, least := r.ties(d, t, n)
	// This is Candidate and Local, written out and cut down to what is compared:
	// as calls they cost as much again as what they read.
	var at int
	var lowest int64
	var seen load.Seen
	for i := start; ; {
		var l int64
		var s load.Seen
		switch e := d.Entry(i); {
		case own:
			l, s = e.InFlight()
		case e.Trusted() && !d.local:
			l, s = e.DepthNow()
		default:
			l, s = d.untrusted(e)
		}
		if least.take(l, lowest) {
			at, lowest, seen = i, l, s
		}
		highest = max(highest, l)
		if i++; i == n {
			i = 0
		}
		if i == start {
			break
		}
	}
	if t == TiesRotate {
		r.chose(d, at)
	}
	basis := Local
	if !own {
		basis = d.basis(d.Entry(at))
	}
	return Candidate{lowest, seen, int32(at), basis}, highest
}
