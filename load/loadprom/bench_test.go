package loadprom

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// large is a table of 1,000 workers of 8 ranks, and what a policy has learned of them.
func large(tb testing.TB) *Collector {
	tb.Helper()
	table := load.NewTable(load.Config{Window: time.Hour})
	report := load.Report{Running: 30, Waiting: 4, WaitingTokens: load.Known[int64](4000), MaxRunning: load.Known[int64](256), KVUsage: load.Known(.5)}
	var l selector.Learned
	for i := range 1000 {
		id := fmt.Sprintf("http://10.0.%d.%d:30000", i/250, i%250)
		_, feed := reporting(tb, table, id, report, report, report, report, report, report, report, report)
		feed.Drop(0, "truncated", nil)
		l.Speeds = append(l.Speeds, selector.WorkerSpeed{Worker: id, Speed: 1, Requests: 100})
	}
	return New(table, learned(l))
}

func collect(c prometheus.Collector) (samples int) {
	to := make(chan prometheus.Metric, 1000)
	go func() {
		c.Collect(to)
		close(to)
	}()
	for range to {
		samples++
	}
	return samples
}

// A scrape of 1,000 workers of 8 ranks is large, and no larger than that.
func TestALargeFleetIsBounded(t *testing.T) {
	c := large(t)
	samples := collect(c)
	if samples < 70_000 || samples > 90_000 {
		t.Errorf("%d samples", samples)
	}
	c.config.MaxWorkers, c.config.MaxRanks = 100, 100
	if few := collect(c); few > 100*(workerSeries+9)+fleetSeries {
		t.Errorf("%d samples of 100 workers", few)
	}
	c.config.MaxWorkers, c.config.MaxRanks = -1, -1
	if few := collect(c); few > fleetSeries {
		t.Errorf("%d samples of the fleet", few)
	}
	if raceEnabled {
		return
	}
	c.config.MaxWorkers, c.config.MaxRanks = DefaultMaxWorkers, DefaultMaxRanks
	allocs := testing.AllocsPerRun(1, func() { collect(c) })
	if most := 2.5 * float64(samples); allocs > most {
		t.Errorf("%v allocations for %d samples", allocs, samples)
	}
}

const (
	workerSeries = 30
	fleetSeries  = 30
)

func BenchmarkObserve(b *testing.B) {
	picks, pick := new(Picks), pickBy("least_work")
	b.ReportAllocs()
	for b.Loop() {
		picks.Observe(pick)
	}
}

func BenchmarkCollect(b *testing.B) {
	c := large(b)
	b.ReportAllocs()
	for b.Loop() {
		collect(c)
	}
}

// BenchmarkStatus is the part of a scrape for which reports wait.
func BenchmarkStatus(b *testing.B) {
	c := large(b)
	b.ReportAllocs()
	for b.Loop() {
		c.table.Status()
	}
}

// BenchmarkScrape is all that a scrape takes, but for sending it.
func BenchmarkScrape(b *testing.B) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(large(b))
	b.ReportAllocs()
	for b.Loop() {
		got, err := registry.Gather()
		if err != nil {
			b.Fatal(err)
		}
		var n counting
		e := expfmt.NewEncoder(&n, expfmt.NewFormat(expfmt.TypeTextPlain))
		for _, f := range got {
			if err := e.Encode(f); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(n), "bytes/scrape")
	}
}

type counting int

func (n *counting) Write(p []byte) (int, error) {
	*n += counting(len(p))
	return io.Discard.Write(p)
}
