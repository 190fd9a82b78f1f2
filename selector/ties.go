package selector

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
)

// Ties says which of several equally loaded workers is chosen.
type Ties uint8

const (
	// TiesRandom chooses each of them with the same probability.
	TiesRandom Ties = iota
	// TiesRotate chooses the next one after the last choice. Over picks that are
	// all ties it is exactly even, and it moves every request on from the worker
	// that has the prefix of the one before.
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

// rotation is a position among candidates that moves on. It starts anywhere:
// selectors that are rebuilt, or several that start at once, must not all begin
// with the first worker.
type rotation struct{ next atomic.Uint64 }

func newRotation() *rotation {
	r := new(rotation)
	r.next.Store(rand.Uint64() >> 1) // room to count up
	return r
}

// running decides, for candidates that come one after another, whether the next
// one takes the place of the best so far. It is small, and apart from that best,
// so that both stay in registers: kept in one struct they would go through memory
// for every candidate, at several times the cost.
type running struct {
	equals uint64 // how many so far are as good as the best; 0: there is none
	state  uint64 // of a small generator; 0: of equals, the first stays
}

func (r *running) better(load, best int64) bool {
	if load > best && r.equals != 0 {
		return false
	}
	if load < best || r.equals == 0 {
		r.equals = 1
		return true
	}
	return r.state != 0 && r.replaces()
}

// replaces keeps the k-th of k equals with probability 1/k, which leaves each
// equally likely without knowing how many there will be.
func (r *running) replaces() bool {
	r.equals++
	r.state ^= r.state << 13
	r.state ^= r.state >> 7
	r.state ^= r.state << 17
	return (r.state>>32)*r.equals>>32 == 0
}

// begin returns where to begin among n candidates, and how to tell which is the
// best of them.
func (r *rotation) begin(d *Decision, t Ties, n int) (start int, best running) {
	if t == TiesRotate {
		return int(r.next.Load() % uint64(n)), running{}
	}
	return 0, running{state: d.random() | 1}
}

// least returns the least loaded candidate, and the highest load there is. own
// compares own requests in flight instead of loads.
func (r *rotation) least(d *Decision, t Ties, own bool) (best Candidate, highest int64) {
	n := d.Len()
	k, run := r.begin(d, t, n)
	for range n {
		var c Candidate
		if own {
			c = d.Local(k)
		} else {
			c = d.Candidate(k)
		}
		if run.better(c.Load, best.Load) {
			best = c
		}
		highest = max(highest, c.Load)
		if k++; k == n {
			k = 0
		}
	}
	if t == TiesRotate {
		r.next.Store(uint64(best.Index) + 1)
	}
	return best, highest
}
