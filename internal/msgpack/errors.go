package msgpack

import (
	"errors"
	"fmt"
)

// Cause is what is wrong with a message, together with a label to count it
// under. Carrying the label in the cause keeps Reason from needing a second list
// that could fall behind.
type Cause struct{ reason, text string }

// NewCause returns a cause of a package's own.
func NewCause(reason, text string) error { return &Cause{reason, text} }

func (c *Cause) Error() string { return c.text }

// What the readers of this package return, and what several decoders have to
// check besides. The packages that use them export them under the same names, and
// say there what they mean.
var (
	ErrTruncated  = NewCause("truncated", "payload ends too early")
	ErrType       = NewCause("type", "unexpected type")
	ErrNegative   = NewCause("negative", "negative number")
	ErrNotFinite  = NewCause("not_finite", "number is not finite")
	ErrNotInteger = NewCause("not_integer", "count is not an integer")
	ErrOutOfRange = NewCause("out_of_range", "out of range")
	ErrTooDeep    = NewCause("too_deep", "nested too deeply")

	ErrNil           = NewCause("nil", "required value is nil")
	ErrTooShort      = NewCause("too_short", "array is shorter than its required elements")
	ErrTrailingBytes = NewCause("trailing_bytes", "bytes after the value")
	ErrPayloadSize   = NewCause("payload_size", "payload is too large")

	// Of the frames that an output batch comes in.
	ErrFrameCount = NewCause("frame_count", "message has no frames")
	ErrEngineDead = NewCause("engine_dead", "engine is dead")
)

// Describe returns the text of a decoder's error. A cause that is about the
// message as a whole has no place in it.
func Describe(decoder, field string, offset int, cause error) string {
	switch {
	case cause == ErrPayloadSize || cause == ErrFrameCount || cause == ErrEngineDead:
		return fmt.Sprintf("%s: %v", decoder, cause)
	case field == "":
		return fmt.Sprintf("%s: %v at byte %d", decoder, cause, offset)
	}
	return fmt.Sprintf("%s: %s: %v at byte %d", decoder, field, cause, offset)
}

// Reason returns the label of the cause within err: "" for nil, and "other" for
// an error without one.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	if c, ok := errors.AsType[*Cause](err); ok {
		return c.reason
	}
	return "other"
}
