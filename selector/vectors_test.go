package selector

import (
	"fmt"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

// The situations that the behaviour of a selection is defined by.

func TestRanksOfFiveAndOneAndThreeAndTwoWeighEleven(t *testing.T) {
	table, _ := newTestTable()
	f := table.Add("a", "").Advertise(2)
	mustPut(t, f, 0, load.Report{Running: 5, Waiting: 1})
	mustPut(t, f, 1, load.Report{Running: 3, Waiting: 2})
	wantWeighed(t, weigh(t, table, Calibrated, Request{}), weighed{"a", 11, Engine})
}

func TestAReportCountsAtTheWindowExactlyAndNotANanosecondLater(t *testing.T) {
	table, clock := newTestTable()
	w := table.Add("a", "")
	reportDepth(t, w, 50)
	hold(t, w, 2)
	clock.advance(testWindow)
	wantWeighed(t, weigh(t, table, Calibrated, Request{}), weighed{"a", 52, Engine})
	clock.advance(1)
	// Stale 50 with 2 own in flight counts as 2, on the local basis.
	for _, signal := range []Signal{Calibrated, Mixed, Uniform} {
		wantWeighed(t, weigh(t, table, signal, Request{}), weighed{"a", 2, Local})
	}
}

func TestAWorkerWithARankThatIsStaleOrWasNeverSeenIsNotTakenAtItsDepth(t *testing.T) {
	table, clock := newTestTable()
	w := table.Add("a", "")
	f := w.Advertise(2)
	mustPut(t, f, 0, load.Report{Running: 1})
	wantWeighed(t, weigh(t, table, Mixed, Request{}), weighed{"a", 0, Local})
	mustPut(t, f, 1, load.Report{Running: 1})
	wantWeighed(t, weigh(t, table, Mixed, Request{}), weighed{"a", 2, Engine})
	clock.advance(testWindow + 1)
	mustPut(t, f, 0, load.Report{Running: 1})
	wantWeighed(t, weigh(t, table, Mixed, Request{}), weighed{"a", 0, Local})
}

func TestOneOwnDispatchBetweenTheReportsOfTwoRanksIsThree(t *testing.T) {
	table, clock := newTestTable()
	w := table.Add("a", "")
	f := w.Advertise(2)
	mustPut(t, f, 0, load.Report{Running: 1})
	clock.advance(1)
	hold(t, w, 1)[0].Dispatched()
	clock.advance(1)
	mustPut(t, f, 1, load.Report{Running: 1})
	wantWeighed(t, weigh(t, table, Calibrated, Request{}), weighed{"a", 3, Engine})
}

func TestThreeOwnDispatchesOutweighAShorterQueue(t *testing.T) {
	for _, policy := range []Policy{LeastDepth(LeastDepthConfig{}), PowerOfTwo(), CacheAware(CacheAwareConfig{})} {
		t.Run(policy.Name(), func(t *testing.T) {
			table, workers := withDepths(t, 1, 3)
			s := New(table, Config{Policy: policy})
			if p := mustPick(t, s, Request{Worker: workers[0]}); p.Load != 1 || p.Basis != Engine {
				t.Errorf("the first weighs %d (%v)", p.Load, p.Basis)
			}
			for range 2 {
				mustPick(t, s, Request{Worker: workers[0]})
			}
			p := mustPick(t, s, Request{})
			if p.Worker != workers[1] || p.Load != 3 {
				t.Errorf("picked %s at load %d, want b at 3", p.Worker.ID(), p.Load)
			}
		})
	}
}

func TestASilentWorkerDoesNotTakeSixSequentialRequests(t *testing.T) {
	anyPolicy(t, func(t *testing.T, policy Policy) {
		for _, signal := range []Signal{Calibrated, Mixed, Uniform} {
			for seed := range uint64(10) {
				table, workers := withDepths(t, 1, 1, silent, 1)
				s := New(table, Config{Policy: policy, Signal: signal, Rand: seeded(seed)})
				for range 6 {
					mustPick(t, s, Request{}).Dispatched()
				}
				if n := workers[2].InFlight(); n == 6 {
					t.Errorf("%v, seed %d: the silent worker took all six", signal, seed)
				}
			}
		}
	})
}

func TestTheSpreadThatUnbalancesAFleetIsStrictlyAboveBothThresholds(t *testing.T) {
	for _, tt := range []struct {
		low, high  int64
		imbalanced bool
	}{
		{0, 32, false},
		{0, 33, true},
		{400, 440, false},
		{400, 441, true},
		{1000, 1100, false}, // exactly 1.1 times
		{1000, 1101, true},
		{0, 0, false},
		{500, 532, false}, // neither
		{330, 363, false}, // above by 33, and exactly 1.1 times
		{320, 353, true},
	} {
		t.Run(fmt.Sprintf("%d and %d", tt.low, tt.high), func(t *testing.T) {
			table, workers := withDepths(t, tt.low, tt.high)
			s := New(table, Config{Policy: CacheAware(CacheAwareConfig{})})
			r := Request{
				PromptTokens: load.Known[int64](100),
				Prefix:       []PrefixMatch{{workers[1], 100}}, // the busier worker has it all
			}
			p := mustPick(t, s, r)
			if tt.imbalanced && (p.Worker != workers[0] || p.Reason != Imbalance) {
				t.Errorf("picked %s for %v, want a for imbalance", p.Worker.ID(), p.Reason)
			}
			if !tt.imbalanced && (p.Worker != workers[1] || p.Reason != PrefixOwner) {
				t.Errorf("picked %s for %v, want b as the owner", p.Worker.ID(), p.Reason)
			}
		})
	}
}

func TestAnOwnerIsPassedOverWhereTheFleetIsOutOfBalance(t *testing.T) {
	table, workers := withDepths(t, 50, 1)
	s := New(table, Config{Policy: CacheAware(CacheAwareConfig{BalanceAbs: load.Known[int64](5), BalanceRel: load.Known(2.0)})})
	p := mustPick(t, s, Request{PromptTokens: load.Known[int64](10), Prefix: []PrefixMatch{{workers[0], 10}}})
	if p.Worker != workers[1] || p.Reason != Imbalance || p.Load != 1 {
		t.Errorf("picked %s for %v at load %d, want b for imbalance at 1", p.Worker.ID(), p.Reason, p.Load)
	}
}

func TestOfTwoOwnersTheLessLoadedIsPicked(t *testing.T) {
	for _, ties := range []Ties{TiesRandom, TiesRotate} {
		table, workers := withDepths(t, 10, 2)
		s := New(table, Config{Policy: CacheAware(CacheAwareConfig{BalanceAbs: load.Known[int64](100), Ties: ties})})
		for range 20 {
			p, err := s.Pick(Request{PromptTokens: load.Known[int64](10), Prefix: []PrefixMatch{{workers[0], 8}, {workers[1], 8}}})
			if err != nil {
				t.Fatal(err)
			}
			if p.Worker != workers[1] || p.Reason != PrefixOwner {
				t.Errorf("%v: picked %s for %v, want b as an owner", ties, p.Worker.ID(), p.Reason)
			}
			p.Done()
		}
	}
}
