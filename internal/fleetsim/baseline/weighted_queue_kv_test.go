package baseline

import (
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

func TestWeightedScores(t *testing.T) {
	report := func(waiting int64, kv float64) *load.Report {
		return &load.Report{Waiting: waiting, KVUsage: load.Known(kv)}
	}
	for _, tt := range []struct {
		name   string
		a, b   *load.Report
		cached int64 // of 100 tokens, on b
		want   string
	}{
		{"the shorter queue", report(1, 0.5), report(2, 0.5), 0, "a"},
		{"the emptier cache", report(3, 0.5), report(3, 0.4), 0, "b"},
		{"a queue longer by one weighs as much as a whole cache", report(0, 0.95), report(1, 0), 0, "a"},
		{"the prefix", report(3, 0.5), report(3, 0.5), 20, "b"},
		{"the prefix weighs more than a queue", report(0, 0.5), report(9, 0.5), 70, "b"}, // 3·0.7 against 2
		{"a queue weighs more than a part of it", report(0, 0.5), report(9, 0.5), 60, "a"},
		{"who never reported looks idle", report(0, 0.1), nil, 0, "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(t, tt.a, tt.b)
			r := prompt(100)
			r.Prefix = []selector.PrefixMatch{{Worker: f.workers[1], Tokens: tt.cached}}
			s := f.selector(WeightedQueueKV())
			if got := f.picked(s, r, 3); got != tt.want+tt.want+tt.want {
				t.Errorf("picked %s, want %s", got, tt.want)
			}
			if tt.b == nil {
				return
			}
			f.goStale()
			if got := f.picked(s, r, 1); got != tt.want {
				t.Errorf("picked %s by old reports, want %s", got, tt.want)
			}
		})
	}
}
