package selector

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// equals is a table of n workers, of which those at some places are equally good and the
// others worse.
func equals(t testing.TB, n int, good func(i int) bool) (*load.Table, []*load.Worker) {
	t.Helper()
	table, _ := newTestTable()
	var best []*load.Worker
	for i := range n {
		w := table.Add(fmt.Sprintf("w%03d", i), "")
		r := load.Report{Running: 3, WaitingTokens: load.Known[int64](700)}
		if good(i) {
			best = append(best, w)
		} else {
			r.WaitingTokens = load.Known(int64(1000 + i*13%70))
		}
		mustPut(t, w.Advertise(1), 0, r)
	}
	return table, best
}

func TestLeastWorkIsEvenOverEquals(t *testing.T) {
	patterns := map[string]func(n int) func(i int) bool{
		"all":            func(int) func(int) bool { return func(int) bool { return true } },
		"every second":   func(int) func(int) bool { return func(i int) bool { return i%2 == 0 } },
		"every third":    func(int) func(int) bool { return func(i int) bool { return i%3 == 1 } },
		"first and last": func(n int) func(int) bool { return func(i int) bool { return i == 0 || i == n-1 } },
		"two neighbours": func(n int) func(int) bool { return func(i int) bool { return i == n/2 || i == n/2-1 } },
		"the last five":  func(n int) func(int) bool { return func(i int) bool { return i >= n-5 } },
	}
	for name, pattern := range patterns {
		for _, n := range []int{2, 5, 17, 63, 64} {
			table, best := equals(t, n, pattern(n))
			s := New(table, Config{Peers: alone, Rand: seeded(uint64(n))})
			for what, r := range map[string]Request{
				"looked at in one scan": prompt(100),
				"looked at one by one":  {PromptTokens: load.Known[int64](100), Filter: func(*load.Worker) bool { return true }},
			} {
				t.Run(fmt.Sprintf("%s of %d, %s", name, n, what), func(t *testing.T) {
					wantUniform(t, pickAndDone(t, s, r, fewer(300*len(best))), best)
				})
			}
		}
	}
}

func TestLeastWorkTellsOneTokenFromNone(t *testing.T) {
	// The bits of a cost that ties are broken by stand for less than that.
	table, best := equals(t, 64, func(i int) bool { return i == 40 })
	for _, w := range table.Workers() {
		tokens := int64(500_000_001)
		if w == best[0] {
			tokens--
		}
		mustPut(t, w, 0, load.Report{Running: 100, WaitingTokens: load.Known(tokens)})
	}
	if counts := pickAndDone(t, New(table, Config{Peers: alone}), prompt(100_000), 300); counts[best[0]] != 300 {
		t.Errorf("the best was picked %d times of 300", counts[best[0]])
	}
}

func TestAWaitIsADurationWhateverItIs(t *testing.T) {
	for seconds, want := range map[float64]time.Duration{0: 0, 1.5: 1500 * time.Millisecond, 1e12: math.MaxInt64 / 2, math.Inf(1): math.MaxInt64 / 2} {
		if got := wait(seconds); got < want-want/1000 || got > want+want/1000 {
			t.Errorf("%v s is %v, want %v", seconds, got, want)
		}
	}
}

func TestLeastWorkDrawsFromAFleetThatIsTooLargeToBeScanned(t *testing.T) {
	const n = 200
	table, all := equals(t, n, func(int) bool { return true })
	s := New(table, Config{Peers: alone, Rand: seeded(7)})
	wantUniform(t, pickAndDone(t, s, prompt(100), fewer(200*n)), all)

	x := explained(t, s, prompt(100))
	compared := 0
	for _, w := range x.Workers {
		switch w.Out {
		case Compared:
			compared++
		case NotDrawn:
		default:
			t.Errorf("%s is out because of %v", w.ID, w.Out)
		}
	}
	if compared > 32 || compared < 20 || len(x.Workers) != n {
		t.Errorf("%d of %d are compared, want 32 or, since some are drawn twice, a little less", compared, len(x.Workers))
	}

	// The best 40 of 200 are missed hardly ever: 0.8^32.
	table, best := equals(t, n, func(i int) bool { return i%5 == 0 })
	s = New(table, Config{Peers: alone, Rand: seeded(8)})
	counts := pickAndDone(t, s, prompt(100), 2000)
	sum := 0
	for _, w := range best {
		sum += counts[w]
	}
	if sum < 1980 {
		t.Errorf("one of the best fifth was picked %d times of 2000", sum)
	}

	// What the request is restricted to is all looked at.
	table, best = equals(t, n, func(i int) bool { return i == 150 })
	r := Request{PromptTokens: load.Known[int64](100), Exclude: table.Workers()[:1]}
	if counts := pickAndDone(t, New(table, Config{Peers: alone}), r, 50); counts[best[0]] != 50 {
		t.Errorf("the best of 199 candidates was picked %d times of 50", counts[best[0]])
	}
}

func TestLeastWorkScansSixtyFourAndDrawsFromMore(t *testing.T) {
	for n, sure := range map[int]bool{64: true, 65: false} {
		table, best := equals(t, n, func(i int) bool { return i == n-1 })
		counts := pickAndDone(t, New(table, Config{Peers: alone, Rand: seeded(3)}), prompt(100), 400)
		if all := counts[best[0]] == 400; all != sure || counts[best[0]] < 100 {
			t.Errorf("the best of %d was picked %d times of 400", n, counts[best[0]])
		}
	}
}

func TestLeastWorkIsTheSameWithTheSameRandomNumbers(t *testing.T) {
	run := func() (trace []string) {
		table, clock := newTestTable()
		for i := range 100 {
			w := table.Add(fmt.Sprintf("w%03d", i), "")
			mustPut(t, w.Advertise(1), 0, load.Report{Running: int64(i * 7 % 5)})
		}
		for peers := range 3 {
			s := New(table, Config{Peers: replica(0, 1+peers*3), Rand: seeded(5)})
			var picks []Pick
			for i := range 400 {
				clock.advance(3_000_000)
				p := mustPick(t, s, prompt(int64(i%7)*100))
				trace = append(trace, p.String())
				if picks = append(picks, p); i > 50 {
					picks[i-50].FirstToken()
					picks[i-51].Done()
				}
			}
		}
		return trace
	}
	one, two := run(), run()
	for i := range one {
		if one[i] != two[i] {
			t.Fatalf("pick %d is %q, and then %q", i, one[i], two[i])
		}
	}
}
