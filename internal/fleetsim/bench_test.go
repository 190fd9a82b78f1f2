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
	for _, gateways := range []int{1, 16} {
		for _, period := range []time.Duration{100 * time.Millisecond, time.Second} {
			b.Run(fmt.Sprintf("gateways=%d/period=%v", gateways, period), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c := fleetsim.Config{Trace: tr, Engines: engines, Chooser: leastDepth, Gateways: gateways, Reports: fleetsim.Reports{Period: period}}
					if _, err := fleetsim.Run(c); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
