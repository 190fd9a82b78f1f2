//go:build cgo

package zmqsub

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	zmq "github.com/pebbe/zmq4"
)

const (
	// receiveQueue is ZMQ_RCVHWM, in messages. A high-water mark keeps the
	// oldest, so a longer queue does not make a reading newer: it only has to
	// hold what a fast publisher sends between two rounds (10,000 a second is 40
	// of them), and to be large enough that a backlog behind it, in the kernel
	// and at the peer, is refilled in few steps. Beyond it TCP pushes back, and
	// the publisher drops on its own side instead of us reading for nothing.
	receiveQueue = 2 * burst
)

// zmqBus is a context of our own. The default one of zmq4 is shared by the
// process: its socket limit may be fixed by now, and terminating it is not ours.
type zmqBus struct {
	ctx       *zmq.Context
	config    Config
	newWaiter func() (zmqWaiter, error)
}

func openZMQ(c Config) (bus, error) {
	if c.Curve != nil {
		if err := c.Curve.complete(); err != nil {
			return nil, err
		}
	}
	ctx, err := zmq.NewContext()
	if err != nil {
		return nil, limited("ZeroMQ context", err)
	}
	b := &zmqBus{ctx: ctx, config: c, newWaiter: newWaiter}
	// A closed socket keeps its slot until the reaper thread has got to it, and
	// a fresh connection is opened before the old one is closed: room for twice
	// what Subscribe allows, and much for subscriptions that come and go fast.
	if err := ctx.SetMaxSockets(2*c.MaxSockets + 1024); err != nil {
		b.close()
		return nil, fmt.Errorf("zmqsub: room for %d sockets: %w", c.MaxSockets, err)
	}
	if err := ctx.SetBlocky(false); err != nil {
		b.close()
		return nil, fmt.Errorf("zmqsub: libzmq 4.2 or newer is needed: %w", err)
	}
	if err := b.startThreads(); err != nil {
		b.close()
		return nil, limited("threads of libzmq", err)
	}
	return b, nil
}

// startThreads makes the first socket, which starts the threads of the context.
// For want of a descriptor for one of those libzmq ends the process. So it is
// done now and not under load, and not before it is clear that there are enough.
func (b *zmqBus) startThreads() error {
	var room []*os.File
	var err error
	for range 16 { // 6 are needed
		var f *os.File
		if f, err = os.Open(os.DevNull); err != nil {
			break
		}
		room = append(room, f)
	}
	for _, f := range room {
		f.Close()
	}
	if err != nil {
		return err
	}
	soc, err := b.ctx.NewSocket(zmq.SUB)
	if err != nil {
		return err
	}
	return soc.Close()
}

func (b *zmqBus) close() error {
	if err := b.ctx.Term(); err != nil {
		return fmt.Errorf("zmqsub: closing the ZeroMQ context: %w", err)
	}
	return nil
}

func (b *zmqBus) port() (port, error) {
	w, err := b.newWaiter()
	if err != nil {
		return nil, limited("owner", err)
	}
	return &zmqPort{zmqWaiter: w, bus: b}, nil
}

func (b *zmqBus) gauge() gauge { return newGauge() }

// zmqWaiter is a waiter for sockets.
type zmqWaiter interface {
	waiter
	add(*zmq.Socket, *subscription) error
	remove(*zmq.Socket)
}

type zmqPort struct {
	zmqWaiter
	bus *zmqBus
}

// limited says what an error is about, and tells want of sockets or descriptors
// from the rest.
func limited(what string, err error) error {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ENOSPC} {
		if errors.Is(err, errno) || zmq.AsErrno(err) == zmq.Errno(errno) {
			return fmt.Errorf("%w: %s: %w (see the descriptor limit of the process)", ErrLimit, what, err)
		}
	}
	return fmt.Errorf("zmqsub: %s: %w", what, err)
}

func (p *zmqPort) open(sub *subscription) (source, error) {
	soc, err := p.bus.ctx.NewSocket(zmq.SUB)
	if err != nil {
		return nil, limited("SUB socket", err)
	}
	if err := p.bus.configure(soc, sub); err != nil {
		soc.Close()
		return nil, err
	}
	if err := p.add(soc, sub); err != nil {
		soc.Close()
		return nil, limited("waiting for a SUB socket", err)
	}
	return &zmqSource{port: p, soc: soc}, nil
}

func (b *zmqBus) configure(soc *zmq.Socket, sub *subscription) error {
	c := &b.config
	options := []option{
		{"LINGER", soc.SetLinger(0)},
		{"IPV6", soc.SetIpv6(true)}, // per socket; without it an IPv6 peer is never reached
		{"RCVHWM", soc.SetRcvhwm(receiveQueue)},
		{"RCVBUF", soc.SetRcvbuf(receiveBuffer)},
		// Of one frame, which costs the connection without a word and for good: a
		// breach of protocol is not something libzmq reconnects after.
		{"MAXMSGSIZE", soc.SetMaxmsgsize(int64(oversize * c.MaxPayload))},
		{"HEARTBEAT_IVL", soc.SetHeartbeatIvl(c.HeartbeatInterval)},
		{"HEARTBEAT_TIMEOUT", soc.SetHeartbeatTimeout(c.HeartbeatTimeout)},
		{"CONNECT_TIMEOUT", soc.SetConnectTimeout(c.ConnectTimeout)},
		{"HANDSHAKE_IVL", soc.SetHandshakeIvl(c.ConnectTimeout)},
		{"RECONNECT_IVL", soc.SetReconnectIvl(c.reconnectAfter(sub.attempt))},
		{"RECONNECT_IVL_MAX", soc.SetReconnectIvlMax(c.ReconnectMax)},
		{"SUBSCRIBE", soc.SetSubscribe("")},
	}
	if keys := c.Curve; keys != nil {
		options = append(options,
			option{"CURVE_SERVERKEY", soc.SetCurveServerkey(sub.serverKey)},
			option{"CURVE_PUBLICKEY", soc.SetCurvePublickey(keys.PublicKey)},
			option{"CURVE_SECRETKEY", soc.SetCurveSecretkey(keys.SecretKey)},
		)
	}
	for _, o := range options {
		if o.err != nil {
			return fmt.Errorf("zmqsub: socket option %s: %w", o.name, o.err)
		}
	}
	return nil
}

// option is a socket option, and what came of setting it.
type option struct {
	name string
	err  error
}

// hasCurve is a variable for tests.
var hasCurve = zmq.HasCurve

// complete makes the pair of keys that is missing, and checks the one that is not.
func (c *Curve) complete() (err error) {
	if !hasCurve() {
		return ErrNoCurve
	}
	if c.SecretKey == "" {
		c.PublicKey, c.SecretKey, err = zmq.NewCurveKeypair()
		if err != nil {
			return fmt.Errorf("zmqsub: making a pair of keys: %w", err)
		}
		return nil
	}
	public, err := zmq.AuthCurvePublic(c.SecretKey)
	if err != nil {
		return fmt.Errorf("zmqsub: deriving the public key: %w", err)
	}
	if public != c.PublicKey {
		return &KeyError{Key: "PublicKey", Problem: "is not that of SecretKey"}
	}
	return nil
}

type zmqSource struct {
	port *zmqPort
	soc  *zmq.Socket
}

func (s *zmqSource) connect(address string) error {
	if err := s.soc.Connect(address); err != nil {
		return fmt.Errorf("zmqsub: connect %s: %w", address, err)
	}
	return nil
}

func (s *zmqSource) recv() ([]byte, bool, error) {
	frame, err := s.soc.RecvBytes(zmq.DONTWAIT)
	if err != nil {
		if zmq.AsErrno(err) == zmq.Errno(syscall.EAGAIN) {
			return nil, false, errQuiet
		}
		return nil, false, fmt.Errorf("zmqsub: receive: %w", err)
	}
	more, err := s.soc.GetRcvmore()
	return frame, more, err
}

func (s *zmqSource) close() {
	s.port.remove(s.soc)
	s.soc.Close()
}
