package selector

import (
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

func TestAPickCostsNoAllocation(t *testing.T) {
	if raceEnabled {
		return
	}
	fleets := map[string][]int64{
		"all report":  {3, 1, 4, 1, 5, 9, 2, 6},
		"some silent": {3, silent, 4, 1, silent, 9, 2, 6},
	}
	for name, depths := range fleets {
		t.Run(name, func(t *testing.T) {
			anyPolicy(t, func(t *testing.T, policy Policy) {
				table, workers := withDepths(t, depths...)
				workers[7].SetAside()
				s := New(table, Config{Policy: policy})
				prefix := []PrefixMatch{{workers[3], 800}, {workers[5], 800}, {workers[2], 20}}
				few := workers[2:6]
				for what, r := range map[string]Request{
					"plain":            {},
					"with a prefix":    {PromptTokens: load.Known[int64](1000), Prefix: prefix},
					"filtered":         {PromptTokens: load.Known[int64](1000), Prefix: prefix, Filter: func(w *load.Worker) bool { return w != workers[3] }},
					"among candidates": {PromptTokens: load.Known[int64](1000), Prefix: prefix, Candidates: few},
					"with exclusions":  {PromptTokens: load.Known[int64](1000), Prefix: prefix, Exclude: few[:2]},
					"pinned":           {Worker: workers[2]},
					"with a rank":      {Rank: load.Known(0)},
				} {
					got := testing.AllocsPerRun(500, func() {
						p, err := s.Pick(r)
						if err != nil {
							t.Fatal(err)
						}
						p.Dispatched()
						p.FirstToken()
						p.Done()
					})
					if got != 0 {
						t.Errorf("a pick %s allocates %v times", what, got)
					}
				}
			})
		})
	}
}

func TestARetriedChoiceCostsNoAllocation(t *testing.T) {
	if raceEnabled {
		return
	}
	table, workers := withDepths(t, 0, 0)
	policy := &hosted{name: "host", choose: func(d *Decision) Choice {
		c := d.Candidate(0)
		workers[0].Reserve(load.NoRank, 0).Done() // a rival at every try
		return Choice{Candidate: c}
	}}
	s := New(table, Config{Policy: policy})
	if got := testing.AllocsPerRun(200, func() {
		p, err := s.Pick(Request{})
		if err != nil {
			t.Fatal(err)
		}
		p.Done()
	}); got != 0 {
		t.Errorf("it allocates %v times", got)
	}
}
