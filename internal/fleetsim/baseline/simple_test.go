package baseline

import (
	"strings"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

func TestOfTwoTheOneWithFewerOwnRequestsIsChosen(t *testing.T) {
	// Reports say the opposite, and are not looked at.
	f := newFleet(t, busy(0, 0), busy(50, 0), busy(50, 0))
	f.hold(0, load.NoRank, 3, 0)
	f.hold(1, load.NoRank, 1, 0)
	got := f.picked(f.selector(PowerOfTwoInFlight()), selector.Request{}, 300)
	a, b, c := strings.Count(got, "a"), strings.Count(got, "b"), strings.Count(got, "c")
	// The pair of a and b comes once in three times.
	if a != 0 || b < 70 || b > 130 || c < 170 || c > 230 {
		t.Errorf("a, b and c were chosen %d, %d and %d times, want 0, 100 and 200", a, b, c)
	}
}

func TestTheReportedDepthIsTakenAtFaceValue(t *testing.T) {
	f := newFleet(t, busy(5, 0), busy(3, 0), busy(4, 0))
	s := f.selector(LeastReportedDepth())
	for range 10 {
		if p := f.pick(s, selector.Request{}); p.Worker.ID() != "b" || p.Basis != selector.Engine {
			t.Fatalf("picked %v, want b", p)
		}
	}
	f.report(1, 0, *busy(13, 0))
	if got := f.picked(s, selector.Request{}, 3); got != "ccc" {
		t.Errorf("picked %s after the next report, want c", got)
	}
}

func TestAmongEqualsTheChoiceIsRandom(t *testing.T) {
	for _, p := range []selector.Policy{LeastReportedDepth(), FewestUnstarted(), WeightedQueueKV()} {
		f := newFleet(t, busy(5, 0.5), busy(5, 0.5), busy(5, 0.5))
		got := f.picked(f.selector(p), selector.Request{}, 300)
		for _, id := range []string{"a", "b", "c"} {
			if n := strings.Count(got, id); n < 70 || n > 130 {
				t.Errorf("%s: %s was chosen %d times of 300", p.Name(), id, n)
			}
		}
	}
}

func TestRequestsThatHaveTheirFirstTokenDoNotCount(t *testing.T) {
	f := newFleet(t, busy(0, 0), busy(9, 1))
	tickets := f.hold(1, load.NoRank, 5, 0)
	f.hold(0, load.NoRank, 1, 0)
	s := f.selector(FewestUnstarted())
	if got := f.picked(s, selector.Request{}, 3); got != "aaa" {
		t.Errorf("picked %s, want a with one request against five", got)
	}
	for _, k := range tickets {
		k.FirstToken()
	}
	if got := f.picked(s, selector.Request{}, 3); got != "bbb" {
		t.Errorf("picked %s, want b, whose five requests have begun", got)
	}
}
