package selector

import (
	"fmt"
	"math/bits"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// BenchmarkHotPath is what a gateway does for each request, from several goroutines at
// once: a pick and all its marks, with 16 requests in flight from each. Meanwhile
// 10,000 reports a second come in, and 100 times a second a worker goes and another
// comes.
//
// p99.9-ns and max-ns are of a pick alone, one in 16 of which is timed: most of
// what is above them is a thread that was not running. heap-B is by how much the heap has
// grown when all requests are done.
func BenchmarkHotPath(b *testing.B) {
	for _, name := range []string{LeastWorkName, PowerOfTwoName} {
		for _, goroutines := range []int{1, 2, 4, 8, 16} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", name, goroutines), func(b *testing.B) {
				t, workers := fleet(64)
				policy, err := NewPolicy(name, nil)
				if err != nil {
					b.Fatal(err)
				}
				s := New(t, Config{Policy: policy})
				stop := unrest(b, t, workers)
				defer stop()
				hotPath(b, s, goroutines, 10_000) // what it needs, it has from here on
				before := inUse()

				b.ReportAllocs()
				b.ResetTimer()
				times := hotPath(b, s, goroutines, b.N)
				b.StopTimer()

				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
				b.ReportMetric(times.quantile(0.999), "p99.9-ns")
				b.ReportMetric(times.quantile(1), "max-ns")
				b.ReportMetric(float64(int64(inUse()-before)), "heap-B")
			})
		}
	}
}

// hotPath sends n requests from so many goroutines, and returns how long the picks took.
func hotPath(tb testing.TB, s *Selector, goroutines, n int) (times histogram) {
	const batch = 64
	var begun atomic.Int64
	var wg sync.WaitGroup
	each := make([]histogram, goroutines)
	for g := range goroutines {
		wg.Go(func() {
			var times histogram
			var flying [16]Pick
			r := Request{PromptTokens: load.Known[int64](1000)}
			for from := begun.Add(batch) - batch; from < int64(n); from = begun.Add(batch) - batch {
				for i := range min(batch, n-int(from)) {
					flying[i%16].Done()
					timed := i%16 == 0
					var start time.Time
					if timed {
						start = time.Now()
					}
					p, err := s.Pick(r)
					if timed {
						times.add(time.Since(start))
					}
					if err != nil {
						tb.Error(err)
						return
					}
					p.Dispatched()
					p.FirstToken()
					flying[i%16] = p
				}
			}
			for i := range flying {
				flying[i].Done()
			}
			each[g] = times
		})
	}
	wg.Wait()
	for i := range each {
		times.addAll(&each[i])
	}
	return times
}

// Where nothing else goes on, all that picks need comes from pools. The clock stands still:
// the model that least_work makes now and then is no pick's own.
func TestPicksFromManyGoroutinesCostNoAllocation(t *testing.T) {
	if raceEnabled {
		return // it empties the pools by chance
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which empties them too
	for _, name := range PolicyNames() {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			table := load.NewTable(load.Config{Clock: func() time.Time { return now }})
			for i := range 16 {
				w := table.Add(fmt.Sprint(i), "")
				if err := w.Advertise(1).Put(0, load.Report{Running: int64(i)}); err != nil {
					t.Fatal(err)
				}
			}
			policy, err := NewPolicy(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			s := New(table, Config{Policy: policy})
			const goroutines, n = 8, 50_000
			hotPath(t, s, goroutines, n)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			hotPath(t, s, goroutines, n)
			runtime.ReadMemStats(&after)
			// Goroutines, their histograms, and what a pool had on another processor.
			if got := after.Mallocs - before.Mallocs; got > n/100 {
				t.Errorf("%d requests allocate %d times", n, got)
			}
		})
	}
}

// unrest is what goes on besides, until it is stopped. It is paced by the clock, so that
// a slow machine has as much of it.
func unrest(tb testing.TB, t *load.Table, workers []*load.Worker) (stop func()) {
	quit := make(chan struct{})
	done := make(chan struct{})
	workers = append([]*load.Worker(nil), workers...)
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		start, reports, changes := time.Now(), 0, 0
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			passed := time.Since(start)
			// Who was late for a second does not make up for it at once.
			for range min(int(passed/(100*time.Microsecond))-reports, 1000) {
				reports++
				// A worker that has just gone takes no report, which is as it should be.
				_ = workers[reports%len(workers)].Put(reports/len(workers)%2, load.Report{
					Running: int64(reports % 13), Waiting: int64(reports % 5), WaitingTokens: load.Known(int64(reports % 5000)),
					KVUsage: load.Known(0.5), KVCapacity: load.Known[int64](400_000),
				})
			}
			for range min(int(passed/(10*time.Millisecond))-changes, 10) {
				changes++
				i := changes % len(workers)
				t.Remove(workers[i])
				workers[i] = t.Add(workers[i].ID(), "")
				workers[i].Advertise(2)
			}
		}
	}()
	return func() { close(quit); <-done }
}

// inUse is what is in use of the heap.
func inUse() uint64 {
	runtime.GC()
	runtime.GC() // what pools hold survives one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// histogram counts durations, to an eighth of each.
type histogram [64 * 8]uint32

func (h *histogram) add(d time.Duration) {
	n := max(uint64(d), 8)
	at := bits.Len64(n) - 4 // of the three bits below the highest
	h[at*8+int(n>>at&7)]++
}

func (h *histogram) addAll(of *histogram) {
	for i, n := range of {
		h[i] += n
	}
}

// quantile returns the upper bound of the nanoseconds that a share of all took.
func (h *histogram) quantile(share float64) float64 {
	var all, seen float64
	for _, n := range h {
		all += float64(n)
	}
	for i, n := range h {
		if seen += float64(n); seen >= share*all {
			return float64(uint64(i%8+9) << (i / 8))
		}
	}
	return 0
}

// BenchmarkLeastWorkModel is the one pick in ten milliseconds that works out anew what
// all workers cost. In a gateway of a few hundred requests a second every other one is such a
// pick.
func BenchmarkLeastWorkModel(b *testing.B) {
	for _, n := range []int{64, 1024} {
		for _, peers := range []int{1, 4} {
			b.Run(fmt.Sprintf("workers=%d/replicas=%d", n, peers), func(b *testing.B) {
				t, _ := fleet(n)
				p := LeastWork(LeastWorkConfig{}).(*leastWork)
				s := New(t, Config{Policy: p, Peers: func() (int, int) { return 0, peers }})
				first, err := s.Pick(Request{}) // which gets to know the workers
				if err != nil {
					b.Fatal(err)
				}
				first.Done()
				b.ReportAllocs()
				for b.Loop() {
					old := *p.model.Load()
					old.until = 0
					p.model.Store(&old)
					pick, err := s.Pick(Request{})
					if err != nil {
						b.Fatal(err)
					}
					pick.Done()
				}
			})
		}
	}
}
