package msgpack

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/tinylib/msgp/msgp"
)

// MaxDepth bounds the nesting of a value that is skipped. What engines send is
// nested no more than a handful deep, logprobs and answers to calls the most; the
// limit leaves room for what they may add.
const MaxDepth = 32

// The two types of number, as the shapes of arrays spell them.
const (
	CountKind  = 'i' // an integer from 0 to 2^63-1
	AmountKind = 'f' // a finite float of at least +0, as its bits
)

// ReadNumbers reads one number into dst for each letter of shape, and returns
// how many it has read: on an error, the index of the one to blame.
func ReadNumbers(dst []uint64, shape string, p []byte, i int) (n, next int, err error) {
	for n = range dst[:len(shape)] {
		kind := shape[n]
		// The forms that nearly all numbers have are read in place: a call for
		// each would be half the time of decoding a message.
		if b := p[i:]; len(b) > 0 {
			switch lead := b[0]; {
			case kind == AmountKind:
				if lead == LeadFloat64 && len(b) >= 9 {
					if bits := binary.BigEndian.Uint64(b[1:]); bits < InfBits {
						dst[n] = bits
						i += 9
						continue
					}
				}
			case lead <= MaxFixint:
				dst[n] = uint64(lead)
				i++
				continue
			case lead == leadUint8 && len(b) >= 2:
				dst[n] = uint64(b[1])
				i += 2
				continue
			case lead == LeadUint16 && len(b) >= 3:
				dst[n] = uint64(binary.BigEndian.Uint16(b[1:]))
				i += 3
				continue
			case lead == LeadUint32 && len(b) >= 5:
				dst[n] = uint64(binary.BigEndian.Uint32(b[1:]))
				i += 5
				continue
			case lead == leadUint64 && len(b) >= 9 && b[1] <= 0x7f:
				dst[n] = binary.BigEndian.Uint64(b[1:])
				i += 9
				continue
			}
		}
		if kind == CountKind {
			dst[n], i, err = ReadCount(p, i)
		} else {
			dst[n], i, err = ReadAmount(p, i)
		}
		if err != nil {
			return n, i, err
		}
	}
	return len(shape), i, nil
}

// The first bytes of the forms that are read or written in place: those that a
// decoder does so with too, and the others.
const (
	MaxFixint   = 0x7f
	LeadFloat64 = 0xcb
	LeadUint16  = 0xcd
	LeadUint32  = 0xce
	LeadMap16   = 0xde

	leadFixarray       = 0x90
	leadFixstr         = 0xa0
	leadNil            = 0xc0
	leadFalse          = 0xc2
	leadTrue           = 0xc3
	leadBin32          = 0xc6
	leadExt32          = 0xc9
	leadFloat32        = 0xca
	leadUint8          = 0xcc
	leadUint64         = 0xcf
	leadInt8           = 0xd0
	leadInt16          = 0xd1
	leadInt32          = 0xd2
	leadInt64          = 0xd3
	leadStr8           = 0xd9
	leadStr32          = 0xdb
	leadArray16        = 0xdc
	leadArray32        = 0xdd
	leadNegativeFixint = 0xe0
)

// InfBits are the bits of +Inf. Those of a float that is finite and not negative
// are below them; those of a negative number or a NaN are not.
const InfBits = 0x7ff << 52

// ReadCount reads a number that counts something, in whatever form it comes.
func ReadCount(p []byte, i int) (uint64, int, error) {
	b := p[i:]
	switch msgp.NextType(b) {
	case msgp.UintType, msgp.IntType:
		v, rest, err := msgp.ReadInt64Bytes(b)
		switch {
		case err == msgp.ErrShortBytes:
			return 0, i, ErrTruncated
		case err != nil:
			return 0, i, ErrOutOfRange // an unsigned number above 2^63-1
		case v < 0:
			return 0, i, ErrNegative
		}
		return uint64(v), len(p) - len(rest), nil
	case msgp.Float64Type, msgp.Float32Type:
		bits, next, err := ReadAmount(p, i)
		switch f := math.Float64frombits(bits); {
		case err != nil:
			return 0, i, err
		case f >= 1<<63:
			return 0, i, ErrOutOfRange
		case f != math.Trunc(f):
			return 0, i, ErrNotInteger
		default:
			return uint64(f), next, nil
		}
	}
	return 0, i, wrongType(b)
}

// ReadAmount reads a number that measures something, in whatever form it comes,
// and returns the bits of the float.
func ReadAmount(p []byte, i int) (uint64, int, error) {
	b := p[i:]
	switch msgp.NextType(b) {
	case msgp.Float64Type, msgp.Float32Type:
		f, rest, err := msgp.ReadFloat64Bytes(b)
		switch {
		case err != nil:
			return 0, i, ErrTruncated
		case math.IsNaN(f) || math.IsInf(f, 0):
			return 0, i, ErrNotFinite
		case f < 0:
			return 0, i, ErrNegative
		}
		return math.Float64bits(math.Abs(f)), len(p) - len(rest), nil // Abs makes -0 a 0
	case msgp.UintType:
		// Apart from the other integers, because a float can hold those above
		// 2^63-1 too.
		v, rest, err := msgp.ReadUint64Bytes(b)
		if err != nil {
			return 0, i, ErrTruncated
		}
		return math.Float64bits(float64(v)), len(p) - len(rest), nil
	case msgp.IntType:
		v, next, err := ReadCount(p, i)
		return math.Float64bits(float64(v)), next, err
	}
	return 0, i, wrongType(b)
}

// ReadString reads a string without copying it. Its capacity ends where it does,
// so that appending to it does not write into the payload.
func ReadString(p []byte, i int) ([]byte, int, error) {
	b := p[i:]
	// Names and ids are short: as in ReadNumbers, the forms that they have are
	// read in place.
	if len(b) > 0 && b[0]&0xe0 == leadFixstr {
		if end := 1 + int(b[0]&0x1f); end <= len(b) {
			return b[1:end:end], i + end, nil
		}
	} else if len(b) > 1 && b[0] == leadStr8 {
		if end := 2 + int(b[1]); end <= len(b) {
			return b[2:end:end], i + end, nil
		}
	}
	if msgp.NextType(b) != msgp.StrType {
		return nil, i, wrongType(b)
	}
	if !holdsItsClaim(b) {
		return nil, i, ErrTruncated
	}
	s, rest, err := msgp.ReadStringZC(b)
	if err != nil {
		return nil, i, ErrTruncated
	}
	return slices.Clip(s), len(p) - len(rest), nil
}

// ReadArrayHeader returns how many elements follow. A header that claims more
// than the payload has bytes for is refused here, so that no later loop runs, and
// nothing is allocated, on its word.
func ReadArrayHeader(p []byte, i int) (int, int, error) {
	b := p[i:]
	if len(b) > 0 && b[0]&0xf0 == leadFixarray {
		if n := int(b[0] & 0x0f); n < len(b) {
			return n, i + 1, nil
		}
		return 0, i, ErrTruncated
	}
	if msgp.NextType(b) != msgp.ArrayType {
		return 0, i, wrongType(b)
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil || uint64(n) > uint64(len(rest)) {
		return 0, i, ErrTruncated
	}
	return int(n), len(p) - len(rest), nil
}

// ReadMapHeader returns how many pairs follow, on the same condition.
func ReadMapHeader(p []byte, i int) (int, int, error) {
	b := p[i:]
	if msgp.NextType(b) != msgp.MapType {
		return 0, i, wrongType(b)
	}
	n, rest, err := msgp.ReadMapHeaderBytes(b)
	if err != nil || 2*uint64(n) > uint64(len(rest)) {
		return 0, i, ErrTruncated
	}
	return int(n), len(p) - len(rest), nil
}

// Skip returns the offset after the value at i, whatever it is. It keeps its
// own stack: msgp.Skip recurses as deep as the payload asks it to.
func Skip(p []byte, i int) (int, error) {
	var left [MaxDepth]int // values still to come, for each container we are in
	depth := 0
	for {
		children, next, err := skipHead(p, i)
		if err != nil {
			return i, err
		}
		i = next
		if children > 0 {
			if depth == MaxDepth {
				return i, ErrTooDeep
			}
			left[depth] = children
			depth++
			continue
		}
		for depth > 0 {
			if left[depth-1]--; left[depth-1] > 0 {
				break
			}
			depth--
		}
		if depth == 0 {
			return i, nil
		}
	}
}

// skipHead skips a scalar, or the header of a container, and returns how many
// values are inside.
func skipHead(p []byte, i int) (children, next int, err error) {
	b := p[i:]
	switch msgp.NextType(b) {
	case msgp.ArrayType:
		return ReadArrayHeader(p, i)
	case msgp.MapType:
		children, next, err = ReadMapHeader(p, i)
		return 2 * children, next, err
	}
	if !holdsItsClaim(b) {
		return 0, i, ErrTruncated
	}
	rest, err := msgp.Skip(b) // one level: nothing but a container makes it recurse
	switch {
	case err == msgp.ErrShortBytes:
		return 0, i, ErrTruncated
	case err != nil:
		return 0, i, ErrType // 0xc1, which msgpack never uses
	}
	return 0, len(p) - len(rest), nil
}

// holdsItsClaim reports whether as many bytes follow as a header with a 32-bit
// length announces. msgp keeps such a length in an int, where on a 32-bit
// platform it can turn negative, pass for short and end in a panic.
func holdsItsClaim(b []byte) bool {
	if len(b) == 0 || b[0] != leadBin32 && b[0] != leadExt32 && b[0] != leadStr32 {
		return true
	}
	return len(b) >= 5 && uint64(binary.BigEndian.Uint32(b[1:])) <= uint64(len(b)-5)
}

// wrongType is the error for a value of none of the wanted types.
func wrongType(b []byte) error {
	if len(b) == 0 {
		return ErrTruncated
	}
	return ErrType
}
