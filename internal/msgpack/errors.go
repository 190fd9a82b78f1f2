package msgpack

import "errors"

// Cause is what is wrong with a message, together with a label to count it
// under. Carrying the label in the cause keeps Reason from needing a second list
// that could fall behind.
type Cause struct{ reason, text string }

// NewCause returns a cause of a package's own.
func NewCause(reason, text string) error { return &Cause{reason, text} }

func (c *Cause) Error() string { return c.text }

// What the readers of this package return, and what every decoder has to check
// besides. The packages that use them export them under the same names, and say
// there what they mean.
var (
	ErrTruncated  = NewCause("truncated", "payload ends too early")
	ErrType       = NewCause("type", "unexpected type")
	ErrNegative   = NewCause("negative", "negative number")
	ErrNotFinite  = NewCause("not_finite", "number is not finite")
	ErrNotInteger = NewCause("not_integer", "count is not an integer")
	ErrOutOfRange = NewCause("out_of_range", "out of range")
	ErrTooDeep    = NewCause("too_deep", "nested too deeply")

	ErrNil           = NewCause("nil", "required value is nil")
	ErrTrailingBytes = NewCause("trailing_bytes", "bytes after the value")
	ErrPayloadSize   = NewCause("payload_size", "payload is too large")
)

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
