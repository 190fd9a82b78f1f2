package snapshot

import (
	"math"

	"github.com/plimsoll-go/plimsoll/internal/msgpack"
	"github.com/tinylib/msgp/msgp"
)

func appendNumbers(dst []byte, shape string, v []uint64) []byte {
	for i, kind := range []byte(shape) {
		if kind == msgpack.CountKind {
			dst = msgpack.AppendCount(dst, int64(v[i]))
		} else {
			dst = msgp.AppendFloat64(dst, math.Float64frombits(v[i]))
		}
	}
	return dst
}

// Append appends s to dst as the engine's encoder writes it. The array reaches
// to the last field that is marked (in Present, Nil or Refused) or not 0, and
// at least to attn_dp_rank, the shortest form there is; a LoadStat without any
// mark gets all eleven elements, which is what the engine writes today. StatForm
// gives the marks of each form. An attn_dp_rank that is 0 and not in Present is
// written as nil, and so is everything in Nil or Refused. Append does not check
// what it is given.
func (s *LoadStat) Append(dst []byte) []byte {
	marks := s.Present | s.Nil | s.Refused
	v := s.load()
	n := len(v)
	if marks != 0 {
		for n > statRank+1 && v[n-1] == 0 && !marks.Has(statFields[n-1]) {
			n--
		}
	}
	dst = msgp.AppendArrayHeader(dst, uint32(1+n))
	dst = msgp.AppendString(dst, statTag)
	for k := range n {
		f := statFields[k]
		unknown := (s.Nil | s.Refused).Has(f) || k == statRank && v[k] == 0 && !s.Present.Has(f)
		if unknown {
			dst = msgp.AppendNil(dst)
		} else {
			dst = msgpack.AppendCount(dst, int64(v[k]))
		}
	}
	return dst
}
