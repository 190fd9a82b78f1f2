package load

import (
	"math"
	"time"
)

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
	Dead              // the engine is said to have died; see Connector.Fail
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
	case Dead:
		return "dead"
	}
	return "unknown"
}

// MarshalText encodes the reason as its name.
func (w Why) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText decodes what MarshalText encodes.
func (w *Why) UnmarshalText(b []byte) error { return byName(w, b, Dead) }

// state is what is known of one worker. It is immutable once published.
type state struct {
	// What a pick reads of each candidate, close together.
	worker     *Worker
	depth      int64  // of all ranks
	left       uint64 // books.left when the first of the ranks' newest reports came
	trusted    bool
	owned      bool // every request of the engine is ours; see Connector
	why        Why
	noFeed     Why // what is to be said where nothing is advertised and nothing reports
	advertised bool

	oldest  int64 // when the oldest of the ranks' newest reports came
	expires int64 // the last nanosecond at which it is fresh
	own     int64 // own requests in flight when the newest report came
	totals  Totals

	// The worker is set aside until then, or until a report that was received
	// since. 0: it is not.
	asideSince, asideUntil int64

	ranks []*rankState // nil where the rank never reported; not to be written to
}

// next returns a copy to make the next state of the worker from; judge has to
// follow.
func (s *state) next() *state {
	next := *s
	return &next
}

// Totals is what the newest reports of a worker's ranks say together, or that of one
// rank, beside what this gateway had there when they came.
type Totals struct {
	Running, Waiting int64
	WaitingTokens    Maybe[int64]   // unknown if one of the reports does not tell
	KVTokens         Maybe[int64]   // capacity of the KV cache; unknown if one does not tell it in tokens
	KVUsage          Maybe[float64] // of the fullest rank that tells

	// At is when the oldest of the reports came, on the clock of [View.Now]; 0 if there
	// is none.
	At time.Duration

	// Own and OwnTokens, the prompt tokens of all own requests picked by then (see
	// Count), are of the worker, as they were on average when its ranks reported, or
	// were asked: which of its requests are on which rank need not be known. Those of a
	// rank are of the requests that it was chosen for, when its report came.
	Own       Own
	OwnTokens uint64

	// Owned says that every request of the engine is from this gateway; see Connector.
	Owned bool
}

func (t *Totals) add(s *rankState, first bool) {
	r := &s.report
	t.Running, t.Waiting = addSat(t.Running, r.Running), addSat(t.Waiting, r.Waiting)
	t.WaitingTokens = sumOf(t.WaitingTokens, r.WaitingTokens, first)
	capacity := r.KVCapacity
	if r.Source == SourceBatch {
		capacity = Maybe[int64]{} // in pages
	}
	t.KVTokens = sumOf(t.KVTokens, capacity, first)
	usage := r.KVUsage
	if !usage.known {
		usage = r.usageFromTokens()
	}
	if usage.known && usage.value >= t.KVUsage.value {
		t.KVUsage = usage
	}
	if at := time.Duration(s.received); first || at < t.At {
		t.At = at
	}
}

// sumOf is unknown as soon as one summand is.
func sumOf(sum, m Maybe[int64], first bool) Maybe[int64] {
	if !m.known || !first && !sum.known {
		return Maybe[int64]{}
	}
	return Known(addSat(sum.value, m.value))
}

func (t *Totals) addOwn(at *booked) {
	t.Own.InFlight += at.InFlight
	t.Own.Unstarted += at.Unstarted
	t.Own.PendingTokens += at.PendingTokens
	t.OwnTokens += at.tokens
}

// average makes of what was added once for each rank what there was.
func (t *Totals) average(ranks int64) {
	if ranks > 1 {
		for _, v := range [...]*int64{&t.Own.InFlight, &t.Own.Unstarted, &t.Own.PendingTokens} {
			*v = (*v + ranks/2) / ranks
		}
		t.OwnTokens /= uint64(ranks)
	}
}

// rankTotals is what one rank last reported.
func (s *state) rankTotals(rank int) (t Totals, ok bool) {
	if rank < 0 || rank >= len(s.ranks) {
		return Totals{}, false
	}
	t.Owned = s.owned
	r := s.ranks[rank]
	if r == nil {
		return t, t.Owned
	}
	t.add(r, true)
	t.addOwn(&r.onRank)
	return t, true
}

// noReport is before any report.
const noReport = math.MinInt64

// rankState is the newest report of one rank, with what the books said when it
// came.
type rankState struct {
	report   Report
	received int64
	onWorker booked
	onRank   booked
}

// outranks reports whether r must not take the place of the report: that one is
// of a higher source and came at since or later.
func (s *rankState) outranks(r *Report, since int64) bool {
	return s != nil && s.report.Source > r.Source && s.received >= since
}

// newer reports whether the report came after one received then.
func (s *rankState) newer(received int64) bool { return s != nil && s.received > received }

func (w *Worker) rankState(rank int, r Report, received int64) *rankState {
	s := &rankState{
		report:   r,
		received: received,
		onWorker: w.books.booked(false),
		onRank:   w.rankBook(rank).booked(w.state.owned),
	}
	if asked := r.Asked.moment; asked != nil && asked.worker == w {
		s.onWorker = asked.booked
	}
	return s
}

// judge fills in what follows from the ranks.
//
// Where all requests are ours, silence is no reason for distrust: a rank that
// has nothing to do says nothing, and what it has to do is in our books. Nor has
// a rank that is quiet an age: it is idle now.
func (s *state) judge(now, window int64) {
	s.depth, s.left, s.own, s.oldest = 0, 0, 0, noReport
	s.totals = Totals{Owned: s.owned}
	ranks := int64(0)
	var missing, booting bool
	newest := int64(noReport)
	for _, r := range s.ranks {
		if r == nil {
			// A rank that was never advertised is not missed: the host put a
			// report for a higher one.
			missing = missing || s.advertised && !s.owned
			continue
		}
		s.depth = addSat(s.depth, r.report.depth())
		s.totals.add(r, ranks == 0)
		s.totals.addOwn(&r.onWorker)
		ranks++
		if capacity, ok := r.report.KVCapacity.Get(); ok && capacity == 0 {
			booting = true
		}
		if s.owned && r.report.quiet {
			continue
		}
		if s.oldest == noReport {
			s.oldest, s.left = r.received, r.onWorker.counted
		}
		// Apart, since several reports can have been received at one moment, and
		// need not be put in the order of their receipt.
		s.oldest = min(s.oldest, r.received)
		s.left = min(s.left, r.onWorker.counted)
		if r.received >= newest {
			newest, s.own = r.received, r.onWorker.InFlight
		}
	}
	s.totals.average(ranks)
	s.expires = s.oldest + window
	if s.owned {
		s.expires = math.MaxInt64
		s.own, _ = s.worker.books.inFlight()
	}
	switch s.why = Trusted; {
	case missing:
		s.why = NeverReported
	case s.oldest == noReport && !s.owned:
		s.why = s.noFeed
	case now > s.expires:
		s.why = Stale
	case booting:
		s.why = Booting
	}
	s.trusted = s.why == Trusted
}

// ages reports whether the state is another one once it has expired.
func (s *state) ages() bool { return s.why == Trusted || s.why == Booting }

// at returns the state as it is at a later time: itself, unless a report has
// gone stale.
func (s *state) at(now int64) *state {
	if !s.ages() || now <= s.expires {
		return s
	}
	stale := *s
	stale.trusted, stale.why = false, Stale
	return &stale
}
