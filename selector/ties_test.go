package selector

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

// wantUniform is a chi-square test whose bound honest numbers exceed less than
// once in a billion; the numbers are seeded, so that it does not change its mind.
func wantUniform(t testing.TB, counts map[*load.Worker]int, workers []*load.Worker) {
	t.Helper()
	total := 0
	for _, n := range counts {
		total += n
	}
	expected := float64(total) / float64(len(workers))
	sum := 0.0
	seen := 0
	for _, w := range workers {
		d := float64(counts[w]) - expected
		sum += d * d / expected
		seen += counts[w]
	}
	freedom := float64(len(workers) - 1)
	if bound := freedom + 7*math.Sqrt(2*freedom) + 25; sum > bound || seen != total {
		t.Errorf("%d picks among %d workers: chi-square %.1f, want at most %.1f; %d went elsewhere", total, len(workers), sum, bound, total-seen)
	}
}

func pickFromManyGoroutines(t testing.TB, s *Selector, goroutines, each int) map[*load.Worker]int {
	var mu sync.Mutex
	counts := make(map[*load.Worker]int)
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range each {
				p, err := s.Pick(Request{})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				counts[p.Worker]++
				mu.Unlock()
				p.Done()
			}
		})
	}
	all.Wait()
	return counts
}

func tied(ties Ties) []Policy {
	return []Policy{LeastRequest(LeastRequestConfig{Ties: ties}), LeastDepth(LeastDepthConfig{Ties: ties}), CacheAware(CacheAwareConfig{Ties: ties})}
}

func TestTiesAtRandomAreEquallyLikely(t *testing.T) {
	for _, policy := range tied(TiesRandom) {
		t.Run(policy.Name(), func(t *testing.T) {
			for _, n := range []int{1, 2, 3, 4, 5, 8, 17} {
				table, workers := withDepths(t, make([]int64, n)...)
				s := New(table, Config{Policy: policy, Rand: seeded(uint64(n))})
				wantUniform(t, pickAndDone(t, s, Request{}, fewer(2000)*n), workers)
			}
		})
	}
}

func TestTiesAtRandomAreAmongTheLeastLoadedOnly(t *testing.T) {
	for _, policy := range tied(TiesRandom) {
		t.Run(policy.Name(), func(t *testing.T) {
			table, workers := withDepths(t, 5, 1, 1, 9, 1, 2)
			for _, i := range []int{0, 3, 5} {
				hold(t, workers[i], 1) // so for own counts, too
			}
			s := New(table, Config{Policy: policy, Rand: seeded(8)})
			wantUniform(t, pickAndDone(t, s, Request{}, 6000), []*load.Worker{workers[1], workers[2], workers[4]})
		})
	}
}

func TestTiesByRotationAreExactlyEven(t *testing.T) {
	for _, policy := range tied(TiesRotate) {
		t.Run(policy.Name(), func(t *testing.T) {
			table, workers := withDepths(t, 3, 3, 3, 3, 3)
			s := New(table, Config{Policy: policy})
			within(t, pickAndDone(t, s, Request{}, 35), workers, 7, 7)
		})
	}
}

func TestTiesByRotationPassOverTheMoreLoaded(t *testing.T) {
	for _, policy := range tied(TiesRotate) {
		t.Run(policy.Name(), func(t *testing.T) {
			table, workers := withDepths(t, 5, 1, 1, 9, 1, 2)
			for _, i := range []int{0, 3, 5} {
				hold(t, workers[i], 1)
			}
			s := New(table, Config{Policy: policy})
			within(t, pickAndDone(t, s, Request{}, 30), []*load.Worker{workers[1], workers[2], workers[4]}, 10, 10)
		})
	}
}

func TestTiesByRotationFollowTheOrderOfAddition(t *testing.T) {
	table, workers := withDepths(t, 0, 0, 0)
	s := New(table, Config{Policy: LeastDepth(LeastDepthConfig{Ties: TiesRotate})})
	p := mustPick(t, s, Request{})
	p.Done()
	at, _ := table.View().Position(p.Worker)
	for i := 1; i < 10; i++ {
		p, err := s.Pick(Request{})
		if err != nil {
			t.Fatal(err)
		}
		if want := workers[(at+i)%3]; p.Worker != want {
			t.Fatalf("pick %d is of %s, want %s", i, p.Worker.ID(), want.ID())
		}
		p.Done()
	}
}

func TestTiesByRotationAmongSomeAreAtRandom(t *testing.T) {
	for _, policy := range tied(TiesRotate) {
		t.Run(policy.Name(), func(t *testing.T) {
			table, workers := withDepths(t, 0, 0, 0, 0, 0)
			s := New(table, Config{Policy: policy})
			within(t, pickAndDone(t, s, Request{Candidates: workers[1:4]}, 3000), workers[1:4], 850, 1150)
		})
	}
}

func TestTheLeastLoadedIsWhatComparingAllCandidatesGives(t *testing.T) {
	// The loop that finds it does not ask for each candidate as other policies do.
	rnd := rand.New(rand.NewPCG(6, 6))
	for range 300 {
		table, _ := newTestTable()
		var workers []*load.Worker
		for i := range 1 + rnd.IntN(70) {
			w := table.Add(fmt.Sprint(i), "")
			for _, k := range hold(t, w, rnd.IntN(4)) {
				if rnd.IntN(2) == 0 {
					k.Dispatched()
				}
			}
			reportDepth(t, w, rnd.Int64N(6)-1)
			workers = append(workers, w)
		}
		r := Request{}
		if rnd.IntN(2) == 0 {
			r.Exclude = workers[:rnd.IntN(len(workers))]
		}
		signal, ties, own := Signal(rnd.IntN(3)), Ties(rnd.IntN(2)), rnd.IntN(3) == 0
		d := New(table, Config{Signal: signal}).newDecision(&r)
		if d.Request.restricts() {
			d.restrict()
		}
		d.weigh(signal)
		candidate := d.Candidate
		if own {
			candidate = d.Local
		}
		lowest, highest := candidate(0).Load, candidate(0).Load
		for i := range d.Len() {
			lowest, highest = min(lowest, candidate(i).Load), max(highest, candidate(i).Load)
		}
		best, top := new(rotation).least(d, ties, own)
		if best.Load != lowest || top != highest || best != candidate(int(best.index)) {
			t.Fatalf("%v, ties %v, own %v: %+v and %d, want loads of %d and %d, and what the candidate is: %+v",
				signal, ties, own, best, top, lowest, highest, candidate(int(best.index)))
		}
	}
}

func TestTurnsAmongSomeAreEvenOverRegularSubsequences(t *testing.T) {
	for _, n := range []int{2, 3, 5, 8} {
		for _, stride := range []int{1, 2, 3, 4, 6, 8, 10} {
			r, d := new(rotation), &Decision{random: rand.Uint64}
			counts := make([]int, n)
			const rounds = 600
			for i := range rounds * stride {
				if turn := r.among(d, n); i%stride == 0 {
					counts[turn]++
				}
			}
			for i, c := range counts {
				if want := rounds / n; c < want-want/5 || c > want+want/5 {
					t.Errorf("every %d-th turn among %d: number %d came %d times, want about %d", stride, n, i, c, want)
				}
			}
		}
	}
}

func TestTiesHaveNamesInConfigurations(t *testing.T) {
	for ties, name := range map[Ties]string{TiesRandom: "random", TiesRotate: "rotate"} {
		b, err := json.Marshal(LeastDepthConfig{Ties: ties})
		if err != nil || string(b) != `{"ties":"`+name+`"}` {
			t.Errorf("%v is encoded as %s (%v)", ties, b, err)
		}
		var back LeastDepthConfig
		if err := json.Unmarshal(b, &back); err != nil || back.Ties != ties {
			t.Errorf("%s is decoded as %v (%v)", b, back.Ties, err)
		}
	}
	if new(Ties).UnmarshalText([]byte("Random")) == nil {
		t.Error("an unknown name was taken")
	}
	if Ties(7).String() != "unknown" {
		t.Errorf("an unheard-of choice is %v", Ties(7))
	}
}
