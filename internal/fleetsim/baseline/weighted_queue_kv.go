package baseline

import "github.com/plimsoll-go/plimsoll/selector"

// WeightedQueueKVName is the name of the policy WeightedQueueKV.
const WeightedQueueKVName = "weighted_queue_kv"

// WeightedQueueKV returns the default rule of the endpoint picker of the Kubernetes
// Gateway API inference extension, and of llm-d: the highest weighted sum of scores
// between 0 and 1,
//
//	2·queue + 2·(1 − kv) + 3·prefix
//
// where queue is 1 for the shortest queue of waiting requests there is, 0 for the
// longest and in proportion between them, kv is the share of the KV cache in use,
// and prefix is the share of the prompt that is cached. Any of equals.
//
// A worker without a fresh report has an empty queue and an empty cache, as one has
// there whose metrics were never scraped.
func WeightedQueueKV() selector.Policy { return weightedQueueKV{} }

const (
	queueWeight  = 2
	kvWeight     = 2
	prefixWeight = 3
)

type weightedQueueKV struct{}

func (weightedQueueKV) Name() string { return WeightedQueueKVName }

func (weightedQueueKV) Choose(d *selector.Decision) selector.Choice {
	shortest, longest := int64(-1), int64(0)
	for i := range d.Len() {
		t, _ := reported(d.Entry(i))
		if shortest < 0 || t.waiting < shortest {
			shortest = t.waiting
		}
		longest = max(longest, t.waiting)
	}
	prompt := d.Request.PromptTokens.Or(0)
	i, score := least(d, func(i int) float64 {
		e := d.Entry(i)
		t, _ := reported(e)
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
	return chosen(d, i, score, selector.LeastLoaded)
}
