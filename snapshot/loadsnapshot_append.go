package snapshot

import (
	"math"

	"github.com/plimsoll-go/plimsoll/internal/msgpack"
	"github.com/tinylib/msgp/msgp"
)

// Append appends s to dst as the engine's encoder writes it: fields in wire
// order, integers in their shortest form, floats as float64, and a field that
// is 0 left out unless it is in Present (the engine leaves out what was never
// set; a computed 0 it does send). Fields in Nil or Refused are written as nil,
// since both mean unknown. A section is written when it is in Present or its
// Len is above 0, with Len elements. Append does not check what it is given.
func (s *LoadSnapshot) Append(dst []byte) []byte {
	v := s.load()
	unknown := s.Nil | s.Refused
	written := (s.Present | unknown) & allFields
	for f := range numFields {
		if v[f] != 0 || s.length(f) > 0 {
			written |= f.bit()
		}
	}
	// The engine's encoder leaves room for a header that could count every
	// field before it knows how many it will write: always the 16-bit form.
	dst = append(dst, msgpack.LeadMap16, 0, byte(written.Count()))
	for f := range written.All() {
		dst = msgp.AppendString(dst, fieldKeys[f])
		switch {
		case unknown.Has(f):
			dst = msgp.AppendNil(dst)
		case counts.Has(f):
			dst = msgpack.AppendCount(dst, int64(v[f]))
		case amounts.Has(f):
			dst = msgp.AppendFloat64(dst, math.Float64frombits(v[f]))
		case f == FieldDecodeMoments:
			dst = msgp.AppendArrayHeader(dst, uint32(len(s.DecodeMoments)))
			for _, m := range s.DecodeMoments {
				dst = msgp.AppendFloat64(dst, m)
			}
		default:
			dst = s.appendSection(dst, f)
		}
	}
	return dst
}

func (s *LoadSnapshot) appendSection(dst []byte, f Field) []byte {
	mode, e := s.loadSection(f)
	shape := shapes[f]
	numbers := s.length(f)
	dst = msgp.AppendArrayHeader(dst, uint32(numbers))
	if f == FieldDisaggregation && numbers > 0 {
		dst = msgp.AppendString(dst, mode)
		numbers--
	}
	return appendNumbers(dst, shape[:numbers], e[:])
}

// length is the number of elements of an array, 0 for any other field.
func (s *LoadSnapshot) length(f Field) int {
	n := 0
	switch f {
	case FieldDecodeMoments:
		return len(s.DecodeMoments)
	case FieldMemory:
		n = min(s.Memory.Len, MemoryElements)
	case FieldSpeculative:
		n = min(s.Speculative.Len, SpeculativeElements)
	case FieldLoRA:
		n = min(s.LoRA.Len, LoRAElements)
	case FieldDisaggregation:
		n = min(s.Disaggregation.Len, DisaggregationElements)
	case FieldQueues:
		n = min(s.Queues.Len, QueuesElements)
	}
	return max(0, n)
}
