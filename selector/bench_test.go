package selector

import (
	"fmt"
	"testing"

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
