package selector

// RoundRobinName is the name of the policy RoundRobin.
const RoundRobinName = "round_robin"

// RoundRobin returns the policy that gives each candidate its turn. It looks at
// no load at all. Restricted to changing candidates, a turn is a turn among those
// of the moment.
func RoundRobin() Policy { return &roundRobin{newRotation()} }

type roundRobin struct{ turn *rotation }

func (p *roundRobin) Name() string { return RoundRobinName }

func (p *roundRobin) Choose(d *Decision) Choice {
	turn := p.turn.next.Add(1)
	return Choice{Candidate: d.Candidate(int(turn % uint64(d.Len()))), Reason: Turn, Blind: true}
}
