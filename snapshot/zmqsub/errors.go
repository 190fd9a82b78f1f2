package zmqsub

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is returned by Subscribe once Close has been called.
	ErrClosed = errors.New("zmqsub: subscriber is closed")

	// ErrNoCgo is returned by New in a program built without cgo, where the Config
	// or the system needs libzmq.
	ErrNoCgo = errors.New("zmqsub: built without cgo: libzmq needs CGO_ENABLED=1, a C compiler and its headers (Debian: libzmq3-dev)")

	// ErrLimit is returned by Subscribe when Config.MaxSockets subscriptions are
	// open, or when the process has no descriptor left for another one. libzmq
	// lets go of a closed socket a little later, so that thousands of
	// subscriptions which end within a fraction of a second may cause it, too.
	ErrLimit = errors.New("zmqsub: no socket left")

	// ErrEndpoint is what every EndpointError unwraps to.
	ErrEndpoint = errors.New("zmqsub: bad endpoint")

	// ErrKey is what every KeyError unwraps to.
	ErrKey = errors.New("zmqsub: bad key")

	// ErrNoCurve is returned by New with a Curve where libzmq was built without.
	ErrNoCurve = errors.New("zmqsub: libzmq was built without CURVE (it needs libsodium)")
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

// KeyError is returned for keys that cannot be used: by New for those of the
// Config, and by Subscribe for that of an endpoint. It does not hold the key.
type KeyError struct {
	Key      string // the field of Curve: ServerKey, PublicKey or SecretKey
	Endpoint string // that ServerKeyOf was asked for; empty if it was not
	Problem  string // what is wrong with it, e.g. "missing"
}

func (e *KeyError) Error() string {
	if e.Endpoint != "" {
		return fmt.Sprintf("%v: Curve.%s of %s: %s", ErrKey, e.Key, e.Endpoint, e.Problem)
	}
	return fmt.Sprintf("%v: Curve.%s: %s", ErrKey, e.Key, e.Problem)
}

func (e *KeyError) Unwrap() error { return ErrKey }
