package selector

import (
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// Decision is what a policy chooses from: the candidates of one pick, all read
// from one view. It is valid during the call of Choose and no longer.
type Decision struct {
	Request Request

	view    load.View
	some    bool         // only the workers at places take part
	places  []int32      // positions in the view, ascending
	owners  []int32      // scratch of cacheAware
	local   bool         // all candidates on their own counts
	booking load.Booking // what the policy has to say to the reservation
	unseen  *learner     // who has to be told of it besides, since nobody will see its first token
	wait    time.Duration
	scale   scale
	random  func() uint64
	peers   func() (replica, replicas int)

	explaining bool
	considered []Considered
}

// Len returns the number of candidates; at least 1 in a call of Choose.
func (d *Decision) Len() int {
	if d.some {
		return len(d.places)
	}
	return d.view.Len()
}

// Entry returns what is known of the i-th candidate, for i from 0 to Len()-1.
func (d *Decision) Entry(i int) load.Entry {
	if d.some {
		i = int(d.places[i])
	}
	return d.view.At(i)
}

// Candidate is a candidate's load as a decision sees it. It is small on purpose:
// with what a Choice adds it still fits four words, and more than that does not
// stay in registers.
type Candidate struct {
	Load  int64 // requests; what policies compare
	seen  load.Seen
	index int32 // among the candidates
	Basis Basis
}

// Candidate returns the load of the i-th candidate, on the basis that the
// selector's signal gives it. What this gateway has in flight is read in this
// call: a policy that compares calls it once for each.
func (d *Decision) Candidate(i int) Candidate {
	e := d.Entry(i)
	if e.Trusted() && !d.local {
		depth, seen := e.DepthNow()
		return Candidate{depth, seen, int32(i), Engine}
	}
	n, seen := d.untrusted(e)
	return Candidate{n, seen, int32(i), d.basis(e)}
}

// untrusted is the load of an entry that there is no report to go by for.
func (d *Decision) untrusted(e load.Entry) (int64, load.Seen) {
	n, seen := e.InFlight()
	if d.scale.on {
		n = d.scale.depth(n)
	}
	return n, seen
}

// basis is what Candidate makes of an entry.
func (d *Decision) basis(e load.Entry) Basis {
	switch {
	case e.Trusted() && !d.local:
		return Engine
	case d.scale.on:
		return Estimated
	}
	return Local
}

// Local returns the load of the i-th candidate as own requests in flight.
func (d *Decision) Local(i int) Candidate {
	n, seen := d.Entry(i).InFlight()
	return Candidate{n, seen, int32(i), Local}
}

// View returns the view that the candidates are read from.
func (d *Decision) View() load.View { return d.view }

// Random returns a random number from the selector's source.
func (d *Decision) Random() uint64 { return d.random() }

// place returns where the i-th candidate stands in the view.
func (d *Decision) place(i int) int {
	if d.some {
		return int(d.places[i])
	}
	return i
}

// Replica returns which replica of the gateway this is, of how many; 0 of 0 where that
// is not known. See Config.Peers.
func (d *Decision) Replica() (replica, replicas int) {
	if d.peers == nil {
		return 0, 0
	}
	replica, replicas = d.peers()
	if replica < 0 || replica >= replicas {
		return 0, 0
	}
	return replica, replicas
}

// find returns the index of a worker among the candidates.
func (d *Decision) find(w *load.Worker) (int, bool) {
	i, ok := d.view.Position(w)
	if ok && d.some {
		return slices.BinarySearch(d.places, int32(i))
	}
	return i, ok && i < d.view.Len()
}

// restrict makes the decision one among the workers that the request allows.
func (d *Decision) restrict() {
	d.some = true
	r := &d.Request
	switch {
	case r.Worker != nil:
		d.listPlace(r.Worker)
	case r.Candidates != nil:
		for _, w := range r.Candidates {
			d.listPlace(w)
		}
		// In order, and none twice: a worker that is listed twice must not have
		// twice the chance.
		slices.Sort(d.places)
		d.places = slices.Compact(d.places)
	default:
		for i := range d.view.Healthy() {
			d.places = append(d.places, int32(i))
		}
	}
	rank, pinnedRank := r.Rank.Get()
	pinnedRank = pinnedRank && rank != load.NoRank
	d.places = slices.DeleteFunc(d.places, func(i int32) bool {
		e := d.view.At(int(i))
		if pinnedRank && !hasRank(e, rank) {
			return true
		}
		return r.Worker == nil && (slices.Contains(r.Exclude, e.Worker()) || (r.Filter != nil && !r.Filter(e.Worker())))
	})
	// Those that are set aside come last, and take part if nobody else does.
	if aside, _ := slices.BinarySearch(d.places, int32(d.view.Len())); aside > 0 {
		d.places = d.places[:aside]
	}
}

func (d *Decision) listPlace(w *load.Worker) {
	if i, ok := d.view.Position(w); ok {
		d.places = append(d.places, int32(i))
	}
}

// hasRank obeys a pin where the number of ranks is not known: the engine will
// say if it does not have it.
func hasRank(e load.Entry, rank int) bool {
	return rank >= 0 && (e.Ranks() == 0 || e.HasRank(rank))
}

// weigh settles on what basis the candidates are compared, where not every worker
// is trusted or not every one takes part.
func (d *Decision) weigh(signal Signal) {
	if signal == Mixed {
		return
	}
	workers, depth, own := d.view.Trusted()
	if d.some {
		workers, depth, own = 0, 0, 0
		for _, i := range d.places {
			if e := d.view.At(int(i)); e.Trusted() {
				d, o := e.Summands()
				workers, depth, own = workers+1, depth+d, own+o
			}
		}
	}
	switch {
	case workers == d.Len():
	case signal == Uniform:
		d.local = true
	default:
		d.scale = newScale(workers, depth, own)
	}
}

// decisions recycles decisions: a policy is behind an interface, so that its
// argument would be allocated anew for every pick.
var decisions = sync.Pool{New: func() any { return new(Decision) }}

// newDecision returns a decision about r. It may hold on to an earlier request
// until it is used again or the pool is emptied, which costs less than clearing.
func (s *Selector) newDecision(r *Request) *Decision {
	d := decisions.Get().(*Decision)
	d.Request = *r
	d.view = s.table.View()
	d.some, d.places = false, d.places[:0]
	d.local, d.scale = false, scale{}
	d.booking, d.unseen = load.Booking{PromptTokens: r.PromptTokens.Or(0)}, nil
	d.wait, d.explaining = 0, false
	d.peers = s.peers
	d.random = s.random
	return d
}
