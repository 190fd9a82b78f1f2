package tswire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	zmq "github.com/pebbe/zmq4"

	"github.com/plimsoll-go/plimsoll/tokenspeed"
)

// DialConfig describes a rank to the frontend that it dials.
type DialConfig struct {
	Handshake   string // where the frontend waits, such as "tcp://127.0.0.1:40123"
	EngineIndex int    // of this rank, unique in its group
	Ready       Ready
	Logger      *slog.Logger // nil = slog.Default()
}

// Conn is a rank's side of the transport. Create one with [Dial].
type Conn struct {
	logger  *slog.Logger
	zctx    *zmq.Context
	input   *socket
	output  *socket
	gone    chan struct{}
	closing chan struct{}
	once    sync.Once
}

// Dial shakes hands and registers. It waits for a frontend that is not there yet,
// as engines do, until ctx ends.
func Dial(ctx context.Context, config DialConfig) (*Conn, error) {
	if config.EngineIndex < 0 || config.EngineIndex > tokenspeed.MaxEngineIndex {
		return nil, fmt.Errorf("tswire: engine index %d: want 0 to %d", config.EngineIndex, tokenspeed.MaxEngineIndex)
	}
	zctx, err := zmq.NewContext()
	if err != nil {
		return nil, fmt.Errorf("tswire: context: %w", err)
	}
	c := &Conn{logger: config.Logger, zctx: zctx, gone: make(chan struct{}), closing: make(chan struct{})}
	if c.logger == nil {
		c.logger = slog.Default()
	}
	if err := c.dial(ctx, config); err != nil {
		c.Kill()
		return nil, err
	}
	return c, nil
}

func (c *Conn) dial(ctx context.Context, config DialConfig) error {
	identity := identityOf(config.EngineIndex)
	a, err := c.shakeHands(ctx, config.Handshake, identity)
	if err != nil {
		return err
	}
	c.input, err = newSocket(c.zctx, zmq.DEALER, options{endpoint: a.input, identity: identity, maxSize: maxCommand})
	if err != nil {
		return err
	}
	if err := c.watch(); err != nil {
		return err
	}
	if err := c.input.connect(a.input); err != nil {
		return err
	}
	if err := c.input.sendLocked(zmq.DONTWAIT, config.Ready.append(nil)); err != nil {
		return err
	}
	c.output, err = newSocket(c.zctx, zmq.PUSH, options{endpoint: a.output, maxSize: maxHandshake, linger: lastWords, send: glance})
	if err != nil {
		return err
	}
	return c.output.connect(a.output)
}

// shakeHands returns where to go next.
func (c *Conn) shakeHands(ctx context.Context, endpoint string, identity []byte) (addresses, error) {
	for {
		a, err := c.hello(ctx, endpoint, identity)
		if !errors.Is(err, ErrStalled) {
			return a, err
		}
		if ctx.Err() != nil {
			return addresses{}, fmt.Errorf("tswire: waiting for the frontend at %s: %w", endpoint, context.Cause(ctx))
		}
	}
}

// hello calls once. The error is ErrStalled if there is no answer, which is not for
// ever: the frontend may have closed with the HELLO in its hands, and what binds the
// address next does not know of it; nor does it see a line whose identity another
// holds.
func (c *Conn) hello(ctx context.Context, endpoint string, identity []byte) (addresses, error) {
	s, err := newSocket(c.zctx, zmq.DEALER, options{endpoint: endpoint, identity: identity, maxSize: maxHandshake, linger: lastWords, receive: glance})
	if err != nil {
		return addresses{}, err
	}
	defer s.close()
	if err := s.connect(endpoint); err != nil {
		return addresses{}, err
	}
	if err := s.sendLocked(zmq.DONTWAIT, appendStatus(nil, statusHello)); err != nil {
		return addresses{}, err
	}
	called := time.Now()
	frames, err := s.receiveLocked()
	for errors.Is(err, ErrStalled) && ctx.Err() == nil && time.Since(called) < callAgain {
		frames, err = s.receiveLocked()
	}
	if err != nil {
		return addresses{}, errors.Join(err, s.SetLinger(0)) // the HELLO that nobody took
	}
	a, err := readInit(frames[len(frames)-1])
	if err != nil {
		return addresses{}, fmt.Errorf("tswire: %w", err)
	}
	return a, s.sendLocked(zmq.DONTWAIT, appendStatus(nil, statusReady))
}

// watch has c.gone closed when the frontend closes the input line, or never takes
// it. libzmq would go on dialling, but what binds that address next is not the
// frontend that gave it out.
func (c *Conn) watch() error {
	const endpoint = "inproc://input-line"
	if err := c.input.Monitor(endpoint, zmq.EVENT_DISCONNECTED|zmq.EVENT_CONNECT_RETRIED); err != nil {
		return fmt.Errorf("tswire: %s: %w", endpoint, err)
	}
	events, err := newSocket(c.zctx, zmq.PAIR, options{maxSize: maxHandshake})
	if err != nil {
		return err
	}
	if err := events.connect(endpoint); err != nil {
		events.close()
		return err
	}
	go func() {
		defer events.close()
		if _, _, _, err := events.RecvEvent(0); err == nil {
			close(c.gone)
		}
	}()
	return nil
}

// Gone is closed when the frontend is gone. Nothing ends with it: a Receive goes on
// waiting, and so may a Send, until Close or Kill.
func (c *Conn) Gone() <-chan struct{} { return c.gone }

// Receive waits for the next command. Messages that make no sense are logged and
// passed over, as engines do: a newer frontend must not bring down a rank.
func (c *Conn) Receive() (Command, error) {
	c.input.mu.Lock()
	defer c.input.mu.Unlock()
	for {
		frames, err := c.input.receiveLocked()
		if err != nil {
			return Command{}, err
		}
		command, err := readCommand(frames)
		if err == nil {
			return command, nil
		}
		c.logger.Warn("tswire: command makes no sense", "err", err)
	}
}

// Send sends a batch. A frontend that does not keep up makes it wait, and with it
// the rank.
func (c *Conn) Send(payload []byte) error {
	c.output.mu.Lock()
	defer c.output.mu.Unlock()
	for {
		err := c.output.sendLocked(0, payload)
		if !errors.Is(err, ErrStalled) {
			return err
		}
		select {
		case <-c.closing:
			return ErrClosed
		default:
		}
	}
}

// Close tells the frontend that the engine is dead, as engines do that end in an
// orderly way or get to handle their crash, and hangs up. It may be called twice
// and during any other call.
func (c *Conn) Close() error { return c.hangUp(true) }

// Kill hangs up without a word, as an engine does whose process is killed.
func (c *Conn) Kill() error { return c.hangUp(false) }

func (c *Conn) hangUp(lastWord bool) (err error) {
	c.once.Do(func() {
		close(c.closing)
		if c.output != nil {
			c.output.mu.Lock()
			if lastWord {
				err = c.output.sendLocked(zmq.DONTWAIT, []byte(tokenspeed.EngineDead))
			} else {
				err = c.output.SetLinger(0)
			}
			c.output.mu.Unlock()
		}
		err = errors.Join(err, end(c.zctx, c.output, c.input))
	})
	return err
}
