package load

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// View is one moment's picture of the healthy workers. Those that are set aside
// come last; the others are the eligible ones. It is a small value. What the
// engines reported does not change while it is held; what this gateway has in
// flight is read from the live books, at the moment that it is asked for.
type View struct {
	v   *viewState
	now int64
}

// viewState is immutable once published. The workers' states hang from chunks,
// so that replacing one copies a chunk and the list of chunks instead of a
// pointer for every worker of the fleet.
type viewState struct {
	chunks []*chunk
	n      int // eligible workers, which come first
	all    int // with those that are set aside
	known  int // with those that are not healthy, which are not here

	// freshUntil is a time up to which what every state says of trust, and the sums
	// below, are right. It may be too early, never too late: a newer report only
	// makes it too early, and then the next reader recomputes it.
	freshUntil int64

	// Over the eligible workers that are trusted.
	trusted  int
	depthSum int64
	ownSum   int64
}

const (
	chunkBits = 6
	chunkSize = 1 << chunkBits
)

type chunk [chunkSize]*state

func (v *viewState) at(i int) *state { return v.chunks[i>>chunkBits][i&(chunkSize-1)] }

// newViewState makes a view of the states of healthy workers, in any order, as
// they are at now.
func newViewState(states []*state, known int, now int64) *viewState {
	v := &viewState{known: known, freshUntil: math.MaxInt64}
	for _, s := range states {
		if s.asideUntil > now {
			v.freshUntil = min(v.freshUntil, s.asideUntil-1)
		} else {
			v.n++
		}
	}
	if v.n == 0 {
		v.n = len(states) // all are set aside, so none is
	}
	slices.SortFunc(states, func(a, b *state) int {
		if aside := a.asideUntil > now; v.n < len(states) && aside != (b.asideUntil > now) {
			if aside {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.worker.order, b.worker.order)
	})
	for _, s := range states {
		v.append(s.at(now))
	}
	return v
}

func (v *viewState) append(s *state) {
	i := v.all
	if i&(chunkSize-1) == 0 {
		v.chunks = append(v.chunks, new(chunk))
	}
	v.chunks[i>>chunkBits][i&(chunkSize-1)] = s
	v.all++
	v.count(i, s, 1)
}

// maxSummand keeps a sum over any number of workers from overflowing. No engine
// has a trillion requests; one that says so is as deep as a worker can be.
const maxSummand = 1 << 40

// count adds the state at position i to the sums, or takes it out.
func (v *viewState) count(i int, s *state, sign int64) {
	if !s.ages() {
		return
	}
	v.freshUntil = min(v.freshUntil, s.expires)
	if i < v.n && s.trusted {
		depth, own := Entry{s}.Summands()
		v.trusted += int(sign)
		v.depthSum += sign * depth
		v.ownSum += sign * own
	}
}

// with returns a copy of the view in which s has taken the place of the state at
// position i.
func (v *viewState) with(i int, s *state) *viewState {
	next := *v
	next.chunks = append([]*chunk(nil), v.chunks...)
	c := *v.chunks[i>>chunkBits]
	next.count(i, c[i&(chunkSize-1)], -1)
	c[i&(chunkSize-1)] = s
	next.chunks[i>>chunkBits] = &c
	next.count(i, s, 1)
	return &next
}

// noneAside reports whether no worker is set aside. Where all are, all are
// eligible.
func (v *viewState) noneAside(now int64) bool {
	return v.n == v.all && (v.n == 0 || v.at(0).asideUntil <= now)
}

// plus returns a copy of the view with one worker more.
func (v *viewState) plus(s *state) *viewState {
	next := *v
	next.chunks = append([]*chunk(nil), v.chunks...)
	if last := v.all >> chunkBits; last < len(next.chunks) {
		c := *next.chunks[last]
		next.chunks[last] = &c
	}
	next.known++
	next.n++
	next.append(s)
	return &next
}

// renewed returns a copy of the view as it is at now.
func (v *viewState) renewed(now int64) *viewState {
	states := make([]*state, v.all)
	for i := range states {
		states[i] = v.at(i)
	}
	return newViewState(states, v.known, now)
}

// View returns the current view. It costs an atomic load and a reading of the
// clock, and allocates nothing unless a report has gone stale since it was made.
func (t *Table) View() View {
	now := t.now()
	v := t.view.Load()
	if now > v.freshUntil {
		v = t.renew(v, now)
	}
	return View{v: v, now: now}
}

// Now returns the time of the view on the table's clock, which begins with the table.
func (v View) Now() time.Duration { return time.Duration(v.now) }

// Len returns the number of eligible workers: healthy and, unless all are, not
// set aside.
func (v View) Len() int { return v.v.n }

// Healthy returns the number of healthy workers, those that are set aside
// included.
func (v View) Healthy() int { return v.v.all }

// Known returns the number of workers in the table, healthy or not.
func (v View) Known() int { return v.v.known }

// At returns the i-th worker, for i from 0 to Healthy()-1. The eligible ones are
// the first Len(), in the order of their addition.
func (v View) At(i int) Entry { return Entry{v.v.at(i)} }

// Position returns the place of a worker in the view, if it is in it: of this
// very incarnation, and healthy.
func (v View) Position(w *Worker) (i int, ok bool) {
	if w == nil {
		return 0, false
	}
	return w.placeIn(v.v)
}

// Find returns the entry of a worker, if it is in the view.
func (v View) Find(w *Worker) (Entry, bool) {
	if i, ok := v.Position(w); ok {
		return v.At(i), true
	}
	return Entry{}, false
}

// Trusted returns how many of the eligible workers are trusted, the sum of their depths,
// and the number of own requests that were in flight on them when they reported.
func (v View) Trusted() (workers int, depth, own int64) {
	return v.v.trusted, v.v.depthSum, v.v.ownSum
}

// Age returns how old the oldest report is that the entry's depth is made of. It
// is 0 for a worker without reports.
func (v View) Age(e Entry) time.Duration {
	if e.s.oldest == noReport {
		return 0
	}
	return time.Duration(max(v.now-e.s.oldest, 0)) // it may have come since the clock was read
}

// Booking is a request that is to be counted on a worker.
type Booking struct {
	Rank         int   // NoRank: the engine chooses
	PromptTokens int64 // 0: not known

	Watch *Watch // nil: nobody wants to know how long it takes
	Note  uint64 // what the watch is to be told with it
}

// Reserve is [Worker.Reserve] for a request that somebody watches, and that was
// picked by this view.
func (v View) Reserve(w *Worker, b Booking) Ticket { return w.reserve(&b, v.now) }

// ReserveIf is [Worker.ReserveIf] for such a request.
func (v View) ReserveIf(w *Worker, seen Seen, b Booking) (Ticket, bool) {
	return w.reserveIf(seen, &b, v.now)
}

// Entry is one worker in a view.
type Entry struct{ s *state }

// Worker returns the worker.
func (e Entry) Worker() *Worker { return e.s.worker }

// Trusted reports whether every advertised rank has a fresh report and the
// engine is up.
func (e Entry) Trusted() bool { return e.s.trusted }

// Depth returns the requests running and waiting on all ranks, as reported. It
// means something only for a trusted worker.
func (e Entry) Depth() int64 { return e.s.depth }

// DepthNow returns the reported depth plus the own requests that the reports
// cannot have counted yet, and that moment in the worker's books. Where ranks
// reported at different moments, all that was sent since the first of these
// reports is added: too much rather than too little.
//
// Where all requests of the engine are ours (see Connector), it is what is in
// flight: those books are exact, and no report is.
func (e Entry) DepthNow() (depth int64, seen Seen) {
	if e.s.owned {
		return e.InFlight()
	}
	since, seen := e.s.worker.books.sinceReport(e.s.left)
	return addSat(e.s.depth, since), seen
}

// OwnAtReport returns how many own requests were in flight when the worker last
// reported.
func (e Entry) OwnAtReport() int64 { return e.s.own }

// Why says whether the worker is trusted, or why it is not.
func (e Entry) Why() Why { return e.s.why }

// Totals returns what the ranks of the worker last reported together, fresh or not;
// only of a trusted worker is it of all of them. ok is false if none has reported.
// Where all requests of the engine are ours it is true even so: a rank that has said
// nothing has nothing but those.
func (e Entry) Totals() (t Totals, ok bool) {
	return e.s.totals, e.s.oldest != noReport || e.s.owned
}

// RankTotals returns what one rank last reported, fresh or not. ok is that of Totals,
// and false for a rank that the worker does not have.
func (e Entry) RankTotals(rank int) (t Totals, ok bool) { return e.s.rankTotals(rank) }

// Summands returns what a trusted worker adds to the sums of View.Trusted: its
// depth, and the own requests that were in flight when it last reported. Both are
// bounded, so that no sum overflows.
func (e Entry) Summands() (depth, own int64) {
	own = min(e.s.own, maxSummand)
	if e.s.owned {
		return own, own
	}
	return min(e.s.depth, maxSummand), own
}

// InFlight returns the own requests in flight on the worker now, and that moment
// in its books.
func (e Entry) InFlight() (n int64, seen Seen) { return e.s.worker.books.inFlight() }

// Own returns all that this gateway has on the worker now.
func (e Entry) Own() Own { return e.s.worker.books.read() }

// OwnOn returns all that this gateway has on one rank now: the requests that it
// chose the rank of.
func (e Entry) OwnOn(rank int) Own {
	if b := e.s.worker.rankBook(rank); b != nil {
		return b.read()
	}
	return Own{}
}

// HasRank reports whether the worker is known to have a rank: it is advertised, or,
// where none is, has reported.
func (e Entry) HasRank(rank int) bool {
	return rank >= 0 && rank < len(e.s.ranks) && (e.s.advertised || e.s.ranks[rank] != nil)
}

// RankScore scores a rank of a trusted worker by its newest report and this
// gateway's books.
func (e Entry) RankScore(rank int) float64 {
	b := e.s.worker.rankBook(rank)
	if b == nil || rank >= len(e.s.ranks) || e.s.ranks[rank] == nil {
		own := e.OwnOn(rank).InFlight
		return RankScore(own, own, nil)
	}
	s := e.s.ranks[rank]
	own, _ := b.inFlight()
	since, _ := b.sinceReport(s.onRank.counted)
	return RankScore(own, since, &s.report)
}

// Ranks returns the number of ranks that the worker advertises, or, where it
// never advertised any, one more than the highest rank that has reported.
func (e Entry) Ranks() int { return len(e.s.ranks) }

// Report returns the newest report of a rank, fresh or not. ok is false if there
// is none.
func (e Entry) Report(rank int) (r *Report, ok bool) {
	if rank < 0 || rank >= len(e.s.ranks) || e.s.ranks[rank] == nil {
		return nil, false
	}
	return &e.s.ranks[rank].report, true
}
