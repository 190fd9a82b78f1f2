package zmqsub

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

func TestStopWaitsForTheCallInProgress(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		var running, after atomic.Bool
		stop := b.subscribe(t, rank0, func(snapshot.Delivery) {
			if after.Load() {
				t.Error("called after stop had returned")
			}
			running.Store(true)
			time.Sleep(time.Second)
			running.Store(false)
		})
		src := b.port.source(rank0)
		src.push(message(1))
		synctest.Wait()
		src.push(message(2))
		var wg sync.WaitGroup
		for range 3 { // every caller is promised it
			wg.Go(func() {
				stop()
				after.Store(true)
				if running.Load() {
					t.Error("stop returned during a call")
				}
			})
		}
		wg.Wait()
		stop()
		time.Sleep(time.Minute)
		if n := len(b.Stats().Endpoints); n != 0 {
			t.Errorf("%d endpoints after stop", n)
		}
		if c := b.Stats().Counts; c.Messages == 0 {
			t.Error("the totals forgot a subscription that has ended")
		}
	})
}

func TestMessageHeldBackWhenItsSubscriptionEndsIsAccountedFor(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		var in inbox
		stop := b.subscribe(t, rank0, in.deliver)
		src := b.port.source(rank0)
		var backlog [][][]byte
		for i := range int64(burst) {
			backlog = append(backlog, message(i))
		}
		src.push(backlog...)
		synctest.Wait()
		stop()
		synctest.Wait()
		c := b.Stats().Counts
		if len(in.all()) != 0 || c.Dropped[reasonStopped] != 1 {
			t.Errorf("%d deliveries, dropped %v", len(in.all()), c.Dropped)
		}
		checkBooks(t, c)
	})
}

func TestSubscriptionsBeyondMaxSocketsAreRefused(t *testing.T) {
	inBubble(t, Config{MaxSockets: 2, Owners: 2}, nil, func(t *testing.T, b *bench) {
		nop := func(snapshot.Delivery) {}
		stop := b.subscribe(t, rank0, nop)
		b.subscribe(t, rank0, nop) // the same endpoint twice is two subscriptions
		if _, err := b.Subscribe(rank1, nop); !errors.Is(err, ErrLimit) {
			t.Errorf("Subscribe: %v, want ErrLimit", err)
		}
		stop()
		stop()
		b.subscribe(t, rank1, nop)
		if _, err := b.Subscribe(rank1, nop); !errors.Is(err, ErrLimit) {
			t.Errorf("stopping twice made room twice: %v", err)
		}
	})
}

func TestSubscribeRefusesWhatCannotWork(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		if _, err := b.Subscribe("tcp://*:5557", func(snapshot.Delivery) {}); !errors.Is(err, ErrEndpoint) {
			t.Errorf("wildcard: %v", err)
		}
		if _, err := b.Subscribe(rank0, nil); err == nil {
			t.Error("a nil deliver was accepted")
		}
	})
}

func TestStopWaitsForOneDrainAndNotForTheWholeRound(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		var stops [2]func()
		entered, release := make(chan int, 2), make(chan struct{})
		for i, endpoint := range []string{rank0, rank1} {
			stops[i] = b.subscribe(t, endpoint, func(snapshot.Delivery) {
				entered <- i
				<-release
			})
		}
		// Both at once, so that they are in one round.
		first, second := b.port.source(rank0), b.port.source(rank1)
		b.port.mu.Lock()
		first.pushLocked(message(1))
		second.pushLocked(message(2))
		b.port.mu.Unlock()
		b.port.wake()
		other := 1 - <-entered
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			stops[other]()
		}()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("stop returned while its owner was in a call")
		default:
		}
		close(release)
		<-stopped
		if len(entered) > 0 {
			t.Error("a message was delivered after its subscription had been stopped")
		}
		stops[other]()
	})
}

func TestStopAfterCloseReturns(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		stop := b.subscribe(t, rank0, func(snapshot.Delivery) {})
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		stop()
	})
}

func TestOwnersFillUpOneAfterAnother(t *testing.T) {
	inBubble(t, Config{Owners: 3, MaxSockets: 4 * ownerFill}, nil, func(t *testing.T, b *bench) {
		var stops []func()
		subscribe := func(n int) {
			for range n {
				stops = append(stops, b.subscribe(t, rank0, func(snapshot.Delivery) {}))
			}
		}
		check := func(want ...int) {
			t.Helper()
			for i, p := range b.bus.ports {
				if n := p.openSources(); n != want[i] {
					t.Errorf("owner %d has %d sockets, want %d", i, n, want[i])
				}
			}
		}
		subscribe(ownerFill)
		check(ownerFill, 0, 0)
		subscribe(1)
		check(ownerFill, 1, 0)
		stops[0]()
		subscribe(1)
		check(ownerFill, 1, 0)
		subscribe(2*ownerFill - 1)
		check(ownerFill, ownerFill, ownerFill)
		subscribe(30)
		check(ownerFill+10, ownerFill+10, ownerFill+10)
	})
}

func TestSubscriberThatCannotHaveAllOwnersLeavesNothing(t *testing.T) {
	b := &fakeBus{most: 2}
	c, err := Config{Owners: 3}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if s, err := start(c, b, nil); s != nil || !errors.Is(err, ErrLimit) {
		t.Errorf("start = %v, %v; want ErrLimit", s, err)
	}
	if !b.closed || !b.ports[0].closed || !b.ports[1].closed {
		t.Error("something was left open")
	}
}
