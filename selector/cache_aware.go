package selector

import (
	"fmt"
	"math"

	"github.com/plimsoll-go/plimsoll/load"
)

// CacheAwareName is the name of the policy CacheAware.
const CacheAwareName = "cache_aware"

// CacheAwareConfig configures CacheAware. What is unknown takes its default.
type CacheAwareConfig struct {
	// MatchThreshold is the share of the prompt, 0 to 1, of which more must be
	// cached for the prefix to decide. Default 0.5.
	MatchThreshold load.Maybe[float64] `json:"match_threshold"`

	// The fleet is out of balance, and prefixes are not looked at, when the
	// highest load is more than BalanceAbs requests above the lowest and more
	// than BalanceRel times the lowest. Defaults 32 and 1.1.
	BalanceAbs load.Maybe[int64]   `json:"balance_abs"`
	BalanceRel load.Maybe[float64] `json:"balance_rel"`

	Ties Ties `json:"ties"`
}

func (c CacheAwareConfig) validate() error {
	// The negated forms also refuse NaN.
	if v := c.MatchThreshold.Or(0); !(v >= 0 && v <= 1) {
		return fmt.Errorf("match_threshold is %v, and must be from 0 to 1", v)
	}
	if v := c.BalanceAbs.Or(0); v < 0 {
		return fmt.Errorf("balance_abs is %v, and must not be negative", v)
	}
	if v := c.BalanceRel.Or(1); !(v >= 1) {
		return fmt.Errorf("balance_rel is %v, and must be at least 1", v)
	}
	return nil
}

// CacheAware returns the policy that sends a request where its prefix is, by the
// matches that the request carries, as long as the fleet is in balance. The
// request's PromptTokens must be known for its matches to count.
//
// Candidates out of balance: the least loaded. Else, if no candidate has more
// than the threshold of the prompt: the least loaded. Else the least loaded of
// those with the longest match.
func CacheAware(c CacheAwareConfig) Policy {
	return &cacheAware{
		threshold: c.MatchThreshold.Or(0.5),
		abs:       c.BalanceAbs.Or(32),
		rel:       c.BalanceRel.Or(1.1),
		ties:      c.Ties,
		rotation:  newRotation(),
		owners:    newRotation(),
	}
}

type cacheAware struct {
	threshold float64
	abs       int64
	rel       float64
	ties      Ties
	rotation  *rotation
	owners    *rotation
}

func (p *cacheAware) Name() string { return CacheAwareName }

func (p *cacheAware) Choose(d *Decision) Choice {
	best, highest := p.rotation.least(d, p.ties, false)
	if highest-best.Load > p.abs && float64(highest) > p.rel*float64(best.Load) {
		return Choice{Candidate: best, Reason: Imbalance}
	}
	longest := longestMatch(d)
	if float64(longest) <= p.threshold*float64(d.Request.PromptTokens.Or(math.MaxInt64)) {
		return Choice{Candidate: best, Reason: NoMatch}
	}
	return Choice{Candidate: p.leastOwner(d, longest), Reason: PrefixOwner}
}

// leastOwner is the least loaded of the candidates with so long a match, of
// which there is one at least.
func (p *cacheAware) leastOwner(d *Decision, tokens int64) (best Candidate) {
	prefix := d.Request.Prefix
	k, run := p.owners.begin(d, p.ties, len(prefix))
	for range prefix {
		if m := prefix[k]; m.Tokens == tokens {
			if i, ok := d.find(m.Worker); ok {
				if c := d.Candidate(i); run.better(c.Load, best.Load) {
					best = c
					if p.ties == TiesRotate {
						p.owners.next.Store(uint64(k) + 1)
					}
				}
			}
		}
		if k++; k == len(prefix) {
			k = 0
		}
	}
	return best
}

// longestMatch is the longest match that a candidate has. A worker that takes no
// part owns nothing, however much it has cached.
func longestMatch(d *Decision) (longest int64) {
	for _, m := range d.Request.Prefix {
		if m.Tokens > longest {
			if _, ok := d.find(m.Worker); ok {
				longest = m.Tokens
			}
		}
	}
	return longest
}
