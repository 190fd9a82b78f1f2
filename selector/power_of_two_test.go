package selector

import (
	"fmt"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

// draw is a random number that makes power_of_two draw candidate i of n, and then
// the k-th of the others.
func draw(i, k, n int) uint64 {
	part := func(i, n int) uint64 { return (uint64(i)<<32 + uint64(n) - 1) / uint64(n) } // the least that gives i
	return part(i, n)<<32 | part(k, n-1)
}

func TestPowerOfTwoTakesTheLessLoadedOfTheTwoThatItDraws(t *testing.T) {
	depths := []int64{4, 1, 3, 1}
	for i := range depths {
		for k := range len(depths) - 1 {
			j := k
			if j >= i {
				j++
			}
			t.Run(fmt.Sprintf("%d and %d", i, j), func(t *testing.T) {
				table, workers := withDepths(t, depths...)
				want := i // also where they are equal: the order of the two is random itself
				if depths[j] < depths[i] {
					want = j
				}
				s := New(table, Config{Policy: PowerOfTwo(), Rand: fixed(draw(i, k, len(depths)))})
				p := mustPick(t, s, Request{})
				if p.Worker != workers[want] || p.Load != depths[want] || p.Reason != LessLoaded || p.Policy != PowerOfTwoName || p.Candidates != 4 {
					t.Errorf("%v, want worker %s", p, workers[want].ID())
				}
			})
		}
	}
}

func TestPowerOfTwoOfOneTakesThatOne(t *testing.T) {
	table, workers := withDepths(t, 1000)
	s := New(table, Config{Policy: PowerOfTwo()})
	if p := mustPick(t, s, Request{}); p.Worker != workers[0] || p.Load != 1000 {
		t.Errorf("%v", p)
	}
}

func TestPowerOfTwoOfTwoAlwaysTakesTheLessLoaded(t *testing.T) {
	table, workers := withDepths(t, 5, 4)
	s := New(table, Config{Policy: PowerOfTwo(), Rand: seeded(1)})
	if counts := pickAndDone(t, s, Request{}, 200); counts[workers[1]] != 200 {
		t.Errorf("the less loaded of two was picked %d times of 200", counts[workers[1]])
	}
}

func TestPowerOfTwoNeverTakesTheMostLoadedAndTheOthersByTheirPlace(t *testing.T) {
	table, workers := withDepths(t, 20, 30, 10, 40)
	s := New(table, Config{Policy: PowerOfTwo(), Rand: seeded(2)})
	counts := pickAndDone(t, s, Request{}, 12_000)
	// Of the six pairs the least loaded wins three, the next two, the next one.
	for i, want := range []int{4000, 2000, 6000, 0} {
		within(t, counts, workers[i:i+1], want-want/20, want+want/20)
	}
}

func TestPowerOfTwoIsEvenOverEqualWorkers(t *testing.T) {
	for _, n := range []int{2, 3, 5, 16} {
		depths := make([]int64, n)
		table, workers := withDepths(t, depths...)
		s := New(table, Config{Policy: PowerOfTwo(), Rand: seeded(3)})
		wantUniform(t, pickAndDone(t, s, Request{}, 1000*n), workers)
		wantUniform(t, pickAndDone(t, s, Request{Filter: func(*load.Worker) bool { return true }}, 1000*n), workers)
	}
}
