package baseline

import (
	"math"

	"github.com/plimsoll-go/plimsoll/selector"
)

// WeightedQueueKVName is the name of the policy WeightedQueueKV.
const WeightedQueueKVName = "weighted_queue_kv"

// WeightedQueueKV returns the default rule of the endpoint picker of the Kubernetes
// Gateway API inference extension (kubernetes-sigs/gateway-api-inference-extension:
// queue-scorer, kv-cache-utilization-scorer and prefix-cache-scorer with the weights
// of its Helm chart, then max-score-picker). The highest sum is chosen, of
//
//	2·queue + 2·(1 − kv) + 3·prefix
//
// where queue is 1 for the shortest queue of waiting requests, 0 for the longest and
// in proportion between them, or 1 if all are equal; kv is the share of the KV cache
// in use, and prefix the share of the prompt that is cached.
//
// Reports are believed however old they are, and a worker without any has an empty
// queue and an empty cache, as there. What is cached is what the request says, and
// not a memory of this rule's own. A worker's ranks are taken together, where there
// each would be an endpoint.
func WeightedQueueKV() selector.Policy { return weightedQueueKV{} }

const (
	queueWeight  = 2
	kvWeight     = 2
	prefixWeight = 3
)

type weightedQueueKV struct{}

func (weightedQueueKV) Name() string { return WeightedQueueKVName }

func (weightedQueueKV) Choose(d *selector.Decision) selector.Choice {
	shortest, longest := int64(math.MaxInt64), int64(0)
	for i := range d.Len() {
		t := lastReported(d.Entry(i))
		shortest, longest = min(shortest, t.waiting), max(longest, t.waiting)
	}
	prompt := d.Request.PromptTokens.Or(0)
	g := all(d)
	i := g.least(d, func(i int) float64 {
		e := d.Entry(i)
		t := lastReported(e)
		queue := 1.0
		if longest > shortest {
			queue = float64(longest-t.waiting) / float64(longest-shortest)
		}
		score := queueWeight*queue + kvWeight*(1-t.kv)
		if prompt > 0 {
			score += prefixWeight * float64(cached(d, e.Worker())) / float64(prompt)
		}
		return -score
	})
	return g.choice(d, i)
}
