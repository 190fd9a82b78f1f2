package zmqsub

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// Config configures a Subscriber. The zero value is usable. Durations other
// than 0 must be at least a millisecond, which is libzmq's resolution.
type Config struct {
	// Owners is how many goroutines share the sockets. Each gets 2048 of them
	// before the next gets any. 0 means GOMAXPROCS, at most 4.
	Owners int

	// Silence is how long a rank may say nothing before it gets a fresh
	// connection, because a half-open link and a pod restarted at the same
	// address look alike, and because libzmq itself gives up a peer that breaks
	// its protocol. The wait doubles with every fruitless attempt, up to
	// a minute (or Silence, if that is longer). 0 means 5 s.
	Silence time.Duration

	// MaxPayload is the largest payload that is decoded, in bytes; a larger one
	// is dropped, and one of twice the size costs its connection. 0 means
	// snapshot.MaxPayload, which is also the most allowed.
	MaxPayload int

	// HeartbeatInterval is how long a peer may say nothing before it is pinged
	// (libzmq pings it that often, whatever it says), HeartbeatTimeout how long it
	// may take to say anything after that. They are what notices a peer that
	// vanished without a FIN. 0 means 1 s and 3 s.
	HeartbeatInterval time.Duration
	HeartbeatTimeout  time.Duration

	// ConnectTimeout bounds a SYN that nobody answers, and separately the
	// ZeroMQ handshake of a peer that accepted. 0 means 2 s.
	ConnectTimeout time.Duration

	// ReconnectMax bounds the back-off between attempts at a peer that refuses or
	// hangs up, which starts at 100 ms. 0 means 2 s.
	ReconnectMax time.Duration

	// Curve, unless nil, has every connection encrypted, and the engines prove who
	// they are. It needs libzmq.
	Curve *Curve

	// MaxSockets is how many subscriptions may be open at once, at most 30,000. 0
	// means 16,384. Each takes a descriptor, and a second one over libzmq. If it is
	// not 0, New fails where the process may not have as many.
	MaxSockets int

	// Libzmq has libzmq do the work also where this package can do it by itself:
	// on Linux, and without CURVE.
	Libzmq bool

	// Logger gets at most one record a minute and endpoint about dropped
	// messages and reconnects. nil discards them; Stats has the exact counts.
	Logger *slog.Logger
}

// reconnectFirst is the first step of libzmq's back-off. An engine that closed
// the connection is usually restarting, which takes much longer than this.
const reconnectFirst = 100 * time.Millisecond

// reconnectAfter is the first step for the connection after so many that were
// fruitless. libzmq itself backs off from peers that refuse, but from one that
// accepts and hangs up, such as one with another key, it starts anew each time.
func (c *Config) reconnectAfter(attempt int) time.Duration {
	return min(reconnectFirst<<min(attempt, 20), c.ReconnectMax)
}

func (c Config) withDefaults() (Config, error) {
	var errs []error
	orDefault := func(name string, d *time.Duration, def time.Duration) {
		switch {
		case *d == 0:
			*d = def
		case *d < time.Millisecond:
			errs = append(errs, fmt.Errorf("zmqsub: Config.%s is %v, want at least 1ms", name, *d))
		}
	}
	orDefault("Silence", &c.Silence, 5*time.Second)
	orDefault("HeartbeatInterval", &c.HeartbeatInterval, time.Second)
	orDefault("HeartbeatTimeout", &c.HeartbeatTimeout, 3*time.Second)
	orDefault("ConnectTimeout", &c.ConnectTimeout, 2*time.Second)
	orDefault("ReconnectMax", &c.ReconnectMax, 2*time.Second)

	atMost := func(name string, n *int, def, limit int) {
		switch {
		case *n == 0:
			*n = def
		case *n < 0 || *n > limit:
			errs = append(errs, fmt.Errorf("zmqsub: Config.%s is %d, want 0 to %d", name, *n, limit))
		}
	}
	atMost("Owners", &c.Owners, min(4, runtime.GOMAXPROCS(0)), 64)
	atMost("MaxPayload", &c.MaxPayload, snapshot.MaxPayload, snapshot.MaxPayload)
	atMost("MaxSockets", &c.MaxSockets, 16_384, 30_000)

	if c.Curve != nil {
		keys := *c.Curve
		c.Curve = &keys
		errs = append(errs, keys.check())
	}

	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(errs...)
}
