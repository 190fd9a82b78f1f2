package baseline

import (
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// group is the candidates that a rule compares: all, or two of them.
type group struct {
	n    int
	two  bool
	pair [2]int
}

func all(d *selector.Decision) group { return group{n: d.Len()} }

// twoOf draws two different candidates at random, or one where there is no other.
func twoOf(d *selector.Decision) group {
	n := d.Len()
	g := group{n: min(n, 2), two: true}
	g.pair[0] = below(d.Random(), n)
	if n > 1 {
		g.pair[1] = below(d.Random(), n-1)
		if g.pair[1] >= g.pair[0] {
			g.pair[1]++
		}
	}
	return g
}

// at returns the index of the k-th of the group.
func (g *group) at(k int) int {
	if g.two {
		return g.pair[k]
	}
	return k
}

// least returns the index of the one with the lowest score, any one of several.
func (g *group) least(d *selector.Decision, score func(i int) float64) (best int) {
	var lowest float64
	equals := 0
	for k := range g.n {
		i := g.at(k)
		switch s := score(i); {
		case equals == 0 || s < lowest:
			best, lowest, equals = i, s, 1
		case s == lowest:
			// The k-th of k equals stays with probability 1/k.
			if equals++; below(d.Random(), equals) == 0 {
				best = i
			}
		}
	}
	return best
}

// choice is that of the i-th candidate.
func (g *group) choice(d *selector.Decision, i int) selector.Choice {
	c := selector.Choice{Candidate: d.Candidate(i), Reason: selector.LeastLoaded}
	if g.two {
		c.Reason = selector.LessLoaded
	}
	return c
}

// below maps a random number to 0..n-1, evenly enough for any fleet.
func below(random uint64, n int) int {
	return int((random >> 32) * uint64(n) >> 32)
}

// meanPrompt is what a prompt of unknown length is taken to have, in tokens. It is
// SMG's default.
const meanPrompt = 1024

// totals is what the ranks of a worker said last, taken together. What they did not
// say is 0.
type totals struct {
	running, waiting int64
	tokens           int64   // prompt tokens waiting
	kv               float64 // mean usage of the KV cache
}

func lastReported(e load.Entry) (t totals) {
	ranks := e.Ranks()
	for rank := range ranks {
		r, ok := e.Report(rank)
		if !ok {
			continue
		}
		t.running += r.Running
		t.waiting += r.Waiting
		t.tokens += r.WaitingTokens.Or(0)
		t.kv += r.KVUsage.Or(0) / float64(ranks)
	}
	return t
}

// queuedTokens is the prompt tokens waiting or, on a wire that does not have them,
// what that many waiting requests have on average.
func (t *totals) queuedTokens() int64 {
	if t.tokens > 0 {
		return t.tokens
	}
	return t.waiting * meanPrompt
}

// cached returns how many tokens of the prompt a worker has in its cache.
func cached(d *selector.Decision, w *load.Worker) (tokens int64) {
	for _, m := range d.Request.Prefix {
		if m.Worker == w {
			tokens = max(tokens, m.Tokens)
		}
	}
	return min(tokens, d.Request.PromptTokens.Or(0))
}
