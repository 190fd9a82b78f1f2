package watch

import (
	"context"
	"fmt"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/soak/internal/check"
	"github.com/plimsoll-go/plimsoll/examples/soak/internal/truth"
	"github.com/plimsoll-go/plimsoll/load"
)

// Limits are how long a table may be wrong. The package comment says why.
type Limits struct {
	Window    time.Duration // of the table
	Way       time.Duration // of a report
	Reconnect time.Duration // of a subscriber to an engine that came back
	List      time.Duration // until a change of the list is acted upon
	Trust     time.Duration // until a worker that publishes as it should is trusted
	Unhide    time.Duration // and one that has said that it does not publish
	Settle    time.Duration // until one that is well again may be picked
}

// Birth is how long a picture without all ranks of a life may be trusted after its
// birth.
func (l Limits) Birth() time.Duration { return l.Window + l.Window/10 + l.Reconnect + l.Way }

// Checks are what an observer checks.
type Checks struct {
	Stale      *check.Check
	Incomplete *check.Check
	Invented   *check.Check
	List       *check.Check
	Trust      *check.Check
	Healthy    *check.Check
}

// NewChecks adds the checks to a list. pictures is how many pictures of workers have to
// be looked at, and reports how many reports.
func NewChecks(l *check.List, pictures, reports int) Checks {
	return Checks{
		Stale:      l.Add("no worker is trusted on a picture that has gone stale", pictures),
		Incomplete: l.Add("no worker is trusted on a picture without all of its ranks", pictures),
		Invented:   l.Add("every report in a table was published by that rank, with these numbers", reports),
		List:       l.Add("a table has the workers that the list has", pictures),
		Trust:      l.Add("a worker that publishes as it should is trusted", pictures/2),
		Healthy:    l.Add("a worker that is well can be picked", pictures/2),
	}
}

// Observer holds one table against the truth. It is for one goroutine.
type Observer struct {
	name   string
	table  *load.Table
	world  *truth.World
	limits Limits
	stalls *Stalls
	checks Checks

	began   time.Time
	workers map[string]*memory
	handles map[*load.Worker]bool // every incarnation that was ever there
	seen    Seen
}

// memory is what an observer remembers of a worker between two looks.
type memory struct {
	trusted bool
	reports []known       // by rank: the newest
	steady  time.Time     // since when there was no reason not to trust it; zero: there is one
	counted bool          // the time until it was trusted
	partial time.Duration // after its birth, at which it was trusted without all ranks; 0: it is not
	broken  map[*check.Check]bool
}

// known is a report that was looked for among those that were sent.
type known struct{ received, sent time.Time }

// Seen is what an observer saw besides.
type Seen struct {
	Looks     int
	Trusted   int                   // pictures that were trusted
	Untrusted map[load.Why]int      // that were not, by why
	Reports   int                   // that were found among those that were sent
	Longest   time.Duration         // that any of them was on its way
	Distrust  Times                 // of the stale ones: since the oldest report of its picture was sent
	Partial   Times                 // for how long after its birth an engine was trusted without all its ranks
	Trust     Times                 // from the moment that a worker had everything right
	Handles   map[*load.Worker]bool // all incarnations of all workers
}

// Plus returns what two observers saw, without the handles.
func (s Seen) Plus(o Seen) Seen {
	sum := Seen{
		Looks:     s.Looks + o.Looks,
		Trusted:   s.Trusted + o.Trusted,
		Untrusted: make(map[load.Why]int),
		Reports:   s.Reports + o.Reports,
		Longest:   max(s.Longest, o.Longest),
		Distrust:  s.Distrust.Plus(o.Distrust),
		Partial:   s.Partial.Plus(o.Partial),
		Trust:     s.Trust.Plus(o.Trust),
	}
	for _, m := range []map[load.Why]int{s.Untrusted, o.Untrusted} {
		for why, n := range m {
			sum.Untrusted[why] += n
		}
	}
	return sum
}

// NewObserver returns an observer of a table, called name in what it says.
func NewObserver(name string, table *load.Table, world *truth.World, limits Limits, stalls *Stalls, checks Checks) *Observer {
	return &Observer{
		name: name, table: table, world: world, limits: limits, stalls: stalls, checks: checks,
		began:   time.Now(),
		workers: make(map[string]*memory),
		handles: make(map[*load.Worker]bool),
		seen:    Seen{Untrusted: make(map[load.Why]int)},
	}
}

// Run looks at the table every so often until ctx ends, and returns what it saw.
func (o *Observer) Run(ctx context.Context, every time.Duration) Seen {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return o.Seen()
		case <-ticker.C:
			o.Look()
		}
	}
}

// Seen returns what was seen so far.
func (o *Observer) Seen() Seen {
	s := o.seen
	s.Handles = o.handles
	return s
}

// picture is what a table makes of one worker.
type picture struct {
	id      string
	trusted bool
	depth   int64          // of all ranks together, if trusted
	ranks   []*load.Report // nil where the rank never reported
}

// sum is what the depth should be.
func (p picture) sum() (sum int64) {
	for _, r := range p.ranks {
		if r != nil {
			sum += r.Running + r.Waiting
		}
	}
	return sum
}

// Look compares once.
func (o *Observer) Look() {
	o.seen.Looks++
	// What is read of the table is not older than this.
	now := time.Now()
	view := o.table.View()
	statuses := o.table.Status()
	for _, w := range o.table.Workers() {
		o.handles[w] = true
	}
	// What picks go by: the view has been through other hands than the status.
	for i := range view.Healthy() {
		e := view.At(i)
		p := picture{id: e.Worker().ID(), trusted: e.Trusted(), depth: e.Depth(), ranks: make([]*load.Report, e.Ranks())}
		for rank := range p.ranks {
			if r, ok := e.Report(rank); ok {
				p.ranks[rank] = r
			}
		}
		o.judge(p, now)
	}
	present := make(map[string]bool, len(statuses))
	for i := range statuses {
		s := &statuses[i]
		present[s.ID] = true
		p := picture{id: s.ID, trusted: s.Trusted, depth: s.Depth.Or(-1), ranks: make([]*load.Report, len(s.Ranks))}
		for rank := range p.ranks {
			p.ranks[rank] = s.Ranks[rank].Report
		}
		o.judge(p, now)
		o.follow(p, s.Why, now)
		o.compareHealth(p, s.Healthy, now)
	}
	o.compareList(present, now)
}

// way is what a report may take on the machine as it is now.
func (o *Observer) way() time.Duration { return o.limits.Way + hops*o.stalls.Lately() }

// memoryOf returns what is remembered of a worker.
func (o *Observer) memoryOf(id string) *memory {
	m := o.workers[id]
	if m == nil {
		m = &memory{broken: make(map[*check.Check]bool)}
		o.workers[id] = m
	}
	return m
}

// that is Check.That for something that goes on until it is over: it is told once.
func (o *Observer) that(m *memory, c *check.Check, held bool, text func() string) {
	if held {
		c.Held(1)
	} else if !m.broken[c] {
		c.Broken("%s: %s", o.name, text())
	}
	m.broken[c] = !held
}

// judge compares a picture with the truth.
func (o *Observer) judge(p picture, now time.Time) {
	e := o.world.Engine(p.id)
	if e == nil {
		o.checks.List.Broken("%s: a worker that there never was: %s", o.name, p.id)
		return
	}
	m := o.memoryOf(p.id)
	way := o.way()
	o.verify(e, m, p, way)
	ranks, born := e.Life()
	age := now.Sub(born)
	partial := p.trusted && ranks > len(p.ranks)
	if partial {
		m.partial = age
	} else if m.partial > 0 {
		o.seen.Partial.add(m.partial)
		m.partial = 0
	}
	if !p.trusted {
		return
	}

	stale := ""
	for rank, r := range p.ranks {
		spoke, ever := e.Spoke(rank)
		switch {
		case r == nil:
			stale = fmt.Sprintf("rank %d never reported", rank)
		case now.Sub(r.Received) > o.limits.Window:
			// Later than the reading of the table's clock by nothing but the way to here,
			// in which the table cannot have become older.
			stale = fmt.Sprintf("rank %d was last heard %v ago", rank, now.Sub(r.Received))
		case !ever:
			stale = fmt.Sprintf("rank %d never published", rank)
		case now.Sub(spoke) > o.limits.Window+way:
			stale = fmt.Sprintf("rank %d last published %v ago", rank, now.Sub(spoke))
		}
		if stale != "" {
			break
		}
	}
	o.that(m, o.checks.Stale, stale == "", func() string {
		return fmt.Sprintf("%v is trusted, and %s: window %v, way %v", e, stale, o.limits.Window, way)
	})

	incomplete := ""
	switch sum := p.sum(); {
	case partial && age > o.limits.Birth()+o.stalls.Lately():
		incomplete = fmt.Sprintf("is trusted on %d ranks, and has had %d for %v: at most %v", len(p.ranks), ranks, age, o.limits.Birth())
	case p.depth != sum:
		incomplete = fmt.Sprintf("has a depth of %d, and its ranks report %d together", p.depth, sum)
	case ranks == len(p.ranks):
		incomplete = mixed(e, m, born)
	}
	o.that(m, o.checks.Incomplete, incomplete == "", func() string { return fmt.Sprintf("%v %s", e, incomplete) })
}

// mixed looks whether a picture that has as many ranks as the engine has now is made of
// reports of a time when it had not, and had not had before: then somebody who knew of the
// new life has put what was said in an old one in the place of what was not said yet.
func mixed(e *truth.Engine, m *memory, born time.Time) string {
	for rank, r := range m.reports {
		if !r.sent.IsZero() && r.sent.Before(born) && !e.HadRanks(len(m.reports), r.sent) {
			return fmt.Sprintf("is trusted on all of its %d ranks, and what rank %d said it said before it had so many", len(m.reports), rank)
		}
	}
	return ""
}

// verify looks for the reports of a picture among those that were sent, each once.
func (o *Observer) verify(e *truth.Engine, m *memory, p picture, way time.Duration) {
	if len(m.reports) != len(p.ranks) {
		m.reports = make([]known, len(p.ranks))
	}
	for rank, r := range p.ranks {
		if r == nil || m.reports[rank].received.Equal(r.Received) {
			continue
		}
		m.reports[rank] = known{received: r.Received}
		if r.Received.Before(o.began) {
			continue // and may be forgotten
		}
		claimed := truth.Report{Rank: rank, Seq: r.Seq.Or(-1), Running: r.Running, Waiting: r.Waiting, KVs: r.KVUsed.Or(-1)}
		sent, sender, ok := e.Find(claimed, r.Received, way)
		took := r.Received.Sub(sent)
		_, born := e.Life()
		switch {
		case !ok:
			o.checks.Invented.Broken("%s: %v is said to have reported %+v, which it never did", o.name, e, claimed)
		case took > way:
			o.checks.Invented.Broken("%s: a report of %v, %+v, is said to have come %v after it was sent: at most %v", o.name, e, claimed, took, way)
		case sender != rank && r.Received.Sub(born) > o.limits.Birth()+o.stalls.Lately():
			o.checks.Invented.Broken("%s: %v: what rank %d said is taken for rank %d, %v after its birth", o.name, e, sender, rank, r.Received.Sub(born))
		default:
			o.checks.Invented.Held(1)
			m.reports[rank].sent = sent
			o.seen.Reports++
			o.seen.Longest = max(o.seen.Longest, took)
		}
		// A worker that was gone starts from nothing.
		if s := o.world.List.Spell(e.ID); s.Listed && s.Out > o.limits.List+o.stalls.Lately() && r.Received.Before(s.Since) {
			o.checks.List.Broken("%s: %v was out of the list for %v, and has a report from before it came back", o.name, e, s.Out)
		}
	}
}

// follow takes the times between what happens and what the table makes of it.
func (o *Observer) follow(p picture, why load.Why, now time.Time) {
	e := o.world.Engine(p.id)
	if e == nil {
		return
	}
	m := o.memoryOf(p.id)
	if p.trusted {
		o.seen.Trusted++
	} else {
		o.seen.Untrusted[why]++
		if m.trusted && why == load.Stale {
			o.noteDistrust(m, now)
		}
	}
	m.trusted = p.trusted

	steady, ok := e.Publishing()
	if s := o.world.List.Spell(e.ID); !s.Listed {
		ok = false
	} else if s.Since.After(steady) {
		steady = s.Since
	}
	if !ok {
		m.steady = time.Time{}
		return
	}
	if !m.steady.Equal(steady) {
		// Where it was trusted all the while there is nothing to measure.
		m.steady, m.counted = steady, p.trusted
	}
	since := now.Sub(steady)
	if p.trusted && !m.counted {
		m.counted = true
		o.seen.Trust.add(since)
	}
	limit := o.limits.Trust
	if e.Had(truth.Hidden, steady.Add(-limit), now) {
		limit = o.limits.Unhide
	}
	o.that(m, o.checks.Trust, p.trusted || since <= limit+o.stalls.Lately(), func() string {
		return fmt.Sprintf("%v has published as it should for %v, and is not trusted: %v", e, since, why)
	})
}

// noteDistrust takes the time since the oldest report of the picture was sent that has
// just gone stale.
func (o *Observer) noteDistrust(m *memory, now time.Time) {
	oldest := now
	for _, r := range m.reports {
		if r.sent.IsZero() {
			return
		}
		if r.sent.Before(oldest) {
			oldest = r.sent
		}
	}
	o.seen.Distrust.add(now.Sub(oldest))
}

// compareHealth looks whether an engine that is well is kept from being picked.
func (o *Observer) compareHealth(p picture, healthy bool, now time.Time) {
	e := o.world.Engine(p.id)
	if e == nil {
		return
	}
	stalls := o.stalls.Lately()
	well := o.world.Well(e, now, now, o.limits.Settle+stalls, o.limits.List+stalls)
	o.that(o.memoryOf(p.id), o.checks.Healthy, healthy || !well, func() string {
		return fmt.Sprintf("%v has been well for %v and more, and cannot be picked", e, o.limits.Settle)
	})
}

// compareList compares who is in the table with who is in the list.
func (o *Observer) compareList(present map[string]bool, now time.Time) {
	every := o.limits.List + o.stalls.Lately()
	for _, e := range o.world.Engines {
		m := o.memoryOf(e.ID)
		wrong := ""
		switch {
		case present[e.ID] && !o.world.List.Ever(e.ID, now, now, every):
			wrong = "is in the table, and not in the list"
		case !present[e.ID] && o.world.List.Always(e.ID, now, now, every):
			wrong = "is not in the table, and in the list"
		}
		o.that(m, o.checks.List, wrong == "", func() string {
			return fmt.Sprintf("%v %s, for longer than %v", e, wrong, every)
		})
	}
}
