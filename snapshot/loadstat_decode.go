package snapshot

import (
	"github.com/plimsoll-go/plimsoll/internal/msgpack"
	"github.com/tinylib/msgp/msgp"
)

// Decode reads one msgpack array out of payload into s, which is reset first.
//
// Another tag, fewer than the tag and four counts, nil in one of those four,
// and any bad count (see LoadSnapshot.Decode) refuse the whole message; only
// attn_dp_rank is advisory. Elements past the eleventh are skipped.
//
// Every error is a *DecodeError. After one, the contents of s mean nothing.
// Decode does not allocate.
func (s *LoadStat) Decode(payload []byte) error {
	s.Reset()
	if key, i, err := s.decode(payload); err != nil {
		return &DecodeError{Type: "LoadStat", Offset: i, Field: key, Err: err}
	}
	return nil
}

const statShape = "iiiiiiiiii"

func (s *LoadStat) decode(p []byte) (key string, i int, err error) {
	if len(p) > MaxPayload {
		return "", 0, ErrPayloadSize
	}
	length, i, err := msgpack.ReadArrayHeader(p, 0)
	if err != nil {
		return "", i, err
	}
	if length > 0 {
		if i, err = readStatTag(p, i); err != nil {
			return "", i, err
		}
	}
	if length < 1+statRequired {
		return "", 0, ErrTooShort
	}
	var v statValues
	n := min(length-1, len(v))
	for k := 0; k < n; k++ { // once, and once more for each element that is no count
		var read int
		if read, i, err = msgpack.ReadNumbers(v[k:], statShape[k:n], p, i); err == nil {
			break
		}
		k += read
		switch f := statFields[k]; {
		case k < statRequired:
			if msgp.IsNil(p[i:]) {
				err = ErrNil
			}
			return statKeys[k], i, err
		case msgp.IsNil(p[i:]):
			s.Nil |= f.bit()
		case k == statRank:
			s.Refused |= f.bit()
		default:
			return statKeys[k], i, err
		}
		at := i
		if i, err = msgpack.Skip(p, i); err != nil {
			return statKeys[k], at, err
		}
	}
	for range length - 1 - n {
		at := i
		if i, err = msgpack.Skip(p, i); err != nil {
			return "", at, err
		}
	}
	if i != len(p) {
		return "", i, ErrTrailingBytes
	}
	s.Present = statForms[1+n] &^ (s.Nil | s.Refused)
	s.store(&v)
	return "", i, nil
}

// statForms holds StatForm for every length.
var statForms = func() (forms [1 + len(statFields) + 1]Fields) {
	for n := range forms {
		forms[n] = StatForm(n)
	}
	return forms
}()

// readStatTag steps over the tag, or returns where it should have been.
func readStatTag(p []byte, i int) (int, error) {
	const encoded = "\xa8" + statTag
	if len(p)-i >= len(encoded) && string(p[i:i+len(encoded)]) == encoded {
		return i + len(encoded), nil
	}
	tag, next, err := msgpack.ReadString(p, i)
	switch {
	case err == ErrTruncated:
		return i, err
	case err != nil || string(tag) != statTag:
		return i, ErrTag
	}
	return next, nil
}
