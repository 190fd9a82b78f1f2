package load

import (
	"math"
	"sync/atomic"
	"time"
)

// Worker is one incarnation of one inference engine as a target for requests.
// The handle stays usable after its removal and then changes nothing.
type Worker struct {
	// Read by every pick, written by marks and never by reports: first, and on
	// cache lines of its own.
	books books
	_     [cacheLine]byte

	// immutable
	id    string
	url   string
	table *Table
	order uint64 // of addition

	rankBooks atomic.Pointer[[]*books] // grows, under table.mu; a rank's books stay

	// position in the view, written with table.mu held. A reader checks what it
	// finds there, since the view that it holds may be older.
	position atomic.Int64

	// guarded by table.mu
	gone            bool
	healthy         bool
	overloadedUntil int64 // 0: not overloaded
	feed            *Feed // current; nil until one is advertised or put to
	state           *state
	reason          string // in words, for NotPublishing and NoAnswer
	stats           []rankStats
}

const cacheLine = 64

// ID returns the name under which the worker was added.
func (w *Worker) ID() string { return w.id }

// URL returns where its requests go, as it was given to Add. It may hold
// credentials; the ID is what is for logs.
func (w *Worker) URL() string { return w.url }

// in finds the worker in a view at the place where it was last put.
func (w *Worker) in(v *viewState) (i int, ok bool) {
	i = int(w.position.Load())
	return i, i < v.n && v.at(i).worker == w
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
	r := newRequest(rank, promptTokens)
	w.books.pick(r.tokens())
	return w.reserved(r)
}

// ReserveIf is Reserve on the condition that nobody has reserved on the worker
// since that moment in its books. A picker that chose by what it saw then repeats
// its choice when this fails, so that simultaneous picks spread as if they had
// been made one after another.
func (w *Worker) ReserveIf(seen Seen, rank int, promptTokens int64) (Ticket, bool) {
	r := newRequest(rank, promptTokens)
	if !w.books.tryPick(seen, r.tokens()) {
		return Ticket{}, false
	}
	return w.reserved(r), true
}

func (w *Worker) reserved(r request) Ticket {
	if rank := r.rank(); rank != NoRank {
		if b := w.rankBook(rank); b != nil {
			b.pick(r.tokens())
		} else {
			r = newRequest(NoRank, int64(r.tokens())) // the rank may be there by the time of Done
		}
	}
	return newTicket(w, r)
}

// rankBook returns the books of a rank, and nil for NoRank and for a rank that
// the worker has never had.
func (w *Worker) rankBook(rank int) *books {
	if rank == NoRank {
		return nil
	}
	if list := w.rankBooks.Load(); list != nil && rank < len(*list) {
		return (*list)[rank]
	}
	return nil
}

// SetHealthy says whether the worker may be picked at all. A new worker is
// healthy. An unhealthy one keeps its reports and its books, and is neither
// chosen nor part of any average.
func (w *Worker) SetHealthy(healthy bool) {
	t := w.table
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.gone || w.healthy == healthy {
		return
	}
	w.healthy = healthy
	t.rebuildLocked(now)
}

// MarkOverloaded sets the worker aside, for as long as others are left: its
// engine has just refused a request. The mark clears with the next report of any
// of its ranks, changed or not, and after one freshness window in any case.
func (w *Worker) MarkOverloaded() {
	t := w.table
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.gone {
		return
	}
	w.overloadedUntil = now + t.window
	t.rebuildLocked(now)
}

// Advertise says that the engine publishes its load, on so many ranks, and
// returns the feed to put their reports to. What an earlier feed reported is
// dropped and that feed's handle goes dead; the books stay, since the requests
// do. Until every rank has reported, the worker is not trusted.
func (w *Worker) Advertise(ranks int) *Feed {
	ranks = max(ranks, 1)
	t := w.table
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &Feed{worker: w, ranks: ranks, since: now}
	if w.gone {
		return f
	}
	w.feed, w.reason = f, ""
	w.stats = nil
	w.growLocked(ranks)
	s := &state{worker: w, advertised: true, ranks: make([]*rankState, ranks)}
	s.judge(now, t.window)
	t.setLocked(s)
	return f
}

// NotPublishing says that the engine answers and does not publish its load, and
// why, in words. The reports of its feed are dropped and the feed goes dead.
func (w *Worker) NotPublishing(reason string) { w.noFeed(NotPublishing, reason) }

// NoAnswer says that it could not be found out whether the engine publishes its
// load, and why, in words. A feed that it has is left alone: failing to ask is
// no news about it.
func (w *Worker) NoAnswer(reason string) { w.noFeed(NoAnswer, reason) }

func (w *Worker) noFeed(why Why, reason string) {
	t := w.table
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.gone || (why == NoAnswer && w.feed != nil) {
		return
	}
	s := &state{worker: w, noFeed: why}
	if !w.state.advertised {
		s.ranks = w.state.ranks // the host's own reports, which no engine's silence takes back
	} else {
		w.stats = nil
	}
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
	var list []*books
	if old := w.rankBooks.Load(); old != nil {
		list = append(list, *old...)
	}
	if len(list) >= ranks {
		return
	}
	for len(list) < ranks {
		list = append(list, new(books))
	}
	w.rankBooks.Store(&list)
}

// Feed is one advertisement of one worker: the handle through which reports of
// its ranks come in, until the worker is removed or advertises anew.
type Feed struct {
	worker *Worker
	ranks  int
	since  int64
}

// Ranks returns the number of ranks advertised.
func (f *Feed) Ranks() int { return f.ranks }

// Worker returns the worker whose feed this is.
func (f *Feed) Worker() *Worker { return f.worker }

// Put takes the newest report of a rank.
func (f *Feed) Put(rank int, r Report) error {
	if r.Source == 0 {
		r.Source = SourcePush
	}
	return f.worker.table.put(f.worker, f, rank, r)
}

// Drop says that a message of a rank was not taken, with a short stable reason
// to count it under. It shows in the status of the worker and changes no load.
func (f *Feed) Drop(rank int, reason string, err error) {
	t := f.worker.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if !f.worker.gone && f.worker.feed == f {
		f.worker.dropLocked(rank, reason, err)
	}
}

func (w *Worker) dropLocked(rank int, reason string, err error) {
	if rank >= 0 && rank < len(w.stats) {
		w.stats[rank].drop(reason, err)
	}
}

// put is Put of a worker (f nil: whatever feed it has) and of a feed.
func (t *Table) put(w *Worker, f *Feed, rank int, r Report) error {
	bad := r.check()
	now := t.now()
	received := now
	if r.Received.IsZero() {
		r.Received = t.epoch.Add(time.Duration(now))
	} else {
		// A report from the future would stay fresh for too long.
		received = min(now, int64(r.Received.Sub(t.epoch)))
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if w.gone || (f != nil && w.feed != f) {
		return ErrGone
	}
	old := w.state
	if rank < 0 || rank >= maxRanks || (old.advertised && rank >= len(old.ranks)) {
		return ErrNoRank
	}
	if bad != nil {
		w.dropLocked(rank, "bad_report", bad)
		return bad
	}
	if rank < len(old.ranks) && old.ranks[rank].outranks(&r, now-t.window) {
		w.dropLocked(rank, "outranked", ErrOutranked)
		return ErrOutranked
	}

	s := &state{worker: w, advertised: old.advertised, noFeed: old.noFeed}
	s.ranks = make([]*rankState, max(len(old.ranks), rank+1))
	copy(s.ranks, old.ranks)
	w.growLocked(len(s.ranks))
	s.ranks[rank] = w.rankState(rank, r, received)
	s.judge(now, t.window)
	w.stats[rank].report(&r)
	if w.overloadedUntil != 0 {
		w.overloadedUntil, w.state = 0, s
		t.rebuildLocked(now)
		return nil
	}
	t.setLocked(s)
	return nil
}

// maxRanks bounds what a host's Put can make the table allocate by a rank that
// it got wrong. Advertised ranks are bounded by whoever advertises.
const maxRanks = 1 << 16

// Why says why a worker is not trusted.
type Why uint8

const (
	Trusted       Why = iota
	NoFeed            // nothing is known yet about whether it publishes its load
	NoAnswer          // could not be found out whether it does
	NotPublishing     // it answers and does not
	NeverReported     // some advertised rank never reported
	Stale             // some rank's newest report is older than the window
	Booting           // some rank reports a KV capacity of 0
)

func (w Why) String() string {
	switch w {
	case Trusted:
		return "trusted"
	case NoFeed:
		return "no_feed"
	case NoAnswer:
		return "no_answer"
	case NotPublishing:
		return "not_publishing"
	case NeverReported:
		return "never_reported"
	case Stale:
		return "stale"
	case Booting:
		return "booting"
	}
	return "unknown"
}

// MarshalText encodes the reason as its name.
func (w Why) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// state is what is known of one worker. It is immutable once published.
type state struct {
	// What a pick reads of each candidate, on one cache line.
	worker       *Worker
	depth        int64  // of all ranks
	leftAtOldest uint64 // books.left when the oldest of the ranks' newest reports came
	trusted      bool
	why          Why
	noFeed       Why // what is to be said where nothing is advertised and nothing reports
	advertised   bool

	oldest  int64 // when that oldest report came
	expires int64 // the last nanosecond at which it is fresh
	own     int64 // own requests in flight when the newest report came

	ranks []*rankState // nil where the rank never reported
}

// noReport is before any report.
const noReport = math.MinInt64

// rankState is the newest report of one rank, with what the books said when it
// came.
type rankState struct {
	report   Report
	received int64
	left     uint64 // of the worker's books
	rankLeft uint64 // of the rank's books
	own      int64  // in flight on the worker
}

// outranks reports whether r must not take the place of the report: that one is
// of a higher source and came at since or later.
func (s *rankState) outranks(r *Report, since int64) bool {
	return s != nil && s.report.Source > r.Source && s.received >= since
}

func (w *Worker) rankState(rank int, r Report, received int64) *rankState {
	own, _ := w.books.inFlight()
	return &rankState{
		report:   r,
		received: received,
		left:     w.books.left.Load(),
		rankLeft: (*w.rankBooks.Load())[rank].left.Load(),
		own:      own,
	}
}

// judge fills in what follows from the ranks.
func (s *state) judge(now, window int64) {
	s.oldest = noReport
	var missing, booting bool
	newest := int64(noReport)
	for _, r := range s.ranks {
		if r == nil {
			// A rank that was never advertised is not missed: the host put a
			// report for a higher one.
			missing = missing || s.advertised
			continue
		}
		s.depth = addSat(s.depth, r.report.depth())
		if s.oldest == noReport || r.received < s.oldest {
			s.oldest, s.leftAtOldest = r.received, r.left
		}
		if r.received >= newest {
			newest, s.own = r.received, r.own
		}
		if capacity, ok := r.report.KVCapacity.Get(); ok && capacity == 0 {
			booting = true
		}
	}
	s.expires = s.oldest + window
	switch s.why = Trusted; {
	case missing:
		s.why = NeverReported
	case s.oldest == noReport:
		s.why = s.noFeed
	case now > s.expires:
		s.why = Stale
	case booting:
		s.why = Booting
	}
	s.trusted = s.why == Trusted
}

// at returns the state as it is at a later time: itself, unless a report has
// gone stale.
func (s *state) at(now int64) *state {
	if !s.trusted || now <= s.expires {
		return s
	}
	stale := *s
	stale.trusted, stale.why = false, Stale
	return &stale
}
