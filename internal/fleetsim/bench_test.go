package fleetsim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
	"github.com/plimsoll-go/plimsoll/internal/fleetsim/trace"
)

func BenchmarkRun(b *testing.B) {
	engines := fleetsim.Fleet(32, fleetsim.EngineConfig{})
	var c fleetsim.Calibrations
	tr, err := c.AtLoad(trace.Generate("mix", trace.Mix{Requests: 20_000, BurstRate: 3}), engines, 0.95)
	if err != nil {
		b.Fatal(err)
	}
	bench := func(name string, c fleetsim.Config) {
		b.Run(name, func(b *testing.B) {
			c.Trace, c.Engines = tr, engines
			b.ReportAllocs()
			for b.Loop() {
				if _, err := fleetsim.Run(c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	bench("oracle", fleetsim.Config{Chooser: fleetsim.Instant})
	for _, gateways := range []int{1, 16} {
		for _, period := range []time.Duration{100 * time.Millisecond, time.Second} {
			bench(fmt.Sprintf("gateways=%d/period=%v", gateways, period),
				fleetsim.Config{Chooser: leastDepth, Gateways: gateways, Reports: fleetsim.Reports{Period: period}})
		}
	}
	bench("gateways=4/piggyback", fleetsim.Config{Chooser: leastDepth, Gateways: 4, Reports: fleetsim.Reports{Wire: fleetsim.Piggyback}})
}
