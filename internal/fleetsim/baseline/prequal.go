package baseline

import (
	"math"
	"slices"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// PrequalName is the name of the policy Prequal.
const PrequalName = "prequal"

// Prequal returns the hot-cold lexicographic rule of "Load is not what you should
// balance: Introducing Prequal" (Wydrowski et al., NSDI 2024). Out of a pool of 16
// workers, those with more requests in flight than the 2^-¼ quantile (0.84) of the
// pool are hot. The least latency among the cold ones is chosen.
//
// There, every request sends three probes, and the pool holds the latest answers,
// each good for a few choices and for one second. Here the reports are what is known
// of the workers, however fast requests come, and the pool is 16 random workers that
// have a fresh one; where fewer than two have, any worker is chosen, as there. The
// requests in flight are those reported and those sent since, which there is the
// correction of a probe that is used again. Latency there is the server's word, the
// median of recent requests at such a number in flight. Engines report none, so it is
// the time that the queued prompts take here, those sent since the report included,
// at the pace of the engine's own counters where it reports those. This request's own
// prompt is left out: where nothing is queued anywhere, the small differences of
// those paces would send all gateways to one worker.
func Prequal() selector.Policy { return new(prequal) }

const prequalPool = 16

// prequalQuantile is 2^-¼.
var prequalQuantile = math.Pow(2, -0.25)

type prequal struct {
	since ledger // tokens, by worker
}

func (*prequal) Name() string { return PrequalName }

func (p *prequal) Choose(d *selector.Decision) selector.Choice {
	p.since.mu.Lock()
	defer p.since.mu.Unlock()
	i, why := p.choose(d)
	p.since.add(d.Entry(i), load.NoRank, d.Request.PromptTokens.Or(meanPrompt))
	return selector.Choice{Candidate: d.Candidate(i), Reason: why, Blind: why == selector.Chance}
}

func (p *prequal) choose(d *selector.Decision) (best int, why selector.Reason) {
	var drawn [prequalPool]int
	pool := draw(d, drawn[:0])
	if len(pool) < 2 {
		return below(d.Random(), d.Len()), selector.Chance
	}

	var flights, sorted [prequalPool]int64
	for k, i := range pool {
		flights[k] = d.Candidate(i).Load
	}
	sorted = flights
	slices.Sort(sorted[:len(pool)])
	limit := sorted[int(prequalQuantile*float64(len(pool)-1))]

	least := math.Inf(1)
	for k, i := range pool {
		if flights[k] > limit {
			continue
		}
		// The pool is in random order, so the first of equals is any of them.
		if l := p.latency(d.Entry(i)); l < least {
			best, least = i, l
		}
	}
	return best, selector.LeastLoaded
}

// latency is how long the queued prompts take a worker, in microseconds.
func (p *prequal) latency(e load.Entry) float64 {
	t := lastReported(e)
	tokens := t.queuedTokens() + p.since.sent(e, load.NoRank)
	return float64(tokens) * perToken(e)
}

// perToken is how many microseconds a worker has spent on a prompt token so far.
func perToken(e load.Entry) float64 {
	var tokens, busy int64
	for rank := range e.Ranks() {
		if r, ok := e.Report(rank); ok {
			tokens += r.PrefillTokens.Or(0)
			busy += r.PrefillBusyUS.Or(0)
		}
	}
	if tokens <= 0 || busy <= 0 {
		return 50 // an 8 B model on an accelerator of 2023
	}
	return float64(busy) / float64(tokens)
}

// draw draws candidates that have a fresh report, each once, until the pool is full
// or holds all of them.
func draw(d *selector.Decision, pool []int) []int {
	fresh := 0
	for i := range d.Len() {
		if !d.Entry(i).Trusted() {
			continue
		}
		fresh++
		if len(pool) < cap(pool) {
			pool = append(pool, i)
		} else if k := below(d.Random(), fresh); k < len(pool) {
			pool[k] = i
		}
	}
	// That is fair to all, and leaves the first ones first.
	for k := len(pool) - 1; k > 0; k-- {
		j := below(d.Random(), k+1)
		pool[k], pool[j] = pool[j], pool[k]
	}
	return pool
}
