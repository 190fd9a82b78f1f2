package load

import (
	"sync/atomic"
	"time"
	"weak"
)

// Worker is one incarnation of one inference engine as a target for requests.
// The handle stays usable after its removal and then changes nothing.
type Worker struct {
	// Read by every pick, written by picks and marks, and never by reports: first,
	// and on a cache line of its own.
	books books
	_     [cacheLine - 7*8]byte

	// immutable
	id    string
	url   string
	table *Table
	order uint64 // of addition
	self  weak.Pointer[Worker]

	rankBooks atomic.Pointer[[]*books]                // grows, under table.mu; a rank's books stay
	connector atomic.Pointer[weak.Pointer[Connector]] // its only one; nil if it never had one

	// position is where the worker stands in the view, or notInView. It is written
	// with table.mu held, and a hint: a reader's view may be older or renewed.
	position atomic.Int64

	// guarded by table.mu
	gone    bool
	healthy bool
	feed    *Feed // current; nil if none is advertised
	state   *state
	reason  string // in words, for NotPublishing and NoAnswer
	stats   []rankStats

	// Makes it a whole number of cache lines (on 64-bit machines), each of which the
	// allocator then makes begin where one begins.
	_ [48]byte
}

const cacheLine = 64

// ID returns the name under which the worker was added.
func (w *Worker) ID() string { return w.id }

// URL returns where its requests go, as it was given to Add. It may hold
// credentials; the ID is what is for logs.
func (w *Worker) URL() string { return w.url }

// notInView is the position of a worker that is not healthy, or gone.
const notInView = -1

// placeIn finds the worker in a view, as a rule where it was last put. Workers
// that came, went or were set aside since may have moved it.
func (w *Worker) placeIn(v *viewState) (i int, ok bool) {
	hint := w.position.Load()
	if hint == notInView {
		return 0, false
	}
	if hint < int64(v.all) && v.at(int(hint)).worker == w {
		return int(hint), true
	}
	for i := range v.all {
		if v.at(i).worker == w {
			return i, true
		}
	}
	return 0, false
}

// InFlight returns the own requests in flight on the worker.
func (w *Worker) InFlight() int64 {
	n, _ := w.books.inFlight()
	return n
}

// Own returns all that this gateway has on the worker now.
func (w *Worker) Own() Own { return w.books.read() }

// NoRank stands for a request whose rank the engine chooses.
const NoRank = -1

// Reserve counts one request on the worker from now on. promptTokens may be 0
// where they are not known. A rank that the worker does not have is as good as
// NoRank: the request counts on the worker alone.
func (w *Worker) Reserve(rank int, promptTokens int64) Ticket {
	return w.reserve(&Booking{Rank: rank, PromptTokens: promptTokens}, 0)
}

func (w *Worker) reserve(b *Booking, now int64) Ticket {
	r := w.pickRank(newRequest(b.Rank, b.PromptTokens))
	w.books.pick(r.tokens())
	return newTicket(w, r, b, now)
}

// ReserveIf is Reserve on the condition that nobody has reserved on the worker
// since that moment in its books. A picker that chose by what it saw then repeats
// its choice when this fails, so that simultaneous picks spread as if they had
// been made one after another.
func (w *Worker) ReserveIf(seen Seen, rank int, promptTokens int64) (Ticket, bool) {
	return w.reserveIf(seen, &Booking{Rank: rank, PromptTokens: promptTokens}, 0)
}

func (w *Worker) reserveIf(seen Seen, b *Booking, now int64) (Ticket, bool) {
	r := w.pickRank(newRequest(b.Rank, b.PromptTokens))
	if !w.books.tryPick(seen, r.tokens()) {
		if rank := w.rankBook(r.rank()); rank != nil {
			rank.unpick(r.tokens())
		}
		return Ticket{}, false
	}
	return newTicket(w, r, b, now), true
}

// since is how long ago a time on the table's clock was.
func (w *Worker) since(at int64) time.Duration { return time.Duration(w.table.now() - at) }

// pickRank counts a request on its rank. That comes before the worker's count: who
// has seen that one has to see this one too, or would choose the same rank.
func (w *Worker) pickRank(r request) request {
	if r.rank() == NoRank {
		return r
	}
	b := w.rankBook(r.rank())
	if b == nil {
		return newRequest(NoRank, int64(r.tokens())) // the rank may be there by the time of Done
	}
	b.pick(r.tokens())
	return r
}

// rankBook returns the books of a rank, and nil for NoRank and for a rank that
// the worker has never had.
func (w *Worker) rankBook(rank int) *books {
	if rank < 0 {
		return nil
	}
	if list := w.rankBooks.Load(); list != nil && rank < len(*list) {
		return (*list)[rank]
	}
	return nil
}

// SetHealthy says whether the worker may be picked at all. A new worker is
// healthy. An unhealthy one keeps its reports and its books, and is neither
// chosen nor part of any average. One whose connector has failed stays unhealthy.
func (w *Worker) SetHealthy(healthy bool) {
	t := w.table
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	dead := w.state.noFeed == Dead
	if w.gone || w.healthy == healthy || healthy && dead {
		return
	}
	w.healthy = healthy
	t.rebuildLocked(now)
}

// SetAside keeps the worker from being picked as long as there are others: its
// engine has just refused a request, or failed it. An engine that fails fast has
// short queues, and without this call draws every request. The worker comes back
// with the next report of any of its ranks, changed or not, that is received
// after this, and after one freshness window in any case.
func (w *Worker) SetAside() {
	t := w.table
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.gone {
		return
	}
	s := *w.state
	s.asideSince, s.asideUntil = now, now+t.window
	w.state = &s
	t.rebuildLocked(now)
}

// Advertise says that the engine publishes its load, on so many ranks, and
// returns the feed to put their reports to. What an earlier feed reported is
// dropped and that feed's handle goes dead; the books stay, since the requests
// do. Until every rank has reported, the worker is not trusted.
//
// On a worker whose engine is dead (see Connector.Fail) the feed is dead from the
// beginning.
func (w *Worker) Advertise(ranks int) *Feed { return w.advertise(ranks, Feed{}) }

func (w *Worker) advertise(ranks int, kind Feed) *Feed {
	ranks = max(ranks, 1)
	t := w.table
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &kind
	f.worker, f.ranks, f.since = w, ranks, now
	if w.gone || w.state.noFeed == Dead {
		w.growLocked(ranks) // its books go on
		return f
	}
	w.feed, w.reason = f, ""
	w.stats = nil
	w.growLocked(ranks)
	s := w.state.next()
	s.advertised, s.owned, s.noFeed, s.ranks = true, f.owned, NoFeed, make([]*rankState, ranks)
	s.judge(now, t.window)
	t.setLocked(s)
	return f
}

// SetNotPublishing says that the engine answers and does not publish its load, and
// why, in words. The reports of its feed are dropped and the feed goes dead; that of
// a Connector does not go by what the engine publishes and is left alone.
func (w *Worker) SetNotPublishing(reason string) { w.noFeed(NotPublishing, reason) }

// SetNoAnswer says that it could not be found out whether the engine publishes its
// load, and why, in words. A feed that it has is left alone: failing to ask is
// no news about it.
func (w *Worker) SetNoAnswer(reason string) { w.noFeed(NoAnswer, reason) }

func (w *Worker) noFeed(why Why, reason string) {
	t := w.table
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	fed := w.feed != nil && (why == NoAnswer || w.feed.connector && why != Dead)
	if w.gone || w.state.noFeed == Dead || fed {
		return
	}
	s := w.state.next()
	if s.advertised {
		s.ranks, w.stats = nil, nil
	} // else they are the host's own reports, which no engine's silence takes back
	s.advertised, s.owned, s.noFeed = false, false, why
	w.feed, w.reason = nil, reason
	s.judge(now, t.window)
	t.setLocked(s)
}

// Put takes a report by a host that feeds the table itself. A worker that never
// advertised is taken at face value on the ranks that it has; one that did has
// its report put to its feed.
func (w *Worker) Put(rank int, r Report) error {
	if r.Source == 0 {
		r.Source = SourceHost
	}
	return w.table.put(w, nil, rank, r)
}

// growLocked makes room for the statistics and the books of so many ranks.
func (w *Worker) growLocked(ranks int) {
	w.stats = append(w.stats, make([]rankStats, max(ranks-len(w.stats), 0))...)
	old := w.rankBooks.Load()
	if old != nil && len(*old) >= ranks {
		return
	}
	var list []*books // which escapes, and so is not for the common case above
	if old != nil {
		list = *old
	}
	// Readers hold the old list; only what lies behind its end is written.
	for len(list) < ranks {
		list = append(list, new(books))
	}
	w.rankBooks.Store(&list)
}
