package load

import (
	"math"
	"slices"
	"time"
)

// Feed is one advertisement of one worker: the handle through which reports of
// its ranks come in, until the worker is removed or advertises anew.
type Feed struct {
	worker *Worker
	ranks  int
	since  int64

	connector bool // it is a Connector's
	owned     bool // of that, whose requests all are ours
}

// Ranks returns the number of ranks advertised.
func (f *Feed) Ranks() int { return f.ranks }

// Worker returns the worker whose feed this is.
func (f *Feed) Worker() *Worker { return f.worker }

// Moment returns the present moment in the books of the worker, for the Asked of
// a report that is about to be asked for.
func (f *Feed) Moment() Moment { return f.worker.Moment() }

// Put takes the newest report of a rank.
func (f *Feed) Put(rank int, r Report) error {
	if r.Source == 0 {
		r.Source = SourcePush
	}
	return f.worker.table.put(f.worker, f, rank, r)
}

// silence makes a rank read idle, until its next report.
func (f *Feed) silence(rank int) {
	t := f.worker.table
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	old := f.worker.state
	if f.worker.gone || f.worker.feed != f || old.ranks[rank] == nil || old.ranks[rank].report.quiet {
		return
	}
	r := *old.ranks[rank]
	r.report.silence()
	s := old.next()
	s.ranks = slices.Clone(old.ranks)
	s.ranks[rank] = &r
	s.judge(now, t.window)
	t.setLocked(s)
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
	received := t.receivedAt(&r, now)
	if r.Received.IsZero() {
		r.Received = t.epoch.Add(time.Duration(now))
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if w.gone || w.state.noFeed == Dead || (f != nil && w.feed != f) {
		return ErrGone
	}
	old := w.state
	ranks := maxHostRanks
	if old.advertised {
		ranks = len(old.ranks)
	}
	if rank < 0 || rank >= ranks {
		return ErrNoRank
	}
	if bad != nil {
		w.dropLocked(rank, "bad_report", bad)
		return bad
	}
	// A host's own report of a rank that does not go stale would stay for ever.
	if f == nil && old.owned || rank < len(old.ranks) && old.ranks[rank].outranks(&r, now-t.window) {
		w.dropLocked(rank, "outranked", ErrOutranked)
		return ErrOutranked
	}
	if rank < len(old.ranks) && old.ranks[rank].newer(received) {
		w.dropLocked(rank, "superseded", ErrSuperseded)
		return ErrSuperseded
	}

	s := old.next()
	s.ranks = make([]*rankState, max(len(old.ranks), rank+1))
	copy(s.ranks, old.ranks)
	w.growLocked(len(s.ranks))
	w.stats[rank].report(&r)
	if r.quiet {
		r.silence() // after it was counted what the engine has said
	}
	s.ranks[rank] = w.rankState(rank, r, received)
	s.judge(now, t.window)
	if s.asideUntil != 0 && received >= s.asideSince {
		s.asideSince, s.asideUntil = 0, 0
		w.state = s
		t.rebuildLocked(now)
		return nil
	}
	t.setLocked(s)
	return nil
}

// receivedAt is when a report was received, on the clock of the table. A report
// from the future would stay fresh for too long; one from the beginning of time
// must not overflow its age.
func (t *Table) receivedAt(r *Report, now int64) int64 {
	if r.Received.IsZero() {
		return now
	}
	return max(min(now, int64(r.Received.Sub(t.epoch))), now-math.MaxInt64/4)
}

// maxHostRanks bounds what a host's Put can make the table allocate by a rank
// that it got wrong. Advertised ranks are bounded by whoever advertises.
const maxHostRanks = 1024
