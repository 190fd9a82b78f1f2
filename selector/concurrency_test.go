package selector

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// fewer cuts what a test does many times where the race detector makes it slow.
func fewer(n int) int {
	if raceEnabled {
		return n / 4
	}
	return n
}

func TestPicksGoOnWhileEverythingElseChanges(t *testing.T) {
	// Worker sets that change, reports, health and overload, all at once with picks
	// of every kind. Two workers are always there, so that no pick may fail.
	anyPolicy(t, func(t *testing.T, policy Policy) {
		table, clock := newTestTable()
		var mu sync.Mutex
		var ever []*load.Worker
		add := func(id string) *load.Worker {
			w := table.Add(id, "")
			mu.Lock()
			defer mu.Unlock()
			ever = append(ever, w)
			return w
		}
		stable := []*load.Worker{add("stable-0"), add("stable-1")}
		for i := range 6 {
			reportDepth(t, add(fmt.Sprint(i)), int64(i))
		}
		s := New(table, Config{Policy: policy, Rand: seeded(1)})

		var changers, pickers sync.WaitGroup
		stop := make(chan struct{})
		forever := func(seed uint64, change func(rnd *rand.Rand)) {
			changers.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, 0))
				for {
					select {
					case <-stop:
						return
					default:
						change(rnd)
					}
				}
			})
		}
		forever(1, func(rnd *rand.Rand) { // workers come and go
			id := fmt.Sprint(rnd.IntN(6))
			if w, ok := table.Worker(id); ok && rnd.IntN(2) == 0 {
				table.Remove(w)
			} else {
				f := add(id).Advertise(2)
				for rank := range rnd.IntN(3) {
					f.Put(rank, load.Report{Running: rnd.Int64N(50)})
				}
			}
		})
		forever(2, func(rnd *rand.Rand) { // reports come in, of old incarnations too, and time goes by
			mu.Lock()
			w := ever[rnd.IntN(len(ever))]
			mu.Unlock()
			w.Put(rnd.IntN(3), load.Report{Running: rnd.Int64N(50), Waiting: rnd.Int64N(3)})
			if rnd.IntN(10) == 0 {
				clock.advance(time.Duration(rnd.Int64N(int64(testWindow) / 4)))
			}
		})
		forever(3, func(rnd *rand.Rand) { // engines fall ill and recover
			w, ok := table.Worker(fmt.Sprint(rnd.IntN(6)))
			if !ok {
				return
			}
			switch rnd.IntN(4) {
			case 0:
				w.SetAside()
			case 1:
				w.SetNotPublishing("no")
			default:
				w.SetHealthy(rnd.IntN(2) == 0)
			}
		})
		for g := range 4 {
			pickers.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(g), 9))
				for range fewer(2000) {
					r := Request{PromptTokens: load.Known[int64](100)}
					mu.Lock()
					some := []*load.Worker{stable[0], ever[rnd.IntN(len(ever))], ever[rnd.IntN(len(ever))]}
					mu.Unlock()
					mayFail := false
					switch rnd.IntN(6) {
					case 0:
						r.Candidates = some
					case 1:
						r.Filter = func(w *load.Worker) bool { return w.ID() != "3" && w != stable[1] }
					case 2:
						r.Prefix = []PrefixMatch{{some[1], 90}, {some[2], 90}}
					case 3:
						r.Worker, mayFail = some[1], true // may be gone
					case 4:
						r.Rank, mayFail = load.Known(1), true // perhaps nobody has it
					}
					p, err := s.Pick(r)
					if err != nil {
						if !mayFail || !errors.Is(err, ErrNoCandidates) {
							t.Errorf("%+v: %v", r, err)
							return
						}
						continue
					}
					if p.Load < 0 || p.Age < 0 || (p.Basis == None) != (p.Reason == Turn || p.Reason == Chance) || p.Reason == 0 {
						t.Errorf("%+v", p)
					}
					marks := []func(){p.Dispatched, p.FirstToken, p.Done, p.Done}
					for _, mark := range marks[rnd.IntN(3):] {
						if rnd.IntN(8) == 0 {
							pickers.Go(mark) // from elsewhere
						} else {
							mark()
						}
					}
				}
			})
		}
		pickers.Wait()
		close(stop)
		changers.Wait()
		for _, w := range ever {
			if own := w.Own(); own != (load.Own{}) {
				t.Errorf("worker %s ends with %+v", w.ID(), own)
			}
			if st := w.Status(); st.Leaked != 0 {
				t.Errorf("worker %s has leaked %d", w.ID(), st.Leaked)
			}
		}
	})
}

func TestOneSelectorsPicksCountForAnotherOnTheSameTable(t *testing.T) {
	table, workers := withDepths(t, 0, 0)
	one := New(table, Config{Policy: LeastDepth(LeastDepthConfig{})})
	two := New(table, Config{Policy: LeastRequest(LeastRequestConfig{})})
	for range 10 {
		p := mustPick(t, one, Request{})
		if q := mustPick(t, two, Request{}); p.Worker == q.Worker {
			t.Fatal("two selectors of one table picked the same of two idle workers in a row")
		}
	}
	if workers[0].InFlight() != 10 || workers[1].InFlight() != 10 {
		t.Errorf("%d and %d in flight", workers[0].InFlight(), workers[1].InFlight())
	}
}
