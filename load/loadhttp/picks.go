package loadhttp

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// best is how many of the compared workers are kept of a pick. An explanation of a
// large fleet is a large thing, and nobody reads its end.
const best = 6

// picks is a ring of explained picks. It is written within picks.
type picks struct {
	mu   sync.Mutex
	ring []*Explained // those with ID i at i modulo its length; an Explained does not change
	last uint64       // ID
}

// Explain takes in the explanation of a pick. It is for selector.Config.Explain.
func (h *Handler) Explain(x *selector.Explanation) {
	if x == nil {
		return
	}
	e := explained(x, time.Now())
	h.picks.mu.Lock()
	defer h.picks.mu.Unlock()
	h.picks.last++
	e.ID = h.picks.last
	h.picks.ring[e.ID%uint64(len(h.picks.ring))] = e
}

func explained(x *selector.Explanation, at time.Time) *Explained {
	e := &Explained{
		At: at, Policy: x.Policy, Rank: load.NoRank,
		PromptTokens: x.PromptTokens, Tries: x.Tries, Best: make([]Compared, 0, best),
	}
	if x.Reason != 0 {
		e.Reason = x.Reason.String()
	}
	if x.Err != nil {
		e.Error = x.Err.Error()
	}
	for i := range x.Workers {
		w := &x.Workers[i]
		if w.Out != selector.Compared {
			if e.Out == nil {
				e.Out = make(map[string]int)
			}
			e.Out[w.Out.String()]++
			continue
		}
		e.Compared++
		if w.Chosen {
			e.Worker, e.Rank = w.ID, w.Rank
		}
		if len(e.Best) < best {
			e.Best = append(e.Best, compared(w))
		}
	}
	return e
}

// compared copies what is shown. The rest leads to the worker, which is not kept for the
// sake of its name when it is removed.
func compared(w *selector.Considered) Compared {
	c := Compared{
		Worker: w.ID, Rank: w.Rank, Chosen: w.Chosen, Reports: w.Why, Basis: w.Basis.String(), Load: w.Load, Age: w.Age,
		Cost: w.Cost, Terms: slices.Clone(w.Terms),
	}
	for i := range c.Terms {
		if !finite(c.Terms[i].Amount) {
			c.Terms[i].Amount = 0 // JSON has no such number
		}
	}
	return c
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// since returns the picks that are newer than an ID, the newest first, and the
// newest ID.
func (p *picks) since(id uint64) (list []Explained, last uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list = []Explained{}
	for i := p.last; i > id && p.last-i < uint64(len(p.ring)); i-- {
		list = append(list, *p.ring[i%uint64(len(p.ring))])
	}
	return list, p.last
}
