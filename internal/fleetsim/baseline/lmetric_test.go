package baseline

import (
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

func TestLMetricMultipliesTokensAndRequests(t *testing.T) {
	report := func(running, waiting, tokens int64) *load.Report {
		return &load.Report{Running: running, Waiting: waiting, WaitingTokens: load.Known(tokens)}
	}
	for _, tt := range []struct {
		name   string
		a, b   *load.Report
		cached int64 // of 100 tokens, on b
		want   string
	}{
		{"fewer requests", report(5, 0, 0), report(4, 0, 0), 0, "b"},
		{"fewer tokens", report(3, 1, 200), report(3, 1, 100), 0, "b"},
		{"100·10 against 400·3", report(9, 0, 0), report(1, 1, 300), 0, "a"},
		{"100·13 against 400·3", report(12, 0, 0), report(1, 1, 300), 0, "b"},
		{"100·5 against 40·12", report(4, 0, 0), report(11, 0, 0), 60, "b"},
		{"100·5 against 50·12", report(4, 0, 0), report(11, 0, 0), 50, "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(t, tt.a, tt.b)
			r := prompt(100)
			r.Prefix = []selector.PrefixMatch{{Worker: f.workers[1], Tokens: tt.cached}}
			if got := f.picked(f.selector(LMetric()), r, 1); got != tt.want {
				t.Errorf("picked %s, want %s", got, tt.want)
			}
		})
	}
}

func TestLMetricCountsWhatItHasSent(t *testing.T) {
	f := newFleet(t, busy(1, 0), busy(3, 0))
	s := f.selector(LMetric())
	// 100·2 against 100·4, then 200·3 against 100·4.
	if a, b := f.pick(s, prompt(100)), f.pick(s, prompt(100)); a.Worker.ID() != "a" || b.Worker.ID() != "b" {
		t.Errorf("picked %v, then %v, want a, then b", a, b)
	}
	// A silent worker has its own unstarted prompts: 200·2 against 300·2.
	f = newFleet(t, nil, nil)
	f.hold(0, load.NoRank, 1, 100)
	f.hold(1, load.NoRank, 1, 200)
	if got := f.picked(f.selector(LMetric()), prompt(100), 3); got != "aaa" {
		t.Errorf("picked %s, want a", got)
	}
}
