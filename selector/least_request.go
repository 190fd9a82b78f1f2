package selector

// LeastRequestName is the name of the policy LeastRequest.
const LeastRequestName = "least_request"

// LeastRequestConfig configures LeastRequest.
type LeastRequestConfig struct {
	Ties Ties `json:"ties"`
}

// LeastRequest returns the policy that chooses the candidate with the fewest own
// requests in flight. It uses nothing that engines report, so it is always on
// the local basis: what most gateways do today.
func LeastRequest(c LeastRequestConfig) Policy { return &leastRequest{c, new(rotation)} }

type leastRequest struct {
	config   LeastRequestConfig
	rotation *rotation
}

func (p *leastRequest) Name() string { return LeastRequestName }

func (p *leastRequest) Choose(d *Decision) Choice {
	best, _ := p.rotation.least(d, p.config.Ties, true)
	return Choice{Candidate: best, Reason: LeastLoaded}
}
