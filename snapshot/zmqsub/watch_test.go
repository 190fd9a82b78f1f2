package zmqsub

import (
	"bytes"
	"errors"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// fakeGauge says what a test has it say.
type fakeGauge struct {
	mu       sync.Mutex
	held     int64
	free     int64 // part of held that trim gives back
	rates    map[netip.AddrPort]uint64
	bytes    map[netip.AddrPort]uint64
	asked    time.Time
	err      error
	audits   int
	trimmed  int
	isClosed bool
}

func newFakeGauge() *fakeGauge {
	return &fakeGauge{asked: time.Now(), rates: make(map[netip.AddrPort]uint64), bytes: make(map[netip.AddrPort]uint64)}
}

func (g *fakeGauge) memory() (int64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held, nil
}

func (g *fakeGauge) trim() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trimmed++
	g.held -= g.free
	g.free = 0
}

func (g *fakeGauge) read() (map[netip.AddrPort]uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.audits++
	g.passLocked()
	return maps.Clone(g.bytes), g.err
}

func (g *fakeGauge) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isClosed = true
}

func (g *fakeGauge) passLocked() {
	now := time.Now()
	for peer, rate := range g.rates {
		g.bytes[peer] += rate * uint64(now.Sub(g.asked)) / uint64(time.Second)
	}
	g.asked = now
}

// connect makes a connection that so many bytes have been read from, and so many
// a second are from now on.
func (g *fakeGauge) connect(endpoint string, already, rate uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passLocked()
	peer := netip.MustParseAddrPort(strings.TrimPrefix(endpoint, "tcp://"))
	g.bytes[peer], g.rates[peer] = already, rate
}

func (g *fakeGauge) grow(bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held += bytes
}

func (g *fakeGauge) counts() (audits, trimmed int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.audits, g.trimmed
}

// watched is inBubble with a gauge.
func watched(t *testing.T, c Config, test func(*testing.T, *bench, *fakeGauge)) {
	synctest.Test(t, func(t *testing.T) {
		g := newFakeGauge()
		bubble(t, c, nil, &fakeBus{meter: g}, func(t *testing.T, b *bench) { test(t, b, g) })
		if !g.isClosed {
			t.Error("the gauge was left open")
		}
	})
}

const rank2, rank3 = "tcp://10.0.0.2:5557", "tcp://10.0.0.2:5558"

func TestPeerWhoseMessageNeverEndsIsHungUpOn(t *testing.T) {
	watched(t, Config{}, func(t *testing.T, b *bench, g *fakeGauge) {
		var endless, idle, speaking, fresh inbox
		b.subscribe(t, rank0, endless.deliver)
		b.subscribe(t, rank1, idle.deliver)
		b.subscribe(t, rank2, speaking.deliver)
		b.subscribe(t, rank3, fresh.deliver)
		g.connect(rank0, 5000, 1<<20)
		g.connect(rank1, 5000, 40)     // heartbeats
		g.connect(rank2, 5000, 10<<20) // many messages
		g.connect(rank3, 0, 3000)      // introduces itself
		stop := make(chan struct{})
		go func() {
			for seq := int64(0); ; seq++ {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
					b.port.source(rank2).push(message(seq))
				}
			}
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		if audits, _ := g.counts(); audits > 0 || b.Stats().TotalDropped() > 0 {
			t.Fatalf("%d audits while memory was level", audits)
		}

		gave := b.port.source(rank0)
		g.connect(rank3, 0, 3000)
		g.grow(growth)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if b.port.source(rank0) != nil {
			t.Error("the connection is still there")
		}
		got := endless.all()
		if len(got) != 1 || !errors.Is(got[0].Err, snapshot.ErrEndless) || got[0].Received.IsZero() {
			t.Errorf("deliveries: %+v", got)
		}
		for _, e := range []string{rank1, rank2, rank3} {
			if b.port.source(e) == nil {
				t.Errorf("%s has lost its connection", e)
			}
		}
		c := b.Stats().Counts
		if c.Dropped["endless"] != 1 || c.TotalDropped() != 1 {
			t.Errorf("dropped %v", c.Dropped)
		}
		checkBooks(t, c)

		// Another one after a pause, on which the peer is heard if it has come to
		// its senses.
		g.grow(-growth)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		again := b.port.source(rank0)
		if again == nil || again == gave || again.dialled() != rank0 {
			t.Fatal("no fresh connection after the pause")
		}
		again.push(message(1))
		time.Sleep(roundEvery)
		synctest.Wait()
		if r, ok := endless.last(); !ok || r.Seq != 1 {
			t.Errorf("not heard on its fresh connection: %+v", endless.all())
		}
		close(stop)
	})
}

func TestManyPeersThatAreSlowToFillTheMemoryAreHungUpOn(t *testing.T) {
	watched(t, Config{}, func(t *testing.T, b *bench, g *fakeGauge) {
		b.subscribe(t, rank0, func(snapshot.Delivery) {})
		b.subscribe(t, rank1, func(snapshot.Delivery) {})
		b.subscribe(t, rank2, func(snapshot.Delivery) {})
		g.connect(rank0, 5000, 10_000)
		g.connect(rank1, 5000, 20_000)
		g.connect(rank2, 5000, 100)
		time.Sleep(time.Second)
		g.grow(growth)
		time.Sleep(time.Second)
		synctest.Wait()
		if b.port.source(rank0) != nil || b.port.source(rank1) != nil || b.port.source(rank2) == nil {
			t.Errorf("dropped %v", b.Stats().Dropped)
		}
	})
}

func TestMemoryThatIsOthersIsAuditedOnce(t *testing.T) {
	watched(t, Config{}, func(t *testing.T, b *bench, g *fakeGauge) {
		b.subscribe(t, rank0, func(snapshot.Delivery) {})
		g.connect(rank0, 5000, 40)
		time.Sleep(time.Second)
		for range 3 {
			g.grow(growth)
			before, _ := g.counts()
			time.Sleep(5 * time.Second)
			if after, _ := g.counts(); after-before != 2*len(audits) {
				t.Errorf("read was asked %d times", after-before)
			}
		}
		g.grow(-5 * growth)
		time.Sleep(time.Second)
		g.grow(2 * growth)
		before, _ := g.counts()
		time.Sleep(time.Second)
		if after, _ := g.counts(); after == before {
			t.Error("growth from a lower level was not noticed")
		}
		if n := b.Stats().TotalDropped(); n > 0 {
			t.Errorf("%d dropped", n)
		}
	})
}

// What an attack leaves behind in the allocator must not be the level from which
// the next one counts.
func TestMemoryThatAPeerHasFilledIsGivenBack(t *testing.T) {
	watched(t, Config{}, func(t *testing.T, b *bench, g *fakeGauge) {
		b.subscribe(t, rank0, func(snapshot.Delivery) {})
		g.connect(rank0, 5000, 1<<20)
		time.Sleep(time.Second)
		for attack := range uint64(5) {
			g.grow(growth)
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if n := b.Stats().Dropped["endless"]; n != attack+1 {
				t.Fatalf("attack %d: hung up %d times", attack, n)
			}
			// Closing has freed it, and the allocator keeps it.
			g.mu.Lock()
			g.free = g.held
			g.mu.Unlock()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if _, n := g.counts(); n != int(attack)+1 || g.held != 0 {
				t.Errorf("attack %d: trimmed %d times, %d bytes are left", attack, n, g.held)
			}
			if b.port.source(rank0) == nil {
				t.Fatalf("attack %d: no fresh connection", attack)
			}
		}
	})
}

func TestAuditThatCannotBeMadeIsTriedAgain(t *testing.T) {
	watched(t, Config{}, func(t *testing.T, b *bench, g *fakeGauge) {
		b.subscribe(t, rank0, func(snapshot.Delivery) {})
		g.connect(rank0, 5000, 1<<20)
		g.err = errors.New("out of descriptors")
		time.Sleep(time.Second)
		g.grow(growth)
		time.Sleep(time.Second)
		if b.port.source(rank0) == nil {
			t.Error("hung up on a guess")
		}
		g.mu.Lock()
		g.err = nil
		g.mu.Unlock()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if b.port.source(rank0) != nil {
			t.Error("not hung up on")
		}
	})
}

func TestMessageBeyondAllReasonCostsTheConnection(t *testing.T) {
	frames := func(n, size int) (m [][]byte) {
		for range n {
			m = append(m, make([]byte, size))
		}
		return m
	}
	for _, test := range []struct {
		name    string
		message [][]byte
		cause   error
		hungUp  bool
	}{
		{"as many frames as are read", frames(maxFrames, 1), snapshot.ErrFrameCount, false},
		{"one frame more", frames(maxFrames+1, 1), snapshot.ErrFrameCount, true},
		{"ten thousand frames", bytes.Split(make([]byte, 10_000), nil), snapshot.ErrFrameCount, true},
		{"as many bytes as are read", messageOf(1, make([]byte, oversize*snapshot.MaxPayload-8)), snapshot.ErrPayloadSize, false},
		{"one byte more", messageOf(1, make([]byte, oversize*snapshot.MaxPayload-7)), snapshot.ErrPayloadSize, true},
		{"large frames", frames(100, snapshot.MaxPayload), snapshot.ErrPayloadSize, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
				var in inbox
				b.subscribe(t, rank0, in.deliver)
				b.port.source(rank0).push(message(1), test.message, message(3))
				time.Sleep(time.Second) // a backlog is held for a while
				got := in.all()
				want := int64(3)
				if test.hungUp {
					want = 1 // what came before counts, what comes behind is gone
				}
				if len(got) != 2 || !errors.Is(got[0].Err, test.cause) || got[0].Received.IsZero() || got[1].Seq != want {
					t.Fatalf("deliveries: %+v", got)
				}
				if gone := b.port.source(rank0) == nil; gone != test.hungUp {
					t.Errorf("connection gone: %v", gone)
				}
				checkBooks(t, b.Stats().Counts)
				time.Sleep(10 * time.Second)
				src := b.port.source(rank0)
				if src == nil {
					t.Fatal("no fresh connection")
				}
				src.push(message(4))
				time.Sleep(time.Second)
				if r, _ := in.last(); r.Seq != 4 {
					t.Errorf("not heard any more: %+v", r)
				}
			})
		})
	}
}

func TestPauseAfterHangingUpDoesNotGrowWithSilence(t *testing.T) {
	inBubble(t, Config{Silence: time.Hour}, nil, func(t *testing.T, b *bench) {
		b.subscribe(t, rank0, func(snapshot.Delivery) {})
		b.port.source(rank0).push(garbage()["oversize"], bytes.Split(make([]byte, 1000), nil))
		time.Sleep(maxBackoff - time.Second)
		if b.port.source(rank0) != nil {
			t.Error("there is a connection too early")
		}
		time.Sleep(2 * time.Second)
		if b.port.source(rank0) == nil {
			t.Error("there is none after a minute")
		}
	})
}

func TestRankThatWasHungUpOnEndsLikeAnyOther(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		stop := b.subscribe(t, rank0, func(snapshot.Delivery) {})
		b.port.source(rank0).push(bytes.Split(make([]byte, 1000), nil))
		synctest.Wait()
		stop()
		stop()
		if n := len(b.Stats().Endpoints); n != 0 || b.Stats().TotalDropped() != 1 {
			t.Errorf("%d endpoints, dropped %v", n, b.Stats().Dropped)
		}
	})
}
