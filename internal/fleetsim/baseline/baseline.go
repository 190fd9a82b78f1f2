package baseline

import (
	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
	"github.com/plimsoll-go/plimsoll/selector"
)

// Named is a baseline.
type Named struct {
	Name string
	Doc  string // in one line
	New  fleetsim.Policy
}

// Policies returns all baselines, those of package selector that are known rules
// included.
func Policies() []Named {
	return []Named{
		{selector.RoundRobinName, "each worker in turn", plain(selector.RoundRobin)},
		{selector.RandomName, "any worker", plain(selector.Random)},
		{selector.LeastRequestName, "fewest own requests in flight", plain(func() selector.Policy {
			return selector.LeastRequest(selector.LeastRequestConfig{})
		})},
		{PowerOfTwoInFlightName, "of two random workers the one with fewer own requests in flight", plain(PowerOfTwoInFlight)},
		{selector.PowerOfTwoName, "of two random workers the one with the lower reported depth and own dispatches since", plain(selector.PowerOfTwo)},
		{LeastReportedDepthName, "lowest reported depth", plain(LeastReportedDepth)},
		{selector.LeastDepthName, "lowest reported depth and own dispatches since", plain(func() selector.Policy {
			return selector.LeastDepth(selector.LeastDepthConfig{})
		})},
		{VLLMDPName, "vLLM: score of its data-parallel client", VLLMDP},
		{SMGLeastLoadName, "SMG: shortest time to drain the queued tokens, plus KV pressure", plain(SMGLeastLoad)},
		{SMGPowerOfTwoName, "SMG: of two random workers the one with the lower such score", plain(SMGPowerOfTwo)},
		{WeightedQueueKVName, "Gateway API inference extension: weighted scores of queue, KV cache and prefix", plain(WeightedQueueKV)},
		{LMetricName, "LMETRIC: new prefill tokens times batch size", plain(LMetric)},
		{PrequalName, "Prequal: shortest wait of those without too many requests in flight", plain(Prequal)},
		{FewestUnstartedName, "fewest own requests without a first token", plain(FewestUnstarted)},
	}
}

// plain is for a rule that is the same on every gateway.
func plain(build func() selector.Policy) fleetsim.Policy {
	return func(fleetsim.Gateway) selector.Policy { return build() }
}
