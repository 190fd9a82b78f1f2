package baseline

import (
	"strings"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

func TestPrequalChoosesTheLeastLatencyOfThoseThatAreNotHot(t *testing.T) {
	report := func(running, tokens int64) *load.Report {
		return &load.Report{Running: running, WaitingTokens: load.Known(tokens)}
	}
	// The quantile of the four numbers in flight is the third, so that d is hot.
	f := newFleet(t, report(1, 9000), report(2, 4000), report(3, 8000), report(10, 1000))
	s := f.selector(Prequal())
	if got := f.picked(s, prompt(1), 5); got != "bbbbb" {
		t.Errorf("picked %s, want b", got)
	}
	// Those that are as much in flight as the quantile are cold.
	f = newFleet(t, report(5, 9000), report(5, 4000), report(5, 8000), report(5, 1000))
	if got := f.picked(f.selector(Prequal()), prompt(1), 5); got != "ddddd" {
		t.Errorf("picked %s, want d", got)
	}
}

func TestPrequalCountsWhatItHasSent(t *testing.T) {
	f := newFleet(t, queue(1, 1000), queue(1, 2000), queue(1, 2400))
	// 1,000 is the least, then 1,000 + 1,500 is the most.
	if got := f.picked(f.selector(Prequal()), prompt(1500), 3); got != "abc" {
		t.Errorf("picked %s, want abc", got)
	}
}

func TestPrequalGoesByThePaceOfTheEngines(t *testing.T) {
	slow, fast := queue(1, 1000), queue(1, 1500)
	for r, us := range map[*load.Report]int64{slow: 50_000_000, fast: 20_000_000} {
		r.PrefillTokens, r.PrefillBusyUS = load.Known[int64](1_000_000), load.Known(us)
	}
	// 1,000 tokens at 50 µs against 1,500 at 20 µs.
	f := newFleet(t, slow, fast)
	if got := f.picked(f.selector(Prequal()), prompt(1), 3); got != "bbb" {
		t.Errorf("picked %s, want b", got)
	}
}

func TestPrequalChoosesAnyWorkerIfFewerThanTwoReport(t *testing.T) {
	f := newFleet(t, queue(0, 0), nil, nil)
	got := f.picked(f.selector(Prequal()), prompt(1), 300)
	for _, id := range []string{"a", "b", "c"} {
		if n := strings.Count(got, id); n < 70 || n > 130 {
			t.Errorf("%s was chosen %d times of 300", id, n)
		}
	}
	f.report(1, 0, *queue(1, 500))
	if got := f.picked(f.selector(Prequal()), prompt(1), 3); strings.Contains(got, "c") {
		t.Errorf("picked %s, and c does not report", got)
	}
}

func TestThePoolOfPrequalIsAnySixteenWorkers(t *testing.T) {
	const workers, draws = 40, 2000
	f := newFleet(t)
	for i := range workers {
		f.add(1)
		f.report(i, 0, load.Report{})
	}
	var drawn, first [workers]int
	p := selectorFunc(func(d *selector.Decision) selector.Choice {
		var pool [prequalPool]int
		var once [workers]bool
		for k, i := range draw(d, pool[:0]) {
			if once[i] {
				t.Fatalf("%d is drawn twice", i)
			}
			once[i] = true
			drawn[i]++
			if k == 0 {
				first[i]++
			}
		}
		return selector.Choice{Candidate: d.Candidate(0)}
	})
	f.picked(f.selector(p), selector.Request{}, draws)
	for i := range workers {
		// 800 and 50, and five standard deviations.
		if drawn[i] < 690 || drawn[i] > 910 || first[i] < 15 || first[i] > 85 {
			t.Errorf("worker %d is drawn %d times and %d times first, of %d", i, drawn[i], first[i], draws)
		}
	}
}

type selectorFunc func(d *selector.Decision) selector.Choice

func (selectorFunc) Name() string                                  { return "test" }
func (f selectorFunc) Choose(d *selector.Decision) selector.Choice { return f(d) }
