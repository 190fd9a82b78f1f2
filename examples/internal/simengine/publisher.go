package simengine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	zmq "github.com/pebbe/zmq4"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// errPortInUse is wrapped by the error of a start whose ports somebody else has.
var errPortInUse = errors.New("port in use")

const (
	// sendHWM is the engine's own: a gauge needs no backlog.
	sendHWM = 8
	// garbagePace keeps most broken messages from being shed at that backlog.
	garbagePace = 2 * time.Millisecond
	// Every floodPace a flood sends what a backlog takes. More would be shed.
	floodPace = time.Millisecond
	statTopic = "load"
)

// allRanks stands for every rank of an engine.
const allRanks = -1

// publisher owns the load sockets of all ranks of an engine. One goroutine makes,
// uses and closes them: a ZeroMQ socket belongs to one.
type publisher struct {
	ranks  []*rank
	wire   Wire
	logger *slog.Logger
	trace  *Trace
	cancel context.CancelFunc
	wake   chan struct{} // capacity 1
	done   chan struct{} // closed when every socket is

	mu         sync.Mutex
	marks      []bool      // by rank
	mutedUntil []time.Time // by rank
	floodUntil time.Time
	garbage    int // messages still to be sent, per rank
	frozen     bool
}

// publisherConfig says where a publisher binds and what it says.
type publisherConfig struct {
	host   string // as in a listen address
	base   int    // port of rank 0
	ranks  int
	wire   Wire
	logger *slog.Logger
	trace  *Trace
}

func newPublisher(c publisherConfig) *publisher {
	return &publisher{
		wire:       c.wire,
		logger:     c.logger,
		trace:      c.trace,
		wake:       make(chan struct{}, 1),
		done:       make(chan struct{}),
		marks:      make([]bool, c.ranks),
		mutedUntil: make([]time.Time, c.ranks),
	}
}

// start binds the sockets and publishes the load of ranks on them until close.
// When it fails, nothing is left bound.
func (p *publisher) start(c publisherConfig, ranks []*rank) error {
	ctx, cancel := context.WithCancel(context.Background())
	p.ranks, p.cancel = ranks, cancel
	bound := make(chan error, 1)
	go func() {
		defer close(p.done)
		sockets, closeAll, err := openSockets(c)
		bound <- err
		if err != nil {
			return
		}
		defer closeAll()
		p.run(ctx, sockets)
	}()
	if err := <-bound; err != nil {
		cancel()
		<-p.done
		return err
	}
	return nil
}

// close returns when the ports are free again.
func (p *publisher) close() {
	p.cancel()
	<-p.done
}

// mark says that a rank's load is worth a look. It does not block.
func (p *publisher) mark(rank int) {
	p.mu.Lock()
	p.marks[rank] = true
	p.mu.Unlock()
	nudge(p.wake)
}

// mute silences the socket of a rank, or of all, until then; the zero time ends it.
func (p *publisher) mute(rank int, until time.Time) {
	p.mu.Lock()
	for i := range p.mutedUntil {
		if rank == allRanks || rank == i {
			p.mutedUntil[i] = until
		}
	}
	p.mu.Unlock()
	nudge(p.wake)
}

// flood has the load sent without a pause until then.
func (p *publisher) flood(until time.Time) {
	p.mu.Lock()
	p.floodUntil = until
	p.mu.Unlock()
	nudge(p.wake)
}

// freeze stops everything, or sets it going again.
func (p *publisher) freeze(frozen bool) {
	p.mu.Lock()
	p.frozen = frozen
	p.mu.Unlock()
	nudge(p.wake)
}

// sendGarbage has n broken messages sent by every rank; 0 stops it.
func (p *publisher) sendGarbage(n int) {
	p.mu.Lock()
	p.garbage = n
	p.mu.Unlock()
	nudge(p.wake)
}

// run publishes until ctx ends.
func (p *publisher) run(ctx context.Context, sockets []*zmq.Socket) {
	outlets := make([]outlet, len(sockets))
	for i, s := range sockets {
		outlets[i] = outlet{rank: p.ranks[i], socket: s, cadence: cadence{wire: p.wire}, trace: p.trace}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
		timer.Reset(p.publish(time.Now(), outlets))
	}
}

// publish sends what is due and returns when to come back.
func (p *publisher) publish(now time.Time, outlets []outlet) time.Duration {
	p.mu.Lock()
	if p.frozen {
		p.mu.Unlock()
		return statHeartbeat
	}
	for i := range outlets {
		if p.marks[i] {
			outlets[i].cadence.mark()
			p.marks[i] = false
		}
		outlets[i].muted = p.mutedUntil[i].Sub(now)
	}
	broken := p.garbage > 0
	if broken {
		p.garbage--
	}
	more := p.garbage > 0
	flooding := p.floodUntil.After(now)
	p.mu.Unlock()

	wait := statHeartbeat
	if more {
		wait = garbagePace
	}
	if flooding {
		wait = floodPace
	}
	for i := range outlets {
		o := &outlets[i]
		var err error
		if broken {
			err = o.sendGarbage()
		}
		if o.muted > 0 {
			wait = min(wait, o.muted)
		} else {
			if flooding {
				err = errors.Join(err, o.flood(now))
			}
			err = errors.Join(err, o.sendLoad(now))
			wait = min(wait, o.cadence.next(now))
		}
		if err != nil {
			p.logger.Warn("load message not sent", "rank", i, "err", err)
		}
	}
	return wait
}

// outlet is the load socket of one rank.
type outlet struct {
	rank    *rank
	socket  *zmq.Socket
	cadence cadence
	trace   *Trace
	muted   time.Duration // that it still is
	seq     int64
	broken  int    // garbage sent
	payload []byte // reused
}

func (o *outlet) sendLoad(now time.Time) error {
	if o.cadence.next(now) > 0 {
		return nil // spare the walk over the queue
	}
	load := o.rank.load(now)
	if !o.cadence.due(now, statOf(&load)) {
		return nil
	}
	return o.tell(&load)
}

func (o *outlet) flood(now time.Time) error {
	load := o.rank.load(now)
	for range sendHWM {
		if err := o.tell(&load); err != nil {
			return err
		}
	}
	return nil
}

func (o *outlet) tell(load *snapshot.LoadSnapshot) error {
	topic := ""
	if o.cadence.wire == WireLoadStat {
		topic = statTopic
		stat := statOf(load)
		o.payload = stat.Append(o.payload[:0])
	} else {
		o.payload = load.Append(o.payload[:0])
	}
	seq := o.seq
	o.seq++
	o.trace.report(o.rank.index, seq, load)
	return o.send(snapshot.Join(nil, topic, seq, o.payload))
}

func (o *outlet) sendGarbage() error {
	kind := garbageKinds[o.broken%len(garbageKinds)]
	o.broken++
	return o.send(kind.frames)
}

func (o *outlet) send(frames [][]byte) error {
	for i, f := range frames {
		// PUB sheds what it cannot send, so this does not block; DONTWAIT is there so
		// that it cannot.
		flags := zmq.DONTWAIT
		if i < len(frames)-1 {
			flags |= zmq.SNDMORE
		}
		if _, err := o.socket.SendBytes(f, flags); err != nil {
			return err
		}
	}
	return nil
}

// openSockets binds one PUB socket per rank in a context of their own, whose end
// is the only way to know that their ports are free again.
func openSockets(c publisherConfig) (sockets []*zmq.Socket, closeAll func(), err error) {
	zctx, err := zmq.NewContext()
	if err != nil {
		return nil, nil, fmt.Errorf("simengine: zmq context: %w", err)
	}
	closeAll = func() {
		for _, s := range sockets {
			s.Close()
		}
		zctx.Term()
	}
	if err := zctx.SetMaxSockets(c.ranks + 1); err != nil {
		closeAll()
		return nil, nil, fmt.Errorf("simengine: zmq context: %w", err)
	}
	for r := range c.ranks {
		s, err := openSocket(zctx, zmqHost(c.host), c.base+r)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		sockets = append(sockets, s)
	}
	return sockets, closeAll, nil
}

func openSocket(zctx *zmq.Context, host string, port int) (*zmq.Socket, error) {
	s, err := zctx.NewSocket(zmq.PUB)
	if err != nil {
		return nil, fmt.Errorf("simengine: load socket: %w", err)
	}
	endpoint := "tcp://" + host + ":" + strconv.Itoa(port)
	err = errors.Join(
		s.SetSndhwm(sendHWM),
		s.SetLinger(0),
		s.SetIpv6(strings.HasPrefix(host, "[")),
	)
	if err == nil {
		err = s.Bind(endpoint)
	}
	if err == nil {
		return s, nil
	}
	s.Close()
	if zmq.AsErrno(err) == zmq.Errno(syscall.EADDRINUSE) {
		err = errPortInUse
	}
	return nil, fmt.Errorf("simengine: load socket %s: %w", endpoint, err)
}

// zmqHost writes the host of a listen address the way ZeroMQ wants it.
func zmqHost(host string) string {
	ip := net.ParseIP(host)
	switch {
	case host == "":
		return "*"
	case ip != nil && ip.To4() == nil:
		return "[" + host + "]"
	default:
		return host
	}
}
