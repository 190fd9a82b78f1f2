package baseline

import (
	"math"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// VLLMDPName is the name of the policy VLLMDP.
const VLLMDPName = "vllm_dp"

// VLLMDP returns the rule by which the data-parallel clients of vLLM, one in each of
// its API servers, choose an engine core (DPLBAsyncMPClient in
// vllm/v1/engine/core_client.py of vLLM 0.33). The lowest score is chosen, of
//
//	max(clients·inflight, waiting + running) + 6·waiting·max(0, kv − ½)
//
// where inflight is the client's own, and waiting is as reported, plus the number of
// clients for each request that this client has sent there since: what it does, the
// others are taken to do too. The scan begins at a place that depends on the client
// and moves on with every request, and the first of equals is taken. A report is
// believed however old it is; an engine core without any counts as idle but for the
// requests in flight.
//
// There, a coordinator collects the loads after every step and sends those of all
// engine cores to all clients at once, every 100 ms while they change; here each rank
// reports for itself.
func VLLMDP(g fleetsim.Gateway) selector.Policy {
	return &vllmDP{clients: int64(max(g.Count, 1)), client: int64(g.Index), start: -1}
}

type vllmDP struct {
	clients, client int64

	// Guarded by the ledger's mu.
	since ledger // requests, by rank
	start int    // place that the next scan begins at; -1 before the first
}

func (*vllmDP) Name() string { return VLLMDPName }

func (*vllmDP) ChoosesRank() {}

func (p *vllmDP) Choose(d *selector.Decision) selector.Choice {
	p.since.mu.Lock()
	defer p.since.mu.Unlock()
	only := d.Request.Rank.Or(load.NoRank)
	places := 0
	for i := range d.Len() {
		places += ranksOf(d.Entry(i), only)
	}
	if p.start < 0 {
		p.start = int(int64(places) * p.client / p.clients)
	}
	p.start %= places

	best, bestRank, bestTurn := 0, 0, 0
	lowest := math.Inf(1)
	turn := places - p.start // of the place that is looked at, in the order of the scan
	for i := range d.Len() {
		e := d.Entry(i)
		for rank := range ranksOf(e, only) {
			if only != load.NoRank {
				rank = only
			}
			if turn == places {
				turn = 0
			}
			if s := p.score(e, rank); s < lowest || s == lowest && turn < bestTurn {
				best, bestRank, bestTurn, lowest = i, rank, turn, s
			}
			turn++
		}
	}
	e := d.Entry(best)
	p.since.add(e, bestRank, 1)
	p.start++
	if e.Ranks() == 0 {
		bestRank = load.NoRank
	}
	return selector.Choice{Candidate: d.Candidate(best), Reason: selector.LeastLoaded}.OnRank(bestRank)
}

func (p *vllmDP) score(e load.Entry, rank int) float64 {
	own := p.clients * e.OwnOn(rank).InFlight
	if e.Ranks() == 0 {
		own = p.clients * e.Own().InFlight
	}
	r, ok := e.Report(rank)
	if !ok {
		return float64(own)
	}
	waiting := r.Waiting + p.clients*p.since.sent(e, rank)
	return float64(max(own, waiting+r.Running)) + 6*float64(waiting)*max(0, r.KVUsage.Or(0)-0.5)
}

// ranksOf is how many ranks of a worker can be chosen. One whose ranks are not known
// is taken to have one.
func ranksOf(e load.Entry, only int) int {
	if only != load.NoRank {
		return 1
	}
	return max(e.Ranks(), 1)
}
