package selector

import "github.com/plimsoll-go/plimsoll/load"

// PowerOfTwoName is the name of the policy PowerOfTwo.
const PowerOfTwoName = "power_of_two"

// PowerOfTwo returns the policy that draws two different candidates at random
// and chooses the less loaded one, by the signal of the selector. Its work does
// not grow with the fleet, and however stale the reports are, gateways that all
// read the same ones do not all choose the same worker.
//
// Mitzenmacher, "The power of two choices in randomized load balancing" (2001).
func PowerOfTwo() Policy { return powerOfTwo{} }

type powerOfTwo struct{}

func (powerOfTwo) Name() string { return PowerOfTwoName }

func (powerOfTwo) Choose(d *Decision) Choice {
	n := d.Len()
	if n == 1 {
		return Choice{Candidate: d.Candidate(0), Reason: LessLoaded}
	}
	// Both draws from one random number: the second is among the n-1 others. The
	// order of the two is as random as they are, so that keeping the first on a
	// tie favours nobody.
	r := d.random()
	i := below(r, n)
	j := below(r<<32, n-1)
	if j >= i {
		j++
	}
	a, b := d.Candidate(i), d.Candidate(j)
	if d.explaining {
		d.Compared(a, load.NoRank)
		d.Compared(b, load.NoRank)
	}
	if b.Load < a.Load {
		a = b
	}
	return Choice{Candidate: a, Reason: LessLoaded}
}
