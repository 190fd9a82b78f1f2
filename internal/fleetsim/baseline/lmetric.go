package baseline

import (
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// LMetricName is the name of the policy LMetric.
const LMetricName = "lmetric"

// LMetric returns the rule of "Simple is Better: Multiplication May Be All You Need
// for LLM Request Scheduling" (Zhang et al., OSDI 2026; policy lmetric-q of
// blitz-serving/blitz-router). The lowest product is chosen, of
//
//	(queued tokens + uncached tokens of this prompt) · (running + waiting + 1)
//
// The queued tokens are the uncached ones of the prompts that wait, those sent since
// the report included, and so are the requests.
//
// There, one router keeps both numbers up to date with every step of every engine;
// here they are as old as the report. A worker that is not trusted has the prompts of
// the own requests without a first token, and the load that the selector's signal
// gives it. The paper's detector of overloaded prefixes is left out.
func LMetric() selector.Policy { return new(lmetric) }

type lmetric struct {
	since ledger // tokens, by worker
}

func (*lmetric) Name() string { return LMetricName }

func (p *lmetric) Choose(d *selector.Decision) selector.Choice {
	p.since.mu.Lock()
	defer p.since.mu.Unlock()
	prompt := d.Request.PromptTokens.Or(meanPrompt)
	g := all(d)
	i := g.least(d, func(i int) float64 {
		e := d.Entry(i)
		tokens := prompt - cached(d, e.Worker())
		if e.Trusted() {
			t := lastReported(e)
			tokens += t.queuedTokens() + p.since.sent(e, load.NoRank)
		} else {
			tokens += e.Own().PendingTokens
		}
		return float64(tokens) * float64(d.Candidate(i).Load+1)
	})
	e := d.Entry(i)
	p.since.add(e, load.NoRank, prompt-cached(d, e.Worker()))
	return g.choice(d, i)
}
