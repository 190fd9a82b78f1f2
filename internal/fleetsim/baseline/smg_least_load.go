package baseline

import (
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// Names of SMG's score by either choice.
const (
	SMGLeastLoadName      = "smg_least_load"
	SMGLeastLoadOfTwoName = "smg_least_load_of_two"
)

// SMGLeastLoad returns the policy least_load of SMG, the Shepherd Model Gateway that
// SGLang's model gateway has become (lightseekorg/smg, model_gateway/src/policies/
// least_load.rs). The lowest score is chosen, in seconds:
//
//	(queued tokens + tokens sent since the report) / throughput + 0.15·kv/(1 − kv)
//
// The queued tokens are the uncached ones of the prompts that wait; where a wire has
// none they are 0, as there. A worker without a fresh report is taken to have
// 1,024 tokens for each own request in flight, and where none has one the fewest own
// requests decide.
//
// There, throughput is the tokens that the engine generates per second, by its own
// word, and 2,000 where it does not say; reports have no such number here, so that it
// is 2,000 always. There the first of equals is taken.
func SMGLeastLoad() selector.Policy { return &smgLeastLoad{name: SMGLeastLoadName} }

// SMGLeastLoadOfTwo returns the policy that compares two random workers by the same
// score, and not all of them.
func SMGLeastLoadOfTwo() selector.Policy {
	return &smgLeastLoad{name: SMGLeastLoadOfTwoName, two: true}
}

const (
	smgKVWeight   = 0.15 // seconds
	smgMeanPrompt = 1024 // tokens
	smgThroughput = 2000 // tokens per second
	smgFullKV     = 0.999
)

type smgLeastLoad struct {
	name string
	two  bool

	since ledger // tokens, by worker
}

func (p *smgLeastLoad) Name() string { return p.name }

func (p *smgLeastLoad) Choose(d *selector.Decision) selector.Choice {
	p.since.mu.Lock()
	defer p.since.mu.Unlock()
	seen, _, _ := d.View().Trusted()
	score := func(i int) float64 { return p.score(d.Entry(i), seen == 0) }
	if p.two {
		i, s := lessOfTwo(d, score)
		return p.send(d, i, s, selector.LessLoaded)
	}
	i, s := least(d, score)
	return p.send(d, i, s, selector.LeastLoaded)
}

func (p *smgLeastLoad) send(d *selector.Decision, i int, score float64, why selector.Reason) selector.Choice {
	p.since.add(d.Entry(i), load.NoRank, d.Request.PromptTokens.Or(smgMeanPrompt))
	return chosen(d, i, score, why)
}

func (p *smgLeastLoad) score(e load.Entry, dark bool) float64 {
	t, ok := reported(e)
	if !ok {
		own, _ := e.InFlight()
		if dark {
			return float64(own)
		}
		return float64(own) * smgMeanPrompt / smgThroughput
	}
	kv := min(t.kv, smgFullKV)
	return float64(t.tokens+p.since.sent(e, load.NoRank))/smgThroughput + smgKVWeight*kv/(1-kv)
}
