package load

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// books count this gateway's own requests on a worker, or on one rank of it.
// They only ever go up; what is in flight is a difference. So picking a worker
// costs one atomic operation, and a pick that lost a race is told from a mere
// release, which a count that goes up and down could not do.
//
// A request is picked, leaves for the engine, starts (its first token came),
// and is done. Whoever is done has left and started too, also when it never
// did, so that no difference stays open.
type books struct {
	picked  atomic.Uint64
	left    atomic.Uint64
	started atomic.Uint64
	done    atomic.Uint64

	tokensPicked  atomic.Uint64 // prompt tokens of the requests picked
	tokensStarted atomic.Uint64 // prompt tokens of the requests started

	leaked atomic.Uint64 // of done: released because their ticket was dropped
}

// Own is what this gateway has on one worker or rank at one moment.
type Own struct {
	InFlight      int64 // requests picked and not done
	Unstarted     int64 // of those, without a first token yet
	PendingTokens int64 // prompt tokens of the unstarted ones, where given

	picked uint64 // the counter that InFlight was computed from; see Reserve
}

// read takes every minuend after its subtrahend: a request that moves on
// meanwhile can then make a difference too large by one, and never negative.
func (b *books) read() Own {
	done, started, tokens := b.done.Load(), b.started.Load(), b.tokensStarted.Load()
	picked := b.picked.Load()
	return Own{
		InFlight:      int64(picked - done),
		Unstarted:     int64(picked - started),
		PendingTokens: int64(b.tokensPicked.Load() - tokens),
		picked:        picked,
	}
}

// inFlight is read().InFlight with the counter it came from.
func (b *books) inFlight() (n int64, picked uint64) {
	done := b.done.Load()
	picked = b.picked.Load()
	return int64(picked - done), picked
}

// sinceReport bounds the requests that a report cannot have counted, given what
// had left when it came: those picked that had not left by then, and in no case
// more than are in flight.
func (b *books) sinceReport(leftAtReport uint64) (since, inFlight int64, picked uint64) {
	inFlight, picked = b.inFlight()
	return min(int64(picked-leftAtReport), inFlight), inFlight, picked
}

// tryPick counts a request if nobody has been counted since picked was read.
func (b *books) tryPick(picked uint64, tokens int64) bool {
	if !b.picked.CompareAndSwap(picked, picked+1) {
		return false
	}
	b.addTokens(tokens)
	return true
}

func (b *books) pick(tokens int64) {
	b.picked.Add(1)
	b.addTokens(tokens)
}

func (b *books) addTokens(tokens int64) {
	if tokens > 0 {
		b.tokensPicked.Add(uint64(tokens))
	}
}

func (b *books) start(tokens int64) {
	b.started.Add(1)
	if tokens > 0 {
		b.tokensStarted.Add(uint64(tokens))
	}
}

// A flight is the shared part of the copies of one Ticket. word holds what has
// been marked and, above that, the flight's generation: ending a flight starts
// the next generation, so that an old ticket finds nothing to mark. Flights are
// pooled and therefore hold nothing that a ticket reads.
type flight struct {
	word atomic.Uint64

	// For the finalizer alone, which runs when no ticket is left to race with.
	ticket Ticket
}

const (
	flightActive = 1 << iota
	flightLeft
	flightStarted

	flightGeneration // adding it starts the next generation
	flightFlags      = flightGeneration - 1
)

var flights sync.Pool

func newFlight() *flight {
	if f, ok := flights.Get().(*flight); ok {
		return f
	}
	f := new(flight)
	// A ticket that nobody holds any more and that was never done is a leak in
	// the host. The count would stay wrong for the life of the process and the
	// worker look busier than it is, so it is released and reported instead.
	runtime.SetFinalizer(f, func(f *flight) {
		if f.word.Load()&flightActive != 0 {
			t := f.ticket
			t.flight = f
			t.release(true)
		}
	})
	return f
}

// Ticket stands for one request in flight on one worker. It is handed out by a
// reservation and marked as the request goes on. Marks are idempotent, may come
// in any order, from any goroutine and from any copy of the ticket; a mark
// implies the earlier ones, and after Done none has an effect. The zero Ticket
// is inert.
//
// A ticket that is dropped without Done is released when the garbage collector
// finds it, and counted as leaked in the status of its worker.
type Ticket struct {
	flight     *flight
	generation uint64
	worker     *books
	rank       *books // nil where the engine chooses the rank
	tokens     int64
}

func newTicket(worker, rank *books, tokens int64) Ticket {
	f := newFlight()
	word := f.word.Load() | flightActive
	t := Ticket{generation: word &^ flightFlags, worker: worker, rank: rank, tokens: tokens}
	f.ticket = t // without the flight: a cycle would keep its finalizer from running
	f.word.Store(word)
	t.flight = f
	return t
}

// mark sets flags of a live flight and returns those that were newly set.
func (t Ticket) mark(flags uint64) uint64 {
	if t.flight == nil {
		return 0
	}
	for {
		word := t.flight.word.Load()
		if word&^flightFlags != t.generation || word&flightActive == 0 {
			return 0
		}
		set := flags &^ word
		if set == 0 || t.flight.word.CompareAndSwap(word, word|set) {
			return set
		}
	}
}

// Sent marks that the request has been written to the engine: reports that come
// in from now on are taken to count it. Without this mark it is taken to have
// been sent with its first token.
func (t Ticket) Sent() {
	t.apply(t.mark(flightLeft))
}

// FirstToken marks that the engine has begun to answer: its prompt is computed.
func (t Ticket) FirstToken() {
	t.apply(t.mark(flightLeft | flightStarted))
}

func (t Ticket) apply(set uint64) {
	for _, b := range [...]*books{t.worker, t.rank} {
		if b == nil {
			continue
		}
		if set&flightLeft != 0 {
			b.left.Add(1)
		}
		if set&flightStarted != 0 {
			b.start(t.tokens)
		}
	}
}

// Done marks that the request is over, however it ended, and releases it. It
// acts on the incarnation of the worker that it was reserved on, and on no later
// one.
func (t Ticket) Done() {
	if t.flight != nil {
		t.release(false)
	}
}

func (t Ticket) release(leaked bool) {
	var word uint64
	for {
		word = t.flight.word.Load()
		if word&^flightFlags != t.generation || word&flightActive == 0 {
			return
		}
		if t.flight.word.CompareAndSwap(word, t.generation+flightGeneration) {
			break
		}
	}
	t.apply((flightLeft | flightStarted) &^ word)
	for _, b := range [...]*books{t.worker, t.rank} {
		if b == nil {
			continue
		}
		b.done.Add(1)
		if leaked {
			b.leaked.Add(1)
		}
	}
	if !leaked { // a finalized flight is on its way out
		flights.Put(t.flight)
	}
}
