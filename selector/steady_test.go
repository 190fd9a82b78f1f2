package selector

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// BenchmarkSteady does the same in every run, and on every machine: its numbers are not
// random, and its clock goes on by a microsecond whenever it is read. That is for
// counting instructions, not for timing. It is a request with all its marks, with 8
// in flight, and a report in between every 16.
func BenchmarkSteady(b *testing.B) {
	for _, name := range PolicyNames() {
		b.Run(name, func(b *testing.B) {
			epoch, ticks := time.Now(), new(atomic.Int64)
			table := load.NewTable(load.Config{
				Window: 1 << 40,
				Clock:  func() time.Time { return epoch.Add(time.Duration(ticks.Add(1)) * time.Microsecond) },
			})
			workers := make([]*load.Worker, 64)
			for i := range workers {
				workers[i] = table.Add(fmt.Sprintf("worker-%d", i), "")
				f := workers[i].Advertise(1)
				if err := f.Put(0, load.Report{Running: int64(i*7%13) + 3}); err != nil {
					b.Fatal(err)
				}
			}
			policy, err := NewPolicy(name, nil)
			if err != nil {
				b.Fatal(err)
			}
			s := New(table, Config{Policy: policy, Rand: rand.NewPCG(1, 2).Uint64})
			r := Request{PromptTokens: load.Known[int64](1000), Prefix: []PrefixMatch{{workers[3], 800}, {workers[5], 800}}}
			var flying [8]Pick
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%16 == 0 {
					if err := workers[i/16%64].Put(0, load.Report{Running: int64(i % 13), Waiting: int64(i % 3)}); err != nil {
						b.Fatal(err)
					}
				}
				p, err := s.Pick(r)
				if err != nil {
					b.Fatal(err)
				}
				flying[i%8].FirstToken()
				flying[i%8].Done()
				p.Dispatched()
				flying[i%8] = p
			}
			for i := range flying {
				flying[i].Done()
			}
		})
	}
}
