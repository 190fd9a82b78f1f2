package zmqsub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

const named = "tcp://engine:5557"

var v4, v6 = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1")

func TestNameIsLookedUpAfreshForEveryConnection(t *testing.T) {
	var lookups atomic.Int64
	var down atomic.Bool
	lookup := func(context.Context, string) ([]netip.Addr, error) {
		lookups.Add(1)
		if down.Load() {
			return nil, errors.New("name server is down")
		}
		return []netip.Addr{v4, v6}, nil
	}
	inBubble(t, Config{}, lookup, func(t *testing.T, b *bench) {
		b.subscribe(t, named, func(snapshot.Delivery) {})
		dials := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := b.port.source(named).dialled(); got != want {
				t.Errorf("connected to %q, want %q", got, want)
			}
		}
		dials("tcp://10.0.0.1:5557")
		time.Sleep(5 * time.Second)
		dials("tcp://[2001:db8::1]:5557") // the other address gets its turn
		down.Store(true)
		time.Sleep(10 * time.Second)
		dials("tcp://[2001:db8::1]:5557") // where the name led last
		if lookups.Load() != 3 {
			t.Errorf("%d look-ups, want 3", lookups.Load())
		}
	})
}

func TestNameThatDoesNotResolveYetIsTriedAgain(t *testing.T) {
	var known atomic.Bool
	lookup := func(context.Context, string) ([]netip.Addr, error) {
		if known.Load() {
			return []netip.Addr{v4}, nil
		}
		return nil, nil // no error and no address either
	}
	inBubble(t, Config{}, lookup, func(t *testing.T, b *bench) {
		b.subscribe(t, named, func(snapshot.Delivery) {})
		time.Sleep(time.Minute)
		known.Store(true)
		time.Sleep(maxBackoff)
		synctest.Wait()
		if got := b.port.source(named).dialled(); got != "tcp://10.0.0.1:5557" {
			t.Errorf("connected to %q", got)
		}
	})
}

func TestNameServerThatHangsHoldsUpNobodyAndNotClose(t *testing.T) {
	var running, most atomic.Int64
	lookup := func(ctx context.Context, host string) ([]netip.Addr, error) {
		n := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	inBubble(t, Config{}, lookup, func(t *testing.T, b *bench) {
		nop := func(snapshot.Delivery) {}
		for i := range 100 {
			for port := range 4 { // the ranks of one host share a look-up
				b.subscribe(t, fmt.Sprintf("tcp://engine-%d:%d", i, 5557+port), nop)
			}
		}
		var in inbox
		b.subscribe(t, rank0, in.deliver)
		b.port.source(rank0).push(message(1))
		time.Sleep(time.Second)
		if _, ok := in.last(); !ok {
			t.Error("an address waited for a name")
		}
		if most.Load() != maxLookups {
			t.Errorf("%d look-ups at once, want %d", most.Load(), maxLookups)
		}
		start := time.Now()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d > 0 {
			t.Errorf("Close waited %v for a name server", d)
		}
		if running.Load() != 0 {
			t.Error("look-ups go on after Close")
		}
	})
}

func TestLookUpThatAnswersAfterStopConnectsNothing(t *testing.T) {
	lookup := func(context.Context, string) ([]netip.Addr, error) {
		time.Sleep(time.Second)
		return []netip.Addr{v4}, nil
	}
	inBubble(t, Config{}, lookup, func(t *testing.T, b *bench) {
		stop := b.subscribe(t, named, func(snapshot.Delivery) {})
		src := b.port.source(named)
		stop()
		time.Sleep(time.Minute)
		if got := src.dialled(); got != "" {
			t.Errorf("connected to %q", got)
		}
	})
}

func TestLookUpInProgressEndsWithItsContext(t *testing.T) {
	// A name server that takes questions and never answers.
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialNameServer(ctx, network, silent.LocalAddr().String())
	}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := r.LookupNetIP(ctx, "ip", "engine.example.")
		ended <- err
	}()
	if _, _, err := silent.ReadFrom(make([]byte, 512)); err != nil { // it has been asked
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the look-up succeeded")
	}
	// goleak fails the package if the query lives on.
}

func TestAddressesOfANameComeIPv4First(t *testing.T) {
	addrs, err := newLookup()(t.Context(), "localhost")
	if err != nil {
		t.Fatal(err)
	}
	if len(addrs) == 0 || !addrs[0].Is4() {
		t.Errorf("localhost is %v", addrs)
	}
}
