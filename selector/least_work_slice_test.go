package selector

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// silentFleet is a table of so many workers that say nothing, added in some order.
func silentFleet(order []int) (*load.Table, map[string]*load.Worker) {
	table, _ := newTestTable()
	workers := make(map[string]*load.Worker)
	for _, i := range order {
		w := table.Add(fmt.Sprintf("w%03d", i), "")
		workers[w.ID()] = w
	}
	return table, workers
}

func upTo(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// shares are those of a replica in each worker: 1 of its own, 0 of one outside of its
// slice, and between of one that it shares.
func shares(t testing.TB, table *load.Table, i, n int) map[string]float64 {
	t.Helper()
	x := explained(t, New(table, Config{Peers: replica(i, n)}), Request{Candidates: table.Workers()})
	of := make(map[string]float64)
	for _, w := range x.Workers {
		if w.Out != Compared {
			continue
		}
		if w.amount("away") == 0 {
			of[w.ID] = 1 - w.amount("bias")/x.Learned.Bias.Seconds()
		} else if got := w.amount("bias"); math.Abs(got-x.Learned.Bias.Seconds()) > 1e-9 {
			t.Errorf("%s is outside, by a bias of %v", w.ID, got)
		}
	}
	return of
}

func TestSlicesMakeUpTheWholeFleet(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8, 13, 64, 100} {
		table, _ := silentFleet(upTo(n))
		for _, replicas := range []int{2, 3, 4, 7, 16, 99} {
			sum := make(map[string]float64)
			whole := min(1, float64(n)/float64(replicas)) // of a worker, that is a share of 1
			for i := range replicas {
				mine := 0.0
				for id, share := range shares(t, table, i, replicas) {
					if share <= 0 || share > 1 {
						t.Errorf("%d of %d has a share of %v in %s", i, replicas, share, id)
					}
					sum[id] += share * whole
					mine += share * whole
				}
				if want := float64(n) / float64(replicas); math.Abs(mine-want) > 1e-6 {
					t.Errorf("%d of %d replicas has %v of %d workers, want %v", i, replicas, mine, n, want)
				}
			}
			for _, w := range table.Workers() {
				if got := sum[w.ID()]; math.Abs(got-1) > 1e-6 {
					t.Errorf("%d replicas have %v of %s of %d workers", replicas, got, w.ID(), n)
				}
			}
		}
	}
}

func TestSlicesFollowTheIDsInWhateverOrderTheWorkersCame(t *testing.T) {
	for i := range 5 {
		straight, _ := silentFleet(upTo(23))
		shuffled, _ := silentFleet(rand.New(rand.NewPCG(uint64(i), 0)).Perm(23))
		a, b := shares(t, straight, i, 5), shares(t, shuffled, i, 5)
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("slice %d of 5 is %v, and of the same workers in another order %v", i, a, b)
		}
		ids := slices.Sorted(maps.Keys(a))
		first, last := ids[0], ids[len(ids)-1]
		for j := range 23 {
			if id := fmt.Sprintf("w%03d", j); id > first && id < last && a[id] != 1 {
				t.Errorf("slice %d of 5 has a hole at %s: %v", i, id, a)
			}
		}
	}
}

func TestSlicesAreOfTheWorkersThatMayBePicked(t *testing.T) {
	table, workers := silentFleet(upTo(8))
	workers["w000"].SetHealthy(false)
	workers["w001"].SetAside()
	table.Remove(workers["w002"])
	if got := fmt.Sprint(shares(t, table, 0, 5)); got != "map[w003:1]" {
		t.Errorf("the first slice of five is %v", got)
	}
}

func TestSlicesFollowWorkersThatTakeThePlaceOfOthers(t *testing.T) {
	table, clock := newTestTable()
	for i := range 6 {
		table.Add(fmt.Sprintf("w%03d", i), "")
	}
	s := New(table, Config{Peers: replica(0, 2), Rand: seeded(1)})
	for i, want := range []string{"[w000 w001 w002]", "[a000 w001 w002]", "[a000 a001 w002]"} {
		home := make(map[string]bool)
		for range 60 {
			p := must(s.Pick(prompt(10)))
			home[p.Worker.ID()] = true
			p.Done()
		}
		if got := fmt.Sprint(slices.Sorted(maps.Keys(home))); got != want {
			t.Errorf("%d: the slice is %s, want %s", i, got, want)
		}
		gone, _ := table.Worker(fmt.Sprintf("w%03d", i))
		table.Remove(gone)
		table.Add(fmt.Sprintf("a%03d", i), "")
		clock.advance(modelFor)
	}
}

func TestLeastWorkStaysInItsSliceAmongEquals(t *testing.T) {
	table, workers := silentFleet(upTo(12))
	s := New(table, Config{Peers: replica(1, 3), Rand: seeded(1)})
	home := []*load.Worker{workers["w004"], workers["w005"], workers["w006"], workers["w007"]}
	wantUniform(t, pickAndDone(t, s, prompt(100), fewer(4000)), home)
	p := mustPick(t, s, prompt(100))
	if p.Reason != LeastWaiting {
		t.Errorf("%v", p)
	}
}

func TestLeastWorkDrawsFromASliceThatIsTooLargeToBeScanned(t *testing.T) {
	table, workers := silentFleet(upTo(259)) // of which one in the middle is shared
	s := New(table, Config{Peers: replica(1, 2), Rand: seeded(1)})
	var home []*load.Worker
	for i := 130; i < 259; i++ {
		home = append(home, workers[fmt.Sprintf("w%03d", i)])
	}
	wantUniform(t, pickAndDone(t, s, prompt(100), fewer(129*200)), home)
	for range 10 {
		compared := 0
		for _, w := range explained(t, s, prompt(100)).Workers {
			if w.Out != Compared {
				continue
			}
			compared++
			if away := w.amount("away") > 0; away != (w.ID < "w129") {
				t.Errorf("outside of the slice: %v: %v", away, w)
			}
			if shared := w.amount("away") == 0 && w.amount("bias") > 0; shared != (w.ID == "w129") {
				t.Errorf("shared: %v: %v", shared, w)
			}
		}
		if compared > 36 || compared < 20 {
			t.Errorf("%d are compared, want 32 of the slice and four others at most", compared)
		}
	}
}

func TestLeastWorkLeavesItsSliceOnlyForOneThatIsBetterByTheBias(t *testing.T) {
	// Nothing has been learned: the bias is one and a half times 100 ms, 3,000 tokens.
	for _, c := range []struct {
		home, abroad int64 // pending tokens
		away         bool
	}{{0, 0, false}, {2990, 0, false}, {3010, 0, true}, {13_010, 10_000, true}, {12_990, 10_000, false}, {0, 9000, false}} {
		table, workers := silentFleet(upTo(2))
		holdPrompt(t, workers["w000"], c.home)
		holdPrompt(t, workers["w001"], c.abroad)
		s := New(table, Config{Peers: replica(0, 2), Rand: seeded(3)})
		abroad := 0
		for range 200 {
			p, err := s.Pick(prompt(100))
			if err != nil {
				t.Fatal(err)
			}
			if away := p.Worker == workers["w001"]; away != (p.Reason == LeastWaitingAway) {
				t.Errorf("%v", p)
			} else if away {
				abroad++
			}
			p.Done()
		}
		// Four are drawn of two, so that the other is missed once in 16 times.
		if want := map[bool][2]int{false: {0, 0}, true: {170, 199}}[c.away]; abroad < want[0] || abroad > want[1] {
			t.Errorf("%d tokens at home and %d abroad: %d of 200 picks went abroad, want %v", c.home, c.abroad, abroad, want)
		}
	}
}

func TestLeastWorkPrefersWhatIsAllItsOwnToWhatItShares(t *testing.T) {
	table, workers := silentFleet(upTo(3)) // of which the second is shared
	s := New(table, Config{Peers: replica(1, 2), Rand: seeded(1)})
	x := explained(t, s, Request{Candidates: table.Workers()})
	wantAmount(t, x.of(t, "w000"), "bias", 0.150)
	wantAmount(t, x.of(t, "w001"), "bias", 0.075)
	wantAmount(t, x.of(t, "w002"), "bias", 0)
	holdPrompt(t, workers["w002"], 1450) // 72.5 ms, and the request 2
	if counts := pickAndDone(t, s, prompt(10), 50); counts[workers["w002"]] != 50 {
		t.Errorf("its own was picked %d times of 50", counts[workers["w002"]])
	}
	holdPrompt(t, workers["w002"], 100)
	if counts := pickAndDone(t, s, prompt(10), 50); counts[workers["w001"]] != 50 {
		t.Errorf("the one that it shares was picked %d times of 50", counts[workers["w001"]])
	}
}

func TestAGatewayWithMoreThanItsShareOfTheLoadIsLessConfinedToItsSlice(t *testing.T) {
	bias := func(fair float64) time.Duration { return time.Duration(150 * fair * fair * float64(time.Millisecond)) }
	for _, c := range []struct {
		own, depth, since int64 // the latter are its own too
		bias              time.Duration
	}{
		{5, 10, 0, bias(1)},
		{1, 10, 0, bias(1)}, // has less
		{10, 10, 0, bias(0.5)},
		{8, 10, 0, bias(0.625)},
		{5, 10, 5, bias(0.5)},
		{0, 10, 0, bias(1)}, // nothing is known of its share
		{0, 0, 0, bias(1)},
		{10, 0, 0, bias(1)},
	} {
		table, _ := newTestTable()
		for i := range 4 {
			w := table.Add(name(i), "")
			hold(t, w, int(c.own))
			if f := w.Advertise(1); i < 2 { // two say nothing, which must not look like a larger share
				mustPut(t, f, 0, load.Report{Running: c.depth})
			}
			hold(t, w, int(c.since))
		}
		x := explained(t, New(table, Config{Peers: replica(0, 2)}), Request{})
		if diff := x.Learned.Bias - c.bias; diff.Abs() > time.Microsecond {
			t.Errorf("with %d of %d the bias is %v, want %v", c.own+c.since, c.depth, x.Learned.Bias, c.bias)
		}
	}
}

func TestAGatewayWithMoreThanItsShareOfTheLoadExpectsLessDelayOutsideOfItsSlice(t *testing.T) {
	w := newWorld(t, 4, Config{Peers: replica(0, 2)})
	w.between = func(p Pick, wait time.Duration) time.Duration {
		if p.Reason == LeastWaitingAway {
			return wait * 8 / 5
		}
		return wait
	}
	for range 400 {
		for _, some := range [][]*load.Worker{w.workers[:2], w.workers[2:]} {
			w.send(t, Request{Candidates: some}, 100+w.rnd.Int64N(3000))
			w.drain(t)
		}
	}
	about(t, "away", w.learned().Away, 1.6, 0.05)
	for _, worker := range w.workers {
		hold(t, worker, 10)
		mustPut(t, worker.Advertise(1), 0, load.Report{Running: 10})
	}
	w.refresh(t)
	about(t, "away, of a gateway that has it all,", w.learned().Away, 1+0.6/4, 0.02)
}

func TestARequestThatIsRestrictedIsComparedOnAllItsCandidates(t *testing.T) {
	table, workers := silentFleet(upTo(100))
	s := New(table, Config{Peers: replica(0, 10), Rand: seeded(1)})
	var some []*load.Worker
	for i := 5; i < 95; i++ {
		some = append(some, workers[fmt.Sprintf("w%03d", i)])
	}
	for name, r := range map[string]Request{
		"candidates": {Candidates: some},
		"filter":     {Filter: func(w *load.Worker) bool { return slices.Contains(some, w) }},
		"excluded":   {Exclude: []*load.Worker{workers["w000"]}},
	} {
		compared := 0
		for _, w := range explained(t, s, r).Workers {
			if w.Out == Compared {
				compared++
			}
		}
		if compared < 90 {
			t.Errorf("%s: %d are compared", name, compared)
		}
	}
	// None of them is of the slice: then the least of all.
	holdAll := some[5:]
	for _, w := range holdAll[1:] {
		holdPrompt(t, w, 50)
	}
	r := prompt(100)
	r.Candidates = holdAll
	if counts := pickAndDone(t, s, r, 30); counts[holdAll[0]] != 30 {
		t.Errorf("the least of those abroad was picked %d times of 30", counts[holdAll[0]])
	}
}

func TestAPrefixIsLookedForOutsideOfTheSlice(t *testing.T) {
	table, workers := silentFleet(upTo(64))
	s := New(table, Config{Peers: replica(0, 8), Rand: seeded(1)})
	owner := workers["w050"]
	r := prompt(8000)
	r.Prefix = []PrefixMatch{{owner, 4000}} // 200 ms, by a bias of 150
	if counts := pickAndDone(t, s, r, 50); counts[owner] != 50 {
		t.Errorf("the owner was picked %d times of 50", counts[owner])
	}
	r.Prefix[0].Tokens = 2000
	if counts := pickAndDone(t, s, r, 50); counts[owner] != 0 {
		t.Errorf("the owner of little was picked %d times of 50", counts[owner])
	}
}

func TestPeersMaySayAnything(t *testing.T) {
	whole := []string{"w000", "w001", "w002", "w003", "w004"}
	for _, c := range []struct {
		replica, replicas int
		whole             bool
	}{
		{0, 0, true}, {0, 1, true}, {-1, 3, true}, {3, 3, true}, {0, -1, true}, {math.MinInt, math.MinInt, true}, {math.MaxInt, 2, true},
		{4, 5, false}, {5, 1 << 30, false}, {1 << 60, 1 << 62, false}, {1<<55 + 1, 1 << 56, false}, {math.MaxInt - 1, math.MaxInt, false}, {0, math.MaxInt, false},
	} {
		table, _ := silentFleet(upTo(5))
		s := New(table, Config{Peers: replica(c.replica, c.replicas), Rand: seeded(1)})
		for range 100 {
			p := mustPick(t, s, prompt(100))
			if p.Wait <= 0 || p.Wait > time.Minute {
				t.Fatalf("%d of %d: %v", c.replica, c.replicas, p)
			}
		}
		for _, id := range whole {
			if w, _ := table.Worker(id); w.InFlight() > 60 {
				t.Errorf("%d of %d: %d of 100 requests are on %s", c.replica, c.replicas, w.InFlight(), id)
			}
		}
		if got := len(shares(t, table, c.replica, c.replicas)) == len(whole); got != c.whole && c.replicas < 1<<50 {
			t.Errorf("%d of %d: the whole fleet is its slice: %v", c.replica, c.replicas, got)
		}
	}
}

func TestPeersMayChangeFromOnePickToTheNext(t *testing.T) {
	table, clock := newTestTable()
	var workers []*load.Worker
	for i := range 10 {
		workers = append(workers, table.Add(fmt.Sprintf("w%03d", i), ""))
	}
	var now atomic.Pointer[[2]int]
	now.Store(&[2]int{0, 2})
	s := New(table, Config{Rand: seeded(1), Peers: func() (int, int) { p := now.Load(); return p[0], p[1] }})
	for _, c := range []struct {
		replica, replicas int
		home              []*load.Worker
	}{
		{0, 2, workers[:5]}, {1, 2, workers[5:]}, {2, 5, workers[4:6]}, {0, 0, workers}, {9, 10, workers[9:]}, {10, 10, workers}, {0, 1, workers},
	} {
		now.Store(&[2]int{c.replica, c.replicas})
		clock.advance(modelFor)
		wantUniform(t, pickAndDone(t, s, prompt(10), fewer(2000)), c.home)
	}
}
