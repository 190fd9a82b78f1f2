package selector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// Policy is the rule by which one of the candidates is chosen. Choose is called
// from many goroutines at once; it must not block, must not keep d, and should
// not allocate.
type Policy interface {
	// Name returns the policy's name, which picks carry.
	Name() string

	// Choose chooses among at least one candidate.
	Choose(d *Decision) Choice
}

// Choice is what a policy chose, and why.
type Choice struct {
	Candidate Candidate
	Reason    Reason

	// Blind says that the choice does not follow from the candidate's load, which
	// the pick then does not name. A choice that does follow from it is made again
	// if another pick takes the same worker at the same moment.
	Blind bool

	// rankPlus1 is the rank, in what room a Choice of four words has left.
	rankPlus1 uint16
}

// OnRank returns the choice with a data-parallel rank of the worker. Without one
// the engine chooses, as it does where the request is pinned to a rank: then it
// is the request's.
func (c Choice) OnRank(rank int) Choice {
	c.rankPlus1 = 0
	if rank >= 0 && rank < math.MaxUint16 {
		c.rankPlus1 = uint16(rank + 1)
	}
	return c
}

func (c Choice) rank() int { return int(c.rankPlus1) - 1 }

// RankPolicy is a policy that chooses the rank too. Like a Learner, it is asked also
// where the request is pinned to a worker, which is then the only candidate.
type RankPolicy interface {
	Policy
	ChoosesRank()
}

// Reason says why a worker was chosen.
type Reason uint8

const (
	Turn        Reason = iota + 1 // it was its turn
	Chance                        // at random
	LeastLoaded                   // least loaded of all candidates
	LessLoaded                    // less loaded of two drawn at random
	Imbalance                     // least loaded, because loads diverge too far to look at prefixes
	NoMatch                       // least loaded, because too little of the prompt is cached anywhere
	PrefixOwner                   // has the longest matching prefix; least loaded of those
	Pinned                        // the request asked for it

	LeastWaiting     // the least expected wait, of the gateway's own slice of the workers
	LeastWaitingAway // outside of it, and better by more than the bias
)

func (r Reason) String() string {
	switch r {
	case Turn:
		return "turn"
	case Chance:
		return "chance"
	case LeastLoaded:
		return "least_loaded"
	case LessLoaded:
		return "less_loaded_of_two"
	case Imbalance:
		return "imbalance"
	case NoMatch:
		return "no_match"
	case PrefixOwner:
		return "prefix_owner"
	case Pinned:
		return "pinned"
	case LeastWaiting:
		return "least_waiting"
	case LeastWaitingAway:
		return "least_waiting_away"
	}
	return "unknown"
}

// MarshalText encodes the reason as its name.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// policies makes each policy of this package from its configuration in JSON.
var policies = map[string]func(config []byte) (Policy, error){
	RoundRobinName:   plain(RoundRobin),
	RandomName:       plain(Random),
	LeastRequestName: configured(LeastRequest),
	PowerOfTwoName:   plain(PowerOfTwo),
	LeastDepthName:   configured(LeastDepth),
	CacheAwareName:   configured(CacheAware),
	DPRankName:       plain(DPRank),
	LeastWorkName:    configured(LeastWork),
}

// PolicyNames returns the names that NewPolicy knows, sorted.
func PolicyNames() []string { return slices.Sorted(maps.Keys(policies)) }

// NewPolicy makes a policy from its name and its configuration, a JSON object
// with the fields of the policy's config type; nil or empty means the defaults.
// The error is ErrUnknownPolicy or ErrBadConfig.
func NewPolicy(name string, config []byte) (Policy, error) {
	build, ok := policies[name]
	if !ok {
		return nil, fmt.Errorf("%w %q%s (have %s)", ErrUnknownPolicy, name, suggest(name), strings.Join(PolicyNames(), ", "))
	}
	p, err := build(bytes.TrimSpace(config))
	if err != nil {
		return nil, fmt.Errorf("%w for %s: %v", ErrBadConfig, name, err)
	}
	return p, nil
}

// aliases are what some policies are called elsewhere, for suggestions only.
var aliases = map[string]string{
	"rr":               RoundRobinName,
	"p2c":              PowerOfTwoName,
	"leastconn":        LeastRequestName,
	"leastconnections": LeastRequestName,
	"leastloaded":      LeastDepthName,
	"jsq":              LeastDepthName,
	"shortestqueue":    LeastDepthName,
	"prefixaware":      CacheAwareName,
	"prefixcacheaware": CacheAwareName,
}

// suggest finds the policy that a name most likely stands for: the same but for
// case and separators, one that it abbreviates, or another name for it.
func suggest(name string) string {
	fold := func(s string) string {
		return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(s))
	}
	want := fold(name)
	if alias, ok := aliases[want]; ok {
		return fmt.Sprintf("; did you mean %q?", alias)
	}
	for _, have := range PolicyNames() {
		if h := fold(have); want != "" && (strings.HasPrefix(h, want) || strings.HasPrefix(want, h)) {
			return fmt.Sprintf("; did you mean %q?", have)
		}
	}
	return ""
}

// plain is for a policy without configuration.
func plain[P Policy](build func() P) func([]byte) (Policy, error) {
	return configured(func(struct{}) P { return build() })
}

func configured[C any, P Policy](build func(C) P) func([]byte) (Policy, error) {
	return func(config []byte) (Policy, error) {
		var c C
		if len(config) > 0 {
			dec := json.NewDecoder(bytes.NewReader(config))
			dec.DisallowUnknownFields() // a misspelt threshold must not mean the default
			if err := dec.Decode(&c); err != nil {
				return nil, err
			}
			if _, err := dec.Token(); err != io.EOF {
				return nil, errors.New("something follows the JSON object")
			}
		}
		if v, ok := any(c).(interface{ validate() error }); ok {
			if err := v.validate(); err != nil {
				return nil, err
			}
		}
		return build(c), nil
	}
}
