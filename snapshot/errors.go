package snapshot

import (
	"fmt"

	"github.com/plimsoll-go/plimsoll/internal/msgpack"
)

// The causes of a DecodeError. Compare with errors.Is. Those that other decoders
// of this module have by the same name may be the same value: whose error it is,
// only its type says.
var (
	// ErrTruncated: the payload ends inside a value, or a header claims more
	// elements or bytes than are left.
	ErrTruncated = msgpack.ErrTruncated
	// ErrTag: an array that does not start with the string "LoadStat". A KV
	// event batch on the load port looks like this.
	ErrTag = msgpack.NewCause("tag", `array is not tagged "LoadStat"`)
	// ErrTooShort: a LoadStat of fewer elements than its tag and four counts.
	// Reading the missing ones as 0 would make a broken rank look idle.
	ErrTooShort = msgpack.ErrTooShort
	// ErrType: a value of another type than its field has, or a map key that
	// is not a string.
	ErrType = msgpack.ErrType
	// ErrNil: nil in a required count of a LoadStat.
	ErrNil = msgpack.ErrNil
	// ErrNegative: a number below 0.
	ErrNegative = msgpack.ErrNegative
	// ErrNotFinite: NaN or an infinity.
	ErrNotFinite = msgpack.ErrNotFinite
	// ErrNotInteger: a count with a fraction.
	ErrNotInteger = msgpack.ErrNotInteger
	// ErrOutOfRange: a count above 2^63-1, an array or string above its bound.
	ErrOutOfRange = msgpack.ErrOutOfRange
	// ErrTooDeep: an unknown value nested deeper than any message has reason
	// to be.
	ErrTooDeep = msgpack.ErrTooDeep
	// ErrTrailingBytes: something follows the value. The engine's own decoder
	// refuses that too.
	ErrTrailingBytes = msgpack.ErrTrailingBytes
	// ErrNotLoad: the payload is neither a map nor an array.
	ErrNotLoad = msgpack.NewCause("not_load", "neither a map nor an array")
	// ErrFrameCount: a message of other than three frames.
	ErrFrameCount = msgpack.NewCause("frame_count", "message does not have three frames")
	// ErrEndless: a message that has not ended, though its frames never stopped
	// coming.
	ErrEndless = msgpack.NewCause("endless", "message does not end")
	// ErrSeqSize: a sequence frame of other than eight bytes.
	ErrSeqSize = msgpack.NewCause("seq_size", "sequence frame is not eight bytes")
	// ErrEndOfStream: sequence -1, which the framing reserves. There is nothing
	// to decode and nothing wrong.
	ErrEndOfStream = msgpack.NewCause("end_of_stream", "end of stream marker")
	// ErrPayloadSize: a payload above MaxPayload.
	ErrPayloadSize = msgpack.ErrPayloadSize
)

// messageType is DecodeError.Type for what concerns no message type in particular.
const messageType = "message"

// DecodeError is the type of every error of this package.
type DecodeError struct {
	Type   string // "LoadSnapshot", "LoadStat" or "message"
	Offset int    // of the offending value, in bytes from the start of the payload
	Field  string // its wire key; "" when the error concerns no one field
	Err    error  // one of the sentinels
}

func (e *DecodeError) Error() string {
	if e.Type == messageType { // frames have no offset worth telling
		return fmt.Sprintf("snapshot: message: %v", e.Err)
	}
	return msgpack.Describe("snapshot: "+e.Type, e.Field, e.Offset, e.Err)
}

func (e *DecodeError) Unwrap() error { return e.Err }

// Reason returns a short stable label for err, such as "truncated" or "negative",
// fit for a counter. It is "" for nil. The decoders of this module share their
// labels, so it knows the errors of the others too; any other error is "other".
func Reason(err error) string { return msgpack.Reason(err) }
