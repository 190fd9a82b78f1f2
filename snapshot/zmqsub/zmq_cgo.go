//go:build cgo

package zmqsub

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	zmq "github.com/pebbe/zmq4"
)

const (
	// receiveQueue is ZMQ_RCVHWM, in messages. A high-water mark keeps the
	// oldest, so a longer queue does not make a reading newer: it only has to
	// hold what a fast publisher sends between two rounds (10,000 a second is 20
	// of them), and to be large enough that a backlog behind it, in the kernel
	// and at the peer, is refilled in few steps. Beyond it TCP pushes back, and
	// the publisher drops on its own side instead of us reading for nothing.
	receiveQueue = 2 * burst

	// receiveBuffer is SO_RCVBUF, in bytes. Left alone, Linux grows it to
	// megabytes when the reader stalls: tens of thousands of readings, all of
	// them old by the time they are read.
	receiveBuffer = 64 << 10

	// sizeHeadroom times MaxPayload is ZMQ_MAXMSGSIZE. libzmq answers a larger
	// frame by dropping the connection without a word, and for good: a breach of
	// protocol is not something it reconnects after. Below that, an oversized
	// payload can be counted and its neighbours used.
	sizeHeadroom = 4
)

// zmqBus is a context of our own. The default one of zmq4 is shared by the
// process: its socket limit may be fixed by now, and terminating it is not ours.
type zmqBus struct {
	ctx    *zmq.Context
	config Config
	ports  int
}

func openBus(c Config) (bus, error) {
	ctx, err := zmq.NewContext()
	if err != nil {
		return nil, fmt.Errorf("zmqsub: ZeroMQ context: %w", err)
	}
	// zmq4 restarts an interrupted poll with its full timeout, so that signals
	// arriving faster than that would keep every timer from firing.
	ctx.SetRetryAfterEINTR(false)
	b := &zmqBus{ctx: ctx, config: c}
	// A closed socket keeps its slot until the reaper thread has got to it, and
	// a fresh connection is opened before the old one is closed: room for twice
	// what Subscribe allows, plus the wake-up pair of each owner.
	if err := ctx.SetMaxSockets(2*c.MaxSockets + 2*c.Owners); err != nil {
		b.close()
		return nil, fmt.Errorf("zmqsub: room for %d sockets: %w", c.MaxSockets, err)
	}
	if err := ctx.SetBlocky(false); err != nil {
		b.close()
		return nil, fmt.Errorf("zmqsub: libzmq 4.2 or newer is needed: %w", err)
	}
	return b, nil
}

func (b *zmqBus) close() error {
	// Term gives up its context on any error, so an interruption must be retried
	// inside. All owners are gone by now.
	b.ctx.SetRetryAfterEINTR(true)
	if err := b.ctx.Term(); err != nil {
		return fmt.Errorf("zmqsub: closing the ZeroMQ context: %w", err)
	}
	return nil
}

// port makes the two ends of the owner's wake-up. They are handed over to the
// owner, respectively to whoever holds wakeMu, before anybody uses them.
func (b *zmqBus) port() (port, error) {
	address := fmt.Sprintf("inproc://wake-%d", b.ports)
	b.ports++
	p := &zmqPort{bus: b, poller: zmq.NewPoller(), subs: make(map[*zmq.Socket]*subscription)}
	if err := p.openWake(address); err != nil {
		p.close()
		return nil, fmt.Errorf("zmqsub: wake-up socket: %w", socketError(err))
	}
	p.poller.Add(p.woken, zmq.POLLIN)
	return p, nil
}

type zmqPort struct {
	// owned by the owner goroutine
	bus    *zmqBus
	poller *zmq.Poller
	woken  *zmq.Socket
	subs   map[*zmq.Socket]*subscription // holds every socket, so that no finalizer closes one
	ready  []*subscription

	// awake is set while a wake-up is on its way, so that there is no second one
	// behind it. A high-water mark of 1 would not do: the sender learns that its
	// message was read when it next processes commands, which zmq_send skips if
	// it did so within the last millisecond; until then it says "full" to an
	// owner that has gone back to sleep.
	awake atomic.Bool

	wakeMu sync.Mutex
	waker  *zmq.Socket // guarded by wakeMu; nil once closed
}

func (p *zmqPort) openWake(address string) (err error) {
	if p.woken, err = newSocket(p.bus.ctx, zmq.PULL); err != nil {
		return err
	}
	if p.waker, err = newSocket(p.bus.ctx, zmq.PUSH); err != nil {
		return err
	}
	for _, err := range []error{
		p.woken.SetRcvhwm(0), p.waker.SetSndhwm(0), p.woken.SetLinger(0), p.waker.SetLinger(0),
	} {
		if err != nil {
			return err
		}
	}
	if err := uninterrupted(func() error { return p.woken.Bind(address) }); err != nil {
		return err
	}
	return uninterrupted(func() error { return p.waker.Connect(address) })
}

// uninterrupted repeats a call that a signal cut short before it did anything.
// That happens in earnest: the Go runtime preempts goroutines with signals.
func uninterrupted(call func() error) error {
	for {
		if err := call(); !interrupted(err) {
			return err
		}
	}
}

func interrupted(err error) bool { return zmq.AsErrno(err) == zmq.Errno(syscall.EINTR) }

// newSocket exists because zmq4 returns a half-made socket with its error.
func newSocket(ctx *zmq.Context, t zmq.Type) (soc *zmq.Socket, err error) {
	err = uninterrupted(func() error {
		soc, err = ctx.NewSocket(t)
		return err
	})
	if err != nil {
		return nil, err
	}
	return soc, nil
}

// socketError tells want of sockets or descriptors from the rest.
func socketError(err error) error {
	switch zmq.AsErrno(err) {
	case zmq.Errno(syscall.EMFILE), zmq.Errno(syscall.ENFILE), zmq.Errno(syscall.ENOMEM), zmq.Errno(syscall.ENOBUFS):
		return fmt.Errorf("%w: %w (see the descriptor limit of the process)", ErrLimit, err)
	}
	return err
}

func (p *zmqPort) open(sub *subscription) (source, error) {
	soc, err := newSocket(p.bus.ctx, zmq.SUB)
	if err != nil {
		return nil, fmt.Errorf("zmqsub: SUB socket: %w", socketError(err))
	}
	if err := p.bus.configure(soc); err != nil {
		soc.Close()
		return nil, err
	}
	p.subs[soc] = sub
	p.poller.Add(soc, zmq.POLLIN)
	return &zmqSource{port: p, soc: soc}, nil
}

func (b *zmqBus) configure(soc *zmq.Socket) error {
	c := &b.config
	for _, option := range []struct {
		name string
		err  error
	}{
		{"LINGER", soc.SetLinger(0)},
		{"IPV6", soc.SetIpv6(true)}, // per socket; without it an IPv6 peer is never reached
		{"RCVHWM", soc.SetRcvhwm(receiveQueue)},
		{"RCVBUF", soc.SetRcvbuf(receiveBuffer)},
		{"MAXMSGSIZE", soc.SetMaxmsgsize(int64(sizeHeadroom * c.MaxPayload))},
		{"HEARTBEAT_IVL", soc.SetHeartbeatIvl(c.HeartbeatInterval)},
		{"HEARTBEAT_TIMEOUT", soc.SetHeartbeatTimeout(c.HeartbeatTimeout)},
		{"CONNECT_TIMEOUT", soc.SetConnectTimeout(c.ConnectTimeout)},
		{"HANDSHAKE_IVL", soc.SetHandshakeIvl(c.ConnectTimeout)},
		{"RECONNECT_IVL", soc.SetReconnectIvl(min(reconnectFirst, c.ReconnectMax))},
		{"RECONNECT_IVL_MAX", soc.SetReconnectIvlMax(c.ReconnectMax)},
		{"SUBSCRIBE", soc.SetSubscribe("")},
	} {
		if option.err != nil {
			return fmt.Errorf("zmqsub: socket option %s: %w", option.name, option.err)
		}
	}
	return nil
}

func (p *zmqPort) wait(d time.Duration) ([]*subscription, error) {
	if d > 0 {
		// Poll rounds down, and what is below a millisecond spins.
		d = (d + time.Millisecond - 1).Truncate(time.Millisecond)
	}
	polled, err := p.poller.Poll(d)
	if err != nil {
		if interrupted(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("zmqsub: poll: %w", err)
	}
	p.ready = p.ready[:0]
	for _, item := range polled {
		if item.Socket == p.woken {
			p.clearWake()
			continue
		}
		p.ready = append(p.ready, p.subs[item.Socket])
	}
	return p.ready, nil
}

func (p *zmqPort) clearWake() {
	for {
		_, err := p.woken.RecvBytes(zmq.DONTWAIT)
		if err != nil && !interrupted(err) {
			break
		}
	}
	// Now, before the owner looks at what it was woken for: whoever finds the
	// flag set has left that behind already, and it will be seen.
	p.awake.Store(false)
}

func (p *zmqPort) wake() {
	if p.awake.Swap(true) {
		return
	}
	p.wakeMu.Lock()
	defer p.wakeMu.Unlock()
	if p.waker == nil {
		return
	}
	if err := uninterrupted(func() error {
		_, err := p.waker.SendBytes(nil, zmq.DONTWAIT)
		return err
	}); err != nil {
		p.awake.Store(false)
	}
}

func (p *zmqPort) close() {
	for soc := range p.subs {
		soc.Close()
	}
	clear(p.subs)
	if p.woken != nil {
		p.woken.Close()
	}
	p.wakeMu.Lock()
	defer p.wakeMu.Unlock()
	if p.waker != nil {
		p.waker.Close()
		p.waker = nil
	}
}

type zmqSource struct {
	port *zmqPort
	soc  *zmq.Socket
}

func (s *zmqSource) connect(address string) error {
	if err := uninterrupted(func() error { return s.soc.Connect(address) }); err != nil {
		return fmt.Errorf("zmqsub: connect %s: %w", address, err)
	}
	return nil
}

func (s *zmqSource) recv() ([]byte, bool, error) {
	for {
		frame, err := s.soc.RecvBytes(zmq.DONTWAIT)
		switch zmq.AsErrno(err) {
		case zmq.Errno(syscall.EAGAIN):
			return nil, false, errQuiet
		case zmq.Errno(syscall.EINTR):
			continue
		}
		if err != nil {
			return nil, false, fmt.Errorf("zmqsub: receive: %w", err)
		}
		more, err := s.soc.GetRcvmore()
		return frame, more, err
	}
}

func (s *zmqSource) close() {
	delete(s.port.subs, s.soc)
	s.port.poller.RemoveBySocket(s.soc)
	s.soc.Close()
}
