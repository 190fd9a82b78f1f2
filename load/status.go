package load

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// WorkerStatus is all that a person may want to know of one worker.
type WorkerStatus struct {
	ID      string `json:"id"`
	Healthy bool   `json:"healthy"`
	Aside   bool   `json:"aside"` // see Worker.SetAside
	Trusted bool   `json:"trusted"`
	Why     Why    `json:"why"`    // "trusted", or why it is not
	Reason  string `json:"reason"` // the same in words, with the ranks it is about; empty if trusted

	Advertised int           `json:"advertised_ranks"` // 0 if it advertises no load feed
	Owned      bool          `json:"owned"`            // all its requests are ours: its ranks do not go stale; see Connector
	Depth      Maybe[int64]  `json:"depth"`            // running + waiting of all ranks, or if owned InFlight; unknown unless trusted
	Age        time.Duration `json:"age_ns"`           // of the oldest rank's newest report; 0 if there is none

	InFlight      int64  `json:"in_flight"`      // own requests, picked and not done
	SinceReport   int64  `json:"since_report"`   // of those, that its reports cannot have counted; 0 without reports
	Unstarted     int64  `json:"unstarted"`      // of those, without a first token
	PendingTokens int64  `json:"pending_tokens"` // prompt tokens of those, where known
	Picked        uint64 `json:"picked"`         // own requests since the worker was added
	Leaked        uint64 `json:"leaked"`         // of those, dropped by the host without Done

	Ranks []RankStatus `json:"ranks"`
}

// RankStatus is what is known of one rank.
type RankStatus struct {
	Rank     int               `json:"rank"`
	Fresh    bool              `json:"fresh"`     // the newest report is within the window, or need not be; see WorkerStatus.Owned
	Quiet    bool              `json:"quiet"`     // a Connector found it without requests of ours, and it has not been heard since
	Age      time.Duration     `json:"age_ns"`    // of the newest report; without any, the time since the feed began
	Report   *Report           `json:"report"`    // the newest; nil if there has been none
	InFlight int64             `json:"in_flight"` // own requests pinned to this rank
	Reports  uint64            `json:"reports"`   // taken
	Flawed   uint64            `json:"flawed"`    // of those, with something made unknown
	Dropped  map[string]uint64 `json:"dropped"`   // messages not taken, by reason
	LastDrop string            `json:"last_drop"` // the newest drop's error

	// NeverNonzero names what has been 0 or unknown in every report of this feed.
	// An engine that renamed a field looks like one that has nothing to report in
	// it; a count that is 0 under load for hours is worth a look.
	NeverNonzero []string `json:"never_nonzero"`
}

// rankStats counts what came in for one rank of one feed. Guarded by Table.mu.
type rankStats struct {
	reports  uint64
	flawed   uint64
	nonzero  uint16 // see Report.nonzero, of all reports
	dropped  map[string]uint64
	lastDrop error
}

func (s *rankStats) report(r *Report) {
	s.reports++
	s.nonzero |= r.nonzero()
	if r.Flaws != 0 {
		s.flawed++
	}
}

func (s *rankStats) drop(reason string, err error) {
	if s.dropped == nil {
		s.dropped = make(map[string]uint64)
	}
	s.dropped[reason]++
	s.lastDrop = err
}

// Status returns the status of every worker, eligible or not, ordered by id. It
// is for people and costs accordingly.
func (t *Table) Status() []WorkerStatus {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]WorkerStatus, 0, len(t.workers))
	for _, w := range t.workers {
		out = append(out, w.statusLocked(now))
	}
	slices.SortFunc(out, func(a, b WorkerStatus) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Status returns the status of the worker. Of one that was removed it is what
// was last known.
func (w *Worker) Status() WorkerStatus {
	now := w.table.now()
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	return w.statusLocked(now)
}

func (w *Worker) statusLocked(now int64) WorkerStatus {
	s := w.state.at(now)
	own := w.books.read()
	st := WorkerStatus{
		ID:            w.id,
		Healthy:       w.healthy,
		Aside:         s.asideUntil > now,
		Trusted:       s.trusted,
		Why:           s.why,
		InFlight:      own.InFlight,
		Unstarted:     own.Unstarted,
		PendingTokens: own.PendingTokens,
		Picked:        w.books.picked.Load(),
		Leaked:        w.books.leaked.Load(),
		Ranks:         make([]RankStatus, len(s.ranks)),
	}
	if s.advertised {
		st.Advertised = len(s.ranks)
		st.Owned = s.owned
	}
	if s.trusted {
		st.Depth = Known(s.depth)
		if s.owned {
			st.Depth = Known(own.InFlight) // see Entry.DepthNow
		}
	}
	if s.oldest != noReport {
		st.SinceReport, _ = w.books.sinceReport(s.left)
		st.Age = time.Duration(max(now-s.oldest, 0))
	}
	for i, r := range s.ranks {
		st.Ranks[i] = w.rankStatusLocked(i, r, now)
	}
	st.Reason = w.reasonLocked(s, st.Ranks)
	return st
}

func (w *Worker) rankStatusLocked(rank int, r *rankState, now int64) RankStatus {
	stats := &w.stats[rank]
	inFlight, _ := (*w.rankBooks.Load())[rank].inFlight()
	rs := RankStatus{
		Rank:     rank,
		InFlight: inFlight,
		Reports:  stats.reports,
		Flawed:   stats.flawed,
		Dropped:  maps.Clone(stats.dropped),
	}
	if stats.lastDrop != nil {
		rs.LastDrop = stats.lastDrop.Error()
	}
	if r == nil {
		rs.Fresh = w.state.owned
		if w.feed != nil {
			rs.Age = time.Duration(now - w.feed.since)
		}
		return rs
	}
	report := r.report
	rs.Report = &report
	for i, name := range fieldNames {
		if stats.nonzero&(1<<i) == 0 {
			rs.NeverNonzero = append(rs.NeverNonzero, name)
		}
	}
	rs.Age = time.Duration(max(now-r.received, 0))
	rs.Fresh = w.state.owned || int64(rs.Age) <= w.table.window
	rs.Quiet = report.quiet
	return rs
}

// reasonLocked says in words why the worker is not trusted. More than one thing
// can be wrong at once, and each is named with its ranks.
func (w *Worker) reasonLocked(s *state, ranks []RankStatus) string {
	switch s.why {
	case Trusted:
		return ""
	case NoFeed, NoAnswer, NotPublishing, Dead:
		if w.reason != "" {
			return w.reason
		}
		return "nothing has been heard of its load yet"
	}
	var never, stale, booting []string
	for _, r := range ranks {
		name := fmt.Sprint(r.Rank)
		switch {
		case r.Report == nil && s.advertised:
			if r.LastDrop != "" {
				name += " (last message dropped: " + r.LastDrop + ")"
			}
			never = append(never, name)
		case r.Report == nil:
		case !r.Fresh:
			stale = append(stale, fmt.Sprintf("%s (%v old)", name, r.Age.Round(time.Millisecond)))
		case r.Report.KVCapacity.Or(1) == 0:
			booting = append(booting, name)
		}
	}
	var parts []string
	for _, p := range [...]struct {
		what  string
		ranks []string
	}{{"never reported", never}, {"stale", stale}, {"booting (KV capacity 0)", booting}} {
		if len(p.ranks) > 0 {
			parts = append(parts, fmt.Sprintf("%s: rank %s of %d", p.what, strings.Join(p.ranks, ", "), len(ranks)))
		}
	}
	return strings.Join(parts, "; ")
}
