package simengine

import (
	"math"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// weightGB and kvGBPerToken describe the memory of an 8B model in 16 bits.
const (
	weightGB     = 15.0
	kvGBPerToken = 128.0 / (1 << 20)
)

// load is what both the load socket and /v1/loads say about the rank.
func (r *rank) load(now time.Time) snapshot.LoadSnapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	config, l, totals := r.core.Config(), r.core.Load(), r.core.Totals()
	usage := float64(l.KVUsed) / float64(config.KVTokens)
	return snapshot.LoadSnapshot{
		Timestamp:                  float64(now.UnixMicro()) / 1e6,
		DPRank:                     int64(r.index),
		NumRunningReqs:             l.Running,
		NumWaitingReqs:             l.Waiting,
		NumWaitingUncachedTokens:   l.WaitingTokens,
		NumUsedTokens:              l.KVUsed,
		NumTotalTokens:             l.KVUsed + l.KVQueued,
		NumActiveTokens:            l.KVUsed + l.KVQueued,
		MaxTotalNumTokens:          config.KVTokens,
		MaxRunningRequests:         int64(config.MaxRunning),
		TokenUsage:                 rounded(usage, 4),
		GenThroughput:              rounded(r.rate.rate, 2),
		Utilization:                rounded(max(usage, float64(l.Running)/float64(config.MaxRunning)), 4),
		TotalPrefillUncachedTokens: totals.PrefillTokens,
		TotalPrefillBusyUS:         totals.PrefillBusy.Microseconds(),
		Memory: snapshot.MemorySection{
			Len:           snapshot.MemoryElements,
			WeightGB:      weightGB,
			KVCacheGB:     rounded(float64(config.KVTokens)*kvGBPerToken, 3),
			TokenCapacity: config.KVTokens,
		},
		Disaggregation: snapshot.DisaggregationSection{Len: snapshot.DisaggregationElements, Mode: "null"},
		Queues: snapshot.QueuesSection{
			Len:       snapshot.QueuesElements,
			Waiting:   l.Waiting,
			Retracted: totals.Retracted,
		},
	}
}

// statOf picks out of a snapshot what the short message carries, as the engine's
// own publisher does.
func statOf(s *snapshot.LoadSnapshot) snapshot.LoadStat {
	return snapshot.LoadStat{
		Present:                    snapshot.StatForm(statElements),
		NumRunningReqs:             s.NumRunningReqs,
		NumWaitingReqs:             s.NumWaitingReqs,
		NumTokens:                  s.NumUsedTokens,
		MaxTotalNumTokens:          s.MaxTotalNumTokens,
		AttnDPRank:                 s.DPRank,
		NumWaitingUncachedTokens:   s.NumWaitingUncachedTokens,
		NumTotalTokens:             s.NumTotalTokens,
		MaxRunningRequests:         s.MaxRunningRequests,
		TotalPrefillUncachedTokens: s.TotalPrefillUncachedTokens,
		TotalPrefillBusyUS:         s.TotalPrefillBusyUS,
	}
}

// statElements is the length of LoadStat in released engines, tag included.
const statElements = 11

// rounded keeps that many decimals, as the engine does with its ratios.
func rounded(f float64, decimals int) float64 {
	p := math.Pow10(decimals)
	return math.Round(f*p) / p
}
