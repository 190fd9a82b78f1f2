package selector

import (
	"fmt"
	"slices"

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
		rotation:  new(rotation),
	}
}

type cacheAware struct {
	threshold float64
	abs       int64
	rel       float64
	ties      Ties
	rotation  *rotation
}

func (p *cacheAware) Name() string { return CacheAwareName }

func (p *cacheAware) Choose(d *Decision) Choice {
	best, highest := p.rotation.least(d, p.ties, false)
	if highest-best.Load > p.abs && float64(highest) > p.rel*float64(best.Load) {
		return Choice{Candidate: best, Reason: Imbalance}
	}
	// A match counts if it is known of how much.
	prompt, _ := d.Request.PromptTokens.Get()
	if longest := d.listOwners(); prompt > 0 && longest > 0 && float64(longest) > p.threshold*float64(prompt) {
		return Choice{Candidate: p.leastOwner(d), Reason: PrefixOwner}
	}
	return Choice{Candidate: best, Reason: NoMatch}
}

// listOwners lists the candidates with the longest match, each once, and returns
// its length. A worker that takes no part owns nothing, however much it has
// cached.
func (d *Decision) listOwners() (longest int64) {
	d.owners = d.owners[:0]
	for _, m := range d.Request.Prefix {
		if m.Tokens < longest || m.Tokens <= 0 {
			continue
		}
		i, ok := d.find(m.Worker)
		if !ok {
			continue
		}
		if m.Tokens > longest {
			longest, d.owners = m.Tokens, d.owners[:0]
		}
		d.owners = append(d.owners, int32(i))
	}
	slices.Sort(d.owners)
	d.owners = slices.Compact(d.owners)
	return longest
}

// leastOwner returns the least loaded of the owners.
func (p *cacheAware) leastOwner(d *Decision) (best Candidate) {
	n := len(d.owners)
	var k int
	var least minimum
	if p.ties == TiesRandom {
		least.state = d.random() | 1
	} else {
		k = p.rotation.among(d, n)
	}
	for range n {
		if c := d.Candidate(int(d.owners[k])); least.take(c.Load, best.Load) {
			best = c
		}
		if k++; k == n {
			k = 0
		}
	}
	return best
}
