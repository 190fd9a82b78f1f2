//go:build conformance

package conformance

import (
	"encoding/json"
	"math"
	"math/bits"
	"math/rand/v2"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/snapshot"
)

// value is what one rank is told to publish: the fields of the engine's
// LoadSnapshot under its own names. A nil field is not given, so that the engine
// takes its default.
type value struct {
	Timestamp                  *float64  `json:"timestamp,omitempty"`
	DPRank                     *int64    `json:"dp_rank,omitempty"`
	NumRunningReqs             *int64    `json:"num_running_reqs,omitempty"`
	NumWaitingReqs             *int64    `json:"num_waiting_reqs,omitempty"`
	NumWaitingUncachedTokens   *int64    `json:"num_waiting_uncached_tokens,omitempty"`
	NumUsedTokens              *int64    `json:"num_used_tokens,omitempty"`
	NumTotalTokens             *int64    `json:"num_total_tokens,omitempty"`
	NumActiveTokens            *int64    `json:"num_active_tokens,omitempty"`
	NumPreallocReadyTokens     *int64    `json:"num_prealloc_ready_tokens,omitempty"`
	MaxTotalNumTokens          *int64    `json:"max_total_num_tokens,omitempty"`
	MaxRunningRequests         *int64    `json:"max_running_requests,omitempty"`
	TokenUsage                 *float64  `json:"token_usage,omitempty"`
	GenThroughput              *float64  `json:"gen_throughput,omitempty"`
	CacheHitRate               *float64  `json:"cache_hit_rate,omitempty"`
	Utilization                *float64  `json:"utilization,omitempty"`
	TotalPrefillUncachedTokens *int64    `json:"total_prefill_uncached_tokens,omitempty"`
	TotalPrefillBusyUS         *int64    `json:"total_prefill_busy_us,omitempty"`
	DecodeMoments              []float64 `json:"decode_moments,omitempty"`

	Memory         []any `json:"memory,omitempty"`
	Speculative    []any `json:"speculative,omitempty"`
	LoRA           []any `json:"lora,omitempty"`
	Disaggregation []any `json:"disaggregation,omitempty"`
	Queues         []any `json:"queues,omitempty"`
}

func (v value) String() string {
	b, _ := json.Marshal(v)
	return string(b)
}

func or0[T int64 | float64](p *T) T {
	if p == nil {
		return 0
	}
	return *p
}

// sentCount is a count as the LoadSnapshot wire knows it: the engine leaves out
// a 0, and the report then says that it is unknown.
func sentCount(p *int64) load.Maybe[int64] {
	if or0(p) == 0 {
		return load.Maybe[int64]{}
	}
	return load.Known(*p)
}

func sentFloat(p *float64) load.Maybe[float64] {
	if p == nil {
		return load.Maybe[float64]{}
	}
	return load.Known(*p)
}

// report returns what the table must say once the value has come through,
// without the time and the sequence number.
func (v value) report(wire snapshot.Kind) load.Report {
	r := load.Report{
		Running:    or0(v.NumRunningReqs),
		Waiting:    or0(v.NumWaitingReqs),
		KVUsed:     load.Known(or0(v.NumUsedTokens)),
		MaxRunning: sentCount(v.MaxRunningRequests),
		Source:     load.SourcePush,
	}
	if wire == snapshot.KindLoadStat {
		r.WaitingTokens = load.Known(or0(v.NumWaitingUncachedTokens))
		r.KVCapacity = load.Known(or0(v.MaxTotalNumTokens))
		r.PrefillTokens = load.Known(or0(v.TotalPrefillUncachedTokens))
		r.PrefillBusyUS = load.Known(or0(v.TotalPrefillBusyUS))
	} else {
		r.WaitingTokens = load.Known(or0(v.NumWaitingUncachedTokens))
		decode := len(v.Disaggregation) > 0 && v.Disaggregation[0] == "decode"
		if r.Waiting > 0 && or0(v.NumWaitingUncachedTokens) == 0 && !decode {
			r.WaitingTokens = load.Maybe[int64]{}
		}
		r.KVCapacity = sentCount(v.MaxTotalNumTokens)
		r.PrefillTokens = sentCount(v.TotalPrefillUncachedTokens)
		r.PrefillBusyUS = sentCount(v.TotalPrefillBusyUS)
		r.KVUsage = sentFloat(v.TokenUsage)
		r.EngineTime = sentFloat(v.Timestamp)
	}
	if wire == snapshot.KindLoadStat || v.TokenUsage == nil {
		if capacity := or0(v.MaxTotalNumTokens); capacity > 0 {
			r.KVUsage = load.Known(float64(or0(v.NumUsedTokens)) / float64(capacity))
		}
	}
	return r
}

// same reports whether a reading holds the value and nothing else.
func (v value) same(r *snapshot.Reading, rank int) bool {
	switch r.Kind {
	case snapshot.KindLoadStat:
		s := &r.Stat
		return s.Refused == 0 && s.Nil == 0 && s.Present == snapshot.StatForm(11) &&
			s.NumRunningReqs == or0(v.NumRunningReqs) &&
			s.NumWaitingReqs == or0(v.NumWaitingReqs) &&
			s.NumTokens == or0(v.NumUsedTokens) &&
			s.MaxTotalNumTokens == or0(v.MaxTotalNumTokens) &&
			s.AttnDPRank == int64(rank) && // the publisher's own, whatever it was told
			s.NumWaitingUncachedTokens == or0(v.NumWaitingUncachedTokens) &&
			s.NumTotalTokens == or0(v.NumTotalTokens) &&
			s.MaxRunningRequests == or0(v.MaxRunningRequests) &&
			s.TotalPrefillUncachedTokens == or0(v.TotalPrefillUncachedTokens) &&
			s.TotalPrefillBusyUS == or0(v.TotalPrefillBusyUS)
	case snapshot.KindLoadSnapshot:
		s := &r.Snapshot
		// A section has a value for every element, also where the engine was
		// not given one: the lists here leave none out.
		m, sp, lo, d, q := &s.Memory, &s.Speculative, &s.LoRA, &s.Disaggregation, &s.Queues
		return s.Refused == 0 && s.Nil == 0 &&
			s.Timestamp == or0(v.Timestamp) &&
			s.DPRank == or0(v.DPRank) &&
			s.NumRunningReqs == or0(v.NumRunningReqs) &&
			s.NumWaitingReqs == or0(v.NumWaitingReqs) &&
			s.NumWaitingUncachedTokens == or0(v.NumWaitingUncachedTokens) &&
			s.NumUsedTokens == or0(v.NumUsedTokens) &&
			s.NumTotalTokens == or0(v.NumTotalTokens) &&
			s.NumActiveTokens == or0(v.NumActiveTokens) &&
			s.NumPreallocReadyTokens == or0(v.NumPreallocReadyTokens) &&
			s.MaxTotalNumTokens == or0(v.MaxTotalNumTokens) &&
			s.MaxRunningRequests == or0(v.MaxRunningRequests) &&
			s.TokenUsage == or0(v.TokenUsage) &&
			s.GenThroughput == or0(v.GenThroughput) &&
			s.CacheHitRate == or0(v.CacheHitRate) &&
			s.Utilization == or0(v.Utilization) &&
			s.TotalPrefillUncachedTokens == or0(v.TotalPrefillUncachedTokens) &&
			s.TotalPrefillBusyUS == or0(v.TotalPrefillBusyUS) &&
			sameList(v.DecodeMoments, s.DecodeMoments) &&
			sameSection(v.Memory, m.Len, m.WeightGB, m.KVCacheGB, m.GraphGB, m.TokenCapacity) &&
			sameSection(v.Speculative, sp.Len, sp.AcceptLength, sp.AcceptRate) &&
			sameSection(v.LoRA, lo.Len, lo.SlotsUsed, lo.SlotsTotal, lo.Utilization) &&
			sameSection(v.Disaggregation, d.Len, d.Mode, d.PrefillBootstrapQueueReqs, d.PrefillInflightQueueReqs,
				d.DecodePreallocQueueReqs, d.DecodeTransferQueueReqs, d.DecodeRetractedQueueReqs, d.KVTransferSpeedGBs, d.KVTransferLatencyMS) &&
			sameSection(v.Queues, q.Len, q.Waiting, q.Grammar, q.Paused, q.Retracted, q.PreallocReady)
	}
	return false
}

func sameList(want, got []float64) bool {
	return len(want) == len(got) && all(len(want), func(i int) bool { return want[i] == got[i] })
}

func sameSection(want []any, n int, got ...any) bool {
	return len(want) == n && (n == 0 || len(got) == n && all(n, func(i int) bool { return want[i] == got[i] }))
}

// edges are counts at which the width of the encoding changes, and the ones that
// a float64 cannot hold any more.
var edges = []int64{0, 1, 127, 128, 255, 256, 1<<15 - 1, 1 << 15, 1<<16 - 1, 1 << 16, 1<<31 - 1, 1 << 31,
	1<<32 - 1, 1 << 32, 1<<53 - 1, 1 << 53, 1<<53 + 1, math.MaxInt64 - 1, math.MaxInt64}

// values returns the values that one rank publishes, one after the other, each
// different from the one before.
func values(r *rand.Rand, n int) []value {
	moment := 1764439200.125
	out := []value{
		{NumRunningReqs: new(int64(1))},
		{}, // an idle rank that has nothing to say, and says it
		{Timestamp: &moment},
	}
	for _, edge := range edges {
		out = append(out, value{NumRunningReqs: &edge, NumWaitingReqs: &edge, MaxTotalNumTokens: new(int64(math.MaxInt64)), NumUsedTokens: &edge,
			NumWaitingUncachedTokens: &edge, MaxRunningRequests: &edge, TotalPrefillUncachedTokens: &edge, TotalPrefillBusyUS: &edge})
	}
	for len(out) < n {
		out = append(out, random(r))
	}
	return out
}

// random returns a value with any of the fields, of any size.
func random(r *rand.Rand) value {
	count := func() int64 { return int64(r.Uint64() >> (1 + r.IntN(63))) }
	ratio := func() float64 { return 1 - r.Float64() } // never 0, which the engine might leave out
	float := func() float64 { return math.Ldexp(ratio(), r.IntN(200)-100) }
	maybe := func(p *int64) *int64 {
		if r.IntN(8) == 0 {
			return nil
		}
		return p
	}
	maybeFloat := func(p *float64) *float64 {
		if r.IntN(4) == 0 {
			return nil
		}
		return p
	}
	capacity := count()
	used := capacity // at most so many, or the table would rightly refuse it
	if capacity > 0 {
		used = min(capacity, int64(r.Uint64()>>max(1, bits.LeadingZeros64(uint64(capacity)))))
	}
	v := value{
		Timestamp:                  maybeFloat(new(float())),
		DPRank:                     maybe(new(count())), // nonsense: nobody may believe it
		NumRunningReqs:             maybe(new(count())),
		NumWaitingReqs:             maybe(new(count())),
		NumWaitingUncachedTokens:   maybe(new(count())),
		NumUsedTokens:              maybe(&used),
		NumTotalTokens:             maybe(new(count())),
		NumActiveTokens:            maybe(new(count())),
		NumPreallocReadyTokens:     maybe(new(count())),
		MaxTotalNumTokens:          &capacity,
		MaxRunningRequests:         maybe(new(count())),
		TokenUsage:                 maybeFloat(new(ratio())),
		GenThroughput:              maybeFloat(new(float())),
		CacheHitRate:               maybeFloat(new(ratio())),
		Utilization:                maybeFloat(new(ratio())),
		TotalPrefillUncachedTokens: maybe(new(count())),
		TotalPrefillBusyUS:         maybe(new(count())),
	}
	for range r.IntN(7) {
		v.DecodeMoments = append(v.DecodeMoments, float())
	}
	if r.IntN(2) == 0 {
		v.Memory = []any{float(), float(), float(), count()}
	}
	if r.IntN(2) == 0 {
		v.Speculative = []any{float(), ratio()}
	}
	if r.IntN(2) == 0 {
		v.LoRA = []any{count(), count(), ratio()}
	}
	if r.IntN(2) == 0 {
		mode := [...]string{"null", "prefill", "decode"}[r.IntN(3)]
		v.Disaggregation = []any{mode, count(), count(), count(), count(), count(), float(), float()}
	}
	if r.IntN(2) == 0 {
		v.Queues = []any{count(), count(), count(), count(), count()}
	}
	return v
}
