package baseline

import "github.com/plimsoll-go/plimsoll/selector"

// PowerOfTwoInFlightName is the name of the policy PowerOfTwoInFlight.
const PowerOfTwoInFlightName = "power_of_two_in_flight"

// PowerOfTwoInFlight returns power of two as most proxies have it, on own requests
// in flight: Envoy's LEAST_REQUEST with its choice_count of 2, and the policy
// power_of_two of SGLang's and vLLM's routers where no loads are polled.
// Differs: the two drawn are never the same.
//
// The rule itself is Mitzenmacher's, "The power of two choices in randomized load
// balancing" (2001).
func PowerOfTwoInFlight() selector.Policy { return powerOfTwoInFlight{} }

type powerOfTwoInFlight struct{}

func (powerOfTwoInFlight) Name() string { return PowerOfTwoInFlightName }

func (powerOfTwoInFlight) Choose(d *selector.Decision) selector.Choice {
	i, _ := lessOfTwo(d, func(i int) float64 { return float64(d.Local(i).Load) })
	return selector.Choice{Candidate: d.Local(i), Reason: selector.LessLoaded}
}
