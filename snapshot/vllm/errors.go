package vllm

import "github.com/plimsoll-go/plimsoll/internal/msgpack"

// The causes of a DecodeError. Compare with errors.Is. Those that other decoders
// of this module have by the same name may be the same value: whose error it is,
// only its type says.
var (
	// ErrEngineDead: the engine core has died, and says so with its last
	// message. No other will come from it.
	ErrEngineDead = msgpack.ErrEngineDead
	// ErrFrameCount: a message without frames.
	ErrFrameCount = msgpack.ErrFrameCount
	// ErrPayloadSize: a payload above MaxPayload.
	ErrPayloadSize = msgpack.ErrPayloadSize
	// ErrTruncated: the payload ends inside a value, or a header claims more
	// elements or bytes than are left.
	ErrTruncated = msgpack.ErrTruncated
	// ErrTooShort: an output without a request id or token ids.
	ErrTooShort = msgpack.ErrTooShort
	// ErrType: a value of another type than its place has.
	ErrType = msgpack.ErrType
	// ErrNil: nil where a value is required.
	ErrNil = msgpack.ErrNil
	// ErrNegative: a count, an index, a token id or a KV usage below 0.
	ErrNegative = msgpack.ErrNegative
	// ErrNotFinite: NaN or an infinity for a number that is kept.
	ErrNotFinite = msgpack.ErrNotFinite
	// ErrNotInteger: a count with a fraction.
	ErrNotInteger = msgpack.ErrNotInteger
	// ErrOutOfRange: a count above 2^63-1, an engine index above MaxEngineIndex, a
	// KV usage above 1, or more than MaxRequests requests.
	ErrOutOfRange = msgpack.ErrOutOfRange
	// ErrTooDeep: a value that is skipped is nested deeper than any message has
	// reason to be.
	ErrTooDeep = msgpack.ErrTooDeep
	// ErrTrailingBytes: something follows the value. The front end's own decoder
	// refuses that too.
	ErrTrailingBytes = msgpack.ErrTrailingBytes
)

// DecodeError is the type of every error of this package.
type DecodeError struct {
	Offset int    // of the offending value, in bytes from the start of the payload; 0 where it has no place there
	Field  string // its name in the engine; "" when the error concerns no one field
	Err    error  // one of the sentinels
}

func (e *DecodeError) Error() string {
	return msgpack.Describe("vllm", e.Field, e.Offset, e.Err)
}

func (e *DecodeError) Unwrap() error { return e.Err }

// Reason returns a short stable label for err, such as "truncated" or "engine_dead",
// fit for a counter. It is "" for nil. The decoders of this module share their
// labels, so it knows the errors of the others too; any other error is "other".
func Reason(err error) string { return msgpack.Reason(err) }
