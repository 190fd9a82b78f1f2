package load

import "math"

// RankScore says how loaded a data-parallel rank is: the lower, the sooner it
// gets to a new request. own is what this gateway has in flight there, r the
// rank's newest report; nil or stale (the caller judges) means that nothing is
// known but own.
//
// It is max(own, waiting+running), in requests, and, where some wait, up to three
// times as many as wait: nothing up to half of the KV cache in use, all of it at
// a full one. A queue on a rank that has no cache left drains slowly. This is
// the score by which vLLM's own data-parallel client balances its engines; what
// is unknown of the cache, NaN included, adds nothing.
func RankScore(own int64, r *Report) float64 {
	if r == nil {
		return float64(own)
	}
	score := float64(max(own, r.depth()))
	// As a condition to go on, which NaN does not meet; math.Max would pass it on.
	if kv := r.KVUsage.Or(math.NaN()); kv > 0.5 && r.Waiting > 0 {
		score += 6 * float64(r.Waiting) * (kv - 0.5)
	}
	return score
}
