package selector

import (
	"slices"
	"sync"

	"github.com/plimsoll-go/plimsoll/load"
)

// Decision is what a policy chooses from: the candidates of one pick, all read
// from one view. It is valid during the call of Choose and no longer.
type Decision struct {
	Request Request

	view   load.View
	some   bool    // only the workers at places take part
	places []int32 // positions in the view, ascending
	local  bool    // all candidates on their own counts
	scale  scale
	random func() uint64
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

// Candidate is a candidate's load as a decision sees it.
type Candidate struct {
	Index int   // among the candidates
	Load  int64 // requests; what policies compare
	Basis Basis

	seen load.Seen
}

// Candidate returns the load of the i-th candidate, on the basis that the
// selector's signal gives it. What this gateway has in flight is read in this
// call: a policy that compares calls it once for each.
func (d *Decision) Candidate(i int) Candidate {
	e := d.Entry(i)
	if e.Trusted() && !d.local {
		depth, seen := e.DepthNow()
		return Candidate{i, depth, Engine, seen}
	}
	n, seen := e.InFlight()
	if d.scale.on {
		return Candidate{i, d.scale.depth(n), Estimated, seen}
	}
	return Candidate{i, n, Local, seen}
}

// Local returns the load of the i-th candidate as own requests in flight.
func (d *Decision) Local(i int) Candidate {
	n, seen := d.Entry(i).InFlight()
	return Candidate{i, n, Local, seen}
}

// View returns the view that the candidates are read from.
func (d *Decision) View() load.View { return d.view }

// Random returns a random number from the selector's source.
func (d *Decision) Random() uint64 { return d.random() }

// find returns the index of a worker among the candidates.
func (d *Decision) find(w *load.Worker) (int, bool) {
	i, ok := d.view.Position(w)
	if !ok || !d.some {
		return i, ok
	}
	return slices.BinarySearch(d.places, int32(i))
}

// restrict makes the decision one among the workers that the request allows. It
// fails if there are none.
func (d *Decision) restrict() error {
	r := &d.Request
	rank, pinnedRank := r.Rank.Get()
	switch {
	case r.Worker != nil:
		d.some = true
		if i, ok := d.view.Position(r.Worker); ok && !(pinnedRank && !hasRank(d.view.At(i), rank)) {
			d.places = append(d.places, int32(i))
		}
	case r.Candidates != nil || r.Filter != nil || pinnedRank:
		d.some = true
		d.listAllowed(rank, pinnedRank)
	}
	if d.Len() == 0 {
		return &NoCandidatesError{Known: d.view.Known(), Eligible: d.view.Len(), Pinned: r.Worker != nil}
	}
	return nil
}

func (d *Decision) listAllowed(rank int64, pinnedRank bool) {
	r := &d.Request
	allowed := func(e load.Entry) bool {
		if pinnedRank && !hasRank(e, rank) {
			return false
		}
		return r.Filter == nil || r.Filter(e.Worker())
	}
	if r.Candidates == nil {
		for i := range d.view.Len() {
			if allowed(d.view.At(i)) {
				d.places = append(d.places, int32(i))
			}
		}
		return
	}
	for _, w := range r.Candidates {
		if i, ok := d.view.Position(w); ok && allowed(d.view.At(i)) {
			d.places = append(d.places, int32(i))
		}
	}
	// In order, and none twice: a worker that is listed twice must not have twice
	// the chance.
	slices.Sort(d.places)
	d.places = slices.Compact(d.places)
}

// hasRank obeys a pin where the number of ranks is not known: the engine will
// say if it does not have it.
func hasRank(e load.Entry, rank int64) bool {
	return rank >= 0 && (e.Ranks() == 0 || rank < int64(e.Ranks()))
}

// weigh settles on what basis the candidates are compared.
func (d *Decision) weigh(signal Signal) {
	if signal == Mixed {
		return
	}
	workers, depth, own := d.view.Trusted()
	if d.some {
		workers, depth, own = 0, 0, 0
		for _, i := range d.places {
			if e := d.view.At(int(i)); e.Trusted() {
				workers++
				depth += min(e.Depth(), 1<<40)
				own += e.OwnAtReport()
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
	d.random = s.random
	return d
}
