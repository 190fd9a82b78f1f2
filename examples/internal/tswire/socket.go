package tswire

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	zmq "github.com/pebbe/zmq4"
)

var (
	// ErrClosed is returned by methods of a Frontend or a Conn that has been closed,
	// also by those that were waiting.
	ErrClosed = errors.New("tswire: closed")
	// ErrUnreachable is returned by Add and Abort for a rank that there is no
	// connection to: what was to be sent will not arrive. It says nothing of what
	// was sent before, and its absence promises nothing.
	ErrUnreachable = errors.New("tswire: no connection to the rank")
	// ErrSameIndex is returned by Accept when two engines that are there at once go by
	// one index.
	ErrSameIndex = errors.New("tswire: two engines have the same index")
	// ErrStalled is returned by Add and Abort for a rank that is connected and does
	// not read.
	ErrStalled = errors.New("tswire: the rank does not read")
)

const (
	// glance is how long a wait in libzmq goes on before it looks up, where nothing
	// else would end it.
	glance = 50 * time.Millisecond
	// callAgain is how long a rank waits for the answer to its HELLO.
	callAgain = time.Second
	// lastWords is how long what was said last may take to leave.
	lastWords = time.Second

	maxHandshake = 64 << 10
	maxCommand   = 64 << 20 // a prompt of a million tokens fits many times
	maxBatch     = 64 << 20
)

// socket is a ZeroMQ socket, which belongs to whoever holds mu.
type socket struct {
	mu sync.Mutex
	*zmq.Socket
}

// options are what is set before a socket is bound or connected.
type options struct {
	identity []byte // nil = none
	endpoint string // only to see whether it is IPv6
	maxSize  int64
	linger   time.Duration // how long what is left to send may take after the end
	receive  time.Duration // timeout; 0 = none
	send     time.Duration // the same
}

func newSocket(zctx *zmq.Context, t zmq.Type, o options) (*socket, error) {
	s, err := zctx.NewSocket(t)
	if err != nil {
		return nil, fmt.Errorf("tswire: socket: %w", err)
	}
	err = errors.Join(
		s.SetLinger(o.linger),
		s.SetMaxmsgsize(o.maxSize),
		s.SetIpv6(strings.Contains(o.endpoint, "[")),
	)
	if o.identity != nil {
		err = errors.Join(err, s.SetIdentity(string(o.identity)))
	}
	if o.receive > 0 {
		err = errors.Join(err, s.SetRcvtimeo(o.receive))
	}
	if o.send > 0 {
		err = errors.Join(err, s.SetSndtimeo(o.send))
	}
	if t == zmq.ROUTER {
		// Without it, what is sent to a rank that is gone vanishes without a word.
		err = errors.Join(err, s.SetRouterMandatory(1))
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("tswire: socket: %w", err)
	}
	return &socket{Socket: s}, nil
}

func (s *socket) connect(endpoint string) error {
	if err := s.Connect(endpoint); err != nil {
		return fmt.Errorf("tswire: %s: %w", endpoint, err)
	}
	return nil
}

// close may be called twice, and on nil.
func (s *socket) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Close()
}

// sendLocked sends a message as a whole or not at all.
func (s *socket) sendLocked(flags zmq.Flag, frames ...[]byte) error {
	for i, f := range frames {
		flags := flags
		if i < len(frames)-1 {
			flags |= zmq.SNDMORE
		}
		if _, err := s.SendBytes(f, flags); err != nil {
			return translated(err)
		}
	}
	return nil
}

func (s *socket) receiveLocked() ([][]byte, error) {
	frames, err := s.RecvMessageBytes(0)
	return frames, translated(err)
}

// translated gives libzmq's reasons the names that they have here.
func translated(err error) error {
	if err == nil {
		return nil
	}
	switch zmq.AsErrno(err) {
	case zmq.ETERM:
		return ErrClosed
	case zmq.Errno(syscall.EHOSTUNREACH):
		return ErrUnreachable
	case zmq.Errno(syscall.EAGAIN):
		return ErrStalled
	}
	if errors.Is(err, zmq.ErrorSocketClosed) || errors.Is(err, zmq.ErrorContextClosed) {
		return ErrClosed
	}
	return fmt.Errorf("tswire: %w", err)
}

// end closes the sockets and returns when libzmq has let go of everything. Term
// goes first, in the background: it is what wakes whoever waits with a socket in
// hand.
func end(zctx *zmq.Context, sockets ...*socket) error {
	term := make(chan error, 1)
	go func() { term <- zctx.Term() }()
	for _, s := range sockets {
		s.close()
	}
	return <-term
}
