package selector

import (
	"fmt"
	"math"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

func TestCacheAwareDecidesByItsRulesInTheirOrder(t *testing.T) {
	known := load.Known[int64]
	for _, tt := range []struct {
		name    string
		depths  []int64
		config  CacheAwareConfig
		prompt  load.Maybe[int64]
		matches map[int]int64 // by worker
		gone    int           // worker that is not healthy; -1: none
		want    int
		reason  Reason
		load    int64
	}{
		{
			name: "the owner of the longest match, though others are less loaded", depths: []int64{9, 3, 0}, gone: -1,
			prompt: known(100), matches: map[int]int64{0: 90, 1: 80, 2: 10}, want: 0, reason: PrefixOwner, load: 9,
		}, {
			name: "a rate of exactly one half is too little", depths: []int64{9, 3, 0}, gone: -1,
			prompt: known(100), matches: map[int]int64{0: 50}, want: 2, reason: NoMatch, load: 0,
		}, {
			name: "a rate just above one half is enough", depths: []int64{9, 3, 0}, gone: -1,
			prompt: known(100), matches: map[int]int64{0: 51}, want: 0, reason: PrefixOwner, load: 9,
		}, {
			name: "half of an odd prompt is not a whole number", depths: []int64{9, 3, 0}, gone: -1,
			prompt: known(101), matches: map[int]int64{0: 51}, want: 0, reason: PrefixOwner, load: 9,
		}, {
			name: "nobody has anything", depths: []int64{9, 3, 0}, gone: -1,
			prompt: known(100), want: 2, reason: NoMatch, load: 0,
		}, {
			name: "everybody has nothing", depths: []int64{9, 3, 0}, gone: -1,
			prompt: known(100), matches: map[int]int64{0: 0, 1: 0, 2: 0}, want: 2, reason: NoMatch, load: 0,
		}, {
			name: "out of balance, though there is an owner", depths: []int64{40, 3, 0}, gone: -1,
			prompt: known(100), matches: map[int]int64{0: 100}, want: 2, reason: Imbalance, load: 0,
		}, {
			name: "a spread of more than the absolute threshold alone is balanced", depths: []int64{1050, 1000, 1010}, gone: -1,
			prompt: known(100), matches: map[int]int64{0: 100}, want: 0, reason: PrefixOwner, load: 1050,
		}, {
			name: "a spread of more than the relative threshold alone is balanced", depths: []int64{30, 1, 5}, gone: -1,
			prompt: known(100), matches: map[int]int64{0: 100}, want: 0, reason: PrefixOwner, load: 30,
		}, {
			name: "thresholds of nothing make any spread an imbalance", depths: []int64{2, 1, 2}, gone: -1,
			config: CacheAwareConfig{BalanceAbs: known(0), BalanceRel: load.Known(1.0)},
			prompt: known(100), matches: map[int]int64{0: 100}, want: 1, reason: Imbalance, load: 1,
		}, {
			name: "thresholds of nothing leave an even fleet balanced", depths: []int64{2, 2, 2}, gone: -1,
			config: CacheAwareConfig{BalanceAbs: known(0), BalanceRel: load.Known(1.0)},
			prompt: known(100), matches: map[int]int64{1: 100}, want: 1, reason: PrefixOwner, load: 2,
		}, {
			name: "the owner is not healthy, so the next longest match decides", depths: []int64{0, 3, 2}, gone: 0,
			prompt: known(100), matches: map[int]int64{0: 100, 1: 60}, want: 1, reason: PrefixOwner, load: 3,
		}, {
			name: "the owner is not healthy, and nobody else has enough", depths: []int64{0, 3, 2}, gone: 0,
			prompt: known(100), matches: map[int]int64{0: 100, 1: 50}, want: 2, reason: NoMatch, load: 2,
		}, {
			name: "an unhealthy idle worker does not unbalance the fleet", depths: []int64{0, 90, 95}, gone: 0,
			prompt: known(100), matches: map[int]int64{2: 100}, want: 2, reason: PrefixOwner, load: 95,
		}, {
			name: "a prompt of unknown length matches nothing", depths: []int64{9, 3, 0}, gone: -1,
			matches: map[int]int64{0: 1 << 40}, want: 2, reason: NoMatch, load: 0,
		}, {
			name: "a prompt of unknown length matches nothing even at a threshold of 0", depths: []int64{9, 3, 0}, gone: -1,
			config:  CacheAwareConfig{MatchThreshold: load.Known(0.0)},
			matches: map[int]int64{0: 1 << 40}, want: 2, reason: NoMatch, load: 0,
		}, {
			name: "at a threshold of 0 one token is enough", depths: []int64{9, 3, 0}, gone: -1,
			config: CacheAwareConfig{MatchThreshold: load.Known(0.0)},
			prompt: known(100), matches: map[int]int64{0: 1}, want: 0, reason: PrefixOwner, load: 9,
		}, {
			name: "at a threshold of 1 not even the whole prompt is enough", depths: []int64{9, 3, 0}, gone: -1,
			config: CacheAwareConfig{MatchThreshold: load.Known(1.0)},
			prompt: known(100), matches: map[int]int64{0: 100}, want: 2, reason: NoMatch, load: 0,
		}, {
			name: "a negative prompt length is as good as unknown", depths: []int64{9, 3, 0}, gone: -1,
			prompt: known(-1), matches: map[int]int64{0: 10}, want: 2, reason: NoMatch, load: 0,
		}, {
			name: "a negative match is none", depths: []int64{9, 3, 0}, gone: -1,
			prompt: known(-100), matches: map[int]int64{0: -1, 1: math.MinInt64}, want: 2, reason: NoMatch, load: 0,
		}, {
			name: "an empty prompt matches nothing", depths: []int64{9, 3, 0}, gone: -1,
			prompt: known(0), matches: map[int]int64{0: 10}, want: 2, reason: NoMatch, load: 0,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, ties := range []Ties{TiesRandom, TiesRotate} {
				table, workers := withDepths(t, tt.depths...)
				if tt.gone >= 0 {
					workers[tt.gone].SetHealthy(false)
				}
				tt.config.Ties = ties
				s := New(table, Config{Policy: CacheAware(tt.config)})
				r := Request{PromptTokens: tt.prompt}
				for i, tokens := range tt.matches {
					r.Prefix = append(r.Prefix, PrefixMatch{workers[i], tokens})
				}
				p := mustPick(t, s, r)
				if p.Worker != workers[tt.want] || p.Reason != tt.reason || p.Load != tt.load || p.Policy != CacheAwareName || p.Basis != Engine {
					t.Errorf("ties %v: %v, want %s for %v at %d", ties, p, workers[tt.want].ID(), tt.reason, tt.load)
				}
			}
		})
	}
}

func TestCacheAwareOwnersAreCandidatesOnly(t *testing.T) {
	table, workers := withDepths(t, 9, 3, 0)
	removed := table.Add("gone", "")
	table.Remove(removed)
	_, strangers := withDepths(t, 0) // of another table
	prefix := []PrefixMatch{{workers[0], 90}, {removed, 100}, {strangers[0], 100}, {nil, 100}, {workers[1], 80}}
	s := New(table, Config{Policy: CacheAware(CacheAwareConfig{})})
	r := Request{PromptTokens: load.Known[int64](100), Prefix: prefix}
	if p := mustPick(t, s, r); p.Worker != workers[0] || p.Reason != PrefixOwner {
		t.Errorf("%v, want the longest match of those that are there", p)
	}
	r.Filter = func(w *load.Worker) bool { return w != workers[0] }
	if p := mustPick(t, s, r); p.Worker != workers[1] || p.Reason != PrefixOwner {
		t.Errorf("%v, want the longest match of those that the filter takes", p)
	}
	r.Filter, r.Candidates = nil, workers[2:]
	if p := mustPick(t, s, r); p.Worker != workers[2] || p.Reason != NoMatch {
		t.Errorf("%v, want the only candidate, which has nothing", p)
	}
}

func TestCacheAwareSpreadsOverOwnersThatAreEqual(t *testing.T) {
	prompt := load.Known[int64](100)
	for name, prefixOf := range map[string]func(w []*load.Worker) []PrefixMatch{
		"each listed once": func(w []*load.Worker) []PrefixMatch { return []PrefixMatch{{w[0], 90}, {w[2], 90}, {w[3], 10}} },
		"one listed four times": func(w []*load.Worker) []PrefixMatch {
			return []PrefixMatch{{w[0], 90}, {w[0], 90}, {w[2], 90}, {w[0], 90}, {w[0], 90}}
		},
		"one listed with shorter matches too": func(w []*load.Worker) []PrefixMatch {
			return []PrefixMatch{{w[0], 60}, {w[0], 90}, {w[0], 70}, {w[2], 90}, {w[2], 5}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			table, workers := withDepths(t, 5, 5, 5, 5)
			owners := []*load.Worker{workers[0], workers[2]}
			s := New(table, Config{Policy: CacheAware(CacheAwareConfig{}), Rand: seeded(1)})
			wantUniform(t, pickAndDone(t, s, Request{PromptTokens: prompt, Prefix: prefixOf(workers)}, 4000), owners)
			s = New(table, Config{Policy: CacheAware(CacheAwareConfig{Ties: TiesRotate})})
			within(t, pickAndDone(t, s, Request{PromptTokens: prompt, Prefix: prefixOf(workers)}, 200), owners, 90, 110)
		})
	}
}

func TestCacheAwareCountsOwnRequestsSinceTheReportAgainstAnOwner(t *testing.T) {
	table, workers := withDepths(t, 0, 0)
	s := New(table, Config{Policy: CacheAware(CacheAwareConfig{})})
	r := Request{PromptTokens: load.Known[int64](10), Prefix: []PrefixMatch{{workers[0], 10}}}
	for i := range 33 {
		if p := mustPick(t, s, r); p.Worker != workers[0] || p.Load != int64(i) {
			t.Fatalf("pick %d: %v, want the owner at %d", i, p, i)
		}
	}
	// The owner stands at 33 and the other at 0: too far apart.
	if p := mustPick(t, s, r); p.Worker != workers[1] || p.Reason != Imbalance {
		t.Errorf("%v, want b for imbalance", p)
	}
}

func TestCacheAwareWithThresholdsThatMakeNoSenseStillPicks(t *testing.T) {
	// NewPolicy refuses them; a host that builds the config itself is not checked.
	nan := load.Known(math.NaN())
	for _, c := range []CacheAwareConfig{
		{MatchThreshold: nan}, {BalanceRel: nan}, {MatchThreshold: load.Known(-1.0)}, {BalanceAbs: load.Known[int64](-5)},
	} {
		for _, ties := range []Ties{TiesRandom, TiesRotate} {
			t.Run(fmt.Sprint(c, ties), func(t *testing.T) {
				c.Ties = ties
				table, workers := withDepths(t, 1, 2)
				s := New(table, Config{Policy: CacheAware(c)})
				for _, prefix := range [][]PrefixMatch{nil, {{workers[1], 10}}, {{workers[1], 0}}} {
					for _, prompt := range []load.Maybe[int64]{{}, load.Known[int64](-1), load.Known[int64](0), load.Known[int64](10)} {
						if p := mustPick(t, s, Request{PromptTokens: prompt, Prefix: prefix}); p.Basis == 0 || p.Reason == 0 {
							t.Errorf("%+v", p)
						}
					}
				}
			})
		}
	}
}
