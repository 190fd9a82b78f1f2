package snapshot

import (
	"iter"
	"math/bits"
	"strings"
)

// Field names one value an engine publishes. The names are the wire keys of
// LoadSnapshot, in the order in which its publisher writes them; the positions
// of LoadStat carry the same values and use the same names.
type Field uint8

// The fields, in wire order.
const (
	FieldTimestamp Field = iota
	FieldDPRank
	FieldNumRunningReqs
	FieldNumWaitingReqs
	FieldNumWaitingUncachedTokens
	FieldNumUsedTokens
	FieldNumTotalTokens
	FieldNumActiveTokens
	FieldNumPreallocReadyTokens
	FieldMaxTotalNumTokens
	FieldMaxRunningRequests
	FieldTokenUsage
	FieldGenThroughput
	FieldCacheHitRate
	FieldUtilization
	FieldTotalPrefillUncachedTokens
	FieldTotalPrefillBusyUS
	FieldDecodeMoments
	FieldMemory
	FieldSpeculative
	FieldLoRA
	FieldDisaggregation
	FieldQueues

	numFields
)

var fieldKeys = [numFields]string{
	FieldTimestamp:                  "timestamp",
	FieldDPRank:                     "dp_rank",
	FieldNumRunningReqs:             "num_running_reqs",
	FieldNumWaitingReqs:             "num_waiting_reqs",
	FieldNumWaitingUncachedTokens:   "num_waiting_uncached_tokens",
	FieldNumUsedTokens:              "num_used_tokens",
	FieldNumTotalTokens:             "num_total_tokens",
	FieldNumActiveTokens:            "num_active_tokens",
	FieldNumPreallocReadyTokens:     "num_prealloc_ready_tokens",
	FieldMaxTotalNumTokens:          "max_total_num_tokens",
	FieldMaxRunningRequests:         "max_running_requests",
	FieldTokenUsage:                 "token_usage",
	FieldGenThroughput:              "gen_throughput",
	FieldCacheHitRate:               "cache_hit_rate",
	FieldUtilization:                "utilization",
	FieldTotalPrefillUncachedTokens: "total_prefill_uncached_tokens",
	FieldTotalPrefillBusyUS:         "total_prefill_busy_us",
	FieldDecodeMoments:              "decode_moments",
	FieldMemory:                     "memory",
	FieldSpeculative:                "speculative",
	FieldLoRA:                       "lora",
	FieldDisaggregation:             "disaggregation",
	FieldQueues:                     "queues",
}

// String returns the wire key, such as "num_running_reqs".
func (f Field) String() string {
	if f >= numFields {
		return "unknown"
	}
	return fieldKeys[f]
}

// Fields is a set of fields. The zero value is the empty set.
type Fields uint64

// FieldsOf returns the set of the given fields.
func FieldsOf(fields ...Field) Fields {
	var s Fields
	for _, f := range fields {
		s |= f.bit()
	}
	return s
}

// allFields is the set of every field there is.
const allFields Fields = 1<<numFields - 1

func (f Field) bit() Fields { return 1 << (f & 63) }

// Has reports whether f is in the set.
func (s Fields) Has(f Field) bool { return s&f.bit() != 0 }

// Count returns how many fields are in the set.
func (s Fields) Count() int { return bits.OnesCount64(uint64(s)) }

// All yields the fields of the set in wire order.
func (s Fields) All() iter.Seq[Field] {
	return func(yield func(Field) bool) {
		for rest := s; rest != 0; rest &= rest - 1 {
			if !yield(Field(bits.TrailingZeros64(uint64(rest)))) {
				return
			}
		}
	}
}

// String returns the wire keys in wire order, separated by commas.
func (s Fields) String() string {
	var b strings.Builder
	for f := range s.All() {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(f.String())
	}
	return b.String()
}
