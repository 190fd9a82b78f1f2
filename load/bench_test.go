package load

import (
	"fmt"
	"testing"
	"time"
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

// BenchmarkConnector is a request's reservation and release over 8 ranks: alone,
// and while another goroutine observes 10,000 batches a second, the load of a
// group of ranks that each make 1,250 steps.
func BenchmarkConnector(b *testing.B) {
	for _, c := range []struct {
		name    string
		batches int // a second
	}{{"quiet", 0}, {"batches=10000", 10_000}} {
		b.Run(c.name, func(b *testing.B) {
			conn := must(NewConnector(NewTable(Config{}).Add("group", ""), ConnectorConfig{Ranks: 8}))
			for rank := range 8 {
				conn.ReserveRank(fmt.Sprint("held", rank), rank, 0)
				conn.Observe(batch(rank, 1, 0, 0.5))
			}
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				if c.batches == 0 {
					return
				}
				tick := time.NewTicker(time.Second / time.Duration(c.batches))
				defer tick.Stop()
				for i := 0; ; {
					select {
					case <-stop:
						return
					case <-tick.C:
						conn.Observe(batch(i%8, int64(i%16), 0, 0.5))
						i++
					}
				}
			}()
			b.ReportAllocs()
			for b.Loop() {
				r, err := conn.Reserve("id", 1000)
				if err != nil {
					b.Fatal(err)
				}
				r.Done()
			}
			close(stop)
			<-stopped
		})
	}
}

// BenchmarkObserve is one output batch: a load, and the end of one request of 256.
func BenchmarkObserve(b *testing.B) {
	conn := must(NewConnector(NewTable(Config{}).Add("group", ""), ConnectorConfig{Ranks: 8}))
	for i := range 256 {
		conn.Reserve(fmt.Sprint(i), 0)
	}
	ended := batch(3, 32, 0, 0.5, "id")
	b.ReportAllocs()
	for b.Loop() {
		conn.ReserveRank("id", 3, 0)
		if err := conn.Observe(ended); err != nil {
			b.Fatal(err)
		}
	}
}
