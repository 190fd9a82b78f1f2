package selector

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// model is what the next picks go by: all of their cost that the gateway's own books
// have no part in. It is immutable.
type model struct {
	Learned
	until time.Duration // when the next one is due, on the clock of the view

	cells    []cell  // of the healthy workers, in the order of the view
	first    []int32 // cell of each worker; nil: each has one
	eligible int     // cells of eligible workers, which come first
	home     []slot  // the slice of these; nil: all
	byID     []int32 // eligible cells in the order of the workers' ids; nil: not needed yet
}

// cell is a worker, or one of its ranks, with all of its cost that does not change
// until the next model. Costs are in seconds.
type cell struct {
	worker      *load.Worker
	base        float64 // what others have there, and the request itself
	perAhead    float64 // for a prompt token that is worked off before
	perPrompt   float64 // for one of the request's own
	perInFlight float64 // for a request that is there
	perKVOver   float64 // for a token that the KV cache has no room for
	kvRoom      int64   // what all tokens picked ever may be until it is full
	kvFull      float64 // of base, for a cache that is full and of unknown capacity

	place            int           // in the view
	rank             int           // load.NoRank: the whole worker
	ranks            float64       // that share what is there
	requests, tokens float64       // of others
	at               time.Duration // when the oldest of its reports came
	basis            Basis
	owned            bool // there are no others
	home             bool
	waits            *waits
}

// slot is a cell of the slice. One that is shared with another replica has a bias.
type slot struct {
	cell int32
	bias float64 // seconds
}

const (
	// kvLimit is the share of the KV cache from which on an engine does not admit
	// requests at once.
	kvLimit = 0.95

	// modelFor is how long a model serves. A report takes effect with the next one,
	// which is little next to its age, and spares each pick from working out for
	// every worker what it says.
	modelFor = 10 * time.Millisecond

	// No engine has more waiting than this.
	maxOthersTokens   = 1 << 31
	maxOthersRequests = 1 << 20

	// How many times as much as most a worker may have to be believed in a mean, and what
	// it may have in any case.
	several      = 4
	manyRequests = 8
)

func newModel() *model { return &model{Learned: unlearned(), until: math.MinInt64} }

// cellsAt returns the cells of the worker at a place in the view.
func (m *model) cellsAt(place int) (from, to int) {
	switch {
	case m.first == nil:
		return min(place, len(m.cells)), min(place+1, len(m.cells))
	case place+1 >= len(m.first):
		return 0, 0
	}
	return int(m.first[place]), int(m.first[place+1])
}

// biasOf is what a cell has against it, in seconds, and whether that is because it is
// outside of the slice.
func (m *model) biasOf(at int) (bias float64, away bool) {
	switch {
	case m.home == nil:
		return 0, false
	case !m.cells[at].home:
		return m.Bias.Seconds(), true
	}
	i, _ := slices.BinarySearchFunc(m.home, int32(at), func(s slot, at int32) int { return cmp.Compare(s.cell, at) })
	return m.home[i].bias, false
}

// learn makes the next model, unless somebody else is at it: a pick waits for nobody.
func (p *leastWork) learn(d *Decision, old *model, now time.Duration) *model {
	l := p.learner
	if !l.mu.TryLock() {
		return old
	}
	defer l.mu.Unlock()
	if m := p.model.Load(); m != old && now < m.until {
		return m
	}
	l.promptLocked(d.Request.PromptTokens)
	l.sweepLocked(d.view)
	l.beginLocked(now)
	m := p.newModel(d, l.learnedLocked(), old)
	m.until = now + modelFor
	p.model.Store(m)
	return m
}

// renew makes a model of the same knowledge for another set of workers.
func (p *leastWork) renew(d *Decision, old *model) *model {
	m := p.newModel(d, old.Learned, old)
	m.until = old.until
	p.model.CompareAndSwap(old, m)
	return m
}

func (p *leastWork) newModel(d *Decision, learned Learned, old *model) *model {
	m := &model{Learned: learned}
	v := d.view
	p.addCells(m, v, old)
	means := m.meansOf(v)
	m.Others = means.requests

	replica, replicas := d.Replica()
	m.Replicas = float64(max(replicas, 1))
	if replicas < 1 && means.own > 0 {
		m.Replicas = max(means.depth/means.own, 1) // as many as there would be with our load
	}
	if replicas > 1 && means.own > 0 && means.depth > 0 {
		// Who has more than a share of the load knows more than a share of it, and
		// shall not be confined to a share of the workers.
		fair := min(1, means.depth/(means.own*float64(replicas)))
		m.Bias = time.Duration(float64(m.Bias) * fair * fair)
		m.Away = 1 + (m.Away-1)*fair*fair
	}
	m.fill(v, means)
	m.slice(replica, replicas, old)
	return m
}

// addCells makes the cells, of which only the worker, the rank and what goes with it
// are filled in.
func (p *leastWork) addCells(m *model, v load.View, old *model) {
	m.cells = make([]cell, 0, v.Healthy())
	if p.ranks {
		m.first = make([]int32, 0, v.Healthy()+1)
	}
	for i := range v.Healthy() {
		e := v.At(i)
		w := e.Worker()
		var of *waits
		if from, to := old.cellsAt(i); from < to && old.cells[from].worker == w {
			of = old.cells[from].waits
		} else {
			of = p.learner.of(w)
		}
		before := len(m.cells)
		if p.ranks {
			m.first = append(m.first, int32(before))
			for rank := range e.Ranks() {
				if e.HasRank(rank) {
					m.cells = append(m.cells, cell{worker: w, place: i, rank: rank, ranks: 1, waits: of})
				}
			}
		}
		if len(m.cells) == before {
			m.cells = append(m.cells, cell{worker: w, place: i, rank: load.NoRank, ranks: float64(max(e.Ranks(), 1)), waits: of})
		}
		if i < v.Len() {
			m.eligible = len(m.cells)
		}
	}
	if p.ranks {
		m.first = append(m.first, int32(len(m.cells)))
	}
}

// means is what others have on the average rank, and what all have.
type means struct {
	requests, tokens float64 // of others, on a rank
	depth, own       float64 // on all workers that report
	trusted          int     // cells
}

// meansOf takes down in the cells what their engines reported, and returns what that is
// on average.
func (m *model) meansOf(v load.View) (sum means) {
	type part struct{ requests, tokens, depth, own, ranks float64 } // the first two are of others, on a rank
	parts := make([]part, 0, m.eligible)
	for i := range m.cells {
		c := &m.cells[i]
		t, ok := c.reported(v.At(c.place))
		if !ok {
			continue
		}
		c.basis, c.owned, c.at = Engine, t.Owned, t.At
		c.requests, c.tokens = others(&t, m.Prompt)
		c.fillKV(&t, m)
		if i >= m.eligible {
			continue
		}
		p := part{c.requests / c.ranks, c.tokens / c.ranks, float64(t.Running) + float64(t.Waiting), float64(t.Own.InFlight), c.ranks}
		own := float64(c.count().InFlight())
		if t.Owned {
			p.depth, p.own = own, own
		}
		parts = append(parts, p)
		sum.own += own
	}
	if len(parts) == 0 {
		return sum
	}
	maxRequests := credible(parts, func(p part) float64 { return p.requests }) + manyRequests
	maxTokens := credible(parts, func(p part) float64 { return p.tokens }) + manyRequests*m.Prompt
	var ranks float64
	for _, p := range parts {
		sum.requests += min(p.requests, maxRequests) * p.ranks
		sum.tokens += min(p.tokens, maxTokens) * p.ranks
		sum.depth += min(p.depth, p.own+maxRequests*p.ranks)
		ranks += p.ranks
	}
	sum.requests, sum.tokens = sum.requests/ranks, sum.tokens/ranks
	sum.trusted = len(parts)
	return sum
}

// credible is several times what three quarters of all have at most. In the mean, an
// engine that has lost count counts for no more. It would be the mean, otherwise, and as
// the others are drawn towards that by their age, the one that has reported last would
// look best by more than any load makes.
func credible[P any](parts []P, of func(P) float64) float64 {
	all := make([]float64, len(parts))
	for i := range parts {
		all[i] = of(parts[i])
	}
	last := len(all) - 1
	return several * nth(all, min(max(last*3/4, 1), last)) // of two, either may be right
}

// nth returns what would be at place n if the values were sorted, in a time that is
// linear in their number. It moves them.
func nth(values []float64, n int) float64 {
	for from, to := 0, len(values)-1; from < to; {
		pivot, i, j := values[(from+to)/2], from, to
		for i <= j {
			for values[i] < pivot {
				i++
			}
			for values[j] > pivot {
				j--
			}
			if i <= j {
				values[i], values[j] = values[j], values[i]
				i++
				j--
			}
		}
		switch { // from..j are at most the pivot, i..to at least, and what is between is the pivot
		case n <= j:
			to = j
		case n >= i:
			from = i
		default:
			return pivot
		}
	}
	return values[n]
}

// reported is what the cell's engine last reported, if that can be trusted.
func (c *cell) reported(e load.Entry) (t load.Totals, ok bool) {
	switch {
	case !e.Trusted():
		return t, false
	case c.rank == load.NoRank:
		return e.Totals()
	}
	return e.RankTotals(c.rank)
}

// others is what other senders have there: requests, and prompt tokens.
func others(t *load.Totals, prompt float64) (requests, tokens float64) {
	if t.Owned {
		return 0, 0
	}
	requests = float64(max(t.Running, 0)) + float64(max(t.Waiting, 0)) - float64(t.Own.InFlight)
	if waiting, ok := t.WaitingTokens.Get(); ok {
		tokens = float64(waiting) - float64(t.Own.PendingTokens)
	} else {
		tokens = (float64(t.Waiting) - float64(t.Own.Unstarted)) * prompt
	}
	return min(max(requests, 0), maxOthersRequests), min(max(tokens, 0), maxOthersTokens)
}

// fill works out the costs of all cells.
//
// What others have there goes stale, and the more senders there are the less of it is
// known: then the mean of all is the better guess. Tokens are worked off within a
// first-token time, requests within a response time.
func (m *model) fill(v load.View, mean means) {
	perToken, perRequest := m.PerToken.Seconds(), m.PerRequest.Seconds()
	response, firstToken := m.Response.Seconds(), m.FirstToken.Seconds()
	g := 0.5 * min(max(1/math.Sqrt(m.Replicas), 0.1), 1)
	unknown := Estimated
	if mean.trusted == 0 {
		unknown = Local
	}
	for i := range m.cells {
		c := &m.cells[i]
		requests, tokens := mean.requests*c.ranks, mean.tokens*c.ranks
		switch {
		case c.basis != Engine:
			c.basis, c.kvRoom = unknown, math.MaxInt64
			c.requests, c.tokens = requests, tokens
		case !c.owned:
			age := max(v.Now()-c.at, 0).Seconds()
			c.requests = requests + g*math.Exp(-age/response)*(c.requests-requests)
			c.tokens = tokens + min(1, 2*g)*math.Exp(-age/firstToken)*(c.tokens-tokens)
		}
		speed := c.waits.Speed()
		perToken, perRequest := perToken/speed, perRequest/speed
		c.perPrompt, c.perAhead, c.perInFlight = perToken, perToken/c.ranks, perRequest/c.ranks
		c.base = c.perAhead*c.tokens + c.perInFlight*c.requests + perRequest + c.kvFull
	}
}

// fillKV works out when the KV cache is full. An engine whose cache is lets requests
// wait until others end, which takes as long as a part of a response. Where the
// capacity is not known, what is over already is all that can be said.
func (c *cell) fillKV(t *load.Totals, m *model) {
	c.kvRoom = math.MaxInt64
	usage, ok := t.KVUsage.Get()
	if !ok {
		return
	}
	full := m.Response.Seconds() / 2 // for a cache that would have to be twice as large
	capacity := float64(t.KVTokens.Or(0))
	if capacity <= 0 {
		c.kvFull = max(usage-kvLimit, 0) * full
		return
	}
	waiting := float64(t.Waiting) * m.Prompt
	if tokens, ok := t.WaitingTokens.Get(); ok {
		waiting = float64(tokens)
	}
	room := (kvLimit-usage)*capacity - min(waiting, maxOthersTokens)
	c.perKVOver = full / capacity
	c.kvRoom = int64(t.OwnTokens) + int64(max(room, -maxOthersTokens))
}

// count is a reading of the books that the cell's cost goes by.
func (c *cell) count() load.Count {
	if c.rank == load.NoRank {
		return c.worker.Count()
	}
	return c.worker.CountOn(c.rank)
}

// cost is how many seconds a request of so many tokens is expected to wait, and what
// of a later wait it brings about.
func (c *cell) cost(count load.Count, prompt float64) float64 {
	cost := c.base + c.perAhead*float64(count.PendingTokens()) + c.perPrompt*prompt + c.perInFlight*float64(count.InFlight())
	if over := c.kvOver(count, prompt); over > 0 {
		cost += c.perKVOver * float64(over)
	}
	return cost
}

// kvOver is how many tokens there would be no room for.
func (c *cell) kvOver(count load.Count, prompt float64) int64 {
	return int64(count.TokensPicked) + int64(prompt) - c.kvRoom
}

// expect is how many seconds it will be to the first token.
func (m *model) expect(c *cell, ahead float64) float64 {
	return m.Base.Seconds() + c.perPrompt*ahead
}

// ahead is how many prompt tokens a rank works off before it comes to the request.
func (c *cell) ahead(count load.Count) float64 {
	return (float64(count.PendingTokens()) + c.tokens) / c.ranks
}

// load is how many requests are there.
func (c *cell) load(count load.Count) int64 {
	return rounded(float64(count.InFlight()) + c.requests)
}

// slice gives the replica its part of the cells, ordered by the workers' ids, since
// that is the one order that all replicas agree on.
func (m *model) slice(replica, replicas int, old *model) {
	n := m.eligible
	// The replica's part of the line from 0 to n, on which each cell has a length of 1.
	// A cell on a border is shared.
	from := float64(n) * float64(replica) / float64(replicas)
	to := float64(n) * float64(replica+1) / float64(replicas)
	if replicas <= 1 || from >= to { // there are not that many
		return
	}
	m.order(old)
	m.home = make([]slot, 0, int(to-from)+2)
	for i := int(from); i < n && float64(i) < to; i++ {
		share := (min(to, float64(i+1)) - max(from, float64(i))) / min(1, to-from)
		if share < 1e-9 {
			continue
		}
		at := m.byID[i]
		m.cells[at].home = true
		m.home = append(m.home, slot{at, (1 - min(share, 1)) * m.Bias.Seconds()})
	}
	slices.SortFunc(m.home, func(a, b slot) int { return cmp.Compare(a.cell, b.cell) })
}

// order makes byID, which hardly ever changes.
func (m *model) order(old *model) {
	n := m.eligible
	same := func() bool {
		for i := range n {
			if m.cells[i].worker != old.cells[i].worker {
				return false
			}
		}
		return true
	}
	if len(old.byID) == n && same() {
		m.byID = old.byID
		return
	}
	m.byID = make([]int32, n)
	for i := range m.byID {
		m.byID[i] = int32(i)
	}
	slices.SortFunc(m.byID, func(a, b int32) int {
		return cmp.Or(cmp.Compare(m.cells[a].worker.ID(), m.cells[b].worker.ID()), cmp.Compare(a, b))
	})
}
