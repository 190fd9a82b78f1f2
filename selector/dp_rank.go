package selector

import (
	"math"

	"github.com/plimsoll-go/plimsoll/load"
)

// DPRankName is the name of the policy DPRank.
const DPRankName = "dp_rank"

// DPRank returns the policy that chooses a worker and one of its data-parallel
// ranks at once: the rank with the lowest score of all candidates' ranks, the next
// in turn among equals. The score is load.RankScore, of the requests that this
// gateway has on the rank and of the rank's report, where its worker is trusted. A
// worker that is not has its load, by the signal of the selector, spread evenly
// over its ranks, and no rank scores below the gateway's own requests there; one
// whose ranks are not known competes as if it were one rank, and its engine
// chooses.
//
// The pick's Rank is for the host to pass on to the engine, and the score, rounded,
// is its Load. A request that is pinned to a worker gets a rank of that worker; one
// that is pinned to a rank has that rank compared.
//
// With a load.Connector, which makes the same choice by itself within one group,
// it is for choosing among several groups: see Connector.Register.
func DPRank() Policy { return &dpRank{new(rotation)} }

type dpRank struct{ rotation *rotation }

func (*dpRank) Name() string { return DPRankName }

func (*dpRank) ChoosesRank() {}

func (p *dpRank) Choose(d *Decision) Choice {
	// Each rank of each candidate is a place, so that it is a rank's turn and not
	// a worker's. A pin leaves one place for each candidate.
	only := d.Request.Rank.Or(load.NoRank)
	places := 0
	for i := range d.Len() {
		places += placesOf(d.Entry(i), only)
	}
	place := p.rotation.start(d, places)
	i, at := 0, place
	for ; at >= placesOf(d.Entry(i), only); i++ {
		at -= placesOf(d.Entry(i), only)
	}

	var best Choice
	lowest, chosen := math.Inf(1), place
	for range places {
		c, score := scoreAt(d, i, at, only)
		if score < lowest {
			best, lowest, chosen = c, score, place
		}
		place++
		if at++; at == placesOf(d.Entry(i), only) {
			at = 0
			if i++; i == d.Len() {
				i, place = 0, 0
			}
		}
	}
	p.rotation.chose(d, chosen)
	return best
}

// placesOf is how many places a candidate has.
func placesOf(e load.Entry, only int) int {
	if only != load.NoRank {
		return 1
	}
	return max(e.Ranks(), 1)
}

// scoreAt scores one place of a candidate.
func scoreAt(d *Decision, i, at, only int) (Choice, float64) {
	e := d.Entry(i)
	c := d.Candidate(i)
	ranks := e.Ranks()
	score := float64(c.Load)
	rank := load.NoRank
	if ranks > 0 {
		if rank = at; only != load.NoRank {
			rank = only
		}
		if c.Basis == Engine {
			score = e.RankScore(rank)
		} else if score = float64(e.OwnOn(rank).InFlight); c.Basis == Estimated {
			score = max(score, float64(c.Load)/float64(ranks))
		}
	}
	c.Load = rounded(score)
	return Choice{Candidate: c, Reason: LeastLoaded}.OnRank(rank), score
}

// rounded is a count of requests, also where it was more than there can be.
func rounded(n float64) int64 {
	if n = math.Round(n); n >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(n)
}
