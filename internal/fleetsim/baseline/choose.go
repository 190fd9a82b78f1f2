package baseline

import (
	"math"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// least returns the candidate with the lowest score, any one of several.
func least(d *selector.Decision, score func(i int) float64) (best int, lowest float64) {
	equals := 0
	for i := range d.Len() {
		switch s := score(i); {
		case s < lowest || equals == 0:
			best, lowest, equals = i, s, 1
		case s == lowest:
			// The k-th of k equals stays with probability 1/k.
			if equals++; below(d.Random(), equals) == 0 {
				best = i
			}
		}
	}
	return best, lowest
}

// lessOfTwo draws two candidates and returns the one with the lower score.
func lessOfTwo(d *selector.Decision, score func(i int) float64) (i int, s float64) {
	n := d.Len()
	i = below(d.Random(), n)
	s = score(i)
	if n > 1 {
		j := below(d.Random(), n-1)
		if j >= i {
			j++
		}
		if other := score(j); other < s {
			i, s = j, other
		}
	}
	return i, s
}

// chosen is the choice of the i-th candidate for its score.
func chosen(d *selector.Decision, i int, score float64, why selector.Reason) selector.Choice {
	c := d.Candidate(i)
	c.Load = int64(min(math.Round(score), math.MaxInt32)) // for whoever reads the pick
	return selector.Choice{Candidate: c, Reason: why}
}

// below maps a random number to 0..n-1, evenly enough for any fleet.
func below(random uint64, n int) int {
	return int((random >> 32) * uint64(n) >> 32)
}

// totals is what the ranks of a worker have reported, taken together.
type totals struct {
	running, waiting int64
	tokens           int64   // prompt tokens waiting; 0 where that is unknown
	tokensKnown      bool    // of every rank with a queue
	kv               float64 // mean usage of the KV cache, 0 where it is unknown
}

// reported returns the totals of a worker. They mean nothing, and ok is false, if it
// is not trusted.
func reported(e load.Entry) (t totals, ok bool) {
	if !e.Trusted() {
		return t, false
	}
	t.tokensKnown = true
	for rank := range e.Ranks() {
		r, ok := e.Report(rank)
		if !ok {
			return t, false
		}
		t.running += r.Running
		t.waiting += r.Waiting
		tokens, known := r.WaitingTokens.Get()
		t.tokens += tokens
		t.tokensKnown = t.tokensKnown && (known || r.Waiting == 0)
		t.kv += r.KVUsage.Or(0) / float64(e.Ranks())
	}
	return t, true
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
