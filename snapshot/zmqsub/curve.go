package zmqsub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Curve has the keys of connections that are encrypted and that nobody but the
// engine can answer (ZeroMQ's CURVE). A key is 40 characters of Z85, as
// zmq_curve_keypair and its bindings write them.
//
// With it, no connection is made in plain, whatever the peer offers. An engine
// that does not speak CURVE, or has another key, or does not take ours, is not
// heard; libzmq does not say which of these it is.
//
// It protects from the network, not from the engines: libzmq (4.3, at least) ends
// the process if whoever has a server's secret key wants it to.
type Curve struct {
	// ServerKey is the public key of the engines.
	ServerKey string

	// ServerKeyOf, unless nil, gives the public key of the engine behind an
	// endpoint as it was passed to Subscribe (by package discovery, with the host of
	// the worker's URL); "" stands for ServerKey. It is asked by Subscribe, and again
	// on an owner goroutine for each fresh connection, so that an engine may come
	// back with another key. It must not block.
	ServerKeyOf func(endpoint string) string

	// PublicKey and SecretKey are our own pair, for engines that take certain
	// clients only. Both empty: New makes a pair, and forgets it with the
	// Subscriber.
	PublicKey, SecretKey string
}

// check returns what is wrong with the keys that are there from the start.
func (c *Curve) check() error {
	var errs []error
	if c.ServerKey != "" {
		errs = append(errs, checkKey("ServerKey", "", c.ServerKey))
	} else if c.ServerKeyOf == nil {
		errs = append(errs, &KeyError{Key: "ServerKey", Problem: "missing"})
	}
	if c.PublicKey != "" || c.SecretKey != "" {
		errs = append(errs, checkKey("PublicKey", "", c.PublicKey), checkKey("SecretKey", "", c.SecretKey))
	}
	return errors.Join(errs...)
}

// serverKey returns the key to connect to an endpoint with; "" without CURVE.
func (c *Curve) serverKey(endpoint string) (string, error) {
	if c == nil {
		return "", nil
	}
	key := c.ServerKey
	if c.ServerKeyOf != nil {
		if k := c.ServerKeyOf(endpoint); k != "" {
			key = k
		}
	}
	return key, checkKey("ServerKey", endpoint, key)
}

const (
	keyLength = 40
	z85       = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)

// checkKey checks what libzmq would refuse without saying why.
func checkKey(name, endpoint, key string) error {
	bad := func(format string, args ...any) error {
		return &KeyError{Key: name, Endpoint: endpoint, Problem: fmt.Sprintf(format, args...)}
	}
	switch {
	case key == "":
		return bad("missing")
	case len(key) != keyLength:
		return bad("%d characters, want %d", len(key), keyLength)
	}
	var group uint64 // five digits are 32 bits
	for i := range keyLength {
		digit := strings.IndexByte(z85, key[i])
		if digit < 0 {
			return bad("character %d is not one of Z85", i+1)
		}
		if i%5 == 0 {
			group = 0
		}
		if group = 85*group + uint64(digit); group > 1<<32-1 {
			return bad("characters %d to %d are above 32 bits", i/5*5+1, i+1)
		}
	}
	return nil
}

// hidden is what a Curve shows of its keys. A Config is what programs print to
// tell how they run.
const hidden = "(keys)"

// Format shows no key, whatever the verb.
func (Curve) Format(s fmt.State, _ rune) { io.WriteString(s, hidden) }

// LogValue shows no key.
func (Curve) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalJSON shows no key.
func (Curve) MarshalJSON() ([]byte, error) { return json.Marshal(hidden) }
