package msgpack

import (
	"encoding/binary"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// The readers of this file take the n elements of an array whose header has been
// read. On an error they return the offset of the element to blame.

// SkipValues steps over n values of any kind. It is quick about scalars and about
// arrays of them, of which columns consist; the rest is left to Skip.
func SkipValues(p []byte, i, n int) (int, error) {
	// The unset fields of a struct that is written as an array come in rows.
	for ; n > 0 && i < len(p) && sizes[p[i]] == 1; n-- {
		i++
	}
	for range n {
		left, next := 1, i
		if i < len(p) {
			switch lead := p[i]; {
			case lead&0xf0 == leadFixarray:
				left, next = int(lead&0x0f), i+1
			case lead == leadArray16 || lead == leadArray32:
				var err error
				if left, next, err = ReadArrayHeader(p, i); err != nil {
					return i, err
				}
			}
		}
		for left > 0 && next < len(p) {
			size := int(sizes[p[next]])
			if size == 0 {
				break
			}
			next += size
			left--
		}
		if left == 0 && next <= len(p) {
			i = next
			continue
		}
		next, err := Skip(p, i)
		if err != nil {
			return i, err
		}
		i = next
	}
	return i, nil
}

// sizes holds the size of a scalar by its first byte, or 0 where that byte alone
// does not say.
var sizes = func() (sizes [256]uint8) {
	for lead := range sizes {
		switch {
		case lead <= MaxFixint, lead >= leadNegativeFixint:
			sizes[lead] = 1
		case lead&0xe0 == leadFixstr:
			sizes[lead] = 1 + uint8(lead&0x1f)
		}
	}
	sizes[leadNil], sizes[leadFalse], sizes[leadTrue] = 1, 1, 1
	sizes[leadUint8], sizes[LeadUint16], sizes[LeadUint32], sizes[leadUint64] = 2, 3, 5, 9
	sizes[leadInt8], sizes[leadInt16], sizes[leadInt32], sizes[leadInt64] = 2, 3, 5, 9
	sizes[leadFloat32], sizes[LeadFloat64] = 5, 9
	return sizes
}()

// AppendCounts reads n counts and appends them to dst.
func AppendCounts(dst []int64, p []byte, i, n int) ([]int64, int, error) {
	for range n {
		if b := p[i:]; len(b) >= 5 { // in place as in ReadNumbers
			switch lead := b[0]; {
			case lead <= MaxFixint:
				dst = append(dst, int64(lead))
				i++
				continue
			case lead == LeadUint16:
				dst = append(dst, int64(binary.BigEndian.Uint16(b[1:])))
				i += 3
				continue
			case lead == LeadUint32:
				dst = append(dst, int64(binary.BigEndian.Uint32(b[1:])))
				i += 5
				continue
			}
		}
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

// AppendStrings reads n strings and appends them to dst, without copying them.
func AppendStrings(dst [][]byte, p []byte, i, n int) ([][]byte, int, error) {
	for range n {
		s, next, err := ReadString(p, i)
		if err != nil {
			return dst, i, err
		}
		dst, i = append(dst, s), next
	}
	return dst, i, nil
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
