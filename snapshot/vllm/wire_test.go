package vllm

import (
	"fmt"
	"math"
	"strings"

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
		if v >= 0 {
			return msgp.AppendUint64(b, uint64(v)) // the forms of the engine's encoder
		}
		return msgp.AppendInt64(b, int64(v))
	case uint64:
		return msgp.AppendUint64(b, v)
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

// message is an array of as many elements as are given.
func message(elements ...any) []byte { return wire(elements) }

// list is an array in a message.
func list(elements ...any) []any { return elements }

// batch is a message with outputs and nothing else.
func batch(outputs ...any) []byte { return message(1, outputs) }

// out is an output of today's layout, as long as today's engine writes it.
func out(id string, finish any, tokens ...any) []any {
	o := make([]any, 20)
	o[0], o[1], o[5], o[13] = id, list(tokens...), finish, 0
	return o
}

// oldOut is an output from before there were pooling outputs.
func oldOut(id string, finish, stop any) []any {
	return list(id, list(7), nil, nil, finish, stop, nil, nil, 0)
}

// stats is a map of statistics with these counts and nothing else.
func stats(running, waiting any) []pair {
	return []pair{{"num_running_reqs", running}, {"num_waiting_reqs", waiting}}
}

// nested is nil inside n arrays.
func nested(n int) raw { return raw(strings.Repeat("\x91", n) + "\xc0") }

var (
	nan = math.NaN()
	inf = math.Inf(1)
)

// step is what an engine sends after a step of n requests, of which every tenth
// ends, with all that today's scheduler says of itself.
func step(n int) []byte {
	outputs, finished := list(), list()
	for i := range n {
		id := fmt.Sprintf("chatcmpl-%032x-%08x", uint64(i)*0x9e3779b97f4a7c15, i)
		o := out(id, nil, 151_000+i%1000)
		if i%10 == 9 {
			o[5] = i / 10 % 3
			finished = append(finished, id)
		}
		outputs = append(outputs, o)
	}
	cache := []pair{{"reset", false}, {"requests", 3}, {"queries", 4096}, {"hits", 1024}, {"preempted_requests", 0}, {"preempted_queries", 0}, {"preempted_hits", 0}}
	return message(3, outputs, []pair{
		{"num_running_reqs", n}, {"num_waiting_reqs", 17}, {"num_skipped_waiting_reqs", 2},
		{"num_kv_fetch_reqs_by_stage", []pair{{"waiting_to_start", 0}, {"in_progress", 1}, {"completed_waiting", 0}}},
		{"step_counter", 0}, {"current_wave", 0}, {"kv_cache_usage", 0.8125}, {"iteration_details", nil},
		{"prefix_cache_stats", cache}, {"connector_prefix_cache_stats", nil}, {"kv_cache_eviction_events", list()},
		{"spec_decoding_stats", nil}, {"kv_connector_stats", nil}, {"ec_connector_stats", nil},
		{"waiting_lora_adapters", []pair{}}, {"running_lora_adapters", []pair{}}, {"cudagraph_stats", nil}, {"perf_stats", nil},
	}, 123456.789, nil, finished, nil, nil, nil)
}
