package zmqsub

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// fakeBus stands in for libzmq where time is to be controlled. Its ports block
// in ways that testing/synctest understands.
type fakeBus struct {
	mu     sync.Mutex
	ports  []*fakePort
	closed bool
	most   int // ports that there can be; 0 = any number
	meter  gauge
}

func (b *fakeBus) gauge() gauge { return b.meter }

func (b *fakeBus) port() (port, error) {
	if b.most > 0 && len(b.ports) == b.most {
		return nil, ErrLimit
	}
	p := &fakePort{signal: make(chan struct{}, 1), sources: make(map[*fakeSource]struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ports = append(b.ports, p)
	return p, nil
}

func (b *fakeBus) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

type fakePort struct {
	signal chan struct{}

	mu      sync.Mutex
	sources map[*fakeSource]struct{}
	opened  []time.Time
	slow    time.Duration // that open takes
	waits   int
	lent    []byte // the frame that recv returned last
	closed  bool
	openErr error
	waitErr error
}

func (p *fakePort) slowOpen(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = d
}

func (p *fakePort) open(sub *subscription) (source, error) {
	p.mu.Lock()
	slow := p.slow
	p.mu.Unlock()
	time.Sleep(slow)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.openErr != nil {
		return nil, p.openErr
	}
	p.opened = append(p.opened, time.Now())
	s := &fakeSource{port: p, sub: sub}
	p.sources[s] = struct{}{}
	return s, nil
}

func (p *fakePort) wait(until time.Time) ([]*subscription, error) {
	d := time.Until(until)
	if until.IsZero() {
		d = 1000 * time.Hour
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	p.mu.Lock()
	p.waits++
	p.mu.Unlock()
	for {
		p.mu.Lock()
		err := p.waitErr
		var ready []*subscription
		for s := range p.sources {
			if s.signal {
				ready = append(ready, s.sub)
			}
		}
		p.mu.Unlock()
		if err != nil || len(ready) > 0 {
			return ready, err
		}
		select {
		case <-p.signal:
			p.mu.Lock()
			arrived := false
			for s := range p.sources {
				arrived = arrived || s.signal
			}
			p.mu.Unlock()
			if !arrived {
				return nil, nil
			}
		case <-timer.C:
			return nil, nil
		}
	}
}

func (p *fakePort) wake() {
	select {
	case p.signal <- struct{}{}:
	default:
	}
}

func (p *fakePort) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// source returns the newest open source of an endpoint.
func (p *fakePort) source(endpoint string) *fakeSource {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.sources {
		if s.sub.endpoint == endpoint {
			return s
		}
	}
	return nil
}

// openSources counts the sources that are open.
func (p *fakePort) openSources() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sources)
}

func (p *fakePort) waited() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waits
}

func (p *fakePort) openings() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]time.Time(nil), p.opened...)
}

func (p *fakePort) fail(open, wait error) {
	p.mu.Lock()
	p.openErr, p.waitErr = open, wait
	p.mu.Unlock()
	p.wake()
}

type fakeSource struct {
	port *fakePort
	sub  *subscription

	// guarded by port.mu
	address string
	queue   [][]byte // frames
	left    []int    // frames left of the message that each frame begins or goes on with
	endless [][]byte // a message that is always there
	signal  bool     // something arrived since it was last read; what wait goes by
}

func (s *fakeSource) push(messages ...[][]byte) {
	s.port.mu.Lock()
	for _, m := range messages {
		s.pushLocked(m)
	}
	s.port.mu.Unlock()
	s.port.wake()
}

func (s *fakeSource) pushLocked(frames [][]byte) {
	for i, f := range frames {
		s.signal = true
		s.queue = append(s.queue, f)
		s.left = append(s.left, len(frames)-1-i)
	}
}

func (s *fakeSource) flood(message [][]byte) {
	s.port.mu.Lock()
	s.endless = message
	s.signal = true
	s.port.mu.Unlock()
	s.port.wake()
}

func (s *fakeSource) connect(address string) error {
	s.port.mu.Lock()
	defer s.port.mu.Unlock()
	s.address = address
	return nil
}

func (s *fakeSource) dialled() string {
	s.port.mu.Lock()
	defer s.port.mu.Unlock()
	return s.address
}

func (s *fakeSource) recv() ([]byte, bool, error) {
	s.port.mu.Lock()
	for len(s.queue) == 0 && s.endless != nil {
		s.pushLocked(s.endless)
		s.port.mu.Unlock()
		time.Sleep(10 * time.Microsecond) // otherwise fake time would stand still
		s.port.mu.Lock()
	}
	defer s.port.mu.Unlock()
	s.signal = false
	if len(s.queue) == 0 {
		return nil, false, errQuiet
	}
	frame, left := s.queue[0], s.left[0]
	s.queue, s.left = s.queue[1:], s.left[1:]
	for i := range s.port.lent { // whoever still goes by the one before is wrong
		s.port.lent[i] ^= 0xff
	}
	s.port.lent = bytes.Clone(frame)
	return s.port.lent, left > 0, nil
}

func (s *fakeSource) close() {
	s.port.mu.Lock()
	defer s.port.mu.Unlock()
	delete(s.port.sources, s)
}

// bench is a Subscriber with one owner over a fake port.
type bench struct {
	*Subscriber
	bus  *fakeBus
	port *fakePort
}

// inBubble runs a test with one owner and fake time.
func inBubble(t *testing.T, c Config, lookup lookupFunc, test func(*testing.T, *bench)) {
	synctest.Test(t, func(t *testing.T) { bubble(t, c, lookup, &fakeBus{}, test) })
}

// bubble is the inside of inBubble.
func bubble(t *testing.T, c Config, lookup lookupFunc, b *fakeBus, test func(*testing.T, *bench)) {
	if c.Owners == 0 {
		c.Owners = 1
	}
	c, err := c.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if lookup == nil {
		lookup = func(context.Context, string) ([]netip.Addr, error) { panic("looked a name up") }
	}
	s, err := start(c, b, lookup)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		for _, p := range b.ports {
			if n := p.openSources(); n > 0 {
				t.Errorf("%d sources left open", n)
			}
		}
		if !b.closed {
			t.Error("the bus was left open")
		}
	}()
	test(t, &bench{Subscriber: s, bus: b, port: b.ports[0]})
}

func (b *bench) subscribe(t *testing.T, endpoint string, deliver func(snapshot.Delivery)) (stop func()) {
	t.Helper()
	stop, err := b.Subscribe(endpoint, deliver)
	if err != nil {
		t.Fatal(err)
	}
	return stop
}

// inbox records deliveries, readings as their values.
type inbox struct {
	mu  sync.Mutex
	got []received
}

type received struct {
	snapshot.Delivery
	running int64
}

func (i *inbox) deliver(d snapshot.Delivery) {
	r := received{Delivery: d, running: -1}
	if d.Reading != nil {
		r.running = d.Reading.Snapshot.NumRunningReqs
		r.Reading = nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.got = append(i.got, r)
}

func (i *inbox) all() []received {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]received(nil), i.got...)
}

func (i *inbox) readings() (good []received) {
	for _, r := range i.all() {
		if r.Err == nil {
			good = append(good, r)
		}
	}
	return good
}

// last returns the newest reading.
func (i *inbox) last() (received, bool) {
	good := i.readings()
	if len(good) == 0 {
		return received{}, false
	}
	return good[len(good)-1], true
}

// message is a LoadSnapshot message whose num_running_reqs is its seq.
func message(seq int64) [][]byte { return messageOf(seq, payload(seq)) }

func messageOf(seq int64, payload []byte) [][]byte { return snapshot.Join(nil, "", seq, payload) }

func payload(running int64) []byte {
	b := msgp.AppendMapHeader(nil, 1)
	b = msgp.AppendString(b, "num_running_reqs")
	return msgp.AppendInt64(b, running)
}

// garbage has one message for each reason that a message can be dropped for
// before it is decoded, and one that does not decode.
func garbage() map[string][][]byte {
	good := message(7)
	return map[string][][]byte{
		"one frame":    {[]byte("x")},
		"two frames":   good[:2],
		"four frames":  append(message(7), nil),
		"seq of 7":     {nil, make([]byte, 7), good[2]},
		"seq of 9":     {nil, make([]byte, 9), good[2]},
		"seq -1":       {nil, binary.BigEndian.AppendUint64(nil, ^uint64(0)), good[2]},
		"oversize":     {nil, good[1], make([]byte, snapshot.MaxPayload+1)},
		"not msgpack":  {nil, good[1], {0xc1}},
		"empty":        {nil, good[1], nil},
		"many frames":  bytes.Split(make([]byte, 100), nil),
		"huge array":   {nil, good[1], {0xdd, 0xff, 0xff, 0xff, 0xff}},
		"short string": {nil, good[1], {0x81, 0xdb, 0xff, 0xff, 0xff, 0xff}},
	}
}

// records is a slog handler that keeps what it gets.
type records struct {
	mu   sync.Mutex
	list []slog.Record
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *records) WithGroup(string) slog.Handler            { return r }
func (r *records) Handle(_ context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, rec)
	return nil
}

func (r *records) all() []slog.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]slog.Record(nil), r.list...)
}

// dropped is the number of drops that a record tells of.
func dropped(rec slog.Record) (n uint64) {
	rec.Attrs(func(a slog.Attr) bool {
		if a.Key == "dropped" {
			for _, reason := range a.Value.Group() {
				n += reason.Value.Uint64()
			}
		}
		return true
	})
	return n
}
