package zmqsub

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is returned by Subscribe once Close has been called.
	ErrClosed = errors.New("zmqsub: subscriber is closed")

	// ErrNoCgo is returned by New in a program built without cgo.
	ErrNoCgo = errors.New("zmqsub: built without cgo: load sockets need CGO_ENABLED=1, a C compiler and libzmq with its headers (Debian: libzmq3-dev)")

	// ErrLimit is returned by Subscribe when Config.MaxSockets subscriptions are
	// open, or when the process has no descriptor left for another one. libzmq
	// lets go of a closed socket a little later, so that thousands of
	// subscriptions which end within a fraction of a second may cause it, too.
	ErrLimit = errors.New("zmqsub: no socket left")

	// ErrEndpoint is what every EndpointError unwraps to.
	ErrEndpoint = errors.New("zmqsub: bad endpoint")
)

// EndpointError is returned by Subscribe for an endpoint that can never be
// dialled. An endpoint where nobody answers is not an error.
type EndpointError struct {
	Endpoint string
	Problem  string // what is wrong with it, e.g. "no port"
}

func (e *EndpointError) Error() string {
	return fmt.Sprintf("%v %q: %s", ErrEndpoint, e.Endpoint, e.Problem)
}

func (e *EndpointError) Unwrap() error { return ErrEndpoint }
