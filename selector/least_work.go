package selector

import (
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// LeastWorkName is the name of the policy LeastWork.
const LeastWorkName = "least_work"

// LeastWorkConfig configures LeastWork. The zero config is the one to use, unless
// the gateway tells engines on which data-parallel rank a request is to run.
type LeastWorkConfig struct {
	// Ranks chooses the rank too, for the host to pass on; see Pick.Rank. Otherwise
	// the engine does.
	Ranks bool `json:"ranks"`
}

// LeastWork returns the policy that chooses the worker that will come to the
// request soonest. It knows the prompts and requests of this gateway there exactly
// and at once, and those of others by the reports, which it trusts less the older
// they are. It has no constants to set: how long a prompt token takes, how fast each
// worker is, how many gateways there are, it learns from the requests themselves;
// see Learned. DESIGN.md tells the rule, with a decision that can be followed by
// hand.
//
// Where several replicas of the gateway know of each other (Config.Peers), each prefers
// a slice of the workers of its own, where its books are nearly the whole truth, and
// leaves it for one that is better by more than a bias.
//
// A request whose prompt is of unknown length is taken for one of mean length. An
// estimate is better: a quarter of its bytes, for English text.
//
// A worker without a fresh report is taken to have as much to do for others as the
// average one has; Config.Signal does not apply. A request that is restricted to
// some workers has all of those compared, whatever slice they are in.
//
// The policy belongs to one selector.
func LeastWork(c LeastWorkConfig) Policy {
	p := &leastWork{ranks: c.Ranks, learner: newLearner()}
	p.streamed = load.Watch{FirstToken: p.learner.firstToken, Done: p.learner.done}
	p.unstreamed = load.Watch{Done: p.learner.done}
	p.model.Store(newModel())
	if c.Ranks {
		return leastWorkOfRanks{p}
	}
	return p
}

type leastWork struct {
	ranks   bool
	learner *learner
	model   atomic.Pointer[model]

	streamed, unstreamed load.Watch
}

func (*leastWork) Name() string { return LeastWorkName }

type leastWorkOfRanks struct{ *leastWork }

func (leastWorkOfRanks) ChoosesRank() {}

const (
	// fullScan is how many are all looked at; of more, so many are drawn. The
	// best of that many is hardly ever worse than the best of all.
	fullScan = 64
	drawn    = 32
	// abroad is how many outside of the slice are drawn. Only one that is better by
	// the bias is chosen.
	abroad = 4
)

func (p *leastWork) Choose(d *Decision) Choice {
	m := p.model.Load()
	if now := d.view.Now(); now >= m.until {
		m = p.learn(d, m, now)
	}
	s := newSearch(d, m)
	if !s.run() { // workers came, went or moved since the model was made
		m = p.renew(d, m)
		s = newSearch(d, m)
		s.run()
	}

	c := &m.cells[s.best.cell]
	d.wait = wait(s.cost)
	d.booking.PromptTokens = int64(s.best.prompt) // what is cached there waits for nothing
	d.booking.Watch = &p.streamed
	if d.Request.Unstreamed {
		d.booking.Watch, d.unseen = &p.unstreamed, p.learner
	}
	ahead := c.ahead(s.best.count) + s.best.prompt
	d.booking.Note = uint64(newNote(ahead, s.best.away, m.expect(c, ahead)))
	if d.explaining {
		s.explain()
	}
	reason := LeastWaiting
	if s.best.away {
		reason = LeastWaitingAway
	}
	candidate := Candidate{c.load(s.best.count), s.best.seen, int32(s.index), c.basis}
	return Choice{Candidate: candidate, Reason: reason}.OnRank(c.rank)
}

// search looks for the cell of the least cost.
type search struct {
	d      *Decision
	m      *model
	prompt float64 // tokens
	rank   int     // the only one; load.NoRank: any

	cost  float64
	best  compared
	least minimum
	index int // of the best, among the candidates

	compared []compared // all, if somebody wants to know
}

// compared is a cell with what it was compared by.
type compared struct {
	cell   int
	count  load.Count
	seen   load.Seen
	prompt float64 // tokens that the worker has not cached
	bias   float64 // seconds
	away   bool    // from the slice
}

func newSearch(d *Decision, m *model) search {
	return search{
		d: d, m: m,
		prompt: min(max(float64(d.Request.PromptTokens.Or(int64(m.Prompt))), 0), maxOthersTokens),
		rank:   d.Request.Rank.Or(load.NoRank),
		cost:   math.Inf(1),
		best:   compared{cell: -1},
		least:  minimum{state: d.random() | 1},
	}
}

// run fails if the model is not one of the candidates' workers as they are now.
func (s *search) run() (ok bool) {
	if s.d.some {
		ok = s.some()
	} else if ok = s.all() && s.prefixes() && s.best.cell >= 0; ok {
		s.index, ok = s.d.find(s.m.cells[s.best.cell].worker)
	}
	if !ok {
		return false
	}
	rank := s.m.cells[s.best.cell].rank
	return rank == load.NoRank || s.d.Entry(s.index).HasRank(rank)
}

// all looks at the slice, and at some cells outside of it.
func (s *search) all() bool {
	m, n := s.m, s.m.eligible
	switch {
	case n == 0:
		return false
	case m.home == nil && n <= fullScan:
		s.scan(n)
		return true
	case m.home == nil:
		for range drawn {
			s.consider(below(s.d.random(), n), s.prompt, 0, false)
		}
		return true
	case len(m.home) <= fullScan:
		for _, h := range m.home {
			s.consider(int(h.cell), s.prompt, h.bias, false)
		}
	default:
		for range drawn {
			h := m.home[below(s.d.random(), len(m.home))]
			s.consider(int(h.cell), s.prompt, h.bias, false)
		}
	}
	bias := m.Bias.Seconds()
	for range abroad {
		if i := below(s.d.random(), n); !m.cells[i].home {
			s.consider(i, s.prompt, bias, true)
		}
	}
	return true
}

// some looks at all candidates.
func (s *search) some() (ok bool) {
	for i := range s.d.Len() {
		found, ok := s.worker(s.d.place(i), s.d.Entry(i).Worker())
		if !ok {
			return false
		}
		if found {
			s.index = i
		}
	}
	return s.best.cell >= 0
}

// prefixes looks at the workers that have some of the prompt, wherever they are.
func (s *search) prefixes() bool {
	for _, match := range s.d.Request.Prefix {
		if i, ok := s.d.find(match.Worker); ok && match.Tokens > 0 {
			if _, ok := s.worker(i, match.Worker); !ok {
				return false
			}
		}
	}
	return true
}

// worker looks at all cells of the worker at a place in the view. ok is false if it
// has others.
func (s *search) worker(place int, w *load.Worker) (found, ok bool) {
	from, to := s.m.cellsAt(place)
	if from == to || s.m.cells[from].worker != w {
		return false, false
	}
	prompt := s.prompt
	for _, match := range s.d.Request.Prefix {
		if match.Worker == w {
			prompt = max(min(prompt, s.prompt-float64(match.Tokens)), 0)
		}
	}
	for i := from; i < to; i++ {
		c := &s.m.cells[i]
		if s.rank != load.NoRank && c.rank != load.NoRank && c.rank != s.rank {
			continue
		}
		bias, away := s.m.biasOf(i)
		found = s.consider(i, prompt, bias, away) || found
	}
	return found, true
}

// scan is consider for the first n cells, at no bias, in a third of the time. To that
// end a cost is an integer (positive floats are in the order of their bits) and its
// lowest bits, which tell nothing, are random for ties: then the loop has no
// branch that cannot be predicted, and notes nothing but where the least was.
func (s *search) scan(n int) {
	if !s.d.explaining && s.m.first == nil {
		cells, prompt, random := s.m.cells[:n], s.prompt, s.d.random()
		lowest, at := uint64(math.MaxUint64), 0
		for i := range cells {
			c := &cells[i]
			cost := math.Float64bits(c.cost(c.worker.Count(), prompt))
			if cost = cost&^tieBits | tie(random, i); cost < lowest {
				lowest, at = cost, i
			}
		}
		// What is noted is what it has been compared by, unless somebody has come or
		// gone there in this instant.
		s.consider(at, prompt, 0, false)
		if math.Float64bits(s.cost)&^tieBits == lowest&^tieBits {
			return
		}
	}
	for i := range n {
		s.consider(i, s.prompt, 0, false)
	}
}

const tieBits = 1<<12 - 1

// tie returns random bits for a cell.
func tie(random uint64, i int) uint64 {
	h := (random + uint64(i)) * 0x9e3779b97f4a7c15
	return (h ^ h>>32) * 0xd6e8feb86659fd93 >> 52
}

// consider compares one cell with the best so far.
func (s *search) consider(i int, prompt, bias float64, away bool) (better bool) {
	c := &s.m.cells[i]
	count := c.worker.Count()
	seen := count.Seen() // before the rank's are read: who counts there is counted here later
	if c.rank != load.NoRank {
		count = c.worker.CountOn(c.rank)
	}
	cost := c.cost(count, prompt)
	if away {
		cost *= s.m.Away
	}
	cost += bias
	if s.d.explaining {
		s.compared = append(s.compared, compared{i, count, seen, prompt, bias, away})
	}
	if cost > s.cost || !s.least.takes(cost < s.cost) {
		return false
	}
	s.cost, s.best = cost, compared{i, count, seen, prompt, bias, away}
	return true
}

// explain tells the decision what was compared: each cell once, though it was drawn
// twice or looked at again for its part of the prompt.
func (s *search) explain() {
	last := make(map[int]compared, len(s.compared))
	for _, at := range s.compared {
		last[at.cell] = at
	}
	last[s.best.cell] = s.best
	for _, cell := range slices.Sorted(maps.Keys(last)) {
		c, at := &s.m.cells[cell], last[cell]
		i, ok := s.d.find(c.worker)
		if !ok {
			continue // gone since the model was made
		}
		s.d.Compared(Candidate{c.load(at.count), at.seen, int32(i), c.basis}, c.rank, c.terms(s.m, &at)...)
	}
}

// terms are the summands of the cost of a cell.
func (c *cell) terms(m *model, at *compared) (terms []Term) {
	var sum float64
	add := func(name string, amount, cost float64) {
		if amount != 0 || cost != 0 {
			terms = append(terms, Term{name, amount, wait(cost)})
			sum += cost
		}
	}
	pending, inFlight := float64(at.count.PendingTokens()), float64(at.count.InFlight())
	add("own_tokens", pending, c.perAhead*pending)
	add("others_tokens", c.tokens, c.perAhead*c.tokens)
	add("prompt_tokens", at.prompt, c.perPrompt*at.prompt)
	add("own_requests", inFlight, c.perInFlight*inFlight)
	add("others_requests", c.requests, c.perInFlight*c.requests)
	add("request", 1, c.perInFlight*c.ranks)
	add("kv_full", c.kvFull, c.kvFull)
	if over := c.kvOver(at.count, at.prompt); over > 0 {
		add("kv_tokens_over", float64(over), c.perKVOver*float64(over))
	}
	if at.away {
		add("away", m.Away, (m.Away-1)*sum)
	}
	if at.bias > 0 {
		add("bias", at.bias, at.bias)
	}
	return terms
}

// wait makes a duration of seconds, whatever an engine may have claimed.
func wait(seconds float64) time.Duration {
	return time.Duration(min(seconds, math.MaxInt64/2e9) * float64(time.Second))
}
