package load

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"
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
}

// Count is a reading of the books of a worker, or of one rank of it, in numbers that
// only go up: what has happened since another reading is a difference. A picker
// that compares many workers reads it once for each. On a rank, a [Worker.ReserveIf]
// that was refused is one more request that was picked and done at once.
type Count struct {
	Picked, Done                uint64 // requests
	TokensPicked, TokensStarted uint64 // prompt tokens, of the requests picked and of those started
}

// Count returns a reading of the worker's books.
func (w *Worker) Count() Count { return w.books.count() }

// CountOn returns a reading of the books of one rank. It is zero for a rank that the
// worker has never had.
func (w *Worker) CountOn(rank int) Count {
	if b := w.rankBook(rank); b != nil {
		return b.count()
	}
	return Count{}
}

// count takes every minuend after its subtrahend, as read does.
func (b *books) count() (c Count) {
	c.Done, c.TokensStarted = b.done.Load(), b.tokensStarted.Load()
	c.Picked = b.picked.Load()
	c.TokensPicked = b.tokensPicked.Load()
	return c
}

// InFlight returns the requests picked and not done.
func (c Count) InFlight() int64 { return int64(c.Picked - c.Done) }

// PendingTokens returns the prompt tokens of the requests without a first token.
func (c Count) PendingTokens() int64 { return int64(c.TokensPicked - c.TokensStarted) }

// Seen returns the moment of the reading, for [Worker.ReserveIf]. That of a rank is
// not for it.
func (c Count) Seen() Seen { return Seen(c.Picked) }

// Seen is a moment in the books of one worker: how many requests had been picked
// for it. See [Worker.ReserveIf].
type Seen uint64

// read takes every minuend after its subtrahend: a request that moves on
// meanwhile can then make a difference too large by one, and never negative.
func (b *books) read() Own {
	done, started, tokens := b.done.Load(), b.started.Load(), b.tokensStarted.Load()
	picked := b.picked.Load()
	return Own{
		InFlight:      int64(picked - done),
		Unstarted:     int64(picked - started),
		PendingTokens: int64(b.tokensPicked.Load() - tokens),
	}
}

// inFlight is read().InFlight, and the moment that it is of.
func (b *books) inFlight() (n int64, seen Seen) {
	done := b.done.Load()
	picked := b.picked.Load()
	return int64(picked - done), Seen(picked)
}

// Moment is a moment in the books of a worker.
type Moment struct{ *moment }

type moment struct {
	worker *Worker
	booked
}

// Moment returns the present moment in the worker's books.
func (w *Worker) Moment() Moment { return Moment{&moment{w, w.books.booked(false)}} }

// booked is what some books said at one moment.
type booked struct {
	counted uint64 // requests that a report of then is taken to count; see books.counted
	tokens  uint64 // prompt tokens of all that had been picked
	Own
}

func (b *books) booked(owned bool) booked {
	counted := b.counted(owned) // first, so that it is rather too few
	return booked{counted, b.tokensPicked.Load(), b.read()}
}

// sinceReport bounds the requests that a report cannot have counted, given how many
// it is taken to count: those picked besides, and in no case more than are in flight.
func (b *books) sinceReport(counted uint64) (since int64, seen Seen) {
	inFlight, seen := b.inFlight()
	return min(int64(uint64(seen)-counted), inFlight), seen
}

// counted is how many requests a report that comes now is taken to count: those that
// have left, rather too few than too many. Where all requests are ours it is all that
// were picked: what is in flight is the least that counts there, so that none of
// them can be missed, and none has to be marked to be counted once.
func (b *books) counted(owned bool) uint64 {
	if owned {
		return b.picked.Load()
	}
	return b.left.Load()
}

// tryPick counts a request if none has been counted since then.
func (b *books) tryPick(seen Seen, tokens uint64) bool {
	if !b.picked.CompareAndSwap(uint64(seen), uint64(seen)+1) {
		return false
	}
	b.addTokens(tokens)
	return true
}

func (b *books) pick(tokens uint64) {
	b.picked.Add(1)
	b.addTokens(tokens)
}

// unpick takes a pick back: as a request that was done at once.
func (b *books) unpick(tokens uint64) {
	b.mark(flightLeft|flightStarted, tokens)
	b.finish(false)
}

func (b *books) addTokens(tokens uint64) {
	if tokens > 0 {
		b.tokensPicked.Add(tokens)
	}
}

// A flight is the shared part of the copies of one Ticket. Flights are pooled.
type flight struct {
	*stub

	// The id under which a connector holds it, guarded by that connector's mu. A held
	// flight goes back to the pool after the connector has let go.
	id string

	// Set before a ticket is handed out, while tickets of earlier generations may read
	// them.
	watch  atomic.Pointer[Watch] // nil: nobody wants to know, and the rest means nothing
	picked atomic.Int64          // when, on the clock of the table
	note   atomic.Uint64
}

// A stub is what is left of a flight once nobody holds a ticket of it any more. It is
// an object of its own that leads to no other but weakly: the garbage collector never
// finds a flight that its stub leads back to, and much of what a flight is about may
// hold tickets, such as a policy, whose watch it has, or a simulation, whose clock
// its table has.
type stub struct {
	// word holds what has been marked, the rank that a connector gave a request
	// without one, and above that the flight's generation: ending a flight starts
	// the next generation, so that an old ticket finds nothing to mark. All in one
	// word, so that each mark is booked on the rank either by itself or by whoever
	// gives it the rank.
	word atomic.Uint64

	// For abandoned alone, which is called when no ticket is left to race with.
	worker  weak.Pointer[Worker]
	request request
}

const (
	flightActive = 1 << iota
	flightLeft
	flightStarted
	flightHeld // by the connector of its worker, which has to hear of its end

	flightRank       = 1 << iota // times rank+1; 0 is no rank, or the request's own
	flightGeneration = flightRank << requestRankBits
	flightState      = flightGeneration - 1 // all that ends with a generation
)

// Watch is told of the requests that are reserved with it: see [Booking]. Its
// functions, either of which may be nil, are called at most once for a request, by
// whoever marks or ends it, with no lock held. They must not block. The times are counted
// from the view that the request was picked by.
type Watch struct {
	// FirstToken is called when the first token is marked.
	FirstToken func(w *Worker, wait time.Duration, note uint64)

	// Done is called at the end of a request whose answer had begun, or was taken to
	// have: by AssumeStarted. Where different goroutines mark the two, it may be
	// called first. It is not for a ticket that was dropped, whose end nobody saw.
	Done func(w *Worker, response time.Duration, note uint64)
}

// watched is what its watch is to be told of a flight.
type watched struct {
	watch *Watch
	since int64
	note  uint64
}

// watched is of a ticket's generation where a mark that follows finds that alive, and
// for whoever has ended it, until the flight is put back.
func (f *flight) watched() watched {
	if watch := f.watch.Load(); watch != nil {
		return watched{watch, f.picked.Load(), f.note.Load()}
	}
	return watched{}
}

var flights sync.Pool

func newFlight() *flight {
	if f, ok := flights.Get().(*flight); ok {
		return f
	}
	f := &flight{stub: new(stub)}
	runtime.AddCleanup(f, (*stub).abandoned, f.stub)
	return f
}

// abandoned releases a ticket that nobody holds any more, if it was never done. That is
// a leak in the host. The count would stay wrong for the life of the process and
// the worker look busier than it is, so it is released and reported instead.
func (s *stub) abandoned() {
	if w := s.worker.Value(); w != nil {
		Ticket{&flight{stub: s}, s.word.Load() &^ flightState, w, s.request}.release(true)
	}
}

// Ticket stands for one request in flight on one worker. It is handed out by a
// reservation and marked as the request goes on. Marks are idempotent, may come
// in any order, from any goroutine and from any copy of the ticket; a mark
// implies the earlier ones, and after Done none has an effect. The zero Ticket
// is inert.
//
// A ticket that is dropped without Done is released when the garbage collector
// finds it, and counted as leaked in the status of its worker; one that a Connector
// holds is released when its engine ends the request. Where a connector holds it,
// Done takes the connector's lock.
type Ticket struct {
	flight     *flight
	generation uint64
	worker     *Worker
	request    request
}

// request is a rank, or none, and a number of prompt tokens in one word: a
// ticket of more than four words would go through memory wherever it goes.
type request uint64

const (
	requestRankBits = 17
	maxRanks        = 1<<requestRankBits - 1 // one is for none
	maxTokens       = 1<<(64-requestRankBits) - 1
)

func newRequest(rank int, tokens int64) request {
	if rank < 0 || rank >= maxRanks {
		rank = NoRank
	}
	return request(min(max(tokens, 0), maxTokens))<<requestRankBits | request(rank+1)
}

func (r request) tokens() uint64 { return uint64(r >> requestRankBits) }

func (r request) rank() int { return int(r&(1<<requestRankBits-1)) - 1 }

func newTicket(w *Worker, r request, b *Booking, now int64) Ticket {
	f := newFlight()
	if f.watch.Load() != b.Watch { // hardly ever: storing costs more than looking
		f.watch.Store(b.Watch)
	}
	if b.Watch != nil {
		f.picked.Store(now)
		f.note.Store(b.Note)
	}
	word := f.word.Load() | flightActive
	generation := word &^ flightState
	f.worker, f.request = w.self, r
	f.word.Store(word)
	return Ticket{f, generation, w, r}
}

// live reports whether a word is of the ticket's flight, before its end.
func (t Ticket) live(word uint64) bool {
	return word&^flightState == t.generation && word&flightActive != 0
}

// hold marks that the connector of the worker is to hear of the end, and gives the
// request the rank if it has none. It fails after the end, and for a ticket that is
// held already.
func (t Ticket) hold(rank int) bool {
	var b *books // of the rank, if it is a new one
	var own uint64
	if t.request.rank() == NoRank {
		b, own = t.worker.rankBook(rank), uint64(rank+1)*flightRank
		b.pick(t.request.tokens()) // first, or a mark that follows at once would be booked before it
	}
	for {
		word := t.flight.word.Load()
		if !t.live(word) || word&flightHeld != 0 {
			if b != nil {
				b.unpick(t.request.tokens())
			}
			return false
		}
		if t.flight.word.CompareAndSwap(word, word|flightHeld|own) {
			if b != nil {
				b.mark(word, t.request.tokens()) // what the ticket has marked before
			}
			return true
		}
	}
}

// rankBook returns the books of the rank of the request, by a word of its flight.
func (t Ticket) rankBook(word uint64) *books {
	rank := t.request.rank()
	if rank == NoRank {
		rank = int(word&flightState/flightRank) - 1
	}
	return t.worker.rankBook(rank)
}

// mark books those flags of a live flight that are newly set, and returns them.
func (t Ticket) mark(flags uint64) (set uint64) {
	if t.flight == nil {
		return 0
	}
	for {
		word := t.flight.word.Load()
		set = flags &^ word
		if !t.live(word) || set == 0 {
			return 0
		}
		if t.flight.word.CompareAndSwap(word, word|set) {
			t.apply(set, t.rankBook(word))
			return set
		}
	}
}

// Dispatched marks that the request has been written to the engine: reports that come
// in from now on are taken to count it. Without this mark it is taken to have
// been dispatched with its first token.
func (t Ticket) Dispatched() { t.mark(flightLeft) }

// FirstToken marks that the engine has begun to answer: its prompt is computed.
func (t Ticket) FirstToken() {
	if t.flight == nil {
		return
	}
	told := t.flight.watched()
	if set := t.mark(flightLeft | flightStarted); set&flightStarted != 0 && told.watch != nil && told.watch.FirstToken != nil {
		told.watch.FirstToken(t.worker, t.worker.since(told.since), told.note)
	}
}

// AssumeStarted marks that the engine must have begun to answer by now, though nobody
// sees it: the answer comes in one piece, whose first byte is no first token. So no
// watch is told of a first token, neither now nor then. It is a guess of whoever
// picked: that the request has left remains for the host to mark, which knows.
func (t Ticket) AssumeStarted() { t.mark(flightStarted) }

// apply books flags on the worker and, if there is one, on the rank.
func (t Ticket) apply(set uint64, rank *books) {
	t.worker.books.mark(set, t.request.tokens())
	if rank != nil {
		rank.mark(set, t.request.tokens())
	}
}

func (b *books) mark(set, tokens uint64) {
	if set&flightLeft != 0 {
		b.left.Add(1)
	}
	if set&flightStarted != 0 {
		b.started.Add(1)
		if tokens > 0 {
			b.tokensStarted.Add(tokens)
		}
	}
}

// Done marks that the request is over, however it ended, and releases it. It
// acts on the incarnation of the worker that it was reserved on, and on no later
// one.
func (t Ticket) Done() {
	if t.flight == nil {
		return
	}
	held, end := t.release(false)
	if held {
		if c := t.worker.connector.Load().Value(); c != nil {
			c.ticketDone(t)
			flights.Put(t.flight)
		}
	}
	end.tell()
}

// ending is the end of a request that somebody wants to be told of. The zero ending
// is not.
type ending struct {
	watch    *Watch
	worker   *Worker
	response time.Duration
	note     uint64
}

// tell comes last of all that an end brings about, and with no lock held: a watch
// that panics must leave nothing undone, and one that reserves or releases must not
// wait for itself.
func (e ending) tell() {
	if e.watch != nil {
		e.watch.Done(e.worker, e.response, e.note)
	}
}

// release ends the flight. held reports whether this call did, of one that a connector
// holds: then the caller has to tell the connector, and to give the flight back. In
// any case the caller has to tell the watch.
func (t Ticket) release(leaked bool) (held bool, end ending) {
	var word uint64
	for {
		word = t.flight.word.Load()
		if !t.live(word) {
			return false, ending{}
		}
		if t.flight.word.CompareAndSwap(word, t.generation+flightGeneration) {
			break
		}
	}
	rank := t.rankBook(word)
	t.apply((flightLeft|flightStarted)&^word, rank)
	t.worker.books.finish(leaked)
	if rank != nil {
		rank.finish(leaked)
	}
	if told := t.flight.watched(); told.watch != nil && told.watch.Done != nil && word&flightStarted != 0 {
		end = ending{told.watch, t.worker, t.worker.since(told.since), told.note}
	}
	held = word&flightHeld != 0
	if !leaked && !held { // one that was leaked is on its way out
		flights.Put(t.flight)
	}
	return held, end
}

func (b *books) finish(leaked bool) {
	b.done.Add(1)
	if leaked {
		b.leaked.Add(1)
	}
}
