package snapshot

import (
	"encoding/binary"

	"github.com/plimsoll-go/plimsoll/internal/msgpack"
	"github.com/tinylib/msgp/msgp"
)

// Decode reads one msgpack map out of payload into s, which is reset first, so
// that nothing of an earlier message survives in a reused struct. Nothing in s
// refers to payload afterwards.
//
// A core count (requests, tokens, capacities, caps, cumulative counters) that
// is negative, not finite, fractional, too large or of another type refuses
// the whole message: a broken count must never look idle. A bad advisory value
// only puts its field into Refused. Numbers may change between integer and
// float on the wire as long as the value is the same. Unknown keys are
// skipped; of a key that comes twice the last value counts.
//
// Every error is a *DecodeError. After one, the contents of s mean nothing.
// Decode does not allocate, except for DecodeMoments growing and for an
// unheard-of disaggregation mode.
func (s *LoadSnapshot) Decode(payload []byte) error {
	s.Reset()
	if key, i, err := s.decode(payload); err != nil {
		return &DecodeError{Type: "LoadSnapshot", Offset: i, Field: key, Err: err}
	}
	return nil
}

// decode fills s. With an error come the key and the offset of the offender.
func (s *LoadSnapshot) decode(p []byte) (key string, i int, err error) {
	if len(p) > MaxPayload {
		return "", 0, ErrPayloadSize
	}
	pairs, i, err := msgpack.ReadMapHeader(p, 0)
	if err != nil {
		return "", i, err
	}
	var (
		v      values
		seen   Fields
		expect Field // keys come in wire order, so this is the likely one
	)
	for range pairs {
		f, at := expect, i
		if k := &wireKeys[f]; len(p)-i >= maxWireKey && k.equal(p[i:i+maxWireKey]) {
			at += k.size
		} else if f, at, err = readKey(p, i, expect); err != nil {
			return "", i, err
		} else if f == numFields { // not one of ours
			if i, err = msgpack.Skip(p, at); err != nil {
				return "", at, err
			}
			continue
		}
		if expect = f + 1; expect == numFields {
			expect = 0
		}
		if seen.Has(f) {
			s.forget(f, &v)
		}
		seen |= f.bit()

		// In place for the same reason as in msgpack.ReadNumbers.
		if at < len(p) && p[at] <= msgpack.MaxFixint && counts.Has(f) {
			v[f], i = uint64(p[at]), at+1
			continue
		}
		if at < len(p)-8 {
			switch b := p[at : at+9]; {
			case b[0] == msgpack.LeadUint16 && counts.Has(f):
				v[f], i = uint64(binary.BigEndian.Uint16(b[1:])), at+3
				continue
			case b[0] == msgpack.LeadUint32 && counts.Has(f):
				v[f], i = uint64(binary.BigEndian.Uint32(b[1:])), at+5
				continue
			case b[0] == msgpack.LeadFloat64 && amounts.Has(f):
				if bits := binary.BigEndian.Uint64(b[1:]); bits < msgpack.InfBits {
					v[f], i = bits, at+9
					continue
				}
			}
		}
		if i, err = s.readField(f, &v, p, at); err != nil {
			return f.String(), at, err
		}
	}
	if i != len(p) {
		return "", i, ErrTrailingBytes
	}
	s.Present = seen &^ (s.Nil | s.Refused)
	s.store(&v)
	return "", i, nil
}

// readField reads the value of f in any form. What it cannot use it puts into
// Nil or Refused and steps over, unless f is one of the core counts.
func (s *LoadSnapshot) readField(f Field, v *values, p []byte, i int) (next int, err error) {
	switch {
	case counts.Has(f):
		v[f], next, err = msgpack.ReadCount(p, i)
	case amounts.Has(f):
		v[f], next, err = msgpack.ReadAmount(p, i)
	case f == FieldDecodeMoments:
		s.DecodeMoments, next, err = readMoments(s.DecodeMoments, p, i)
	default:
		next, err = s.readSection(f, p, i)
	}
	switch {
	case err == nil:
		return next, nil
	case msgp.IsNil(p[i:]):
		s.Nil |= f.bit()
		return i + 1, nil
	case core.Has(f):
		return i, err
	}
	s.Refused |= f.bit()
	return msgpack.Skip(p, i)
}

// forget takes back what is known of f when its key comes a second time: the
// last value counts, and it need not be of the same kind as the first.
func (s *LoadSnapshot) forget(f Field, v *values) {
	s.Nil &^= f.bit()
	s.Refused &^= f.bit()
	v[f] = 0
	if f == FieldDecodeMoments {
		s.DecodeMoments = s.DecodeMoments[:0]
		return
	}
	s.storeSection(f, 0, "", &elements{})
}

// readKey reads any map key, trying the expected field first, since one that a
// rank leaves out only shifts the order. A key that is no field's gives numFields.
func readKey(p []byte, i int, expect Field) (Field, int, error) {
	key, next, err := msgpack.ReadString(p, i)
	if err != nil {
		return 0, i, err
	}
	for n := range numFields {
		if f := (expect + n) % numFields; string(key) == fieldKeys[f] {
			return f, next, nil
		}
	}
	return numFields, next, nil
}
