package loadhttp

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

const many1000 = 1000

// busy is a table of a thousand workers, all of which report, and a handler that has seen
// them for as long as its history is, and whose goroutine does nothing in the time of a test.
func busy(t *testing.T, history int) (h *Handler, report func()) {
	table := load.NewTable(load.Config{Window: time.Hour})
	var feeds []*load.Feed
	for i := range many1000 {
		_, f := worker(t, table, fmt.Sprintf("http://10.0.%d.%d:30000", i/200, i%200), 0, 0)
		feeds = append(feeds, f)
	}
	random := rand.New(rand.NewPCG(1, 1))
	report = func() {
		for _, f := range feeds {
			put(t, f, 0, load.Report{
				Running: random.Int64N(60), Waiting: random.Int64N(9), WaitingTokens: load.Known(random.Int64N(9000)),
				KVUsage: load.Known(random.Float64() * 0.9), KVCapacity: load.Known[int64](400000), Source: load.SourcePush,
			})
		}
	}
	h = New(table, Config{Interval: time.Hour, History: history})
	t.Cleanup(h.Close)
	report()
	h.mu.Lock()
	for _, w := range h.tracks {
		for i := range w.depth {
			w.depth[i] = random.Int32N(70)
		}
	}
	h.seq += uint64(history)
	h.mu.Unlock()
	h.sample()
	return h, report
}

func TestAThousandWorkersAreNotTooMuchForAPhone(t *testing.T) {
	h, report := busy(t, 120)
	h.mu.Lock()
	h.viewers = 1 // or what was shown before is forgotten
	h.mu.Unlock()
	all, seq, _ := h.next(0)
	report()
	h.sample()
	news, seq, _ := h.next(seq)
	h.sample()
	nothing, _, _ := h.next(seq)
	for _, tt := range []struct {
		what            string
		p               *packet
		plain, deflated int
	}{
		{"everything, with two minutes of history", all, 750_000, 250_000},
		{"an interval in which every worker has reported", news, 300_000, 60_000},
		// All but a row or two, whose time is rounded the other way.
		{"an interval in which nobody has", nothing, 10_000, 3_000},
	} {
		t.Logf("%s: %d bytes, %d compressed", tt.what, len(tt.p.plain), len(tt.p.deflated))
		if len(tt.p.plain) > tt.plain || len(tt.p.deflated) > tt.deflated {
			t.Errorf("%s: %d bytes, %d compressed; want at most %d, %d", tt.what, len(tt.p.plain), len(tt.p.deflated), tt.plain, tt.deflated)
		}
	}
}

func allocated(f func()) (bytes, objects uint64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, after.Mallocs - before.Mallocs
}

func TestASampleOfAThousandWorkersCostsNextToNothing(t *testing.T) {
	h, report := busy(t, 120)
	const samples = 10
	report()
	bytes, objects := allocated(func() {
		for range samples {
			h.sample()
		}
	})
	t.Logf("%d bytes and %d allocations a sample", bytes/samples, objects/samples)
	// The list of workers, and what a clear of it in passing takes.
	if bytes/samples > 32*many1000 || objects/samples > 50 {
		t.Errorf("a sample takes %d bytes in %d allocations", bytes/samples, objects/samples)
	}
}

func TestTheHistoryTakesFourBytesForEachWorkerAndSample(t *testing.T) {
	held := func(history int) uint64 {
		h, _ := busy(t, history)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		runtime.KeepAlive(h)
		h.mu.Lock()
		clear(h.tracks)
		h.mu.Unlock()
		runtime.GC()
		var without runtime.MemStats
		runtime.ReadMemStats(&without)
		return m.HeapAlloc - without.HeapAlloc
	}
	short, long := held(32), held(1056)
	t.Logf("%d and %d bytes", short, long)
	if perSample := float64(long-short) / 1024 / many1000; perSample > 5 {
		t.Errorf("each takes %.1f bytes", perSample)
	}
}

func TestViewersCostNoAllocationsOfTheirOwn(t *testing.T) {
	h, report := busy(t, 8)
	h.mu.Lock()
	h.viewers = 100
	h.mu.Unlock()
	_, seq, _ := h.next(0)
	report()
	h.sample()
	h.next(seq)
	h.next(0) // the first one who has missed something pays for the others too
	_, objects := allocated(func() {
		for range 100 {
			h.next(seq)
			h.next(0)
		}
	})
	if objects > 20 {
		t.Errorf("a hundred viewers take %d allocations", objects)
	}
}

func TestEverythingAtOnce(t *testing.T) {
	table := load.NewTable(load.Config{Window: time.Millisecond})
	policy := selector.LeastWork(selector.LeastWorkConfig{})
	h := New(table, Config{Interval: 100 * time.Microsecond, Picks: 4, Events: 4, Policy: func() selector.Policy { return policy }})
	defer h.Close()
	picker := selector.New(table, selector.Config{Policy: policy, Explain: h.Explain, ExplainEvery: 2})
	_, kept := worker(t, table, "kept", 1, 0)
	var wg sync.WaitGroup
	const rounds = 200
	for range 2 {
		wg.Go(func() {
			for range rounds {
				if p, err := picker.Pick(selector.Request{}); err == nil {
					p.Done()
				}
				_ = kept.Put(0, load.Report{Running: 1})
			}
		})
		wg.Go(func() {
			for i := range rounds {
				w := table.Add(fmt.Sprint("w", i%7), "")
				_ = w.Put(0, load.Report{Waiting: 1})
				w.SetHealthy(i%3 > 0)
				if i%5 == 0 {
					table.Remove(w)
				}
			}
		})
		wg.Go(func() {
			var seq uint64
			for range rounds {
				p, newest, wait := h.next(seq)
				if seq = newest; p == nil {
					<-wait
				} else if len(p.plain) == 0 {
					t.Error("an update without anything")
				}
			}
		})
		wg.Go(func() {
			for range rounds / 10 {
				if get(h, "/status.json?history=1").Body.Len() == 0 {
					t.Error("a status without anything")
				}
				h.Status()
			}
		})
	}
	wg.Wait()
}
