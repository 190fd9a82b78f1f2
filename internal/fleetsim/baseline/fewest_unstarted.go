package baseline

import "github.com/plimsoll-go/plimsoll/selector"

// FewestUnstartedName is the name of the policy FewestUnstarted.
const FewestUnstartedName = "fewest_unstarted"

// FewestUnstarted returns the policy that chooses the worker with the fewest own
// requests that have no first token yet. It uses nothing that engines report, and is
// no project's that we know of: it is how far a gateway gets alone.
func FewestUnstarted() selector.Policy { return fewestUnstarted{} }

type fewestUnstarted struct{}

func (fewestUnstarted) Name() string { return FewestUnstartedName }

func (fewestUnstarted) Choose(d *selector.Decision) selector.Choice {
	g := all(d)
	i := g.least(d, func(i int) float64 { return float64(d.Entry(i).Own().Unstarted) })
	return selector.Choice{Candidate: d.Local(i), Reason: selector.LeastLoaded}
}
