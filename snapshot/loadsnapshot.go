package snapshot

// MaxDecodeMoments bounds LoadSnapshot.DecodeMoments. Engines send six; an array
// longer than this is refused rather than kept, so that no engine can make the
// reading of every rank grow.
const MaxDecodeMoments = 16

// LoadSnapshot is the map-shaped load message of SGLang's scheduler
// (sglang.srt.managers.load_snapshot.LoadSnapshot), one per data-parallel rank.
//
// Its publisher leaves out a field that holds its default, so an absent key
// reads as 0 and is not in Present: "{}" is the reading of an idle rank, not a
// broken one. A field in Nil or Refused reads as 0 too, but its value is
// unknown, which is not 0.
//
// Values are never negative, NaN or infinite after a successful Decode.
type LoadSnapshot struct {
	// Present holds the fields whose key was there with a usable value, Nil
	// those whose value was nil, Refused the advisory ones (floats, dp_rank,
	// decode_moments, sections) whose value was NaN, infinite, negative, out of
	// range or of another type. The three are disjoint.
	Present, Nil, Refused Fields

	Timestamp float64 // the engine's wall clock, seconds; never to be compared with ours
	DPRank    int64   // the rank that wrote it; informational, the socket's rank is the truth

	NumRunningReqs           int64 // requests in the running batch
	NumWaitingReqs           int64 // requests queued
	NumWaitingUncachedTokens int64 // queued prompt tokens still to be computed; structurally 0 on a decode-role engine
	NumUsedTokens            int64 // KV tokens in use
	NumTotalTokens           int64 // KV tokens in use plus those of queued requests
	NumActiveTokens          int64 // NumTotalTokens minus those still awaiting a KV transfer
	NumPreallocReadyTokens   int64 // tokens of preallocated requests that are ready to run (disaggregated decode)
	MaxTotalNumTokens        int64 // KV capacity in tokens; 0 = unknown or still booting
	MaxRunningRequests       int64 // concurrency cap; 0 = unknown

	TokenUsage    float64 // KV tokens in use over capacity, a ratio
	GenThroughput float64 // generated tokens per second
	CacheHitRate  float64 // ratio
	Utilization   float64 // ratio

	TotalPrefillUncachedTokens int64 // cumulative since the engine started
	TotalPrefillBusyUS         int64 // cumulative, microseconds

	DecodeMoments []float64 // sums over decode steps, as the engine accumulates them; at most MaxDecodeMoments

	Memory         MemorySection
	Speculative    SpeculativeSection
	LoRA           LoRASection
	Disaggregation DisaggregationSection
	Queues         QueuesSection
}

// How many elements of each section this package knows. An engine may send
// more (they are skipped) or, when it is older, fewer: Len says how many of
// the section's fields, in their order here, came from the wire.
const (
	MemoryElements         = 4
	SpeculativeElements    = 2
	LoRAElements           = 3
	DisaggregationElements = 8
	QueuesElements         = 5
)

// MemorySection is the memory breakdown of a rank.
type MemorySection struct {
	Len           int
	WeightGB      float64
	KVCacheGB     float64
	GraphGB       float64
	TokenCapacity int64
}

// SpeculativeSection tells how well speculative decoding guesses.
type SpeculativeSection struct {
	Len          int
	AcceptLength float64 // tokens accepted per step
	AcceptRate   float64 // ratio
}

// LoRASection describes the adapter pool.
type LoRASection struct {
	Len         int
	SlotsUsed   int64
	SlotsTotal  int64
	Utilization float64 // ratio
}

// DisaggregationSection describes the queues between prefill and decode
// engines.
type DisaggregationSection struct {
	Len                       int
	Mode                      string // "null", "prefill" or "decode"
	PrefillBootstrapQueueReqs int64
	PrefillInflightQueueReqs  int64
	DecodePreallocQueueReqs   int64
	DecodeTransferQueueReqs   int64
	DecodeRetractedQueueReqs  int64
	KVTransferSpeedGBs        float64
	KVTransferLatencyMS       float64
}

// QueuesSection breaks the queued requests down. PreallocReady is missing from
// older engines.
type QueuesSection struct {
	Len           int
	Waiting       int64
	Grammar       int64
	Paused        int64
	Retracted     int64
	PreallocReady int64
}

// Reset empties s but keeps the capacity of DecodeMoments.
func (s *LoadSnapshot) Reset() {
	*s = LoadSnapshot{DecodeMoments: s.DecodeMoments[:0]}
}
