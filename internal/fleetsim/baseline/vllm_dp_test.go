package baseline

import (
	"math"
	"testing"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

func TestScoreOfVLLM(t *testing.T) {
	for _, tt := range []struct {
		name             string
		clients          int
		running, waiting int64
		kv               float64
		own              int
		want             float64
	}{
		{"idle", 1, 0, 0, 0, 0, 0},
		{"running", 1, 5, 0, 0.9, 0, 5},
		{"waiting, half full", 1, 5, 2, 0.5, 0, 7},
		{"waiting, nearly full", 1, 5, 2, 0.9, 0, 7 + 6*2*0.4},
		{"waiting, full", 1, 0, 4, 1, 0, 4 + 3*4},
		{"own are more", 1, 5, 0, 0, 6, 6},
		{"own of each client are more", 4, 5, 0, 0, 2, 8},
		{"own of each client are fewer", 4, 9, 0, 0, 2, 9},
		{"own are more, and some wait", 4, 5, 2, 0.75, 2, 8 + 6*2*0.25},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(t, &load.Report{Running: tt.running, Waiting: tt.waiting, KVUsage: load.Known(tt.kv)})
			f.hold(0, 0, tt.own, 0)
			p := VLLMDP(fleetsim.Gateway{Count: tt.clients}).(*vllmDP)
			if got := p.score(f.entry(0), 0); math.Abs(got-tt.want) > 1e-9 {
				t.Errorf("the score is %v, want %v", got, tt.want)
			}
		})
	}
}

func TestADispatchOfVLLMCountsForEveryClientUntilTheNextReport(t *testing.T) {
	f := newFleet(t, busy(5, 0), busy(8, 0))
	s := f.selector(VLLMDP(fleetsim.Gateway{Count: 4}))
	// 5 against 8; then 4 waiting make 9 against 8; then 12 against 9.
	if got := f.picked(s, selector.Request{}, 3); got != "aba" {
		t.Errorf("picked %s, want aba", got)
	}
	f.report(0, 0, *busy(5, 0))
	if got := f.picked(s, selector.Request{}, 1); got != "a" {
		t.Errorf("picked %s after a report, want a", got)
	}
}

func TestClientsOfVLLMBeginAtDifferentPlaces(t *testing.T) {
	for _, tt := range []struct {
		gateway fleetsim.Gateway
		want    string
	}{
		{fleetsim.Gateway{Index: 0, Count: 2}, "abcd"},
		{fleetsim.Gateway{Index: 1, Count: 2}, "cdab"},
	} {
		f := newFleet(t, busy(0, 0), busy(0, 0), busy(0, 0), busy(0, 0))
		if got := f.picked(f.selector(VLLMDP(tt.gateway)), selector.Request{}, 4); got != tt.want {
			t.Errorf("client %d picked %s, want %s", tt.gateway.Index, got, tt.want)
		}
	}
}

func TestVLLMChoosesAmongAllRanks(t *testing.T) {
	f := newFleet(t)
	for worker, running := range [][]int64{{4, 3}, {5, 1}} {
		f.add(2)
		for rank, n := range running {
			f.report(worker, rank, *busy(n, 0))
		}
	}
	s := f.selector(VLLMDP(fleetsim.Gateway{Count: 1}))
	if p := f.pick(s, selector.Request{}); p.Worker != f.workers[1] || p.Rank != 1 {
		t.Errorf("picked %v, want rank 1 of b", p)
	}
	if p := f.pick(s, selector.Request{Rank: load.Known(0)}); p.Worker != f.workers[0] || p.Rank != 0 {
		t.Errorf("picked %v for rank 0, want that of a", p)
	}
}

func TestVLLMBelievesAnOldReport(t *testing.T) {
	f := newFleet(t, busy(5, 0), nil)
	f.goStale()
	f.hold(1, 0, 4, 0)
	if got := f.picked(f.selector(VLLMDP(fleetsim.Gateway{Count: 1})), selector.Request{}, 1); got != "b" {
		t.Errorf("picked %s, want b with four own requests against five reported", got)
	}
}
