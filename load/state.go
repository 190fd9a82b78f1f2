package load

import "math"

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

// noReport is before any report.
const noReport = math.MinInt64

// rankState is the newest report of one rank, with what the books said when it
// came.
type rankState struct {
	report   Report
	received int64
	left     uint64 // of the worker's books
	own      int64  // in flight on the worker
	counted  uint64 // requests of the rank's books that it is taken to count; see books.counted
}

// outranks reports whether r must not take the place of the report: that one is
// of a higher source and came at since or later.
func (s *rankState) outranks(r *Report, since int64) bool {
	return s != nil && s.report.Source > r.Source && s.received >= since
}

// newer reports whether the report came after one received then.
func (s *rankState) newer(received int64) bool { return s != nil && s.received > received }

func (w *Worker) rankState(rank int, r Report, received int64) *rankState {
	own, _ := w.books.inFlight()
	s := &rankState{
		report:   r,
		received: received,
		left:     w.books.left.Load(),
		own:      own,
		counted:  w.rankBook(rank).counted(w.state.owned),
	}
	if r.Asked.known {
		s.left = min(s.left, r.Asked.left)
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
		if capacity, ok := r.report.KVCapacity.Get(); ok && capacity == 0 {
			booting = true
		}
		if s.owned && r.report.quiet {
			continue
		}
		if s.oldest == noReport {
			s.oldest, s.left = r.received, r.left
		}
		// Apart, since several reports can have been received at one moment, and
		// need not be put in the order of their receipt.
		s.oldest = min(s.oldest, r.received)
		s.left = min(s.left, r.left)
		if r.received >= newest {
			newest, s.own = r.received, r.own
		}
	}
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

// at returns the state as it is at a later time: itself, unless a report has
// gone stale.
func (s *state) at(now int64) *state {
	if (s.why != Trusted && s.why != Booting) || now <= s.expires {
		return s
	}
	stale := *s
	stale.trusted, stale.why = false, Stale
	return &stale
}
