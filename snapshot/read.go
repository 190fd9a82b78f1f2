package snapshot

import (
	"encoding/binary"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// The readers below take the payload and an offset and return the offset after
// the value, or a bare sentinel. An offset instead of a shrinking slice is what
// lets a DecodeError say where, and costs nothing while all is well.

// maxDepth bounds the nesting of a value that is skipped. No load message goes
// deeper than 2; the limit leaves room for what engines may add.
const maxDepth = 32

// The two types of number, as the shapes of arrays spell them.
const (
	countKind  = 'i' // an integer from 0 to 2^63-1
	amountKind = 'f' // a finite float of at least +0, as its bits
)

// readNumbers reads one number into dst for each letter of shape, and returns
// how many it has read: on an error, the index of the one to blame.
func readNumbers(dst []uint64, shape string, p []byte, i int) (n, next int, err error) {
	for n = range dst[:len(shape)] {
		kind := shape[n]
		// The forms that nearly all numbers have are read in place: a call for
		// each would be half the time of decoding a message.
		if b := p[i:]; len(b) > 0 {
			switch lead := b[0]; {
			case kind == amountKind:
				if lead == leadFloat64 && len(b) >= 9 {
					if bits := binary.BigEndian.Uint64(b[1:]); bits < infBits {
						dst[n] = bits
						i += 9
						continue
					}
				}
			case lead <= maxFixint:
				dst[n] = uint64(lead)
				i++
				continue
			case lead == leadUint8 && len(b) >= 2:
				dst[n] = uint64(b[1])
				i += 2
				continue
			case lead == leadUint16 && len(b) >= 3:
				dst[n] = uint64(binary.BigEndian.Uint16(b[1:]))
				i += 3
				continue
			case lead == leadUint32 && len(b) >= 5:
				dst[n] = uint64(binary.BigEndian.Uint32(b[1:]))
				i += 5
				continue
			case lead == leadUint64 && len(b) >= 9 && b[1] <= 0x7f:
				dst[n] = binary.BigEndian.Uint64(b[1:])
				i += 9
				continue
			}
		}
		if kind == countKind {
			dst[n], i, err = readCount(p, i)
		} else {
			dst[n], i, err = readAmount(p, i)
		}
		if err != nil {
			return n, i, err
		}
	}
	return len(shape), i, nil
}

const (
	maxFixint    = 0x7f
	leadFixarray = 0x90
	leadFixstr   = 0xa0
	leadBin32    = 0xc6
	leadExt32    = 0xc9
	leadFloat64  = 0xcb
	leadUint8    = 0xcc
	leadUint16   = 0xcd
	leadUint32   = 0xce
	leadUint64   = 0xcf
	leadStr32    = 0xdb
	leadMap16    = 0xde

	// The bits of a float that is finite and not negative are below the bits
	// of +Inf; those of a negative number or a NaN are not.
	infBits = 0x7ff << 52
)

// readCount reads a number that counts something, in whatever form it comes.
func readCount(p []byte, i int) (uint64, int, error) {
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
		bits, next, err := readAmount(p, i)
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

// readAmount reads a number that measures something, in whatever form it comes,
// and returns the bits of the float.
func readAmount(p []byte, i int) (uint64, int, error) {
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
		v, next, err := readCount(p, i)
		return math.Float64bits(float64(v)), next, err
	}
	return 0, i, wrongType(b)
}

// readString reads a string without copying it.
func readString(p []byte, i int) ([]byte, int, error) {
	b := p[i:]
	if len(b) > 0 && b[0]&0xe0 == leadFixstr {
		if end := 1 + int(b[0]&0x1f); end <= len(b) {
			return b[1:end], i + end, nil
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
	return s, len(p) - len(rest), nil
}

// readArrayHeader and readMapHeader return how many elements or pairs follow.
// A header that claims more than the payload has bytes for is refused here, so
// that no later loop runs, and nothing is allocated, on its word.

func readArrayHeader(p []byte, i int) (int, int, error) {
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

func readMapHeader(p []byte, i int) (int, int, error) {
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

// skip returns the offset after the value at i, whatever it is. It keeps its
// own stack: msgp.Skip recurses as deep as the payload asks it to.
func skip(p []byte, i int) (int, error) {
	var left [maxDepth]int // values still to come, for each container we are in
	depth := 0
	for {
		children, next, err := skipHead(p, i)
		if err != nil {
			return i, err
		}
		i = next
		if children > 0 {
			if depth == maxDepth {
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
		return readArrayHeader(p, i)
	case msgp.MapType:
		children, next, err = readMapHeader(p, i)
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
