package selector

// RandomName is the name of the policy Random.
const RandomName = "random"

// Random returns the policy that chooses any candidate, each with the same
// probability.
func Random() Policy { return random{} }

type random struct{}

func (random) Name() string { return RandomName }

func (random) Choose(d *Decision) Choice {
	return Choice{Candidate: d.Candidate(below(d.random(), d.Len())), Reason: Chance, Blind: true}
}

// below maps a random number to 0..n-1, evenly enough for any fleet.
func below(random uint64, n int) int {
	return int((random >> 32) * uint64(n) >> 32)
}
