//go:build cgo

package zmqsub

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	zmq "github.com/pebbe/zmq4"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

func newContext(t testing.TB) *zmq.Context {
	t.Helper()
	ctx, err := zmq.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ctx.Term(); err != nil {
			t.Error(err)
		}
	})
	return ctx
}

// publisher is an engine's load socket. It is an XPUB, which speaks as a PUB
// does and in addition lets the test know when it has a subscriber.
type publisher struct {
	t        testing.TB
	soc      *zmq.Socket
	endpoint string
}

// publish binds a publisher that never drops.
func publish(t testing.TB, ctx *zmq.Context, endpoint string) *publisher {
	t.Helper()
	return publishQueue(t, ctx, endpoint, 0)
}

// publishQueue binds a publisher with the given send high-water mark.
func publishQueue(t testing.TB, ctx *zmq.Context, endpoint string, queue int) *publisher {
	t.Helper()
	return publishWith(t, ctx, endpoint, queue, func(*zmq.Socket) error { return nil })
}

// publishWith binds a publisher with options of its own.
func publishWith(t testing.TB, ctx *zmq.Context, endpoint string, queue int, options func(*zmq.Socket) error) *publisher {
	t.Helper()
	soc, err := ctx.NewSocket(zmq.XPUB)
	if err != nil {
		t.Fatal(err)
	}
	p := &publisher{t: t, soc: soc}
	t.Cleanup(p.close)
	for _, err := range []error{
		soc.SetLinger(0), soc.SetSndhwm(queue), soc.SetIpv6(strings.Contains(endpoint, "[")), soc.SetXpubVerbose(1), soc.SetRcvtimeo(patience),
		options(soc),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	// The port of a publisher that was just closed is free a moment later.
	eventually(t, "binding "+endpoint, func() bool {
		err = soc.Bind(endpoint)
		return zmq.AsErrno(err) != zmq.Errno(syscall.EADDRINUSE)
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.endpoint, err = soc.GetLastEndpoint(); err != nil {
		t.Fatal(err)
	}
	return p
}

// await waits for one more subscriber.
func (p *publisher) await() {
	p.t.Helper()
	for {
		b, err := p.soc.RecvBytes(0)
		if zmq.AsErrno(err) == zmq.Errno(syscall.EINTR) {
			continue
		}
		if err != nil {
			p.t.Fatalf("waiting for a subscriber: %v", err)
		}
		if len(b) == 1 && b[0] == 1 {
			return
		}
	}
}

func (p *publisher) send(frames [][]byte) {
	p.t.Helper()
	if _, err := p.soc.SendMessage(frames); err != nil {
		p.t.Errorf("send: %v", err)
	}
}

func (p *publisher) close() { p.soc.Close() }

func TestEveryRankIsHeardUnderItsOwnEndpoint(t *testing.T) {
	const ranks = 24
	ctx := newContext(t)
	s := newSubscriber(t, Config{})
	var publishers [ranks]*publisher
	var in [ranks]inbox
	for i := range publishers {
		publishers[i] = publish(t, ctx, "tcp://127.0.0.1:*")
		subscribe(t, s, publishers[i].endpoint, in[i].deliver)
	}
	for i, p := range publishers {
		p.await()
		p.send(message(int64(1000 + i)))
	}
	for i := range in {
		eventually(t, fmt.Sprintf("rank %d", i), in[i].has(int64(1000+i)))
		if r, _ := in[i].last(); r.running != int64(1000+i) || r.Received.IsZero() {
			t.Errorf("rank %d: %+v", i, r)
		}
	}
	st := s.Stats()
	if len(st.Endpoints) != ranks || st.Delivered != ranks {
		t.Errorf("%d endpoints, %d deliveries", len(st.Endpoints), st.Delivered)
	}
}

func TestBothMessageTypesAndTopicsAreRead(t *testing.T) {
	p := publish(t, newContext(t), "tcp://127.0.0.1:*")
	s := newSubscriber(t, Config{})
	var mu sync.Mutex
	var kinds []snapshot.Kind
	subscribe(t, s, p.endpoint, func(d snapshot.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		if d.Err != nil {
			t.Error(d.Err)
			return
		}
		kinds = append(kinds, d.Reading.Kind)
	})
	p.await()
	stat := append([]byte{0x95 + 1, 0xa8}, "LoadStat\x01\x02\x03\x04\xc0"...)
	for i, m := range [][][]byte{
		snapshot.Join(nil, "", 0, payload(1)),
		snapshot.Join(nil, "load", 1, stat),
	} {
		p.send(m)
		eventually(t, "a delivery", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(kinds) > i
		})
	}
	if kinds[0] != snapshot.KindLoadSnapshot || kinds[1] != snapshot.KindLoadStat {
		t.Errorf("kinds: %v", kinds)
	}
}

func TestPublisherThatRestartsIsHeardAgainFromSequenceZero(t *testing.T) {
	ctx := newContext(t)
	s := newSubscriber(t, Config{Silence: time.Hour}) // libzmq's own reconnect is enough
	var in inbox
	p := publish(t, ctx, "tcp://127.0.0.1:*")
	subscribe(t, s, p.endpoint, in.deliver)
	p.await()
	p.send(message(500))
	eventually(t, "sequence 500", in.has(500))
	p.close()

	p = publish(t, ctx, p.endpoint)
	p.await()
	p.send(message(0))
	eventually(t, "sequence 0", in.has(0))
	if n := s.Stats().Reconnects; n != 0 {
		t.Errorf("%d fresh connections for an ordinary restart", n)
	}
}

func TestPublisherThatComesLateIsHeard(t *testing.T) {
	ctx := newContext(t)
	s := newSubscriber(t, Config{})
	early := publish(t, ctx, "tcp://127.0.0.1:*")
	early.close()
	var in inbox
	subscribe(t, s, early.endpoint, in.deliver)
	p := publish(t, ctx, early.endpoint)
	p.await()
	p.send(message(1))
	eventually(t, "the late publisher", in.has(1))
}

func TestAfterABacklogOnlyTheNewestIsUsed(t *testing.T) {
	const backlog = 10_000
	p := publish(t, newContext(t), "tcp://127.0.0.1:*")
	s := newSubscriber(t, Config{})
	var in inbox
	entered, release := make(chan struct{}), make(chan struct{})
	subscribe(t, s, p.endpoint, func(d snapshot.Delivery) {
		in.deliver(d)
		if d.Seq == 0 {
			close(entered)
			<-release
		}
	})
	p.await()
	p.send(message(0))
	<-entered
	for seq := range int64(backlog) {
		p.send(message(seq + 1))
	}
	released := time.Now()
	close(release)
	eventually(t, "the newest message", in.has(backlog))

	got := in.readings()[1:]
	t.Logf("%d messages behind a stalled reader came down to %d deliveries, the newest after %v",
		backlog, len(got), got[len(got)-1].Received.Sub(released))
	// Two or three at most where the machine keeps up; never the queue one by one.
	if len(got) > backlog/100 {
		t.Errorf("%d deliveries of old messages", len(got)-1)
	}
	if got[0].Seq < burst {
		t.Errorf("first delivery after the stall: sequence %d", got[0].Seq)
	}
	for _, r := range got {
		if r.Received.Before(released) {
			t.Errorf("sequence %d is stamped %v before it was read", r.Seq, released.Sub(r.Received))
		}
	}
	c := s.Stats().Counts
	if c.Messages != backlog+1 {
		t.Errorf("%d messages counted of %d", c.Messages, backlog+1)
	}
	checkBooks(t, c)
}

func TestGarbageIsCountedByReasonAndValidMessagesStillArrive(t *testing.T) {
	p := publish(t, newContext(t), "tcp://127.0.0.1:*")
	s := newSubscriber(t, Config{})
	var in inbox
	subscribe(t, s, p.endpoint, in.deliver)
	p.await()
	seq := int64(0)
	for name, m := range garbage() {
		before := s.Stats().Counts
		p.send(m)
		eventually(t, name+" to be dropped", func() bool { return s.Stats().TotalDropped() == before.TotalDropped()+1 })
		seq++
		p.send(message(seq))
		eventually(t, "the message after "+name, in.has(seq))
	}
	c := s.Stats().Counts
	want := map[string]uint64{
		"frame_count": 4, "seq_size": 2, "end_of_stream": 1, "payload_size": 1,
		"not_load": 1, "truncated": 3, // 0xc1; empty, huge array, short string
	}
	for reason, n := range want {
		if c.Dropped[reason] != n {
			t.Errorf("dropped %v, want %v", c.Dropped, want)
			break
		}
	}
	for _, r := range in.all() {
		if r.Err != nil && snapshot.Reason(r.Err) == "other" {
			t.Errorf("an error without a reason: %v", r.Err)
		}
	}
}

func TestFrameBeyondTheSocketsLimitCostsTheConnectionOnly(t *testing.T) {
	p := publish(t, newContext(t), "tcp://127.0.0.1:*")
	s := newSubscriber(t, Config{Silence: 50 * time.Millisecond})
	var in inbox
	subscribe(t, s, p.endpoint, in.deliver)
	p.await()
	p.send(messageOf(1, make([]byte, 8<<20)))
	seq := int64(1)
	eventually(t, "a message after it", func() bool {
		seq++
		p.send(message(seq))
		_, ok := in.last()
		return ok
	})
	for _, r := range in.all() {
		if r.Seq == 1 || r.Err != nil {
			t.Errorf("delivered: %+v", r)
		}
	}
}

func TestPeerThatSpeaksSomethingElseIsLeftForAFreshConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{}, 1)
	var server sync.WaitGroup
	server.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
			c.Close()
			select {
			case answered <- struct{}{}:
			default:
			}
		}
	})
	endpoint := "tcp://" + l.Addr().String()
	s := newSubscriber(t, Config{Silence: 50 * time.Millisecond})
	var in inbox
	subscribe(t, s, endpoint, in.deliver)
	<-answered
	l.Close()
	server.Wait()
	p := publish(t, newContext(t), endpoint)
	seq := int64(0)
	eventually(t, "the publisher that took the address over", func() bool {
		seq++
		p.send(message(seq))
		_, ok := in.last()
		return ok
	})
}

func TestFloodOnOneSocketStarvesNoOther(t *testing.T) {
	ctx := newContext(t)
	loud, calm := publishQueue(t, ctx, "tcp://127.0.0.1:*", 8), publish(t, ctx, "tcp://127.0.0.1:*")
	s := newSubscriber(t, Config{Owners: 1}) // both on one owner
	var noise atomic.Int64
	var in inbox
	subscribe(t, s, loud.endpoint, func(snapshot.Delivery) { noise.Add(1) })
	subscribe(t, s, calm.endpoint, in.deliver)
	loud.await()
	calm.await()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		m := message(1)
		for {
			select {
			case <-stop:
				return
			default:
				loud.send(m)
			}
		}
	}()
	for seq := range int64(50) {
		before := noise.Load()
		calm.send(message(seq))
		eventually(t, "the calm rank", in.has(seq))
		eventually(t, "the loud rank", func() bool { return noise.Load() > before })
	}
	close(stop)
	<-stopped
}

func TestPeerThatAcceptsAndSaysNothingIsLeftForAFreshConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepted atomic.Int64
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			conns.Go(func() { // until the subscriber hangs up
				buf := make([]byte, 512)
				for err == nil {
					_, err = c.Read(buf)
				}
				c.Close()
			})
		}
	})
	endpoint := "tcp://" + l.Addr().String()
	// Neither heartbeats nor the handshake timeout shall be what helps.
	s := newSubscriber(t, Config{Silence: 20 * time.Millisecond, ConnectTimeout: time.Hour, HeartbeatTimeout: time.Hour, HeartbeatInterval: time.Hour})
	var in inbox
	subscribe(t, s, endpoint, in.deliver)
	eventually(t, "fresh connections", func() bool { return accepted.Load() >= 4 })
	if n := s.Stats().Reconnects; n < 3 {
		t.Errorf("%d reconnects counted, want at least 3", n)
	}
	l.Close()
	p := publish(t, newContext(t), endpoint)
	// A fresh connection may replace the one that subscribed.
	seq := int64(0)
	eventually(t, "the publisher that took the address over", func() bool {
		seq++
		p.send(message(seq))
		_, ok := in.last()
		return ok
	})
	closeSubscriber(t, s)
	conns.Wait()
}

// proxy forwards connections until it is told to freeze those it has: they stay
// open and carry nothing any more, as if packets were dropped. New ones work.
type proxy struct {
	l      net.Listener
	target string
	wg     sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn
	frozen *atomic.Bool // of the connections made from now on
	count  int
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, target: strings.TrimPrefix(target, "tcp://"), frozen: new(atomic.Bool)}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		p.count++
		frozen := p.frozen
		p.mu.Unlock()
		p.wg.Go(func() { forward(in, out, frozen) })
		p.wg.Go(func() { forward(out, in, frozen) })
	}
}

func forward(from, to net.Conn, frozen *atomic.Bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if frozen.Load() {
			if err != nil {
				return // nothing gets through, not even the end
			}
			continue
		}
		if err == nil {
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			from.Close()
			to.Close()
			return
		}
	}
}

// connections is how many there have been.
func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen.Store(true)
	p.frozen = new(atomic.Bool)
}

func TestPeerThatVanishesIsHeardAgainWhenItIsBack(t *testing.T) {
	for name, c := range map[string]Config{
		"by heartbeat": {HeartbeatInterval: 20 * time.Millisecond, HeartbeatTimeout: 100 * time.Millisecond, Silence: time.Hour},
		"by silence":   {HeartbeatInterval: time.Hour, HeartbeatTimeout: time.Hour, Silence: 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			pub := publish(t, newContext(t), "tcp://127.0.0.1:*")
			link := newProxy(t, pub.endpoint)
			s := newSubscriber(t, c)
			var in inbox
			subscribe(t, s, "tcp://"+link.l.Addr().String(), in.deliver)
			seq := int64(0)
			heard := func() {
				t.Helper()
				from := seq
				eventually(t, "the publisher", func() bool {
					seq++
					pub.send(message(seq))
					r, ok := in.last()
					return ok && r.Seq > from
				})
			}
			heard()
			link.freeze()
			heard()
			st := s.Stats()
			if bySilence := c.Silence < time.Hour; bySilence != (st.Reconnects > 0) {
				t.Errorf("%d reconnects", st.Reconnects)
			}
		})
	}
}

func TestIPv6PeerIsHeard(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6 loopback: %v", err)
	}
	l.Close()
	p := publish(t, newContext(t), "tcp://[::1]:*")
	s := newSubscriber(t, Config{})
	var in inbox
	subscribe(t, s, p.endpoint, in.deliver)
	p.await()
	p.send(message(6))
	eventually(t, "the IPv6 publisher", in.has(6))
}

func TestPeerGivenByNameIsHeard(t *testing.T) {
	p := publish(t, newContext(t), "tcp://127.0.0.1:*")
	s := newSubscriber(t, Config{})
	var in inbox
	subscribe(t, s, strings.Replace(p.endpoint, "127.0.0.1", "localhost", 1), in.deliver)
	p.await()
	p.send(message(1))
	eventually(t, "the publisher at localhost", in.has(1))
}

func TestSubscribeStopAndCloseFromEverywhereAtOnce(t *testing.T) {
	ctx := newContext(t)
	var endpoints []string
	var publishers []*publisher
	for range 4 {
		p := publish(t, ctx, "tcp://127.0.0.1:*")
		publishers = append(publishers, p)
		endpoints = append(endpoints, p.endpoint)
	}
	s := newSubscriber(t, Config{Silence: 5 * time.Millisecond})
	stopPublishing, published := make(chan struct{}), make(chan struct{})
	go func() { // one goroutine for all sockets
		defer close(published)
		for seq := int64(0); ; seq++ {
			for _, p := range publishers {
				p.send(message(seq))
			}
			select {
			case <-stopPublishing:
				return
			case <-time.After(200 * time.Microsecond):
			}
		}
	}()

	var closed atomic.Bool
	var heard atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				var over atomic.Bool
				stop, err := s.Subscribe(endpoints[(g+i)%len(endpoints)], func(snapshot.Delivery) {
					if over.Load() || closed.Load() {
						t.Error("called after the end")
					}
					heard.Add(1)
					if i%5 == 0 {
						s.Stats()
					}
				})
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				if i%4 == 0 {
					n := heard.Load()
					for d := time.Now().Add(patience); heard.Load() == n && !closed.Load() && time.Now().Before(d); {
						time.Sleep(100 * time.Microsecond)
					}
				}
				var others sync.WaitGroup
				if i%3 == 0 { // somebody else stops it at the same time
					others.Go(stop)
				}
				stop()
				others.Wait()
				over.Store(true)
			}
		})
	}
	eventually(t, "traffic", func() bool { return heard.Load() > 200 })
	var closers sync.WaitGroup
	for range 3 {
		closers.Go(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			closed.Store(true)
			if _, err := s.Subscribe(endpoints[0], func(snapshot.Delivery) {}); !errors.Is(err, ErrClosed) {
				t.Errorf("Subscribe after Close: %v", err)
			}
		})
	}
	closers.Wait()
	wg.Wait()
	close(stopPublishing)
	<-published
	if n := len(s.Stats().Endpoints); n != 0 {
		t.Errorf("%d endpoints after Close", n)
	}
}
