package selector

import (
	"math/rand/v2"

	"github.com/plimsoll-go/plimsoll/load"
)

// Config configures a Selector. The zero Config is ready to use.
type Config struct {
	// Policy is the rule; nil means PowerOfTwo.
	Policy Policy

	// Signal says what load means where not every candidate has a fresh and
	// complete report.
	Signal Signal

	// Rand is where random numbers come from; nil means math/rand/v2. It is
	// called from many goroutines at once.
	Rand func() uint64
}

// Selector picks workers from a table.
type Selector struct {
	table  *load.Table
	policy Policy
	name   string
	ranks  bool // the policy chooses ranks
	signal Signal
	random func() uint64
}

// New returns a selector of workers in t.
func New(t *load.Table, c Config) *Selector {
	if c.Policy == nil {
		c.Policy = PowerOfTwo()
	}
	if c.Rand == nil {
		c.Rand = rand.Uint64
	}
	_, ranks := c.Policy.(RankPolicy)
	return &Selector{table: t, policy: c.Policy, name: c.Policy.Name(), ranks: ranks, signal: c.Signal, random: c.Rand}
}

// maxTries bounds how often a choice is made anew because another pick took the
// same worker meanwhile. Each failure means that some pick succeeded, so a few
// tries spread a burst; past them, a pick that is off by one is better than one
// that takes longer.
const maxTries = 4

// Pick chooses a worker for the request and counts the request on it. The error
// is ErrNoCandidates if there is none to choose from; a missing, stale or
// incomplete report never is one.
func (s *Selector) Pick(r Request) (p Pick, err error) {
	d := s.newDecision(&r)
	if r.restricts() {
		d.restrict()
	}
	if d.Len() == 0 {
		err = &NoCandidatesError{Known: d.view.Known(), Healthy: d.view.Healthy(), Pinned: r.Worker != nil}
		decisions.Put(d) // which is somebody else's from here on
		return p, err
	}
	if workers, _, _ := d.view.Trusted(); d.some || workers < d.view.Len() {
		d.weigh(s.signal)
	}
	for try := 1; ; try++ {
		var c Choice
		if r.Worker == nil || s.ranks {
			c = s.policy.Choose(d)
		} else {
			c = Choice{Candidate: d.Candidate(0), Blind: true}
		}
		force := c.Blind || try == maxTries
		if r.Worker != nil {
			c.Reason, c.Blind = Pinned, false
		}
		if s.reserve(&p, d, c, force) {
			decisions.Put(d)
			return p, nil
		}
	}
}

// reserve counts the request on the chosen worker. Unless forced, it fails if
// somebody else was counted there since the candidate was read.
func (s *Selector) reserve(p *Pick, d *Decision, c Choice, force bool) (ok bool) {
	e := d.Entry(int(c.Candidate.index))
	w := e.Worker()
	p.Rank = d.Request.Rank.Or(c.rank())
	tokens := d.Request.PromptTokens.Or(0)
	if force {
		p.Ticket = w.Reserve(p.Rank, tokens)
	} else if p.Ticket, ok = w.ReserveIf(c.Candidate.seen, p.Rank, tokens); !ok {
		return false
	}
	p.Worker = w
	p.Policy = s.name
	p.Reason = c.Reason
	p.Basis, p.Load, p.Age = None, 0, 0
	if !c.Blind {
		p.Basis, p.Load = c.Candidate.Basis, c.Candidate.Load
	}
	if p.Basis == Engine {
		p.Age = d.view.Age(e)
	}
	p.Candidates = d.Len()
	return true
}
