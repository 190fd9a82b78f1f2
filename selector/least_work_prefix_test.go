package selector

import (
	"math"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

func TestLeastWorkCountsWhatAWorkerHasCachedAsNoWork(t *testing.T) {
	for _, c := range []struct {
		name   string
		prefix func(a, b *load.Worker) []PrefixMatch
		tokens float64 // of a prompt of 1,000, to be computed on a
	}{
		{"none", func(a, b *load.Worker) []PrefixMatch { return nil }, 1000},
		{"some", func(a, b *load.Worker) []PrefixMatch { return []PrefixMatch{{a, 600}} }, 400},
		{"all", func(a, b *load.Worker) []PrefixMatch { return []PrefixMatch{{a, 1000}} }, 0},
		{"more than there is", func(a, b *load.Worker) []PrefixMatch { return []PrefixMatch{{a, math.MaxInt64}} }, 0},
		{"less than nothing", func(a, b *load.Worker) []PrefixMatch { return []PrefixMatch{{a, math.MinInt64}} }, 1000},
		{"the longest of several", func(a, b *load.Worker) []PrefixMatch { return []PrefixMatch{{b, 900}, {a, 100}, {a, 700}, {a, 200}} }, 300},
		{"of another, of nobody", func(a, b *load.Worker) []PrefixMatch { return []PrefixMatch{{b, 900}, {nil, 700}} }, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, _ := newTestTable()
			a, b := table.Add("a", ""), table.Add("b", "")
			for what, some := range map[string][]*load.Worker{"all": nil, "restricted": {a, b}} {
				r := prompt(1000)
				r.Prefix, r.Candidates = c.prefix(a, b), some
				w := explained(t, leastWork1(table), r).of(t, "a")
				if got := w.amount("prompt_tokens"); got != c.tokens {
					t.Errorf("%s: %v tokens to compute, want %v", what, got, c.tokens)
				}
			}
		})
	}
}

func TestLeastWorkWeighsAPrefixAgainstWhatWaits(t *testing.T) {
	table, workers := withDepths(t, silent, silent, silent)
	holdPrompt(t, workers[0], 5000)
	r := prompt(8000)
	s := leastWork1(table)
	r.Prefix = []PrefixMatch{{workers[0], 6000}}
	if p := mustPick(t, s, r); p.Worker != workers[0] {
		t.Errorf("%v, want the owner: it has 7,000 tokens to compute, the others 8,000", p)
	}
	r.Prefix[0].Tokens = 100
	if p := mustPick(t, s, r); p.Worker == workers[0] {
		t.Errorf("%v, want one of the others: the owner has more to compute", p)
	}
}

func TestLeastWorkBooksOnlyWhatIsToBeComputed(t *testing.T) {
	// Who sends one conversation after another to their owner must not think that it is
	// busy with what it has in its cache.
	table, workers := withDepths(t, silent, silent)
	r := prompt(10_000)
	r.Prefix = []PrefixMatch{{workers[0], 9900}}
	s := leastWork1(table)
	for i := range 5 {
		if p := mustPick(t, s, r); p.Worker != workers[0] {
			t.Errorf("%v, want the owner", p)
		}
		if own := workers[0].Own().PendingTokens; own != int64(100*(i+1)) {
			t.Errorf("%d requests of which 100 tokens are not cached are booked with %d", i+1, own)
		}
	}
}

func TestLeastWorkGivesNobodyMoreChanceForAPrefixOfNothing(t *testing.T) {
	table, workers := withDepths(t, 0, 0, 0)
	r := prompt(1000)
	r.Prefix = []PrefixMatch{{workers[0], 0}, {workers[1], -5}}
	s := New(table, Config{Peers: alone, Rand: seeded(4)})
	wantUniform(t, pickAndDone(t, s, r, fewer(6000)), workers)
}

func TestLeastWorkIgnoresAPrefixOfAWorkerThatIsNoCandidate(t *testing.T) {
	table, workers := withDepths(t, 0, 0, 0)
	gone := table.Add("gone", "")
	table.Remove(gone)
	workers[0].SetHealthy(false)
	workers[1].SetAside()
	r := prompt(1000)
	r.Prefix = []PrefixMatch{{gone, 1000}, {workers[0], 1000}, {workers[1], 1000}, {nil, 1000}}
	for _, some := range [][]*load.Worker{nil, {workers[0], workers[1], workers[2], gone}} {
		r.Candidates = some
		if p := mustPick(t, leastWork1(table), r); p.Worker != workers[2] {
			t.Errorf("%v, want the only candidate", p)
		}
	}
}

func TestLeastWorkLooksAtThoseWithAPrefixInAFleetThatIsTooLargeToBeScanned(t *testing.T) {
	table, _ := equals(t, 500, func(int) bool { return true })
	owner := table.Workers()[321]
	r := prompt(1000)
	r.Prefix = []PrefixMatch{{owner, 500}}
	if counts := pickAndDone(t, leastWork1(table), r, 50); counts[owner] != 50 {
		t.Errorf("the owner was picked %d times of 50", counts[owner])
	}
}
