package baseline

import "github.com/plimsoll-go/plimsoll/selector"

// PowerOfTwoInFlightName is the name of the policy PowerOfTwoInFlight.
const PowerOfTwoInFlightName = "power_of_two_in_flight"

// PowerOfTwoInFlight returns power of two as most proxies have it, on own requests
// in flight: the policy power_of_two of the routers of SGLang and vLLM where no
// loads are polled, and Envoy's LEAST_REQUEST, whose choice_count is 2.
// The rule itself is Mitzenmacher's, "The power of two choices in randomized load
// balancing" (2001).
//
// The two are never the same worker, as in those routers; in Envoy they may be.
func PowerOfTwoInFlight() selector.Policy { return powerOfTwoInFlight{} }

type powerOfTwoInFlight struct{}

func (powerOfTwoInFlight) Name() string { return PowerOfTwoInFlightName }

func (powerOfTwoInFlight) Choose(d *selector.Decision) selector.Choice {
	g := twoOf(d)
	i := g.least(d, func(i int) float64 { return float64(d.Local(i).Load) })
	return selector.Choice{Candidate: d.Local(i), Reason: selector.LessLoaded}
}
