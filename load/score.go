package load

import "math"

// RankScore says how loaded a data-parallel rank is: the lower, the sooner it
// gets to a new request. own is what this gateway has in flight there, since how
// many of those it has sent since the rank's newest report r; a nil report means
// that nothing is known but own.
//
// It is max(own, running + waiting + since), in requests, and, where some wait, up to
// three times as many as wait: nothing up to half of the KV cache in use, all of it
// at a full one. A queue on a rank that has no cache left drains slowly. What is
// unknown of the cache, NaN included, adds nothing.
//
// This is how the data-parallel client of vLLM 0.33.0 balances its engines where it
// is the only client. It counts what it has sent since a report as waiting; here
// that adds to the depth alone. Either way a burst between two reports spreads, also
// over ranks that others have filled.
func RankScore(own, since int64, r *Report) float64 {
	if r == nil {
		return float64(own)
	}
	score := float64(max(own, addSat(r.depth(), max(min(since, own), 0))))
	// As a condition to go on, which NaN does not meet; math.Max would pass it on.
	if kv := r.KVUsage.Or(math.NaN()); kv > 0.5 && r.Waiting > 0 {
		score += 6 * float64(r.Waiting) * (kv - 0.5)
	}
	return score
}
