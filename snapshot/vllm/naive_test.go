package vllm

import (
	"errors"
	"math"
	"slices"

	"github.com/tinylib/msgp/msgp"
)

// A second decoder, which first makes values of the whole payload and then looks
// into them, without a thought for time, memory or who sent it.

// reading is what Outputs has for its users.
type reading struct {
	Kind                    Kind
	EngineIndex             int
	Load                    Load
	Refused                 string // LoadErr: field and cause
	Finished                []string
	Reasons                 []FinishReason
	WaveComplete, StartWave Maybe[int64]
	Outputs                 []readOutput
}

type readOutput struct {
	ID           string
	NewTokens    int
	FinishReason FinishReason
}

func readingOf(o *Outputs) reading {
	r := reading{
		Kind: o.Kind, EngineIndex: o.EngineIndex, Load: o.Load, Reasons: append([]FinishReason(nil), o.Reasons...),
		WaveComplete: o.WaveComplete, StartWave: o.StartWave,
	}
	if d, ok := errors.AsType[*DecodeError](o.LoadErr); ok {
		r.Refused = d.Field + ": " + Reason(d)
	} else if o.LoadErr != nil {
		r.Refused = "not a DecodeError"
	}
	for _, id := range o.Finished {
		r.Finished = append(r.Finished, string(id))
	}
	for i := range o.Len() {
		out := o.At(i)
		r.Outputs = append(r.Outputs, readOutput{string(out.ID), out.NewTokens, out.FinishReason})
	}
	return r
}

// What naive makes of what has no type of its own in Go.
type (
	naiveMap   []pair
	naiveOther struct{} // binary, extensions, booleans
)

var errNaive = errors.New("refused")

// naiveValue reads one value: nil, int64, uint64 above that, float64, string,
// []any, naiveMap or naiveOther.
func naiveValue(b []byte, depth int) (any, []byte, error) {
	if len(b) == 0 || depth > 1000 {
		return nil, b, errNaive
	}
	switch msgp.NextType(b) {
	case msgp.NilType:
		return nil, b[1:], nil
	case msgp.IntType, msgp.UintType:
		if u, rest, err := msgp.ReadUint64Bytes(b); err == nil && u > math.MaxInt64 {
			return u, rest, nil
		}
		i, rest, err := msgp.ReadInt64Bytes(b)
		return i, rest, err
	case msgp.Float32Type, msgp.Float64Type:
		f, rest, err := msgp.ReadFloat64Bytes(b)
		return f, rest, err
	case msgp.StrType:
		if !fits(b) {
			return nil, b, errNaive
		}
		s, rest, err := msgp.ReadStringZC(b)
		return string(s), rest, err
	case msgp.ArrayType:
		n, rest, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil {
			return nil, b, err
		}
		a := []any{}
		for range n {
			var v any
			if v, rest, err = naiveValue(rest, depth+1); err != nil {
				return nil, b, err
			}
			a = append(a, v)
		}
		return a, rest, nil
	case msgp.MapType:
		n, rest, err := msgp.ReadMapHeaderBytes(b)
		if err != nil {
			return nil, b, err
		}
		m := naiveMap{}
		for range n {
			var p pair
			if p.key, rest, err = naiveValue(rest, depth+1); err != nil {
				return nil, b, err
			}
			if p.value, rest, err = naiveValue(rest, depth+1); err != nil {
				return nil, b, err
			}
			m = append(m, p)
		}
		return m, rest, nil
	default:
		if !fits(b) {
			return nil, b, errNaive
		}
		rest, err := msgp.Skip(b)
		return naiveOther{}, rest, err
	}
}

// fits reports whether b is long enough for the length of 32 bits that it may
// announce, which msgp gets wrong where an int has no more.
func fits(b []byte) bool {
	switch b[0] {
	case 0xc6, 0xc9, 0xdb:
		return len(b) >= 5 && uint64(b[1])<<24|uint64(b[2])<<16|uint64(b[3])<<8|uint64(b[4]) <= uint64(len(b))
	}
	return true
}

// tooDeep reports whether a value that is skipped has more than 32 containers
// inside each other, of those that have anything in them.
func tooDeep(v any) bool { return depthOf(v) > 32 }

func depthOf(v any) int {
	depth := 0
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			depth = max(depth, 1+depthOf(e))
		}
	case naiveMap:
		for _, p := range v {
			depth = max(depth, 1+depthOf(p.key), 1+depthOf(p.value))
		}
	}
	return depth
}

// naiveCount returns the count that v is, or why it is none.
func naiveCount(v any) (int64, string) {
	switch v := v.(type) {
	case int64:
		if v < 0 {
			return 0, "negative"
		}
		return v, ""
	case uint64:
		return 0, "out_of_range"
	case float64:
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0):
			return 0, "not_finite"
		case v < 0:
			return 0, "negative"
		case v >= 1<<63:
			return 0, "out_of_range"
		case v != math.Floor(v):
			return 0, "not_integer"
		}
		return int64(v), ""
	}
	return 0, "type"
}

func naiveDecode(payload []byte) (r reading, err error) {
	v, rest, err := naiveValue(payload, 0)
	if err != nil {
		return r, err
	}
	elements, ok := v.([]any)
	if !ok || len(rest) > 0 {
		return r, errNaive
	}
	at := func(i int) any {
		if i < len(elements) {
			return elements[i]
		}
		return nil
	}
	if len(elements) > 0 {
		n, why := naiveCount(elements[0])
		if why != "" || n > MaxEngineIndex {
			return r, errNaive
		}
		r.EngineIndex = int(n)
	}
	for i, v := range elements {
		if (i == 3 || i == 4 || i >= 6) && tooDeep(v) {
			return r, errNaive
		}
	}
	if err := r.naiveOutputs(at(1)); err != nil {
		return r, err
	}
	if err := r.naiveStats(at(2)); err != nil {
		return r, err
	}
	if finished := at(5); finished != nil {
		ids, ok := finished.([]any)
		if !ok {
			return r, errNaive
		}
		for _, v := range ids {
			id, ok := v.(string)
			if !ok {
				return r, errNaive
			}
			r.naiveEnd(id, FinishUnsaid)
		}
	}
	for i, wave := range []*Maybe[int64]{&r.WaveComplete, &r.StartWave} {
		if n, why := naiveCount(at(6 + i)); why == "" {
			*wave = Known(n)
		}
	}
	switch {
	case len(r.Outputs) > 0, at(2) != nil, len(r.Finished) > 0:
		r.Kind = KindBatch
	case at(4) != nil:
		r.Kind = KindUtilityReply
	case r.WaveComplete.IsKnown(), r.StartWave.IsKnown():
		r.Kind = KindWaveNotice
	default:
		r.Kind = KindBatch
	}
	return r, nil
}

func (r *reading) naiveEnd(id string, reason FinishReason) {
	if !slices.Contains(r.Finished, id) {
		r.Finished, r.Reasons = append(r.Finished, id), append(r.Reasons, reason)
	}
}

func isNaiveInt(v any) bool {
	switch v.(type) {
	case int64, uint64:
		return true
	}
	return false
}

func (r *reading) naiveOutputs(v any) error {
	if v == nil {
		return nil
	}
	outputs, ok := v.([]any)
	if !ok {
		return errNaive
	}
	// The first output that shows its layout decides, and one that has something
	// else where today's reason is refuses the message.
	finishAt := 5
	for _, v := range outputs {
		o, ok := v.([]any)
		if ok && len(o) > 4 && isNaiveInt(o[4]) {
			finishAt = 4
			break
		}
		if ok && len(o) > 5 && o[5] != nil && !isNaiveInt(o[5]) {
			return errNaive
		}
	}
	for _, v := range outputs {
		o, ok := v.([]any)
		if !ok || len(o) < 2 {
			return errNaive
		}
		id, isID := o[0].(string)
		tokens, isTokens := o[1].([]any)
		if !isID || !isTokens || slices.ContainsFunc(tokens, tooDeep) || slices.ContainsFunc(o[2:], tooDeep) {
			return errNaive
		}
		reason := FinishNone
		if len(o) > finishAt && o[finishAt] != nil {
			if !isNaiveInt(o[finishAt]) {
				return errNaive
			}
			switch o[finishAt] {
			case int64(0):
				reason = FinishStop
			case int64(1):
				reason = FinishLength
			case int64(2):
				reason = FinishAbort
			case int64(3):
				reason = FinishError
			case int64(4):
				reason = FinishRepetition
			default:
				reason = FinishOther
			}
			r.naiveEnd(id, reason)
		}
		r.Outputs = append(r.Outputs, readOutput{id, len(tokens), reason})
	}
	return nil
}

func (r *reading) naiveStats(v any) error {
	if v == nil {
		return nil
	}
	stats, ok := v.(naiveMap)
	if !ok {
		r.Refused = "scheduler_stats: type"
		if tooDeep(v) {
			return errNaive
		}
		return nil
	}
	last := map[string]any{}
	for _, p := range stats {
		if tooDeep(p.key) || tooDeep(p.value) {
			return errNaive
		}
		if key, ok := p.key.(string); ok {
			last[key] = p.value
		}
	}
	counts := map[string]int64{}
	for _, key := range []string{"num_running_reqs", "num_waiting_reqs", "num_skipped_waiting_reqs"} {
		v := last[key]
		if v == nil {
			continue
		}
		n, why := naiveCount(v)
		if why != "" {
			r.Refused = key + ": " + why
			return nil
		}
		counts[key] = n
	}
	running, isRunning := counts["num_running_reqs"]
	waiting, isWaiting := counts["num_waiting_reqs"]
	if isRunning && isWaiting {
		r.Load.Known, r.Load.Running, r.Load.Waiting = true, running, waiting
	}
	if last["num_skipped_waiting_reqs"] != nil {
		r.Load.Skipped = Known(counts["num_skipped_waiting_reqs"])
	}
	usageKey := "kv_cache_usage"
	if _, ok := last[usageKey]; !ok {
		usageKey = "gpu_cache_usage"
	}
	if v := last[usageKey]; v != nil {
		if usage, why := naiveShare(v); why != "" {
			r.Refused = usageKey + ": " + why
		} else {
			r.Load.KVUsage = Known(usage)
		}
	}
	return nil
}

// naiveShare returns the share that v is, or why it is none.
func naiveShare(v any) (float64, string) {
	var f float64
	switch v := v.(type) {
	case int64:
		f = float64(v)
	case uint64:
		f = float64(v)
	case float64:
		f = v + 0 // no -0
	default:
		return 0, "type"
	}
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return 0, "not_finite"
	case f < 0:
		return 0, "negative"
	case f > 1:
		return 0, "out_of_range"
	}
	return f, ""
}
