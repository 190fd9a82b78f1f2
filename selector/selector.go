package selector

import (
	"math/rand/v2"

	"github.com/plimsoll-go/plimsoll/load"
)

// Config configures a Selector. The zero Config is ready to use.
type Config struct {
	// Policy is the rule; nil means LeastWork.
	Policy Policy

	// Signal says what load means where not every candidate has a fresh and
	// complete report.
	Signal Signal

	// Peers says which replica of the gateway this is, from 0, and how many there are;
	// 0 of 0 if that is not known for now. LeastWork then prefers a slice of the workers
	// of its own. It is called in a pick and must not block. See discovery.Peers.
	// nil: nothing is known of other replicas.
	Peers func() (replica, replicas int)

	// Explain, if not nil, is called with the explanation of one pick in ExplainEvery on
	// average, chosen at random, within Pick. ExplainEvery is 1,000 if it is 0.
	Explain      func(*Explanation)
	ExplainEvery int

	// Rand is where random numbers come from; nil means math/rand/v2. It is
	// called from many goroutines at once.
	Rand func() uint64
}

// Selector picks workers from a table.
type Selector struct {
	table  *load.Table
	policy Policy
	name   string
	always bool // the policy is asked also where there is no choice
	signal Signal
	random func() uint64
	peers  func() (replica, replicas int)

	explain func(*Explanation)
	every   uint64
}

// New returns a selector of workers in t.
func New(t *load.Table, c Config) *Selector {
	if c.Policy == nil {
		c.Policy = LeastWork(LeastWorkConfig{})
	}
	if c.Rand == nil {
		c.Rand = rand.Uint64
	}
	if c.ExplainEvery <= 0 {
		c.ExplainEvery = 1000
	}
	_, ranks := c.Policy.(RankPolicy)
	_, learns := c.Policy.(Learner)
	return &Selector{
		table: t, policy: c.Policy, name: c.Policy.Name(), always: ranks || learns, signal: c.Signal, random: c.Rand, peers: c.Peers,
		explain: c.Explain, every: uint64(c.ExplainEvery),
	}
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
	if s.explain != nil && s.random()%s.every == 0 {
		x := new(Explanation)
		p, err = s.pick(&r, x)
		s.explain(x)
		return p, err
	}
	return s.pick(&r, nil)
}

// pick explains itself if there is somewhere to write the explanation to.
func (s *Selector) pick(r *Request, x *Explanation) (p Pick, err error) {
	d := s.newDecision(r)
	if r.restricts() {
		d.restrict()
	}
	if x != nil {
		d.explaining = true
		x.Policy, x.PromptTokens = s.name, r.PromptTokens
	}
	if d.Len() == 0 {
		err = &NoCandidatesError{Known: d.view.Known(), Healthy: d.view.Healthy(), Pinned: r.Worker != nil}
		if x != nil {
			x.Err = err
			d.explainOthers(x, s.table.Workers())
		}
		decisions.Put(d) // which is somebody else's from here on
		return p, err
	}
	if workers, _, _ := d.view.Trusted(); d.some || workers < d.view.Len() {
		d.weigh(s.signal)
	}
	for try := 1; ; try++ {
		var c Choice
		d.considered = d.considered[:0]
		if r.Worker == nil || s.always {
			c = s.policy.Choose(d)
		} else {
			c = Choice{Candidate: d.Candidate(0), Blind: true}
		}
		force := c.Blind || try == maxTries
		if r.Worker != nil {
			c.Reason, c.Blind = Pinned, false
		}
		if x != nil {
			x.Tries = try
			d.explain(x, s, c)
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
	d.booking.Rank = p.Rank
	if force {
		p.Ticket = d.view.Reserve(w, d.booking)
	} else if p.Ticket, ok = d.view.ReserveIf(w, c.Candidate.seen, d.booking); !ok {
		return false
	}
	if d.unseen != nil {
		d.unseen.reserved(p.Ticket, d.view.Now(), note(d.booking.Note))
	}
	p.Worker = w
	p.Policy = s.name
	p.Reason = c.Reason
	p.Basis, p.Load, p.Age, p.Wait = None, 0, 0, d.wait
	if !c.Blind {
		p.Basis, p.Load = c.Candidate.Basis, c.Candidate.Load
	}
	if p.Basis == Engine {
		p.Age = d.view.Age(e)
	}
	p.Candidates = d.Len()
	return true
}
