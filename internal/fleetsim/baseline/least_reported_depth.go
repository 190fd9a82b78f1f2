package baseline

import "github.com/plimsoll-go/plimsoll/selector"

// LeastReportedDepthName is the name of the policy LeastReportedDepth.
const LeastReportedDepthName = "least_reported_depth"

// LeastReportedDepth returns least_depth without the correction for what was sent
// since the report: the fewest requests running and waiting, as the engines said
// last. It is what a gateway begins with that polls metrics. A worker that is not
// trusted has the load that the selector's signal gives it.
func LeastReportedDepth() selector.Policy { return leastReportedDepth{} }

type leastReportedDepth struct{}

func (leastReportedDepth) Name() string { return LeastReportedDepthName }

func (leastReportedDepth) Choose(d *selector.Decision) selector.Choice {
	g := all(d)
	i := g.least(d, func(i int) float64 {
		if e := d.Entry(i); e.Trusted() {
			return float64(e.Depth())
		}
		return float64(d.Candidate(i).Load)
	})
	return g.choice(d, i)
}
