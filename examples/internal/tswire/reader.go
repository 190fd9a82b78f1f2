package tswire

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// errClaim is the cause for a header that claims more than there are bytes.
var errClaim = errors.New("claims more elements than there are bytes")

// reader takes a message apart. After the first error it reads only zeros, so that
// the error needs to be looked at only once.
type reader struct {
	b   []byte
	err error
}

// read moves r forward by one value of the type that f reads.
func read[T any](r *reader, what string, f func([]byte) (T, []byte, error)) (v T) {
	if r.err != nil {
		return v
	}
	v, rest, err := f(r.b)
	if err != nil {
		r.fail(what, err)
		return *new(T)
	}
	r.b = rest
	return v
}

func (r *reader) fail(what string, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %w", what, err)
	}
}

func (r *reader) string(what string) string { return read(r, what, msgp.ReadStringBytes) }
func (r *reader) bool(what string) bool     { return read(r, what, msgp.ReadBoolBytes) }
func (r *reader) int(what string) int64     { return read(r, what, msgp.ReadInt64Bytes) }

// array returns how many elements follow. No loop runs on the word of the header.
func (r *reader) array(what string) int {
	return r.claimed(what, read(r, what, msgp.ReadArrayHeaderBytes))
}

// pairs is array for a map.
func (r *reader) pairs(what string) int {
	return r.claimed(what, read(r, what, msgp.ReadMapHeaderBytes))
}

func (r *reader) claimed(what string, n uint32) int {
	if uint64(n) > uint64(len(r.b)) {
		r.fail(what, errClaim)
		return 0
	}
	return int(n)
}

// null reports whether a nil comes next, and reads it if so.
func (r *reader) null() bool {
	if r.err != nil || !msgp.IsNil(r.b) {
		return false
	}
	r.b = r.b[1:]
	return true
}

func (r *reader) skip(what string) {
	if r.err != nil {
		return
	}
	rest, err := msgp.Skip(r.b)
	if err != nil {
		r.fail(what, err)
		return
	}
	r.b = rest
}
