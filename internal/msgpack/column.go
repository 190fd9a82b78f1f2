package msgpack

import (
	"encoding/binary"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// The readers of this file take the n elements of an array whose header has been
// read. On an error they return the offset of the element to blame.

// SkipCounts steps over n numbers that ReadCount would accept.
func SkipCounts(p []byte, i, n int) (int, error) {
	for range n {
		if i < len(p) {
			if size := int(countSizes[p[i]]); size != 0 && size <= len(p)-i {
				i += size
				continue
			}
		}
		_, next, err := ReadCount(p, i)
		if err != nil {
			return i, err
		}
		i = next
	}
	return i, nil
}

// countSizes holds the size of a count by its first byte, or 0 where that byte
// alone does not say whether it is one.
var countSizes = func() (sizes [256]uint8) {
	for lead := range MaxFixint + 1 {
		sizes[lead] = 1
	}
	sizes[leadUint8], sizes[LeadUint16], sizes[LeadUint32] = 2, 3, 5
	return sizes
}()

// AppendCounts reads n counts and appends them to dst.
func AppendCounts(dst []int64, p []byte, i, n int) ([]int64, int, error) {
	for range n {
		v, next, err := ReadCount(p, i)
		if err != nil {
			return dst, i, err
		}
		dst, i = append(dst, int64(v)), next
	}
	return dst, i, nil
}

// ReadFloat reads a number that may be anything a float can be, in whatever form
// it comes.
func ReadFloat(p []byte, i int) (float64, int, error) {
	b := p[i:]
	if len(b) >= 9 && b[0] == LeadFloat64 {
		return math.Float64frombits(binary.BigEndian.Uint64(b[1:])), i + 9, nil
	}
	switch msgp.NextType(b) {
	case msgp.Float64Type, msgp.Float32Type:
		f, rest, err := msgp.ReadFloat64Bytes(b)
		if err != nil {
			return 0, i, ErrTruncated
		}
		return f, len(p) - len(rest), nil
	case msgp.UintType:
		v, rest, err := msgp.ReadUint64Bytes(b)
		if err != nil {
			return 0, i, ErrTruncated
		}
		return float64(v), len(p) - len(rest), nil
	case msgp.IntType:
		v, rest, err := msgp.ReadInt64Bytes(b)
		if err != nil {
			return 0, i, ErrTruncated
		}
		return float64(v), len(p) - len(rest), nil
	}
	return 0, i, wrongType(b)
}

// SkipFloats steps over n numbers that ReadFloat would accept.
func SkipFloats(p []byte, i, n int) (int, error) {
	for range n {
		if len(p)-i >= 9 && p[i] == LeadFloat64 {
			i += 9
			continue
		}
		_, next, err := ReadFloat(p, i)
		if err != nil {
			return i, err
		}
		i = next
	}
	return i, nil
}

// AppendFloats reads n numbers and appends them to dst.
func AppendFloats(dst []float64, p []byte, i, n int) ([]float64, int, error) {
	for range n {
		v, next, err := ReadFloat(p, i)
		if err != nil {
			return dst, i, err
		}
		dst, i = append(dst, v), next
	}
	return dst, i, nil
}

// SkipStrings steps over n strings.
func SkipStrings(p []byte, i, n int) (int, error) {
	for range n {
		_, next, err := ReadString(p, i)
		if err != nil {
			return i, err
		}
		i = next
	}
	return i, nil
}

// AppendCount appends an integer in its shortest form, as msgspec chooses it:
// unsigned from 0 up. (msgp.AppendInt64 takes signed forms for them, which other
// readers accept, but bytes would differ.)
func AppendCount(dst []byte, v int64) []byte {
	if v < 0 {
		return msgp.AppendInt64(dst, v)
	}
	return msgp.AppendUint64(dst, uint64(v))
}
