package selector

import (
	"fmt"
	"math"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

// Lesson 27.
func TestDPRankOfRanksThatAreAsDeepAsCanBeSaturates(t *testing.T) {
	table, _ := newTestTable()
	deep := &load.Report{Running: math.MaxInt64, Waiting: math.MaxInt64, KVUsage: load.Known(1.0)}
	w := withRanks(t, table, "a", deep, deep)
	s := dpRankSelector(table)
	if p := mustPick(t, s, Request{}); p.Load != math.MaxInt64 {
		t.Errorf("%v, want a load of %d", p, int64(math.MaxInt64))
	}
	mustPut(t, w, 1, load.Report{Running: math.MaxInt64})
	if p := mustPick(t, s, Request{}); p.Rank != 1 {
		t.Errorf("%v, want the rank without a queue", p)
	}
}

func TestDPRankPinnedToARankGivesEachWorkerItsShareWhateverItsRanks(t *testing.T) {
	table, _ := newTestTable()
	var many []*load.Report
	for range 8 {
		many = append(many, running(0))
	}
	workers := []*load.Worker{withRanks(t, table, "a", running(0)), withRanks(t, table, "b", many...), withRanks(t, table, "c", many[:3]...)}
	s := New(table, Config{Policy: DPRank(), Rand: seeded(5)})
	wantUniform(t, pickAndDone(t, s, Request{Rank: load.Known(0)}, 3000), workers)
}

func TestPicksAmongSomeTakeNoTurnFromThoseAmongAll(t *testing.T) {
	for _, policy := range append(tied(TiesRotate), DPRank(), RoundRobin()) {
		t.Run(policy.Name(), func(t *testing.T) {
			table, workers := withDepths(t, 0, 0, 0)
			s := New(table, Config{Policy: policy})
			counts := make(map[*load.Worker]int)
			for range 30 {
				mustPickAndDone(t, s, Request{Candidates: workers[:1]})
				counts[mustPickAndDone(t, s, Request{})]++
			}
			within(t, counts, workers, 10, 10)
		})
	}
}

func mustPickAndDone(t *testing.T, s *Selector, r Request) *load.Worker {
	t.Helper()
	p, err := s.Pick(r)
	if err != nil {
		t.Fatal(err)
	}
	p.Done()
	return p.Worker
}

// Lesson 7, for requests that restrict their candidates.
func TestARebuiltSelectorDoesNotBeginWithTheSameWorkerAmongSome(t *testing.T) {
	for _, policy := range []func() Policy{RoundRobin, DPRank, func() Policy { return CacheAware(CacheAwareConfig{Ties: TiesRotate}) }} {
		t.Run(policy().Name(), func(t *testing.T) {
			table, workers := withDepths(t, 0, 0, 0, 0)
			random := seeded(3)
			r := Request{Candidates: workers[1:], PromptTokens: load.Known[int64](10)}
			for _, w := range workers[1:] {
				r.Prefix = append(r.Prefix, PrefixMatch{Worker: w, Tokens: 9})
			}
			counts := make(map[*load.Worker]int)
			for range 900 {
				counts[mustPickAndDone(t, New(table, Config{Policy: policy(), Rand: random}), r)]++
			}
			wantUniform(t, counts, workers[1:])
		})
	}
}

func TestTurnsGoOnWhateverNumberTheyBeginWith(t *testing.T) {
	for _, number := range []uint64{0, 1, 2, math.MaxInt64, math.MaxUint64 - 1, math.MaxUint64} {
		for _, policy := range append(tied(TiesRotate), DPRank(), RoundRobin()) {
			t.Run(fmt.Sprint(policy.Name(), " from ", number), func(t *testing.T) {
				table, workers := withDepths(t, 0, 0, 0)
				s := New(table, Config{Policy: policy, Rand: fixed(number)})
				within(t, pickAndDone(t, s, Request{}, 30), workers, 10, 10)
			})
		}
	}
}
