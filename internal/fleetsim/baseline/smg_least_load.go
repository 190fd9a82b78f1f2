package baseline

import (
	"math"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// The names of SMG's two policies.
const (
	SMGLeastLoadName  = "smg_least_load"
	SMGPowerOfTwoName = "smg_power_of_two"
)

// SMGLeastLoad returns the policy least_load of SMG, the Shepherd Model Gateway
// (smg-project/smg, once SGLang's model gateway: model_gateway/src/policies/
// least_load.rs). The lowest score is chosen, in seconds:
//
//	(queued tokens + tokens sent since the report) / throughput + 0.15·kv/(1 − kv)
//
// The queued tokens are the uncached ones of the prompts that wait, or 1,024 for each
// waiting request where a report has no such tokens. A worker without a fresh report
// has the score of the best one with a report, plus 1,024 tokens for each own request
// in flight; where none has a report, the fewest own requests in flight decide.
//
// There, throughput is the number of tokens that the engine generates per second, by
// its own word, and 2,000 if it does not say; here it is 2,000 for all, since a
// load.Report has no such number. A report counts as fresh there for three polls
// of 10 s, and here for the table's window.
func SMGLeastLoad() selector.Policy {
	return &smgLeastLoad{name: SMGLeastLoadName, group: all}
}

// SMGPowerOfTwo returns the policy power_of_two of SMG (power_of_two.rs in the same
// place): the better of two random workers by the score of SMGLeastLoad.
func SMGPowerOfTwo() selector.Policy {
	return &smgLeastLoad{name: SMGPowerOfTwoName, group: twoOf}
}

const (
	smgKVWeight   = 0.15  // seconds
	smgThroughput = 2000  // tokens per second
	smgFullKV     = 0.999 // what a full cache counts as
)

type smgLeastLoad struct {
	name  string
	group func(*selector.Decision) group

	since ledger // tokens, by worker
}

func (p *smgLeastLoad) Name() string { return p.name }

func (p *smgLeastLoad) Choose(d *selector.Decision) selector.Choice {
	p.since.mu.Lock()
	defer p.since.mu.Unlock()
	g := p.group(d)
	best, silent := math.Inf(1), 0
	for k := range g.n {
		if e := d.Entry(g.at(k)); !e.Trusted() {
			silent++
		} else {
			best = min(best, p.wait(e))
		}
	}
	i := g.least(d, func(i int) float64 {
		e := d.Entry(i)
		if e.Trusted() {
			return p.wait(e)
		}
		own := float64(e.Own().InFlight)
		if silent == g.n {
			return own
		}
		return best + own*meanPrompt/smgThroughput
	})
	p.since.add(d.Entry(i), load.NoRank, d.Request.PromptTokens.Or(meanPrompt))
	return g.choice(d, i)
}

// wait is the score of a worker with a fresh report.
func (p *smgLeastLoad) wait(e load.Entry) float64 {
	t := lastReported(e)
	kv := min(t.kv, smgFullKV)
	tokens := t.queuedTokens() + p.since.sent(e, load.NoRank)
	return float64(tokens)/smgThroughput + smgKVWeight*kv/(1-kv)
}
