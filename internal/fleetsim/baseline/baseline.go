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
		{VLLMDPName, "vLLM's score of data-parallel engines", VLLMDP},
		{SMGLeastLoadName, "SMG's expected drain time of queued tokens and KV pressure", plain(SMGLeastLoad)},
		{SMGLeastLoadOfTwoName, "of two random workers the one with the lower such score", plain(SMGLeastLoadOfTwo)},
		{WeightedQueueKVName, "weighted scores of queue, KV cache and prefix, as in the Gateway API inference extension", plain(WeightedQueueKV)},
		{LMetricName, "LMETRIC: new prefill tokens times batch size", plain(LMetric)},
		{PrequalName, "Prequal: of the workers that are not hot the one with the shortest wait", plain(Prequal)},
		{FewestUnstartedName, "fewest own requests without a first token", plain(FewestUnstarted)},
	}
}

// plain is for a rule that is the same on every gateway.
func plain(build func() selector.Policy) fleetsim.Policy {
	return func(fleetsim.Gateway) selector.Policy { return build() }
}
