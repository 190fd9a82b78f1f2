package zmqsub

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

const (
	subscribe31 = "\x04\x0a\x09SUBSCRIBE"
	subscribe30 = "\x00\x01\x01"
	ping00      = "\x04\x07\x04PING\x00\x00"
	pong00      = "\x04\x05\x04PONG"
)

// wire is a message as it goes over the network.
func wire(frames [][]byte) (b []byte) {
	for i, f := range frames {
		if len(f) > 255 {
			b = append(b, frame(i < len(frames)-1, f)...)
			continue
		}
		b = append(b, byte(min(1, len(frames)-1-i)), byte(len(f)))
		b = append(b, f...)
	}
	return b
}

// want reads what the subscriber has to send next.
func want(c net.Conn, what string) error {
	got := make([]byte, len(what))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != what {
		return fmt.Errorf("got %q, want %q", got, what)
	}
	return nil
}

// scripted is a peer whose every connection follows a script. An error of it
// fails the test, unless it is that the subscriber has hung up.
func scripted(t *testing.T, script func(c net.Conn, connection int64) error) *rawPeer {
	t.Helper()
	var connections atomic.Int64
	p, err := listenRaw(func(c net.Conn) {
		err := script(c, connections.Add(1))
		for _, hungUp := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
			if errors.Is(err, hungUp) {
				return
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

// shakeHands is the publisher's side up to the subscription.
func shakeHands(c net.Conn, minor byte) error {
	if _, err := c.Write(peerGreeting(3, minor, "NULL")); err != nil {
		return err
	}
	if err := want(c, string(hello[:])+string(readyCommand)); err != nil {
		return err
	}
	if _, err := c.Write(readyPub); err != nil {
		return err
	}
	if minor == 0 {
		return want(c, subscribe30)
	}
	return want(c, subscribe31)
}

// hold keeps a connection until the subscriber hangs up.
func hold(c net.Conn) error {
	_, err := io.Copy(io.Discard, c)
	return err
}

func TestHandshakeWorksInPiecesAndAllAtOnce(t *testing.T) {
	for _, minor := range []byte{0, 1} {
		all := string(peerGreeting(3, minor, "NULL")) + string(readyPub)
		subscription := subscribe31
		if minor == 0 {
			subscription = subscribe30
		}
		said := string(hello[:]) + string(readyCommand) + subscription
		for name, step := range map[string]int{"all at once": len(all), "byte by byte": 1, "in sevens": 7} {
			t.Run(fmt.Sprintf("3.%d %s", minor, name), func(t *testing.T) {
				p := scripted(t, func(c net.Conn, _ int64) error {
					for at := 0; at < len(all); at += step {
						if _, err := io.WriteString(c, all[at:min(at+step, len(all))]); err != nil {
							return err
						}
						if step < len(all) {
							time.Sleep(100 * time.Microsecond) // so that it is a piece
						}
					}
					if err := want(c, said); err != nil {
						return err
					}
					if _, err := c.Write(wire(message(7))); err != nil {
						return err
					}
					return hold(c)
				})
				s := newSubscriber(t, Config{})
				var in inbox
				subscribe(t, s, p.endpoint(), in.deliver)
				eventually(t, "the message", in.has(7))
			})
		}
	}
}

func TestMessageRightBehindTheHandshakeIsRead(t *testing.T) {
	p := scripted(t, func(c net.Conn, _ int64) error {
		all := string(peerGreeting(3, 1, "NULL")) + string(readyPub) + string(wire(message(1))) + string(wire(message(2)))
		if _, err := io.WriteString(c, all); err != nil {
			return err
		}
		return hold(c)
	})
	s := newSubscriber(t, Config{})
	var in inbox
	subscribe(t, s, p.endpoint(), in.deliver)
	eventually(t, "the second message", in.has(2))
}

func TestPeerThatIsNoPublisherIsToldOfAndTriedAgain(t *testing.T) {
	null, pub := string(peerGreeting(3, 1, "NULL")), string(readyPub)
	for name, test := range map[string]struct{ says, told string }{
		"HTTP":             {"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak ZMTP"},
		"ZMTP 2":           {"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x02", "does not speak ZMTP"},
		"CURVE":            {string(peerGreeting(3, 1, "CURVE")), `"CURVE"`},
		"a DEALER":         {null + strings.ReplaceAll(pub, "PUB", "REP"), `"REP"`},
		"refusal":          {null + "\x04\x09\x05ERROR\x02no", `"no"`},
		"message":          {null + string(wire(message(1))), "handshake"},
		"unknown flags":    {null + pub + "\x10\x00", "unknown flags"},
		"2^62 bytes":       {null + pub + "\x02\x40\x00\x00\x00\x00\x00\x00\x00", "too large"},
		"broken command":   {null + pub + "\x04\x02\x09x", "broken"},
		"refusal, later":   {null + pub + string(wire(message(1))) + "\x04\x0b\x05ERROR\x04full", `"full"`},
		"message cut off":  {null + pub + "\x01\x00", "within a message"},
		"frame cut off":    {null + pub + "\x01\x05abc", "within a message"},
		"greeting cut off": {null[:20], ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := scripted(t, func(c net.Conn, n int64) error {
				if n > 2 {
					if err := shakeHands(c, 1); err != nil {
						return err
					}
					c.Write(wire(message(100)))
					return hold(c)
				}
				io.WriteString(c, test.says)
				if strings.HasSuffix(name, "cut off") {
					c.(*net.TCPConn).CloseWrite()
				}
				return hold(c)
			})
			log := &records{}
			// Nothing but the peer's own words shall end the connection.
			s := newSubscriber(t, Config{Silence: time.Hour, ConnectTimeout: time.Hour, HeartbeatInterval: time.Hour, ReconnectMax: time.Millisecond, Logger: slog.New(log)})
			var in inbox
			subscribe(t, s, p.endpoint(), in.deliver)
			eventually(t, "the third connection", in.has(100))
			if n := s.Stats().TotalDropped(); n != 0 {
				t.Errorf("%d messages dropped", n)
			}
			if test.told == "" {
				return
			}
			eventually(t, "what is wrong to be logged", func() bool {
				for _, r := range log.all() {
					told := false
					r.Attrs(func(a slog.Attr) bool {
						told = told || a.Key == "error" && strings.Contains(a.Value.String(), test.told)
						return true
					})
					if told {
						return true
					}
				}
				return false
			})
		})
	}
}

func TestFramesOfAnySizeArriveInAnyPieces(t *testing.T) {
	const peers, messages = 12, 60
	padded := func(running int64, size int) []byte {
		b := msgp.AppendMapHeader(nil, 2)
		b = msgp.AppendString(b, "num_running_reqs")
		b = msgp.AppendInt64(b, running)
		b = msgp.AppendString(b, "unknown")
		return msgp.AppendBytes(b, make([]byte, size))
	}
	s := newSubscriber(t, Config{Owners: 1, Silence: time.Hour}) // so that all share one buffer
	var in [peers]inbox
	for i := range peers {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		p := scripted(t, func(c net.Conn, _ int64) error {
			if err := shakeHands(c, 1); err != nil {
				return err
			}
			var all []byte
			for seq := range int64(messages) {
				size := rng.IntN(600)
				switch rng.IntN(10) {
				case 0:
					size = rng.IntN(snapshot.MaxPayload)
				case 1:
					size = oversize*snapshot.MaxPayload - 100 - rng.IntN(100) // the largest that leave the connection
				}
				all = append(all, wire(messageOf(seq, padded(seq, size)))...)
				if rng.IntN(4) == 0 {
					all = append(all, ping00...)
				}
			}
			all = append(all, wire(message(messages))...)
			held := make(chan error, 1)
			go func() { held <- hold(c) }() // reads the pongs
			for len(all) > 0 {
				n := min(1+rng.IntN(1<<(3+rng.IntN(14))), len(all))
				if _, err := c.Write(all[:n]); err != nil {
					return err
				}
				all = all[n:]
				if rng.IntN(10) == 0 {
					time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
				}
			}
			return <-held
		})
		subscribe(t, s, p.endpoint(), in[i].deliver)
	}
	for i := range in {
		eventually(t, fmt.Sprintf("the last message of peer %d", i), in[i].has(messages))
		last := int64(-1)
		for _, r := range in[i].readings() {
			if r.running != r.Seq || r.Seq <= last {
				t.Errorf("peer %d: message %d, after %d, is of %d requests", i, r.Seq, last, r.running)
			}
			last = r.Seq
		}
	}
	for _, e := range s.Stats().Endpoints {
		if e.Messages != messages+1 || e.TotalDropped() != e.Dropped["payload_size"] {
			t.Errorf("%+v", e.Counts)
		}
	}
}

func TestConnectionThatEndsWithinAMessageLeavesNothingToTheNext(t *testing.T) {
	m := wire(message(5))
	for cut := 1; cut < len(m); cut++ {
		p := scripted(t, func(c net.Conn, n int64) error {
			if err := shakeHands(c, 1); err != nil {
				return err
			}
			if n == 1 {
				_, err := c.Write(m[:cut])
				return err
			}
			if _, err := c.Write(m); err != nil {
				return err
			}
			return hold(c)
		})
		s := newSubscriber(t, Config{ReconnectMax: time.Millisecond})
		var in inbox
		subscribe(t, s, p.endpoint(), in.deliver)
		eventually(t, "the message", in.has(5))
		if c := s.Stats().Counts; c.Messages != 1 || c.Reconnects != 0 {
			t.Errorf("cut after %d bytes: %+v", cut, c)
		}
	}
}

func TestPeerIsPingedOnlyWhenItSaysNothing(t *testing.T) {
	const interval = 20 * time.Millisecond
	var pings atomic.Int64
	p := scripted(t, func(c net.Conn, _ int64) error {
		if err := shakeHands(c, 1); err != nil {
			return err
		}
		for {
			if err := want(c, ping00); err != nil {
				return err
			}
			pings.Add(1)
			if _, err := io.WriteString(c, pong00); err != nil {
				return err
			}
		}
	})
	old := scripted(t, func(c net.Conn, _ int64) error { // does not know of pings
		if err := shakeHands(c, 0); err != nil {
			return err
		}
		return want(c, "nothing")
	})
	s := newSubscriber(t, Config{HeartbeatInterval: interval, HeartbeatTimeout: time.Hour})
	subscribe(t, s, p.endpoint(), func(snapshot.Delivery) {})
	subscribe(t, s, old.endpoint(), func(snapshot.Delivery) {})
	eventually(t, "pings", func() bool { return pings.Load() >= 5 })
	if n := p.accepted.Load() + old.accepted.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

func TestPeerThatDoesNotAnswerAPingIsLeftForAFreshConnection(t *testing.T) {
	p := scripted(t, func(c net.Conn, n int64) error {
		if err := shakeHands(c, 1); err != nil {
			return err
		}
		if n > 2 {
			c.Write(wire(message(n)))
		}
		return hold(c)
	})
	s := newSubscriber(t, Config{Silence: time.Hour, HeartbeatInterval: time.Millisecond, HeartbeatTimeout: time.Millisecond, ReconnectMax: time.Millisecond})
	var in inbox
	subscribe(t, s, p.endpoint(), in.deliver)
	eventually(t, "the third connection", func() bool { _, ok := in.last(); return ok })
	if n := s.Stats().Reconnects; n != 0 {
		t.Errorf("%d fresh connections for silence", n)
	}
}

func TestPeerThatSpokeWhileDeliverBlockedIsKept(t *testing.T) {
	// Where the machine keeps it from speaking in time, it is given more.
	for timeout := 300 * time.Millisecond; !speaksWhileDeliverBlocks(t, timeout); timeout *= 2 {
	}
}

// speaksWhileDeliverBlocks has a peer answer a ping while nobody listens, and somebody
// listen when its time is up. It returns false if it was up before.
func speaksWhileDeliverBlocks(t *testing.T, timeout time.Duration) bool {
	began := time.Now()
	pinged, blocked, spoken := make(chan struct{}), make(chan time.Time, 1), make(chan struct{})
	isPinged, hasSpoken := sync.OnceFunc(func() { close(pinged) }), sync.OnceFunc(func() { close(spoken) })
	var inTime bool
	answers := sync.OnceFunc(func() { inTime = (<-blocked).Sub(began) < timeout }) // as soon as nobody listens
	p := scripted(t, func(c net.Conn, _ int64) error {
		if err := shakeHands(c, 1); err != nil {
			return err
		}
		if err := want(c, ping00); err != nil {
			return err
		}
		isPinged()
		answers()
		_, err := c.Write(append([]byte(pong00), wire(message(2))...))
		hasSpoken()
		if err != nil {
			return err
		}
		return hold(c)
	})
	block := scripted(t, func(c net.Conn, _ int64) error {
		if err := shakeHands(c, 1); err != nil {
			return err
		}
		c.Write(wire(message(1)))
		return hold(c)
	})
	s := newSubscriber(t, Config{Owners: 1, Silence: time.Hour, ConnectTimeout: time.Hour, HeartbeatInterval: timeout / 10, HeartbeatTimeout: timeout})
	var in inbox
	subscribe(t, s, p.endpoint(), in.deliver)
	<-pinged
	release := make(chan struct{})
	blocks := sync.OnceFunc(func() { blocked <- time.Now(); <-release })
	subscribe(t, s, block.endpoint(), func(snapshot.Delivery) { blocks() })
	<-spoken
	time.Sleep(timeout + timeout/5) // it is overdue when the owner looks again
	close(release)
	if inTime {
		eventually(t, "what it said", in.has(2))
		if n := p.accepted.Load(); n != 1 {
			t.Errorf("%d connections", n)
		}
	}
	closeSubscriber(t, s)
	return inTime
}

func TestPeerThatNeverFinishesItsHandshakeIsLeft(t *testing.T) {
	null := string(peerGreeting(3, 1, "NULL"))
	for name, says := range map[string]string{"nothing": "", "part of a greeting": null[:30], "no READY": null, "part of READY": null + string(readyPub[:10])} {
		t.Run(name, func(t *testing.T) {
			p := scripted(t, func(c net.Conn, n int64) error {
				if n > 2 {
					if err := shakeHands(c, 1); err != nil {
						return err
					}
					c.Write(wire(message(n)))
				} else {
					io.WriteString(c, says)
				}
				return hold(c)
			})
			s := newSubscriber(t, Config{Silence: time.Hour, ConnectTimeout: 200 * time.Millisecond, ReconnectMax: time.Millisecond})
			var in inbox
			subscribe(t, s, p.endpoint(), in.deliver)
			eventually(t, "a connection that comes about", func() bool { _, ok := in.last(); return ok })
		})
	}
}

func TestPeerThatIsTooSlowToShakeHandsGetsLonger(t *testing.T) {
	p := scripted(t, func(c net.Conn, n int64) error {
		time.Sleep(100 * time.Millisecond) // each time
		if err := shakeHands(c, 1); err != nil {
			return err
		}
		c.Write(wire(message(n)))
		return hold(c)
	})
	s := newSubscriber(t, Config{Silence: time.Hour, ConnectTimeout: 5 * time.Millisecond})
	var in inbox
	subscribe(t, s, p.endpoint(), in.deliver)
	eventually(t, "a connection that comes about", func() bool { _, ok := in.last(); return ok })
}

func TestPeerThatNeverStopsToCommandStarvesNobody(t *testing.T) {
	loud, err := listenRaw(pour(bytes.Repeat([]byte(ping00+subscribe31+pong00), 1<<12)))
	if err != nil {
		t.Fatal(err)
	}
	defer loud.close()
	messages := make(chan int64)
	defer close(messages)
	calm := scripted(t, func(c net.Conn, _ int64) error {
		if err := shakeHands(c, 1); err != nil {
			return err
		}
		go hold(c)
		for seq := range messages {
			if _, err := c.Write(wire(message(seq))); err != nil {
				return err
			}
		}
		return nil
	})
	s := newSubscriber(t, Config{Owners: 1})
	var in inbox
	subscribe(t, s, loud.endpoint(), func(snapshot.Delivery) {})
	subscribe(t, s, calm.endpoint(), in.deliver)
	for seq := range int64(30) {
		messages <- seq
		eventually(t, "the calm rank", in.has(seq))
	}
}

func TestMessageBehindManyCommandsIsReadThoughNothingMoreArrives(t *testing.T) {
	p := scripted(t, func(c net.Conn, _ int64) error {
		if err := shakeHands(c, 1); err != nil {
			return err
		}
		all := append(bytes.Repeat([]byte(pong00), 10*commandsPerDrain), wire(message(3))...)
		if _, err := c.Write(all); err != nil {
			return err
		}
		return hold(c)
	})
	s := newSubscriber(t, Config{})
	var in inbox
	subscribe(t, s, p.endpoint(), in.deliver)
	eventually(t, "the message", in.has(3))
}

func TestAttemptsAtAPeerThatHangsUpAreFurtherAndFurtherApart(t *testing.T) {
	s := &nativeSource{port: &nativePort{config: &Config{ReconnectMax: 2 * time.Second}}, fd: -1}
	now := time.Now()
	want := []time.Duration{100, 200, 400, 800, 1600, 2000, 2000}
	for i, w := range want {
		w *= time.Millisecond
		s.rest(now)
		if d := s.due.Sub(now); s.phase != pausing || d < w/2 || d > w {
			t.Errorf("pause %d: %v, want %v to %v", i, d, w/2, w)
		}
	}
	s.port.config.ReconnectMax = time.Millisecond // less than the first step
	s.pause = 0
	s.rest(now)
	if d := s.due.Sub(now); d > time.Millisecond {
		t.Errorf("pause of %v", d)
	}
}

func TestPeerThatMakesNoSenseIsLeftForLonger(t *testing.T) {
	const longest = 300 * time.Millisecond
	var attempts []time.Time
	var mu sync.Mutex
	p := scripted(t, func(c net.Conn, _ int64) error {
		mu.Lock()
		attempts = append(attempts, time.Now())
		mu.Unlock()
		if err := shakeHands(c, 1); err != nil {
			return err
		}
		c.Write(append(wire(message(1)), 0xff)) // something of use, and then nonsense
		return hold(c)
	})
	s := newSubscriber(t, Config{Silence: time.Hour, ReconnectMax: longest})
	subscribe(t, s, p.endpoint(), func(snapshot.Delivery) {})
	eventually(t, "some attempts", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(attempts) >= 4
	})
	mu.Lock()
	defer mu.Unlock()
	for i, at := range attempts[1:] {
		if d := at.Sub(attempts[i]); d < longest/2 {
			t.Errorf("attempt %d came after %v", i+1, d)
		}
	}
}

func TestConnectionOfUseIsFollowedByAQuickOneOnlyIfItLasted(t *testing.T) {
	for lasted, want := range map[time.Duration]time.Duration{
		0: 2 * time.Second, time.Second: 2 * time.Second, time.Second + 1: 100 * time.Millisecond, time.Hour: 100 * time.Millisecond,
	} {
		port := &nativePort{config: &Config{ReconnectMax: time.Minute}, limit: 1000, now: time.Now()}
		s := &nativeSource{port: port, fd: -1, phase: streaming, pause: time.Second, since: port.now.Add(-lasted), in: wire(message(1))}
		if _, _, err := s.recv(); err != nil {
			t.Fatal(err)
		}
		s.midway = false
		if s.rest(port.now); s.pause != want {
			t.Errorf("after %v: a pause of %v, want %v", lasted, s.pause, want)
		}
	}
}

func TestGateIsShutButForAWait(t *testing.T) {
	e, err := newEpoll()
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	var pipe [2]int
	if err := syscall.Pipe2(pipe[:], syscall.O_NONBLOCK|syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pipe[0])
	defer syscall.Close(pipe[1])
	if err := e.add(pipe[0], syscall.EPOLLIN, 42); err != nil {
		t.Fatal(err)
	}
	// As the runtime's poller sees it: another epoll descriptor, edge-triggered.
	poller, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(poller)
	announced := func() bool {
		var events [1]syscall.EpollEvent
		n, err := syscall.EpollWait(poller, events[:], 0)
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	}
	e.conn.Control(func(gate uintptr) {
		event := syscall.EpollEvent{Events: syscall.EPOLLIN | 1<<31}
		if err := syscall.EpollCtl(poller, syscall.EPOLL_CTL_ADD, int(gate), &event); err != nil {
			t.Fatal(err)
		}
	})
	read := func() {
		var b [16]byte
		syscall.Read(pipe[0], b[:])
	}
	for range 100 {
		announced() // whatever is left of the last time
		syscall.Write(pipe[1], []byte("x"))
		if announced() {
			t.Fatal("what arrived outside of a wait was announced")
		}
		if events, err := e.wait(time.Time{}); len(events) != 1 || events[0].Fd != 42 || err != nil {
			t.Fatalf("%v, %v", events, err)
		}
		read()

		var waiting sync.WaitGroup
		waiting.Go(func() {
			if events, err := e.wait(time.Time{}); len(events) != 1 || err != nil {
				t.Errorf("%v, %v", events, err)
			}
		})
		time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
		syscall.Write(pipe[1], []byte("x"))
		waiting.Wait()
		read()
		if events, err := e.wait(past); len(events) != 0 || err != nil {
			t.Fatalf("%v, %v", events, err)
		}
	}
}
