package baseline

import (
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// LMetricName is the name of the policy LMetric.
const LMetricName = "lmetric"

// LMetric returns the rule of "LMetric: Simple is Better" (Zhang et al., 2026): the
// lowest product of two numbers, the prompt tokens that a worker would have to compute
// with this request, less what it has cached, and its batch size.
func LMetric() selector.Policy { return new(lmetric) }

type lmetric struct {
	since ledger // tokens, by worker
}

func (*lmetric) Name() string { return LMetricName }

func (p *lmetric) Choose(d *selector.Decision) selector.Choice {
	p.since.mu.Lock()
	defer p.since.mu.Unlock()
	prompt := d.Request.PromptTokens.Or(smgMeanPrompt)
	i, score := least(d, func(i int) float64 {
		e := d.Entry(i)
		tokens := prompt - cached(d, e.Worker())
		if t, ok := reported(e); ok && t.tokensKnown {
			tokens += t.tokens + p.since.sent(e, load.NoRank)
		} else {
			tokens += e.Own().PendingTokens
		}
		return float64(tokens) * float64(d.Candidate(i).Load+1)
	})
	e := d.Entry(i)
	p.since.add(e, load.NoRank, prompt-cached(d, e.Worker()))
	return chosen(d, i, score, selector.LeastLoaded)
}
