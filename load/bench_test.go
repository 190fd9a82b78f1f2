package load

import (
	"fmt"
	"testing"
)

func benchTable(n, ranks int) (*Table, []*Feed) {
	t := NewTable(Config{Window: 1 << 40})
	feeds := make([]*Feed, n)
	for i := range feeds {
		feeds[i] = t.Add(fmt.Sprint(i), "").Advertise(ranks)
		for r := range ranks {
			feeds[i].Put(r, Report{Running: int64(i), Waiting: int64(r)})
		}
	}
	return t, feeds
}

func BenchmarkView(b *testing.B) {
	for _, n := range []int{8, 64, 512} {
		b.Run(fmt.Sprintf("workers=%d", n), func(b *testing.B) {
			t, _ := benchTable(n, 2)
			b.ReportAllocs()
			for b.Loop() {
				if t.View().Len() != n {
					b.Fatal("short view")
				}
			}
		})
	}
}

// BenchmarkPut is what one report costs its writer.
func BenchmarkPut(b *testing.B) {
	for _, n := range []int{8, 64, 512, 4096} {
		b.Run(fmt.Sprintf("workers=%d", n), func(b *testing.B) {
			_, feeds := benchTable(n, 8)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := feeds[i%n].Put(i%8, Report{Running: int64(i)}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReserve is a request's whole way through the books.
func BenchmarkReserve(b *testing.B) {
	t, _ := benchTable(1, 2)
	w := t.View().At(0).Worker()
	b.ReportAllocs()
	for b.Loop() {
		k := w.Reserve(0, 1000)
		k.Dispatched()
		k.FirstToken()
		k.Done()
	}
}

// BenchmarkAdd is a whole fleet that is added worker by worker.
func BenchmarkAdd(b *testing.B) {
	for _, n := range []int{64, 2048} {
		b.Run(fmt.Sprintf("workers=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				t := NewTable(Config{})
				for i := range n {
					t.Add(fmt.Sprint(i), "")
				}
			}
		})
	}
}
