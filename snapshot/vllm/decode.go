package vllm

import (
	"math"

	"github.com/plimsoll-go/plimsoll/internal/msgpack"
	"github.com/tinylib/msgp/msgp"
)

// MaxRequests bounds the outputs of a message, and the ids of those that have
// ended, so that no message can make a reused Outputs grow for good to many times
// its own size.
const MaxRequests = 1 << 18

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

// Positions in an output. Engines from before there were pooling outputs have
// the finish reason where the pooling output is now, which is nil or an array
// and never an integer.
const (
	posRequestID = iota
	posNewTokenIDs

	posOldFinishReason = 4
	posFinishReason    = 5
)

// Decode reads one msgpack array out of payload into o, which is reset first.
// The ids in o point into payload afterwards.
//
// Every error is a *DecodeError. After one, o is empty.
func (o *Outputs) Decode(payload []byte) error {
	o.Reset()
	if field, i, err := o.decode(payload); err != nil {
		o.Reset()
		return &DecodeError{Offset: i, Field: field, Err: err}
	}
	return nil
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
		if i < len(p) && p[i] == leadNil && pos != posEngineIndex {
			i++
			continue
		}
		field = ""
		if pos < numPositions {
			field = positionNames[pos]
		}
		switch pos {
		case posEngineIndex:
			o.EngineIndex, i, err = readEngineIndex(p, i)
		case posOutputs:
			var inner string
			if inner, i, err = o.readOutputs(p, i); inner != "" {
				field = inner
			}
		case posSchedulerStats:
			stats = true
			i, err = o.readStats(p, i)
		case posFinishedRequests:
			i, err = o.readFinished(p, i)
		case posWaveComplete:
			o.WaveComplete, i, err = readWave(p, i)
		case posStartWave:
			o.StartWave, i, err = readWave(p, i)
		case posUtilityOutput:
			reply = true
			fallthrough
		default:
			i, err = skip(p, i)
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
	case o.WaveComplete.Known || o.StartWave.Known:
		o.Kind = KindWaveNotice
	default:
		o.Kind = KindBatch
	}
	return "", i, nil
}

const leadNil = 0xc0

// skip steps over a value. Most of those in an output are nil.
func skip(p []byte, i int) (int, error) {
	if i < len(p) && (p[i] == leadNil || p[i] <= msgpack.MaxFixint) {
		return i + 1, nil
	}
	return msgpack.Skip(p, i)
}

func readEngineIndex(p []byte, i int) (int, int, error) {
	v, next, err := msgpack.ReadCount(p, i)
	switch {
	case err != nil:
		return 0, i, orNil(p, i, err)
	case v > math.MaxInt32:
		return 0, i, ErrOutOfRange
	}
	return int(v), next, nil
}

// orNil makes more of the error of a required value that is nil.
func orNil(p []byte, i int, err error) error {
	if msgp.IsNil(p[i:]) {
		return ErrNil
	}
	return err
}

// readWave reads a wave, which nothing rests on: what is no count is unknown.
func readWave(p []byte, i int) (Maybe[int64], int, error) {
	if v, next, err := msgpack.ReadCount(p, i); err == nil {
		return Maybe[int64]{int64(v), true}, next, nil
	}
	next, err := skip(p, i)
	return Maybe[int64]{}, next, err
}

// readOutputs reads the outputs, in the newer layout until one of them shows the
// older.
func (o *Outputs) readOutputs(p []byte, i int) (field string, next int, err error) {
	n, i, err := msgpack.ReadArrayHeader(p, i)
	if err != nil {
		return "", i, err
	}
	if n > MaxRequests {
		return "", i, ErrOutOfRange
	}
	o.Requests = n
	first, finishAt := i, posFinishReason
	for k := 0; k < n; k++ {
		var old bool
		field, i, old, err = o.readOutput(p, i, finishAt)
		if err != nil {
			return field, i, err
		}
		if old && finishAt != posOldFinishReason {
			// What has been taken for a finish reason so far was a stop reason.
			o.outputs, o.Finished, o.Reasons = o.outputs[:0], o.Finished[:0], o.Reasons[:0]
			o.ended.reset()
			k, i, finishAt = -1, first, posOldFinishReason
		}
	}
	return "", i, nil
}

func (o *Outputs) readOutput(p []byte, i, finishAt int) (field string, next int, old bool, err error) {
	length, i, err := msgpack.ReadArrayHeader(p, i)
	if err != nil {
		return "", i, false, err
	}
	if length <= posNewTokenIDs {
		return "", i, false, ErrTooShort
	}
	id, next, err := msgpack.ReadString(p, i)
	if err != nil {
		return "request_id", i, false, orNil(p, i, err)
	}
	r := output{id: uint32(next - len(id)), idLen: uint32(len(id))}
	i = next
	tokens, next, err := msgpack.ReadArrayHeader(p, i)
	if err != nil {
		return "new_token_ids", i, false, orNil(p, i, err)
	}
	i = next
	r.at, r.tokens = uint32(i), uint32(tokens)
	for range tokens {
		if i, err = skip(p, i); err != nil {
			return "new_token_ids", i, false, err
		}
	}
	for pos := posNewTokenIDs + 1; pos < length; pos++ {
		switch {
		case pos == posOldFinishReason && isInt(p, i):
			old = true
			if finishAt == pos {
				r.reason = reasonOf(p, i)
			}
		case pos == posFinishReason && finishAt == pos && !msgp.IsNil(p[i:]):
			if !isInt(p, i) {
				return "finish_reason", i, false, wrongType(p, i)
			}
			r.reason = reasonOf(p, i)
		}
		if i, err = skip(p, i); err != nil {
			return "", i, false, err
		}
	}
	o.outputs = append(o.outputs, r)
	if r.reason != Running {
		o.end(id, r.reason)
	}
	return "", i, old, nil
}

func isInt(p []byte, i int) bool {
	t := msgp.NextType(p[i:])
	return t == msgp.IntType || t == msgp.UintType
}

func wrongType(p []byte, i int) error {
	if i >= len(p) {
		return ErrTruncated
	}
	return ErrType
}

// reasonOf returns what the integer at i means.
func reasonOf(p []byte, i int) FinishReason {
	if n := p[i]; n <= byte(Repetition-Stop) {
		return Stop + FinishReason(n)
	}
	v, _, err := msgpack.ReadCount(p, i)
	if err != nil || v > uint64(Repetition-Stop) {
		return OtherReason
	}
	return Stop + FinishReason(v)
}

// end lists a request that has ended, once.
func (o *Outputs) end(id []byte, reason FinishReason) {
	var added bool
	if o.Finished, added = o.ended.add(o.Finished, id); added {
		o.Reasons = append(o.Reasons, reason)
	}
}

func (o *Outputs) readFinished(p []byte, i int) (int, error) {
	n, i, err := msgpack.ReadArrayHeader(p, i)
	if err != nil {
		return i, err
	}
	if n > MaxRequests {
		return i, ErrOutOfRange
	}
	for range n {
		id, next, err := msgpack.ReadString(p, i)
		if err != nil {
			return i, orNil(p, i, err)
		}
		o.end(id, Unsaid)
		i = next
	}
	return i, nil
}
