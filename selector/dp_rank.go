package selector

import "github.com/plimsoll-go/plimsoll/load"

// DPRankName is the name of the policy DPRank.
const DPRankName = "dp_rank"

// DPRank returns the policy that chooses a worker and one of its data-parallel
// ranks at once: the rank with the lowest score of all candidates' ranks, the next
// in turn among equals, or any of them where the request restricts its candidates.
//
// The score is load.RankScore, of the requests that this gateway has on the rank and
// of the rank's report, where its worker is trusted. A rank of a worker that is not
// is estimated, as Calibrated does it for workers, by what others have on the average
// rank that reports; with another signal its score is the gateway's own requests
// there. A worker whose ranks are not known competes as if it were one rank, and
// its engine chooses.
//
// The pick's Rank is for the host to pass on to the engine, and the score, rounded,
// is its Load. A request that is pinned to a worker gets a rank of that worker; one
// that is pinned to a rank has that rank compared.
//
// With a load.Connector, which makes the same choice by itself within one group,
// it is for choosing among several groups: see Connector.Register.
func DPRank() Policy { return new(dpRank) }

type dpRank struct{ rotation rotation }

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
	scale := d.rankScale()

	place, least := p.rotation.ties(d, TiesRotate, places)
	i, at := 0, place
	for ; at >= placesOf(d.Entry(i), only); i++ {
		at -= placesOf(d.Entry(i), only)
	}
	var best Choice
	chosen, lowest := -1, 0.0
	for range places {
		rank := at
		if only != load.NoRank {
			rank = only
		}
		if e := d.Entry(i); only != load.NoRank || e.Ranks() == 0 || e.HasRank(rank) {
			c, score := scoreAt(d, i, rank, scale)
			if d.explaining {
				d.Compared(c.Candidate, c.rank())
			}
			if (chosen < 0 || score <= lowest) && least.takes(score < lowest) {
				best, chosen, lowest = c, place, score
			}
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

// rankScale is the scale of the decision for a rank: what others have on each rank
// of the workers that report, since a worker of many ranks takes more.
func (d *Decision) rankScale() scale {
	s := d.scale
	if !s.on {
		return s
	}
	ranks, workers := 0, 0
	for i := range d.Len() {
		if e := d.Entry(i); e.Trusted() {
			ranks += e.Ranks()
			workers++
		}
	}
	s.others *= float64(workers) / float64(max(ranks, 1))
	return s
}

// scoreAt scores a rank of a candidate, or, where its ranks are not known, the
// whole.
func scoreAt(d *Decision, i, rank int, ranks scale) (Choice, float64) {
	e, c := d.Entry(i), d.Candidate(i)
	if e.Ranks() == 0 {
		score := float64(c.Load)
		if c.Basis == Estimated { // as a rank, which is what it is compared with
			n, _ := e.InFlight()
			score = ranks.estimate(float64(n))
			c.Load = rounded(score)
		}
		return Choice{Candidate: c, Reason: LeastLoaded}, score
	}
	score := float64(e.OwnOn(rank).InFlight)
	switch c.Basis {
	case Engine:
		score = e.RankScore(rank)
	case Estimated:
		score = ranks.estimate(score)
	}
	c.Load = rounded(score)
	return Choice{Candidate: c, Reason: LeastLoaded}.OnRank(rank), score
}
