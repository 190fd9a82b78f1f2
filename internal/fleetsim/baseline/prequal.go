package baseline

import (
	"slices"

	"github.com/plimsoll-go/plimsoll/selector"
)

// PrequalName is the name of the policy Prequal.
const PrequalName = "prequal"

// Prequal returns the rule of "Load is not what you should balance: Introducing
// Prequal" (Wydrowski et al., NSDI 2024). Of a pool of workers, those whose requests
// in flight exceed a quantile of the pool are hot. The cold one with the least latency
// is chosen; if all are hot, the one with the fewest requests in flight.
func Prequal() selector.Policy { return prequal{} }

const (
	prequalPool     = 16
	prequalQuantile = 0.84 // 2^-¼
)

type prequal struct{}

func (prequal) Name() string { return PrequalName }

func (prequal) Choose(d *selector.Decision) selector.Choice {
	var drawn [prequalPool]int
	pool := draw(d, drawn[:0])
	var flights, sorted [prequalPool]int64
	for k, i := range pool {
		flights[k] = d.Candidate(i).Load
	}
	sorted = flights
	slices.Sort(sorted[:len(pool)])
	limit := sorted[int(prequalQuantile*float64(len(pool)-1))]

	best, lowest := -1, 0.0
	for k, i := range pool {
		if flights[k] > limit {
			continue
		}
		if wait := prequalWait(d, i); best < 0 || wait < lowest {
			best, lowest = i, wait
		}
	}
	c := d.Candidate(best)
	return selector.Choice{Candidate: c, Reason: selector.LessLoaded}
}

// draw draws candidates until the pool is full or holds all.
func draw(d *selector.Decision, pool []int) []int {
	n := d.Len()
	size := min(n, cap(pool))
	// Floyd's way to draw without replacement.
	for last := n - size; last < n; last++ {
		i := below(d.Random(), last+1)
		if slices.Contains(pool, i) {
			i = last
		}
		pool = append(pool, i)
	}
	return pool
}

// prequalWait is how long a worker's queue takes it, in prompt tokens.
func prequalWait(d *selector.Decision, i int) float64 {
	e := d.Entry(i)
	own := e.Own()
	t, ok := reported(e)
	if !ok || !t.tokensKnown {
		return float64(own.PendingTokens)
	}
	return float64(max(t.tokens, own.PendingTokens))
}
