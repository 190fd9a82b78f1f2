package tswire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"

	zmq "github.com/pebbe/zmq4"

	"github.com/plimsoll-go/plimsoll/tokenspeed"
)

// FrontendConfig describes a group of ranks and where they dial.
type FrontendConfig struct {
	// Endpoint of the handshake socket, "tcp://host:port", with the port * for any
	// free one; "" = tcp://127.0.0.1:*. The two other sockets take free ports of
	// the same host, which the ranks are told: it must be one that they can dial.
	Endpoint   string
	Ranks      int          // of the group; 0 = 1
	FirstIndex int          // engine index of rank 0
	Logger     *slog.Logger // nil = slog.Default()
}

func (c FrontendConfig) withDefaults() (FrontendConfig, error) {
	if c.Endpoint == "" {
		c.Endpoint = "tcp://127.0.0.1:*"
	}
	if c.Ranks == 0 {
		c.Ranks = 1
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Ranks < 0 || c.FirstIndex < 0 || c.FirstIndex+c.Ranks-1 > tokenspeed.MaxEngineIndex {
		return c, fmt.Errorf("tswire: %d ranks from engine index %d: want indexes from 0 to %d", c.Ranks, c.FirstIndex, tokenspeed.MaxEngineIndex)
	}
	_, err := c.dataEndpoint()
	return c, err
}

// dataEndpoint returns where to bind the input and the output socket.
func (c FrontendConfig) dataEndpoint() (string, error) {
	address, ok := strings.CutPrefix(c.Endpoint, "tcp://")
	host, _, err := net.SplitHostPort(address)
	if !ok || err != nil {
		return "", fmt.Errorf("tswire: endpoint %q: want tcp://host:port", c.Endpoint)
	}
	if ip := net.ParseIP(host); host == "" || host == "*" || ip != nil && ip.IsUnspecified() {
		return "", fmt.Errorf("tswire: endpoint %q: the ranks are told its host, and cannot dial %q", c.Endpoint, host)
	}
	return "tcp://" + net.JoinHostPort(host, "*"), nil
}

// Frontend is the side that routes requests: it binds, and the ranks of one group
// dial in. Create one with [Listen], then Accept, then Serve while adding requests.
type Frontend struct {
	config   FrontendConfig
	zctx     *zmq.Context
	endpoint string
	init     []byte // the answer to HELLO

	handshake *socket // only Accept uses it
	input     *socket // Accept receives; then Add and Abort send
	output    *socket // only Serve uses it

	close func() error
}

// Listen binds the sockets. The ranks may dial from now on, and earlier.
func Listen(config FrontendConfig) (*Frontend, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	zctx, err := zmq.NewContext()
	if err != nil {
		return nil, fmt.Errorf("tswire: context: %w", err)
	}
	f := &Frontend{config: config, zctx: zctx}
	f.close = sync.OnceValue(func() error { return end(zctx, f.handshake, f.input, f.output) })
	if err := f.bind(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *Frontend) bind() error {
	data, err := f.config.dataEndpoint()
	if err != nil {
		return err
	}
	var a addresses
	for _, b := range []struct {
		socket   **socket
		kind     zmq.Type
		endpoint string
		maxSize  int64
		bound    *string
	}{
		{&f.handshake, zmq.ROUTER, f.config.Endpoint, maxHandshake, &f.endpoint},
		{&f.input, zmq.ROUTER, data, maxHandshake, &a.input},
		{&f.output, zmq.PULL, data, maxBatch, &a.output},
	} {
		s, err := newSocket(f.zctx, b.kind, options{endpoint: b.endpoint, maxSize: b.maxSize, linger: lastWords})
		if err != nil {
			return err
		}
		*b.socket = s
		if err := s.Bind(b.endpoint); err != nil {
			return fmt.Errorf("tswire: %s: %w", b.endpoint, err)
		}
		if *b.bound, err = s.GetLastEndpoint(); err != nil {
			return fmt.Errorf("tswire: %s: %w", b.endpoint, err)
		}
	}
	f.init = appendInit(nil, a)
	return nil
}

// Endpoint returns where the ranks dial, such as "tcp://127.0.0.1:40123".
func (f *Frontend) Endpoint() string { return f.endpoint }

// Close frees the ports. It may be called twice and during any other call.
func (f *Frontend) Close() error { return f.close() }

// rankState is how far a rank has come.
type rankState struct {
	ready      bool
	registered bool
	said       Ready
}

// Accept waits until all ranks of the group have shaken hands and registered, and
// returns what they say of themselves, by rank. Who else dials is ignored. A rank
// that has left meanwhile may come again; one that comes while another of its index
// is there is ErrSameIndex, for the group would wait for the right one in silence.
func (f *Frontend) Accept(ctx context.Context) ([]Ready, error) {
	f.handshake.mu.Lock()
	defer f.handshake.mu.Unlock()
	f.input.mu.Lock()
	defer f.input.mu.Unlock()

	ranks := make([]rankState, f.config.Ranks)
	missing := func(s rankState) bool { return !s.ready || !s.registered }
	poller := zmq.NewPoller()
	poller.Add(f.handshake.Socket, zmq.POLLIN)
	poller.Add(f.input.Socket, zmq.POLLIN)
	for slices.ContainsFunc(ranks, missing) {
		readable, err := poller.Poll(glance)
		if err != nil {
			return nil, translated(err)
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("tswire: waiting for %s: %w", listOf(ranks, missing), context.Cause(ctx))
		}
		for _, p := range readable {
			if p.Socket == f.handshake.Socket {
				err = f.greetLocked(ranks)
			} else {
				err = f.registerLocked(ranks)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	said := make([]Ready, len(ranks))
	for i, s := range ranks {
		said[i] = s.said
	}
	return said, nil
}

func listOf(ranks []rankState, missing func(rankState) bool) string {
	var b strings.Builder
	b.WriteString("ranks")
	for i, s := range ranks {
		if missing(s) {
			fmt.Fprintf(&b, " %d", i)
		}
	}
	return b.String()
}

// greetLocked answers one message on the handshake socket.
func (f *Frontend) greetLocked(ranks []rankState) error {
	identity, payload, err := f.handshake.fromRankLocked()
	if err != nil {
		return err
	}
	rank, ok := f.rankOf(identity)
	if !ok {
		return nil
	}
	status, err := readStatus(payload)
	switch {
	case err != nil || status != statusHello && status != statusReady:
		f.config.Logger.Warn("tswire: handshake message makes no sense", "rank", rank, "status", status, "err", err)
	case status == statusReady:
		ranks[rank].ready = true
	case ranks[rank].registered && f.reachableLocked(identity):
		return fmt.Errorf("%w: %d; if it was restarted, the old one has not been missed yet", ErrSameIndex, f.config.FirstIndex+rank)
	default:
		ranks[rank] = rankState{}
		err := f.handshake.sendLocked(zmq.DONTWAIT, identity, f.init)
		// It has left again, and is welcome to come back.
		if err != nil && !errors.Is(err, ErrUnreachable) {
			return err
		}
	}
	return nil
}

// reachableLocked reports whether the rank that has registered under an identity is
// still connected. Only sending it something tells: here, to abort nothing.
func (f *Frontend) reachableLocked(identity []byte) bool {
	err := f.input.sendLocked(zmq.DONTWAIT, identity, typeAbort, appendAbort(nil, nil))
	return !errors.Is(err, ErrUnreachable)
}

// registerLocked takes in one message on the input socket.
func (f *Frontend) registerLocked(ranks []rankState) error {
	identity, payload, err := f.input.fromRankLocked()
	if err != nil {
		return err
	}
	rank, ok := f.rankOf(identity)
	if !ok {
		return nil
	}
	said, err := readReady(payload)
	if err != nil {
		f.config.Logger.Warn("tswire: registration makes no sense", "rank", rank, "err", err)
		return nil
	}
	ranks[rank].registered, ranks[rank].said = true, said
	return nil
}

// fromRankLocked receives [identity, ..., payload].
func (s *socket) fromRankLocked() (identity, payload []byte, err error) {
	frames, err := s.receiveLocked()
	if err != nil {
		return nil, nil, err
	}
	return frames[0], frames[len(frames)-1], nil
}

func (f *Frontend) rankOf(identity []byte) (rank int, ok bool) {
	index, ok := indexOf(identity)
	if rank = index - f.config.FirstIndex; ok && rank >= 0 && rank < f.config.Ranks {
		return rank, true
	}
	f.config.Logger.Warn("tswire: a stranger dialled in", "identity", fmt.Sprintf("%x", identity))
	return 0, false
}

// Add sends a request to a rank. It does not wait.
func (f *Frontend) Add(rank int, q Request) error {
	return f.command(rank, typeAdd, q.append(nil))
}

// Abort tells a rank to drop requests. It does not wait, and there is no answer:
// batches may name the requests until the rank has heard of it, and none may ever.
func (f *Frontend) Abort(rank int, ids ...string) error {
	return f.command(rank, typeAbort, appendAbort(nil, ids))
}

func (f *Frontend) command(rank int, kind, payload []byte) error {
	if rank < 0 || rank >= f.config.Ranks {
		return fmt.Errorf("tswire: rank %d of %d: %w", rank, f.config.Ranks, ErrUnreachable)
	}
	f.input.mu.Lock()
	defer f.input.mu.Unlock()
	return f.input.sendLocked(zmq.DONTWAIT, identityOf(f.config.FirstIndex+rank), kind, payload)
}

// Serve calls deliver with the frames of every message that comes from the ranks,
// one after another, until Close, and then returns nil. The frames are deliver's to
// keep. While it does not return, messages wait, and in the end the ranks do.
func (f *Frontend) Serve(deliver func(frames [][]byte)) error {
	f.output.mu.Lock()
	defer f.output.mu.Unlock()
	for {
		frames, err := f.output.receiveLocked()
		if errors.Is(err, ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		deliver(frames)
	}
}
