package loadprom

import (
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

func pickBy(policy string) selector.Pick {
	return selector.Pick{Worker: new(load.Worker), Policy: policy, Reason: selector.LeastWaiting, Basis: selector.Engine}
}

func TestPicksByPolicyReasonAndBasis(t *testing.T) {
	table, _ := newTestTable()
	reporting(t, table, "a", load.Report{})
	picks := new(Picks)
	scrape(t, picks).check(t, `plimsoll_failed_picks_total 0`)

	leastDepth := selector.New(table, selector.Config{Policy: selector.LeastDepth(selector.LeastDepthConfig{})})
	turn := selector.New(table, selector.Config{Policy: selector.RoundRobin()})
	for _, s := range []*selector.Selector{leastDepth, leastDepth, turn} {
		pick, err := s.Pick(selector.Request{})
		if err != nil {
			t.Fatal(err)
		}
		picks.Observe(pick)
		pick.Done()
	}
	picks.Observe(selector.Pick{}) // what comes with an error
	picks.Failed()
	scrape(t, picks).check(t, `
		plimsoll_picks_total{basis="engine",policy="least_depth",reason="least_loaded"} 2
		plimsoll_picks_total{basis="none",policy="round_robin",reason="turn"} 1
		plimsoll_failed_picks_total 1
	`)
}

// There is room for every reason and basis that there is, and for some to come.
func TestEveryReasonAndBasisHasRoom(t *testing.T) {
	unknown := selector.Reason(255).String()
	if s := selector.Reason(maxReasons - 8).String(); s != unknown {
		t.Errorf("reason %s is near the bound", s)
	}
	if s := selector.Basis(maxBases - 2).String(); s != unknown {
		t.Errorf("basis %s is near the bound", s)
	}
	picks := new(Picks)
	picks.Observe(selector.Pick{Worker: new(load.Worker), Policy: "p", Reason: 255, Basis: 255})
	scrape(t, picks).of("plimsoll_picks").check(t, `plimsoll_picks_total{basis="none",policy="p",reason="unknown"} 1`)
}

func TestPoliciesAreBounded(t *testing.T) {
	picks := new(Picks)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 500 {
				picks.Observe(pickBy(fmt.Sprint(i)))
				picks.Observe(pickBy("\xff"))
			}
		})
	}
	wg.Wait()
	got := scrape(t, picks).of("plimsoll_picks")
	sum := 0.
	for _, n := range got {
		sum += n
	}
	if len(got) != maxPolicies+1 || len(got.of(`policy="other"`)) != 1 || sum != 4000 {
		t.Errorf("%v picks of %d policies:\n%s", sum, len(got), got)
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	picks, pick := new(Picks), pickBy("least_work")
	picks.Observe(pickBy("random"))
	picks.Observe(pick)
	if n := testing.AllocsPerRun(100, func() { picks.Observe(pick) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestHistogramsAreBothKinds(t *testing.T) {
	for _, c := range []struct {
		name   string
		h      prometheus.Histogram
		sample float64
	}{{firstTokenName, NewFirstToken(), .3}, {pickDurationName, NewPickDuration(), 3e-6}} {
		c.h.Observe(c.sample)
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(c.h)
		got, err := registry.Gather()
		if err != nil || len(got) != 1 || got[0].GetName() != c.name {
			t.Fatalf("%v, %v", got, err)
		}
		h := got[0].Metric[0].Histogram
		// Around a value of the kind that is expected, the buckets tell something.
		if n := len(h.Bucket); h.Bucket[0].GetCumulativeCount() != 0 || h.Bucket[n-1].GetCumulativeCount() != 1 {
			t.Errorf("%s has %v in buckets", c.name, h.Bucket)
		}
		if h.GetSchema() < 3 || len(h.PositiveSpan) != 1 {
			t.Errorf("%s has schema %d, spans %v", c.name, h.GetSchema(), h.PositiveSpan)
		}
	}
}
