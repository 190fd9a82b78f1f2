package vllm

import (
	"errors"

	"github.com/plimsoll-go/plimsoll/internal/msgpack"
	"github.com/tinylib/msgp/msgp"
)

// Positions in the message.
const (
	posEngineIndex = iota
	posOutputs
	posSchedulerStats
	posTimestamp
	posUtilityOutput
	posFinishedRequests
	posWaveComplete
	posStartWave

	numPositions
)

var positionNames = [numPositions]string{
	"engine_index", "outputs", "scheduler_stats", "timestamp", "utility_output", "finished_requests", "wave_complete", "start_wave",
}

// Positions in an output, whose first element is the request id. Before there
// were pooling outputs, the finish reason stood where they are now.
const (
	posNewTokenIDs     = 1
	posOldFinishReason = 4
	posFinishReason    = 5
)

// Decode reads one msgpack array out of payload into o, which is reset first.
//
// What is missing or nil has its default, but for the engine index, which must
// not be nil, and the first two elements of an output. What this package does
// not know is skipped, whatever it is. Statistics that are wrong go into LoadErr,
// and a wave that is no count is unknown.
//
// A finish reason that is no integer refuses the message: its positions are then
// not the ones that are known here, and a guess would end requests that run.
//
// Every error is a *DecodeError. After one, o is empty. Decode does not allocate
// once o has grown to the size of the messages, except for LoadErr.
func (o *Outputs) Decode(payload []byte) error {
	o.Reset()
	field, i, err := o.decode(payload)
	if err != nil {
		o.Reset()
		return decodeError(payload, field, i, err)
	}
	return nil
}

// decodeError makes an error of what is wrong with the value at i.
func decodeError(p []byte, field string, i int, err error) *DecodeError {
	if err == ErrType && msgp.IsNil(p[i:]) {
		err = ErrNil
	}
	return &DecodeError{Offset: i, Field: field, Err: err}
}

// decode fills o. With an error come the field and the offset of the offender.
func (o *Outputs) decode(p []byte) (field string, i int, err error) {
	if len(p) > MaxPayload {
		return "", 0, ErrPayloadSize
	}
	length, i, err := msgpack.ReadArrayHeader(p, 0)
	if err != nil {
		return "", i, err
	}
	o.payload = p
	var stats, reply bool
	for pos := range length {
		field = ""
		if pos < numPositions {
			field = positionNames[pos]
		}
		if msgp.IsNil(p[i:]) && pos != posEngineIndex {
			i++
			continue
		}
		switch pos {
		case posEngineIndex:
			o.EngineIndex, i, err = readEngineIndex(p, i)
		case posOutputs:
			field, i, err = o.readOutputs(p, i)
		case posSchedulerStats:
			stats = true
			i, err = o.readStats(p, i)
		case posUtilityOutput:
			reply = true
			i, err = msgpack.SkipValues(p, i, 1)
		case posFinishedRequests:
			i, err = o.readFinished(p, i)
		case posWaveComplete:
			o.WaveComplete, i, err = readWave(p, i)
		case posStartWave:
			o.StartWave, i, err = readWave(p, i)
		default:
			i, err = msgpack.SkipValues(p, i, 1)
		}
		if err != nil {
			return field, i, err
		}
	}
	if i != len(p) {
		return "", i, ErrTrailingBytes
	}
	switch {
	case stats || o.Requests > 0 || len(o.Finished) > 0:
		o.Kind = KindBatch
	case reply:
		o.Kind = KindUtilityReply
	case o.WaveComplete.IsKnown() || o.StartWave.IsKnown():
		o.Kind = KindWaveNotice
	default:
		o.Kind = KindBatch // of a step that had nothing to tell this client
	}
	return "", i, nil
}

func readEngineIndex(p []byte, i int) (int, int, error) {
	v, next, err := msgpack.ReadCount(p, i)
	switch {
	case err != nil:
		return 0, i, err
	case v > MaxEngineIndex:
		return 0, i, ErrOutOfRange
	}
	return int(v), next, nil
}

// readWave reads the number of a wave. Nothing rests on it, so that one which is
// no number does not cost the message.
func readWave(p []byte, i int) (Maybe[int64], int, error) {
	if v, next, err := msgpack.ReadCount(p, i); err == nil {
		return Known(int64(v)), next, nil
	}
	next, err := msgpack.SkipValues(p, i, 1)
	return Maybe[int64]{}, next, err
}

// errOldLayout is how an output says that the sender of the message is older.
var errOldLayout = errors.New("finish reason in its old place")

// readOutputs reads the outputs as newer engines write them, until one shows
// that the sender is older: an integer where the finish reason was then, and now
// is a tensor or nil. Then it starts again, because all outputs of a message are
// alike, and what is a finish reason now was a stop reason then. A message that
// shows nothing ends nothing in either layout: a stop reason never comes without
// a finish reason. (So one in words that does, before an output that shows its
// age, is refused like any finish reason that is no integer.)
func (o *Outputs) readOutputs(p []byte, i int) (field string, next int, err error) {
	n, i, err := readRequestsHeader(p, i)
	if err != nil {
		return positionNames[posOutputs], i, err
	}
	first, finishAt := i, posFinishReason
	for len(o.outputs) < n {
		field, i, err = o.readOutput(p, i, finishAt)
		switch err {
		case nil:
		case errOldLayout:
			clear(o.Finished)
			o.outputs, o.Finished, o.Reasons = o.outputs[:0], o.Finished[:0], o.Reasons[:0]
			o.ended.reset()
			i, finishAt = first, posOldFinishReason
		default:
			return field, i, err
		}
	}
	o.Requests = n
	return "", i, nil
}

// readRequestsHeader reads the header of an array with an element for each of
// some requests.
func readRequestsHeader(p []byte, i int) (int, int, error) {
	n, next, err := msgpack.ReadArrayHeader(p, i)
	switch {
	case err != nil:
		return 0, i, err
	case n > MaxRequests:
		return 0, i, ErrOutOfRange
	}
	return n, next, nil
}

func (o *Outputs) readOutput(p []byte, i, finishAt int) (field string, next int, err error) {
	const outputs = "outputs"
	length, next, err := msgpack.ReadArrayHeader(p, i)
	switch {
	case err != nil:
		return outputs, i, err
	case length <= posNewTokenIDs:
		return outputs, i, ErrTooShort
	}
	i = next
	id, next, err := msgpack.ReadString(p, i)
	if err != nil {
		return "request_id", i, err
	}
	r := output{id: uint32(next - len(id)), idLen: uint32(len(id))}
	i = next
	tokens, next, err := msgpack.ReadArrayHeader(p, i)
	if err != nil {
		return "new_token_ids", i, err
	}
	r.tokens, r.numTokens = uint32(next), uint32(tokens)
	if i, err = msgpack.SkipValues(p, next, tokens); err != nil {
		return "new_token_ids", i, err
	}

	pos := posNewTokenIDs + 1
	if pos, i, err = skipTo(posOldFinishReason, length, p, pos, i); err != nil {
		return outputs, i, err
	}
	if finishAt == posFinishReason {
		if pos < length && isInt(p, i) {
			return outputs, i, errOldLayout
		}
		if pos, i, err = skipTo(finishAt, length, p, pos, i); err != nil {
			return outputs, i, err
		}
	}
	if pos < length {
		if r.finish, err = finishReason(p, i); err != nil {
			return "finish_reason", i, err
		}
	}
	if _, i, err = skipTo(length, length, p, pos, i); err != nil {
		return outputs, i, err
	}
	o.outputs = append(o.outputs, r)
	if r.finish != FinishNone {
		o.end(id, r.finish)
	}
	return "", i, nil
}

// skipTo steps over the elements from position pos up to want, or to the end of
// the array.
func skipTo(want, length int, p []byte, pos, i int) (int, int, error) {
	want = max(pos, min(want, length))
	i, err := msgpack.SkipValues(p, i, want-pos)
	return want, i, err
}

func isInt(p []byte, i int) bool {
	t := msgp.NextType(p[i:])
	return t == msgp.IntType || t == msgp.UintType
}

// finishReason returns what the value at i means, without stepping over it.
func finishReason(p []byte, i int) (FinishReason, error) {
	switch {
	case msgp.IsNil(p[i:]):
		return FinishNone, nil
	case isInt(p, i):
		// Any integer ends the request, also one that is not a count.
		if v, _, err := msgpack.ReadCount(p, i); err == nil && v < uint64(len(finishOfWire)) {
			return finishOfWire[v], nil
		}
		return FinishOther, nil
	case i == len(p):
		return FinishNone, ErrTruncated
	}
	return FinishNone, ErrType
}

// end lists a request as ended, unless it is already.
func (o *Outputs) end(id []byte, reason FinishReason) {
	var added bool
	if o.Finished, added = o.ended.add(o.Finished, id); added {
		o.Reasons = append(o.Reasons, reason)
	}
}

func (o *Outputs) readFinished(p []byte, i int) (int, error) {
	n, i, err := readRequestsHeader(p, i)
	if err != nil {
		return i, err
	}
	for range n {
		id, next, err := msgpack.ReadString(p, i)
		if err != nil {
			return i, err
		}
		o.end(id, FinishUnsaid)
		i = next
	}
	return i, nil
}
