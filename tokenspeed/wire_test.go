package tokenspeed

import (
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/plimsoll-go/plimsoll/internal/msgpack"
	"github.com/tinylib/msgp/msgp"
)

// Messages for tests, spelled value by value: what an encoder would never write
// has to be written by hand.

// raw is msgpack that goes onto the wire as it stands.
type raw string

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
	case map[string]any: // of one pair, as the order is any
		b = msgp.AppendMapHeader(b, uint32(len(v)))
		for key, value := range v {
			b = appendValue(msgp.AppendString(b, key), value)
		}
		return b
	case []any:
		b = msgp.AppendArrayHeader(b, uint32(len(v)))
		for _, e := range v {
			b = appendValue(b, e)
		}
		return b
	}
	panic("no encoding for this type")
}

func wire(elements ...any) []byte { return appendValue(nil, elements) }

type list = []any

// two are the elements of a batch of two requests, of which b has ended.
func two() list {
	return list{
		tag,
		list{"a", "b"},
		list{list{10}, list{20, 21}},
		list{"", "length"},
		list{3, 4},
		list{1, 2},
		list{0, 2},
		list{list{}, list{-0.5, -0.25}},
		list{list{}, list{20, 21}},
		1,
		2, 5, 100, 400,
	}
}

// with returns two with another value in one place.
func with(c column, value any) []byte {
	elements := two()
	elements[c] = value
	return wire(elements...)
}

// nested is nil inside n arrays.
func nested(n int) raw { return raw(strings.Repeat("\x91", n) + "\xc0") }

var (
	nan = math.NaN()
	inf = math.Inf(1)
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// step returns what a rank sends after one step of decoding: a new token for each
// of 256 requests, every 32nd of which it ends.
func step(logprobs bool) *Batch {
	const requests = 256
	b := &Batch{Summary: Summary{
		EngineIndex: 3,
		Load:        Load{Known: true, Running: requests, Waiting: 17, KVActivePages: 9_000, KVTotalPages: 16_384},
	}}
	for i := range requests {
		r := Request{
			ID:               fmt.Appendf(nil, "%032x", uint64(i+1)*0x9e3779b97f4a7c15),
			OutputIDs:        []int64{int64(i * 7919 % 150_000)},
			PromptTokens:     int64(100 + 37*i),
			CompletionTokens: int64(1 + 5*i),
			CachedTokens:     int64(64 * (i % 20)),
		}
		if logprobs {
			r.Logprobs, r.LogprobIDs = []float64{-1 / float64(1+i)}, r.OutputIDs
		}
		if i%32 == 31 {
			r.FinishReason = FinishStop
		}
		b.Add(r)
	}
	return b
}

func finished(s *Summary) string {
	var b strings.Builder
	for i, id := range s.Finished {
		fmt.Fprintf(&b, "%s:%v ", id, s.Reasons[i])
	}
	return strings.TrimSuffix(b.String(), " ")
}
