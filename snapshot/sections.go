package snapshot

import (
	"math"
	"slices"
	"unicode/utf8"

	"github.com/plimsoll-go/plimsoll/internal/msgpack"
)

// shapes spells the elements of each section. Disaggregation has its mode in
// front of them.
var shapes = [numFields]string{
	FieldMemory:         "fffi",
	FieldSpeculative:    "ff",
	FieldLoRA:           "iif",
	FieldDisaggregation: "iiiiiff",
	FieldQueues:         "iiiii",
}

// elements holds the numbers of one section, as msgpack.ReadNumbers gives them.
type elements [DisaggregationElements - 1]uint64

// readSection reads an array into section f: all of it or nothing. An array
// that is longer than we know is skipped to its end, of one that is shorter the
// rest stays 0.
func (s *LoadSnapshot) readSection(f Field, p []byte, i int) (int, error) {
	left, i, err := msgpack.ReadArrayHeader(p, i)
	if err != nil {
		return i, err
	}
	length := 0
	mode := ""
	if f == FieldDisaggregation && left > 0 {
		if mode, i, err = readMode(p, i); err != nil {
			return i, err
		}
		left--
		length++
	}
	var e elements
	shape := shapes[f]
	shape = shape[:min(left, len(shape))]
	if _, i, err = msgpack.ReadNumbers(e[:], shape, p, i); err != nil {
		return i, err
	}
	for range left - len(shape) {
		if i, err = msgpack.Skip(p, i); err != nil {
			return i, err
		}
	}
	s.storeSection(f, length+len(shape), mode, &e)
	return i, nil
}

// storeSection assigns field by field: a composite literal would be built aside
// and copied, at three times the cost.
func (s *LoadSnapshot) storeSection(f Field, length int, mode string, e *elements) {
	switch f {
	case FieldMemory:
		m := &s.Memory
		m.Len = length
		m.WeightGB = math.Float64frombits(e[0])
		m.KVCacheGB = math.Float64frombits(e[1])
		m.GraphGB = math.Float64frombits(e[2])
		m.TokenCapacity = int64(e[3])
	case FieldSpeculative:
		v := &s.Speculative
		v.Len = length
		v.AcceptLength = math.Float64frombits(e[0])
		v.AcceptRate = math.Float64frombits(e[1])
	case FieldLoRA:
		l := &s.LoRA
		l.Len = length
		l.SlotsUsed = int64(e[0])
		l.SlotsTotal = int64(e[1])
		l.Utilization = math.Float64frombits(e[2])
	case FieldDisaggregation:
		d := &s.Disaggregation
		d.Len = length
		d.Mode = mode
		d.PrefillBootstrapQueueReqs = int64(e[0])
		d.PrefillInflightQueueReqs = int64(e[1])
		d.DecodePreallocQueueReqs = int64(e[2])
		d.DecodeTransferQueueReqs = int64(e[3])
		d.DecodeRetractedQueueReqs = int64(e[4])
		d.KVTransferSpeedGBs = math.Float64frombits(e[5])
		d.KVTransferLatencyMS = math.Float64frombits(e[6])
	case FieldQueues:
		q := &s.Queues
		q.Len = length
		q.Waiting = int64(e[0])
		q.Grammar = int64(e[1])
		q.Paused = int64(e[2])
		q.Retracted = int64(e[3])
		q.PreallocReady = int64(e[4])
	}
}

func (s *LoadSnapshot) loadSection(f Field) (mode string, e elements) {
	switch f {
	case FieldMemory:
		m := &s.Memory
		e = elements{
			math.Float64bits(m.WeightGB),
			math.Float64bits(m.KVCacheGB),
			math.Float64bits(m.GraphGB),
			uint64(m.TokenCapacity),
		}
	case FieldSpeculative:
		v := &s.Speculative
		e = elements{math.Float64bits(v.AcceptLength), math.Float64bits(v.AcceptRate)}
	case FieldLoRA:
		l := &s.LoRA
		e = elements{uint64(l.SlotsUsed), uint64(l.SlotsTotal), math.Float64bits(l.Utilization)}
	case FieldDisaggregation:
		d := &s.Disaggregation
		mode = d.Mode
		e = elements{
			uint64(d.PrefillBootstrapQueueReqs),
			uint64(d.PrefillInflightQueueReqs),
			uint64(d.DecodePreallocQueueReqs),
			uint64(d.DecodeTransferQueueReqs),
			uint64(d.DecodeRetractedQueueReqs),
			math.Float64bits(d.KVTransferSpeedGBs),
			math.Float64bits(d.KVTransferLatencyMS),
		}
	case FieldQueues:
		q := &s.Queues
		e = elements{uint64(q.Waiting), uint64(q.Grammar), uint64(q.Paused), uint64(q.Retracted), uint64(q.PreallocReady)}
	}
	return mode, e
}

// modes are the names engines use today. They are not allocated anew for every
// message.
var modes = [...]string{"null", "prefill", "decode"}

// maxMode bounds any other name, in bytes.
const maxMode = 32

func readMode(p []byte, i int) (string, int, error) {
	name, next, err := msgpack.ReadString(p, i)
	if err != nil {
		return "", i, err
	}
	for _, mode := range modes {
		if string(name) == mode {
			return mode, next, nil
		}
	}
	if len(name) > maxMode || !utf8.Valid(name) {
		return "", i, ErrOutOfRange
	}
	return string(name), next, nil
}

const momentsShape = "ffffffffffffffff" // MaxDecodeMoments long

// readMoments reads an array of numbers into the capacity of buf.
func readMoments(buf []float64, p []byte, i int) ([]float64, int, error) {
	length, next, err := msgpack.ReadArrayHeader(p, i)
	if err != nil {
		return buf[:0], i, err
	}
	if length > MaxDecodeMoments {
		return buf[:0], i, ErrOutOfRange
	}
	var moments [MaxDecodeMoments]uint64
	if _, next, err = msgpack.ReadNumbers(moments[:], momentsShape[:length], p, next); err != nil {
		return buf[:0], i, err
	}
	buf = slices.Grow(buf, length)
	for _, bits := range moments[:length] {
		buf = append(buf, math.Float64frombits(bits))
	}
	return buf, next, nil
}
