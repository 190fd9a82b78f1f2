package tokenspeed

import "github.com/plimsoll-go/plimsoll/internal/msgpack"

// The causes of a DecodeError. Compare with errors.Is. Those that other decoders
// of this module have by the same name may be the same value: whose error it is,
// only its type says.
var (
	// ErrRagged: a column of another length than rids. Summary.Finished may be
	// used all the same.
	ErrRagged = msgpack.NewCause("ragged", "column differs from rids in length")
	// ErrTag: an array that does not start with the string "BatchTokenIDOutSlim".
	// The engine has other messages, none of which it sends here.
	ErrTag = msgpack.NewCause("tag", `array is not tagged "BatchTokenIDOutSlim"`)
	// ErrTooShort: fewer than the nine elements that every sender has. Field is the
	// first that is missing.
	ErrTooShort = msgpack.ErrTooShort
	// ErrNil: nil where there has to be a value: in place of a column, of a value
	// in it, or of a number. (The engine's own struct lets rids be nil. A batch
	// without ids is of no use, and the engine never sends one.)
	ErrNil = msgpack.ErrNil
	// ErrTruncated: the payload ends inside a value, or a header claims more
	// elements or bytes than are left.
	ErrTruncated = msgpack.ErrTruncated
	// ErrType: a value of another type than its field has.
	ErrType = msgpack.ErrType
	// ErrNegative: a count, an index or a token id below 0.
	ErrNegative = msgpack.ErrNegative
	// ErrNotFinite: NaN or an infinity for a count.
	ErrNotFinite = msgpack.ErrNotFinite
	// ErrNotInteger: a count with a fraction.
	ErrNotInteger = msgpack.ErrNotInteger
	// ErrOutOfRange: a count above 2^63-1, an engine index above MaxEngineIndex, or
	// more KV pages in use than there are.
	ErrOutOfRange = msgpack.ErrOutOfRange
	// ErrTooDeep: a value that is skipped nests deeper than any message has reason
	// to.
	ErrTooDeep = msgpack.ErrTooDeep
	// ErrTrailingBytes: something follows the value.
	ErrTrailingBytes = msgpack.ErrTrailingBytes
	// ErrPayloadSize: a payload above MaxPayload.
	ErrPayloadSize = msgpack.ErrPayloadSize
	// ErrFrameCount: a message without frames.
	ErrFrameCount = msgpack.ErrFrameCount
	// ErrEngineDead: the engine says that it has died. Nothing is wrong with the
	// message; whatever was in flight there is lost.
	ErrEngineDead = msgpack.ErrEngineDead
)

// DecodeError is the type of every error of this package.
type DecodeError struct {
	Offset int    // of the offending value, in bytes from the start of the payload; 0 where it has no place there
	Field  string // the engine's name of its column; "" when the error concerns no one column
	Err    error  // one of the sentinels
}

func (e *DecodeError) Error() string {
	return msgpack.Describe("tokenspeed", e.Field, e.Offset, e.Err)
}

func (e *DecodeError) Unwrap() error { return e.Err }

// Reason returns a short stable label for err, such as "ragged" or "truncated",
// fit for a counter. It is "" for nil. The decoders of this module share their
// labels, so it knows the errors of the others too; any other error is "other".
func Reason(err error) string { return msgpack.Reason(err) }
