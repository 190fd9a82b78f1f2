package selector

// RoundRobinName is the name of the policy RoundRobin.
const RoundRobinName = "round_robin"

// RoundRobin returns the policy that gives each candidate its turn. It looks at
// no load at all. Requests that restrict their candidates are spread evenly over
// those, though not in strict turns.
func RoundRobin() Policy { return &roundRobin{new(rotation)} }

type roundRobin struct{ rotation *rotation }

func (p *roundRobin) Name() string { return RoundRobinName }

func (p *roundRobin) Choose(d *Decision) Choice {
	turn := p.rotation.turn(d, d.Len())
	return Choice{Candidate: d.Candidate(turn), Reason: Turn, Blind: true}
}
