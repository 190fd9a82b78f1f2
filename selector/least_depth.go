package selector

// LeastDepthName is the name of the policy LeastDepth.
const LeastDepthName = "least_depth"

// LeastDepthConfig configures LeastDepth.
type LeastDepthConfig struct {
	Ties Ties `json:"ties"`
}

// LeastDepth returns the policy that chooses the candidate with the least load,
// by the signal of the selector: the queue depth that its engine reports, plus
// the own requests that the report cannot have counted. One gateway in front of
// its engines does well with it. Several, each with the same reports and blind
// to the others' requests, all choose the same worker until the next report.
func LeastDepth(c LeastDepthConfig) Policy { return &leastDepth{c, new(rotation)} }

type leastDepth struct {
	config   LeastDepthConfig
	rotation *rotation
}

func (p *leastDepth) Name() string { return LeastDepthName }

func (p *leastDepth) Choose(d *Decision) Choice {
	best, _ := p.rotation.least(d, p.config.Ties, false)
	return Choice{Candidate: best, Reason: LeastLoaded}
}
