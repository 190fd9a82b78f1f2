package tokenspeed

import (
	"github.com/plimsoll-go/plimsoll/internal/msgpack"
	"github.com/tinylib/msgp/msgp"
)

// Decode reads one batch out of payload into s, which is reset first. It steps
// over the columns that hold tokens, counts and logprobs without looking into
// them.
//
// Every error is a *DecodeError. After one s is empty, but for ErrRagged: if
// rids and finished_reasons are of the same length, Finished and Reasons hold
// the requests that the batch ends, and EngineIndex the rank that they were on.
// Neither the load of such a batch nor the number of its requests is known.
//
// Decode does not allocate, except for Finished and Reasons growing and for
// LoadErr.
func (s *Summary) Decode(payload []byte) error {
	var start offsets
	c, i, err := s.decode(payload, &start)
	return s.done(payload, c, i, err)
}

// done leaves in s what its caller may use after err, and says what was wrong
// with the value at i.
func (s *Summary) done(p []byte, c column, i int, err error) error {
	switch err {
	case nil:
		return nil
	case ErrRagged:
		// How many requests there are is what its columns disagree on.
		s.Load, s.LoadErr, s.Requests = Load{}, nil, 0
	default:
		s.Reset()
	}
	return decodeError(p, c, i, err)
}

// offsets are where the columns begin.
type offsets [numColumns]int

// decodeError makes an error of what was wrong with the value at i.
func decodeError(p []byte, c column, i int, err error) *DecodeError {
	if err == ErrType && msgp.IsNil(p[i:]) {
		err = ErrNil
	}
	return &DecodeError{Offset: i, Field: columnNames[c], Err: err}
}

// decode fills s. With an error come the column and the offset of the offender.
func (s *Summary) decode(p []byte, start *offsets) (c column, i int, err error) {
	s.Reset()
	if len(p) > MaxPayload {
		return colTag, 0, ErrPayloadSize
	}
	length, i, err := msgpack.ReadArrayHeader(p, 0)
	if err != nil {
		return colTag, i, err
	}
	if length > 0 {
		if i, err = skipTag(p, i); err != nil {
			return colTag, i, err
		}
	}
	if length < minElements {
		return column(length), 0, ErrTooShort // the first column that is missing
	}
	s.Elements = length

	ragged := colTag // the first column that is, if any
	for c = colRIDs; int(c) < minElements; c++ {
		start[c] = i
		n, next, err := msgpack.ReadArrayHeader(p, i)
		if err != nil {
			return c, i, err
		}
		if c == colRIDs {
			s.Requests = n
		} else if n != s.Requests && ragged == colTag {
			ragged = c
		}
		switch {
		case c == colRIDs, c == colFinishedReasons && n != s.Requests:
			i, err = msgpack.SkipStrings(p, next, n)
		case c == colFinishedReasons:
			i, err = s.readFinished(p, next, start[colRIDs])
		default:
			i, err = msgpack.SkipValues(p, next, n)
		}
		if err != nil {
			return c, i, err
		}
	}

	if length >= indexElements {
		index, next, err := msgpack.ReadCount(p, i)
		if err == nil && index > MaxEngineIndex {
			err = ErrOutOfRange
		}
		if err != nil {
			return colEngineIndex, i, err // without it nothing of the batch has a place
		}
		s.EngineIndex, i = int(index), next
	}
	rest := length - indexElements // elements that are not known here, or of a load that is not whole
	if length >= loadElements {
		if c, i, err = s.readLoad(p, i); err != nil {
			return c, i, err
		}
		rest = length - loadElements
	}
	if i, err = msgpack.SkipValues(p, i, rest); err != nil {
		return colTag, i, err
	}
	if i != len(p) {
		return colTag, i, ErrTrailingBytes
	}
	if ragged != colTag {
		return ragged, start[ragged], ErrRagged
	}
	return colTag, i, nil
}

// skipTag steps over the tag, or returns where it should have been.
func skipTag(p []byte, i int) (int, error) {
	text, next, err := msgpack.ReadString(p, i)
	switch {
	case err == ErrTruncated:
		return i, err
	case err != nil || string(text) != tag:
		return i, ErrTag
	}
	return next, nil
}

// readFinished reads the reasons at i together with the ids, which are as many,
// and keeps those of the requests that have ended.
func (s *Summary) readFinished(p []byte, i, rids int) (int, error) {
	_, id, err := msgpack.ReadArrayHeader(p, rids)
	if err != nil {
		return i, err
	}
	running := 0 // requests since the id at hand
	for range s.Requests {
		text, next, err := msgpack.ReadString(p, i)
		if err != nil {
			return i, err
		}
		i = next
		if len(text) == 0 {
			running++
			continue
		}
		if id, err = msgpack.SkipStrings(p, id, running); err != nil {
			return i, err
		}
		running = 0
		var rid []byte
		if rid, id, err = msgpack.ReadString(p, id); err != nil {
			return i, err
		}
		s.Finished = append(s.Finished, rid)
		s.Reasons = append(s.Reasons, finishReason(text))
	}
	return i, nil
}

// readLoad reads the four numbers of the load. What is wrong with them goes into
// LoadErr; an error is one that leaves no way to go on.
func (s *Summary) readLoad(p []byte, i int) (column, int, error) {
	var v [loadElements - indexElements]int64
	var at [len(v)]int
	for k := range v {
		c := colNumRunning + column(k)
		at[k] = i
		n, next, err := msgpack.ReadCount(p, i)
		if err != nil {
			var fatal error
			if next, fatal = msgpack.Skip(p, i); fatal != nil {
				return c, i, fatal
			}
			if s.LoadErr == nil {
				s.LoadErr = decodeError(p, c, i, err)
			}
		}
		v[k], i = int64(n), next
	}
	active, total := v[2], v[3]
	switch {
	case s.LoadErr != nil || total == 0:
	case active > total:
		s.LoadErr = decodeError(p, colKVActivePages, at[2], ErrOutOfRange)
	default:
		s.Load = Load{Known: true, Running: v[0], Waiting: v[1], KVActivePages: active, KVTotalPages: total}
	}
	return colTag, i, nil
}
