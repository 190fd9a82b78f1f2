package selector

import (
	"fmt"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// fleet is a table of trusted workers with different loads.
func fleet(n int) (*load.Table, []*load.Worker) {
	t := load.NewTable(load.Config{Window: 1 << 40})
	workers := make([]*load.Worker, n)
	for i := range workers {
		w := t.Add(fmt.Sprintf("worker-%d", i), "")
		f := w.Advertise(2)
		for rank := range 2 {
			if err := f.Put(rank, load.Report{Running: int64(i*7%13) + 3, Waiting: int64(rank)}); err != nil {
				panic(err)
			}
		}
		workers[i] = w
	}
	return t, workers
}

func BenchmarkPick(b *testing.B) {
	for _, name := range PolicyNames() {
		for _, n := range []int{8, 64, 512} {
			b.Run(fmt.Sprintf("%s/workers=%d", name, n), func(b *testing.B) {
				t, workers := fleet(n)
				policy, err := NewPolicy(name, nil)
				if err != nil {
					b.Fatal(err)
				}
				s := New(t, Config{Policy: policy})
				r := Request{PromptTokens: load.Known[int64](1000), Prefix: []PrefixMatch{{workers[3], 800}, {workers[5], 800}}}
				b.ReportAllocs()
				for b.Loop() {
					p, err := s.Pick(r)
					if err != nil {
						b.Fatal(err)
					}
					p.Done()
				}
			})
		}
	}
}

// BenchmarkRequest is a pick with all its marks.
func BenchmarkRequest(b *testing.B) {
	t, _ := fleet(64)
	s := New(t, Config{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p, err := s.Pick(Request{PromptTokens: load.Known[int64](1000)})
			if err != nil {
				b.Error(err)
				return
			}
			p.Dispatched()
			p.FirstToken()
			p.Done()
		}
	})
}

// BenchmarkLeastWork is the policy at work: it learns from every request, while ten
// reports a second come in from each worker. "request" is a pick with all its marks.
func BenchmarkLeastWork(b *testing.B) {
	for _, of := range []struct {
		what    string
		workers int
		peers   int
		config  LeastWorkConfig
	}{
		{"pick", 8, 1, LeastWorkConfig{}},
		{"pick", 64, 1, LeastWorkConfig{}},
		{"pick", 1024, 1, LeastWorkConfig{}},
		{"pick", 64, 4, LeastWorkConfig{}},
		{"pick", 1024, 4, LeastWorkConfig{}},
		{"pick", 64, 1, LeastWorkConfig{Ranks: true}},
		{"request", 64, 1, LeastWorkConfig{}},
		{"request", 1024, 1, LeastWorkConfig{}},
	} {
		b.Run(fmt.Sprintf("%s/workers=%d/replicas=%d/ranks=%v", of.what, of.workers, of.peers, of.config.Ranks), func(b *testing.B) {
			t, workers := fleet(of.workers)
			s := New(t, Config{Policy: LeastWork(of.config), Peers: func() (int, int) { return 0, of.peers }})
			stop := stream(b, workers)
			defer stop()
			r := Request{PromptTokens: load.Known[int64](1000)}
			var picks [256]Pick
			mark := func() {
				for i := range picks {
					picks[i].Dispatched()
					picks[i].FirstToken()
					picks[i].Done()
				}
			}
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				p, err := s.Pick(r)
				if err != nil {
					b.Fatal(err)
				}
				picks[n%len(picks)] = p
				if n++; n%len(picks) == 0 {
					if of.what == "pick" {
						b.StopTimer()
						mark()
						b.StartTimer()
					} else {
						mark()
					}
				}
			}
			mark()
		})
	}
}

// stream puts ten reports a second for each worker, spread over the second.
func stream(b *testing.B, workers []*load.Worker) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	tick := time.NewTicker(10 * time.Millisecond)
	go func() {
		defer close(done)
		defer tick.Stop()
		for next := 0; ; {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			for range max(len(workers)/10, 1) {
				w := workers[next%len(workers)]
				if err := w.Put(next%2, load.Report{
					Running: int64(next % 13), Waiting: int64(next % 5), WaitingTokens: load.Known(int64(next % 5000)),
					KVUsage: load.Known(0.5), KVCapacity: load.Known[int64](400_000),
				}); err != nil {
					b.Error(err)
					return
				}
				next++
			}
		}
	}()
	return func() { close(quit); <-done }
}
