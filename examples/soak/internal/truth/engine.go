package truth

import (
	"slices"
	"sync"
	"time"
)

// Fault is something that is wrong with an engine, or several of them.
type Fault uint8

const (
	Dying   Fault = 1 << iota // a life ends, and what is under way with it
	Down                      // there is no life
	Frozen                    // it hangs
	Failing                   // it fails requests instead of taking them
	Mute                      // some rank of it publishes nothing good
	Hidden                    // it says that it has no load sockets, and has none
)

// span is a time during which something was wrong.
type span struct {
	fault    Fault
	from, to time.Time // to is zero while it lasts
}

func (s span) overlaps(from, to time.Time) bool {
	return !s.from.After(to) && (s.to.IsZero() || !s.to.Before(from))
}

// Report is a good load message of one rank, as far as it is compared.
type Report struct {
	Rank                  int
	Seq                   int64
	Running, Waiting, KVs int64
}

// run is reports of one rank that say the same, one right after the other. A flood is
// remembered as a few of them.
type run struct {
	Report           // the first
	last   int64     // seq of the last
	at     time.Time // before the first was handed to the socket
}

// runLength is how long a run may take, and so how far off at is.
const runLength = 10 * time.Millisecond

func (n *run) continuedBy(r Report, now time.Time) bool {
	next := n.Report
	next.Seq = n.last + 1
	return r == next && now.Sub(n.at) < runLength
}

func (n *run) has(r Report) bool {
	if r.Seq < n.Seq || r.Seq > n.last {
		return false
	}
	r.Seq = n.Seq
	return r == n.Report
}

// voice is what one rank has said.
type voice struct {
	spoke time.Time // the last time
	runs  []run     // of the last keepReports, oldest first
}

// keepReports is for how long reports are remembered one by one. Whoever looks one up
// does so soon after it came.
const keepReports = 15 * time.Second

func (v *voice) says(r Report, now time.Time) {
	v.spoke = now
	if n := len(v.runs); n > 0 && v.runs[n-1].continuedBy(r, now) {
		v.runs[n-1].last++
		return
	}
	if len(v.runs) == cap(v.runs) { // the one moment at which to look costs next to nothing
		old := 0
		for old < len(v.runs) && now.Sub(v.runs[old].at) > keepReports {
			old++
		}
		v.runs = slices.Clone(v.runs[old:])
	}
	v.runs = append(v.runs, run{Report: r, last: r.Seq, at: now})
}

// find returns when the rank said that, before then.
func (v *voice) find(r Report, before time.Time) (at time.Time, ok bool) {
	for _, n := range slices.Backward(v.runs) {
		if !n.at.After(before) && n.has(r) {
			return n.at, true
		}
	}
	return at, false
}

// life is a life of an engine, by how many ranks it has and when it began.
type life struct {
	ranks int
	born  time.Time
}

// Engine is what really becomes of one engine. It is safe for concurrent use.
type Engine struct {
	ID   string // its URL, by which the tables know it
	Name string

	mu     sync.Mutex
	ranks  int       // of the present life; 0: there is none
	born   time.Time // the present life
	lives  []life    // that there were in the time that is remembered, oldest first
	voices []voice   // by rank, of all lives
	spans  []span
}

func (e *Engine) String() string { return e.Name + " (" + e.ID + ")" }

// Lives says that a life begins, with so many ranks. It comes before the life does.
func (e *Engine) Lives(ranks int) {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ranks, e.born = ranks, now
	for len(e.lives) > 1 && now.Sub(e.lives[1].born) > memory { // a life ends when the next begins
		e.lives = slices.Delete(e.lives, 0, 1)
	}
	e.lives = append(e.lives, life{ranks, now})
	e.endLocked(Down|Frozen|Failing|Mute|Hidden, now)
}

// Dies says that the life ends. It comes before that, and what it returns after.
func (e *Engine) Dies() (died func()) {
	e.Begins(Dying | Down)
	return func() {
		now := time.Now()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.ranks = 0
		e.endLocked(Dying, now)
	}
}

// Begins says that something goes wrong. It comes before that.
func (e *Engine) Begins(faults Fault) {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spans = slices.DeleteFunc(e.spans, func(s span) bool { return !s.to.IsZero() && now.Sub(s.to) > memory })
	for f := Dying; f <= Hidden; f <<= 1 {
		if f&faults != 0 {
			e.spans = append(e.spans, span{fault: f, from: now})
		}
	}
}

// Ends says that something is not wrong any more. It comes after that.
func (e *Engine) Ends(faults Fault) {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endLocked(faults, now)
}

func (e *Engine) endLocked(faults Fault, now time.Time) {
	for i := range e.spans {
		if s := &e.spans[i]; s.fault&faults != 0 && s.to.IsZero() {
			s.to = now
		}
	}
}

// Had reports whether any of the faults was there at any moment from then to then.
func (e *Engine) Had(faults Fault, from, to time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.spans, func(s span) bool { return s.fault&faults != 0 && s.overlaps(from, to) })
}

// Hung returns for how long the engine hung at a stretch up to then, of the stretches
// that reach beyond from.
func (e *Engine) Hung(from, to time.Time) (longest time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.spans {
		if s.fault == Frozen && s.overlaps(from, to) {
			end := to
			if !s.to.IsZero() && s.to.Before(to) {
				end = s.to
			}
			longest = max(longest, end.Sub(s.from))
		}
	}
	return longest
}

// Life returns the number of ranks and the birth of the present life; no ranks where
// there is none.
func (e *Engine) Life() (ranks int, born time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ranks, e.born
}

// HadRanks reports whether there was a life with so many ranks by then, as far as that is
// remembered.
func (e *Engine) HadRanks(ranks int, by time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.lives, func(l life) bool { return l.ranks == ranks && !l.born.After(by) })
}

// Publishing returns since when every rank has been free to publish, if it is.
func (e *Engine) Publishing() (since time.Time, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	since, ok = e.born, e.ranks > 0
	for _, s := range e.spans {
		switch {
		case s.fault&(Down|Frozen|Mute|Hidden) == 0:
		case s.to.IsZero():
			ok = false
		case s.to.After(since):
			since = s.to
		}
	}
	return since, ok
}

// Sends says that a rank is about to publish a good report.
func (e *Engine) Sends(r Report) {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.voices) <= r.Rank {
		e.voices = append(e.voices, voice{})
	}
	e.voices[r.Rank].says(r, now)
}

// Spoke returns when a rank last published a good report, in whichever life, if it
// ever has.
func (e *Engine) Spoke(rank int) (at time.Time, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if rank >= len(e.voices) || e.voices[rank].spoke.IsZero() {
		return at, false
	}
	return e.voices[rank].spoke, true
}

// Find returns when a report was sent that somebody received then, and by which rank: by
// its own, or if that is longer ago than within, by any. Messages that say the same under
// the same number are sent in every life of an idle engine.
func (e *Engine) Find(r Report, received time.Time, within time.Duration) (at time.Time, rank int, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var best time.Time
	by := -1
	for rank := range e.voices {
		said := r
		said.Rank = rank
		at, ok := e.voices[rank].find(said, received)
		if !ok {
			continue
		}
		if rank == r.Rank && received.Sub(at) <= within {
			return at, rank, true
		}
		if by < 0 || at.After(best) {
			best, by = at, rank
		}
	}
	return best, by, by >= 0
}
