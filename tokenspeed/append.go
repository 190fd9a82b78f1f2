package tokenspeed

import (
	"github.com/plimsoll-go/plimsoll/internal/msgpack"
	"github.com/tinylib/msgp/msgp"
)

// Append appends b to dst as the engine's encoder writes it: 14 elements, integers
// in their shortest form, floats as float64. The load goes out as it stands, Known
// or not. Append does not check what it is given.
func (b *Batch) Append(dst []byte) []byte { return b.AppendN(dst, loadElements) }

// AppendN is Append with as many elements as an older sender writes, at least 9 and
// at most 14. The Elements of a batch that was decoded from one make it as long as
// it came: Append would give it the engine index and the load that it lacks.
func (b *Batch) AppendN(dst []byte, elements int) []byte {
	elements = min(max(elements, minElements), loadElements)
	dst = msgp.AppendArrayHeader(dst, uint32(elements))
	dst = msgp.AppendString(dst, tag)
	dst = appendStrings(dst, b.rids)
	dst = appendRows(dst, &b.outputIDs, msgpack.AppendCount)
	dst = appendStrings(dst, b.finishes)
	dst = appendCounts(dst, b.prompt)
	dst = appendCounts(dst, b.completion)
	dst = appendCounts(dst, b.cached)
	dst = appendRows(dst, &b.logprobs, msgp.AppendFloat64)
	dst = appendRows(dst, &b.logprobIDs, msgpack.AppendCount)
	tail := [...]int64{int64(b.EngineIndex), b.Load.Running, b.Load.Waiting, b.Load.KVActivePages, b.Load.KVTotalPages}
	for _, v := range tail[:elements-minElements] {
		dst = msgpack.AppendCount(dst, v)
	}
	return dst
}

func appendStrings(dst []byte, column [][]byte) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(column)))
	for _, s := range column {
		dst = msgp.AppendStringFromBytes(dst, s)
	}
	return dst
}

func appendCounts(dst []byte, column []int64) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(column)))
	for _, v := range column {
		dst = msgpack.AppendCount(dst, v)
	}
	return dst
}

func appendRows[T any](dst []byte, r *rows[T], write func([]byte, T) []byte) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(r.ends)))
	for i := range r.ends {
		row := r.at(i)
		dst = msgp.AppendArrayHeader(dst, uint32(len(row)))
		for _, v := range row {
			dst = write(dst, v)
		}
	}
	return dst
}
