package baseline

import (
	"math"
	"strings"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

func TestWaitOfSMG(t *testing.T) {
	for _, tt := range []struct {
		name   string
		report load.Report
		want   float64 // seconds
	}{
		{"idle", load.Report{}, 0},
		{"queued tokens", *queue(2, 4000), 2},
		{"no tokens on the wire", load.Report{Waiting: 3}, 3 * 1024.0 / 2000},
		{"half full", *busy(9, 0.5), 0.15},
		{"full", *busy(9, 1), 0.15 * 999},
		{"both", load.Report{Waiting: 1, WaitingTokens: load.Known[int64](1000), KVUsage: load.Known(0.9)}, 0.5 + 1.35},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(t, &tt.report)
			if got := SMGLeastLoad().(*smgLeastLoad).wait(f.entry(0)); math.Abs(got-tt.want) > 1e-9 {
				t.Errorf("the wait is %v, want %v", got, tt.want)
			}
		})
	}
}

func TestSMGCountsTokensThatItHasSentSinceTheReport(t *testing.T) {
	f := newFleet(t, queue(1, 1000), queue(1, 2000))
	s := f.selector(SMGLeastLoad())
	// 1,000 against 2,000; then 2,500; then 2,000 more make 4,000.
	if got := f.picked(s, prompt(1500), 1) + f.picked(s, prompt(2000), 1) + f.picked(s, selector.Request{}, 2); got != "abaa" {
		t.Errorf("picked %s, want abaa", got)
	}
	f.report(1, 0, *queue(1, 2000))
	if got := f.picked(s, selector.Request{}, 1); got != "b" {
		t.Errorf("picked %s after a report, want b", got)
	}
}

func TestSMGTakesASilentWorkerForAsGoodAsTheBestAndItsOwnRequests(t *testing.T) {
	f := newFleet(t, queue(1, 4000), nil, queue(1, 3000))
	s := f.selector(SMGLeastLoad())
	f.hold(1, load.NoRank, 1, 0)
	// b has 3,000 and 1,024 against the 3,000 of c.
	if got := f.picked(s, prompt(1), 5); got != "ccccc" {
		t.Errorf("picked %s, want c", got)
	}
	f.report(2, 0, *queue(1, 6000))
	// And now 4,000 and 1,024 against the 4,000 of a.
	if got := f.picked(s, prompt(1), 5); got != "aaaaa" {
		t.Errorf("picked %s, want a", got)
	}
}

func TestSMGCountsOwnRequestsWhereNobodyReports(t *testing.T) {
	f := newFleet(t, queue(0, 0), nil, nil)
	f.goStale()
	f.hold(0, load.NoRank, 2, 0)
	f.hold(1, load.NoRank, 1, 0)
	f.hold(2, load.NoRank, 3, 0)
	if got := f.picked(f.selector(SMGLeastLoad()), selector.Request{}, 5); got != "bbbbb" {
		t.Errorf("picked %s, want b", got)
	}
}

func TestSMGPowerOfTwoIsTheSameScoreOfTwo(t *testing.T) {
	f := newFleet(t, queue(1, 8_000_000), queue(1, 4_000_000), queue(1, 1_000_000))
	got := f.picked(f.selector(SMGPowerOfTwo()), prompt(1), 300)
	a, b, c := strings.Count(got, "a"), strings.Count(got, "b"), strings.Count(got, "c")
	if a != 0 || b < 70 || b > 130 || c < 170 || c > 230 {
		t.Errorf("a, b and c were chosen %d, %d and %d times, want 0, 100 and 200", a, b, c)
	}
}
