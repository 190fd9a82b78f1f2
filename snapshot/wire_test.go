package snapshot

import (
	"math"
	"strings"

	"github.com/plimsoll-go/plimsoll/internal/msgpack"
	"github.com/tinylib/msgp/msgp"
)

// Messages for tests, spelled value by value: what an encoder would never write
// has to be written by hand.

// raw is msgpack that goes onto the wire as it stands.
type raw string

// pair is one entry of a map. Order and repetition matter here, so a Go map
// will not do.
type pair struct{ key, value any }

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return msgp.AppendNil(b)
	case raw:
		return append(b, v...)
	case bool:
		return msgp.AppendBool(b, v)
	case int:
		return msgpack.AppendCount(b, int64(v)) // the forms of the engine's encoder
	case uint64:
		return msgp.AppendUint64(b, v)
	case float32:
		return msgp.AppendFloat32(b, v)
	case float64:
		return msgp.AppendFloat64(b, v)
	case string:
		return msgp.AppendString(b, v)
	case []byte:
		return msgp.AppendBytes(b, v)
	case []any:
		b = msgp.AppendArrayHeader(b, uint32(len(v)))
		for _, e := range v {
			b = appendValue(b, e)
		}
		return b
	case []pair:
		b = msgp.AppendMapHeader(b, uint32(len(v)))
		for _, e := range v {
			b = appendValue(appendValue(b, e.key), e.value)
		}
		return b
	}
	panic("no encoding for this type")
}

func wire(v any) []byte { return appendValue(nil, v) }

func stat(elements ...any) []byte { return wire(append([]any{statTag}, elements...)) }

// nested is nil inside n arrays.
func nested(n int) raw { return raw(strings.Repeat("\x91", n) + "\xc0") }

var (
	nan = math.NaN()
	inf = math.Inf(1)
)

// fullSnapshot has something other than 0 in every field.
func fullSnapshot() *LoadSnapshot {
	return &LoadSnapshot{
		Timestamp:                  1764439200.125,
		DPRank:                     3,
		NumRunningReqs:             17,
		NumWaitingReqs:             5,
		NumWaitingUncachedTokens:   40960,
		NumUsedTokens:              131072,
		NumTotalTokens:             172032,
		NumActiveTokens:            170001,
		NumPreallocReadyTokens:     2048,
		MaxTotalNumTokens:          524288,
		MaxRunningRequests:         200,
		TokenUsage:                 0.25,
		GenThroughput:              1234.56,
		CacheHitRate:               0.8125,
		Utilization:                0.7512,
		TotalPrefillUncachedTokens: 123456789,
		TotalPrefillBusyUS:         9876543210,
		DecodeMoments:              []float64{4, 0.5, 16.25, 0.125, 2, 1e-9},
		Memory:                     MemorySection{MemoryElements, 14.899, 40.25, 1.125, 524288},
		Speculative:                SpeculativeSection{SpeculativeElements, 2.75, 0.875},
		LoRA:                       LoRASection{LoRAElements, 2, 8, 0.25},
		Disaggregation:             DisaggregationSection{DisaggregationElements, "decode", 1, 2, 3, 4, 5, 1.5, 12.25},
		Queues:                     QueuesSection{QueuesElements, 5, 1, 2, 3, 4},
	}
}

// fullStat has something other than 0 in every field up to that many elements.
func fullStat(elements int) []byte {
	return stat([]any{17, 5, 131072, 524288, 3, 40960, 172032, 200, 123456789, uint64(9876543210)}[:elements-1]...)
}
