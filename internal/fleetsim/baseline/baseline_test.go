package baseline

import (
	"reflect"
	"testing"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
	"github.com/plimsoll-go/plimsoll/internal/fleetsim/trace"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

func TestEveryBaselineGoesByItsName(t *testing.T) {
	seen := make(map[string]bool)
	for _, b := range Policies() {
		if got := b.New(fleetsim.Gateway{Count: 1}).Name(); got != b.Name {
			t.Errorf("%s makes a policy named %s", b.Name, got)
		}
		if seen[b.Name] || b.Doc == "" {
			t.Errorf("%s is there twice, or says nothing of itself", b.Name)
		}
		seen[b.Name] = true
	}
}

func TestRunsOfABaselineAreEqual(t *testing.T) {
	engines := fleetsim.Fleet(4, fleetsim.EngineConfig{})
	var c fleetsim.Calibrations
	tr, err := c.AtLoad(trace.Generate("mix", trace.Mix{Seed: 5, Requests: 400, BurstRate: 3}), engines, 0.9)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range Policies() {
		t.Run(b.Name, func(t *testing.T) {
			config := fleetsim.Config{
				Seed: 1, Trace: tr, Engines: engines, Chooser: b.New, Gateways: 3,
				Faults: fleetsim.Faults{Mute: []int{1}, Loss: 0.2},
			}
			var runs [2]*fleetsim.Result
			for i := range runs {
				if runs[i], err = fleetsim.Run(config); err != nil {
					t.Fatal(err)
				}
			}
			if !reflect.DeepEqual(runs[0], runs[1]) {
				t.Error("two runs of one config differ")
			}
			if s := runs[0].Summary(); s.Failed != 0 {
				t.Errorf("%d requests failed", s.Failed)
			}
		})
	}
}

// anyBaseline makes each baseline for the first of two gateways.
func anyBaseline(t *testing.T, run func(t *testing.T, p selector.Policy)) {
	for _, b := range Policies() {
		t.Run(b.Name, func(t *testing.T) { run(t, b.New(fleetsim.Gateway{Count: 2})) })
	}
}

func TestAnyBaselineCopesWithWhateverIsKnown(t *testing.T) {
	full := load.Report{Running: 1 << 40, Waiting: 1 << 40, WaitingTokens: load.Known[int64](1 << 50), KVUsage: load.Known(1.0)}
	for what, f := range map[string]*fleet{
		"one worker":       newFleet(t, &load.Report{}),
		"nothing":          newFleet(t, nil, nil, nil),
		"one report":       newFleet(t, nil, &load.Report{Running: 1}, nil),
		"no ranks":         noRanks(t, 3),
		"enormous numbers": newFleet(t, &full, &full, nil),
	} {
		t.Run(what, func(t *testing.T) {
			anyBaseline(t, func(t *testing.T, p selector.Policy) {
				s := f.selector(p)
				for _, r := range []selector.Request{{}, prompt(100), {Worker: f.workers[0]}, {Rank: load.Known(0)}} {
					f.picked(s, r, 50)
				}
			})
		})
	}
}

// noRanks is a fleet of workers that are not known to report.
func noRanks(t *testing.T, n int) *fleet {
	f := newFleet(t)
	for i := range n {
		f.workers = append(f.workers, f.table.Add(string(rune('a'+i)), ""))
	}
	return f
}

func TestAPickByABaselineCostsNoAllocation(t *testing.T) {
	if raceEnabled {
		return // the pool of decisions forgets on purpose
	}
	f := newFleet(t, busy(3, 0.5), queue(1, 500), nil, busy(1, 0.9), queue(9, 800))
	r := prompt(1000)
	r.Prefix = []selector.PrefixMatch{{Worker: f.workers[1], Tokens: 500}}
	anyBaseline(t, func(t *testing.T, p selector.Policy) {
		s := f.selector(p)
		if got := testing.AllocsPerRun(500, func() { f.picked(s, r, 1) }); got != 0 {
			t.Errorf("it allocates %v times", got)
		}
	})
}

func TestTheLedgerOfAPlaceIsClearedWhenAllOfItHasReported(t *testing.T) {
	f := newFleet(t)
	f.add(2)
	f.report(0, 0, load.Report{})
	f.report(0, 1, load.Report{})
	var l ledger
	want := func(rank int, amount int64) {
		t.Helper()
		if got := l.sent(f.entry(0), rank); got != amount {
			t.Errorf("sent to rank %d: %d, want %d", rank, got, amount)
		}
	}
	l.add(f.entry(0), load.NoRank, 100)
	l.add(f.entry(0), load.NoRank, 20)
	l.add(f.entry(0), 0, 3)
	want(load.NoRank, 120)
	want(0, 3)
	want(1, 0)
	f.report(0, 0, load.Report{})
	want(load.NoRank, 120)
	want(0, 0)
	l.add(f.entry(0), load.NoRank, 1)
	want(load.NoRank, 121)
	f.report(0, 1, load.Report{})
	want(load.NoRank, 0)
}
