package tswire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

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
	c := &Conn{logger: config.Logger, zctx: zctx, closing: make(chan struct{})}
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
	c.input, err = connect(c.zctx, zmq.DEALER, options{endpoint: a.input, identity: identity, maxSize: maxCommand})
	if err != nil {
		return err
	}
	if err := c.input.sendLocked(zmq.DONTWAIT, config.Ready.append(nil)); err != nil {
		return err
	}
	c.output, err = connect(c.zctx, zmq.PUSH, options{endpoint: a.output, maxSize: maxHandshake, linger: lastWords, send: glance})
	return err
}

// shakeHands returns where to go next.
func (c *Conn) shakeHands(ctx context.Context, endpoint string, identity []byte) (addresses, error) {
	s, err := connect(c.zctx, zmq.DEALER, options{endpoint: endpoint, identity: identity, maxSize: maxHandshake, linger: lastWords, receive: glance})
	if err != nil {
		return addresses{}, err
	}
	defer s.close()
	if err := s.sendLocked(zmq.DONTWAIT, appendStatus(nil, statusHello)); err != nil {
		return addresses{}, err
	}
	for {
		frames, err := s.receiveLocked()
		if ctx.Err() != nil {
			return addresses{}, errors.Join(
				fmt.Errorf("tswire: waiting for the frontend at %s: %w", endpoint, context.Cause(ctx)),
				s.SetLinger(0)) // the HELLO that nobody took
		}
		if errors.Is(err, ErrStalled) {
			continue
		}
		if err != nil {
			return addresses{}, err
		}
		a, err := readInit(frames[len(frames)-1])
		if err != nil {
			return addresses{}, fmt.Errorf("tswire: %w", err)
		}
		return a, s.sendLocked(zmq.DONTWAIT, appendStatus(nil, statusReady))
	}
}

func connect(zctx *zmq.Context, t zmq.Type, o options) (*socket, error) {
	s, err := newSocket(zctx, t, o)
	if err != nil {
		return nil, err
	}
	if err := s.Connect(o.endpoint); err != nil {
		s.close()
		return nil, fmt.Errorf("tswire: %s: %w", o.endpoint, err)
	}
	return s, nil
}

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
