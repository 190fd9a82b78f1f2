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

func TestStopFromInsideDeliverDoesNotDeadlock(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		var calls, otherCalls atomic.Int64
		var stop, stopOther func()
		ready := make(chan struct{})
		stop = b.subscribe(t, rank0, func(snapshot.Delivery) {
			<-ready
			calls.Add(1)
			stop()
			stop()
			stopOther()
		})
		stopOther = b.subscribe(t, rank1, func(snapshot.Delivery) { otherCalls.Add(1) })
		close(ready)
		src, other := b.port.source(rank0), b.port.source(rank1)
		src.push(message(1))
		synctest.Wait()
		src.push(message(2))
		other.push(message(3))
		time.Sleep(time.Second)
		if calls.Load() != 1 || otherCalls.Load() != 0 {
			t.Errorf("%d calls, %d of the other; want 1, 0", calls.Load(), otherCalls.Load())
		}
		if n := b.port.openSources(); n != 0 {
			t.Errorf("%d sources left", n)
		}
	})
}

func TestTwoDeliverFunctionsThatStopEachOtherDoNotDeadlock(t *testing.T) {
	inBubble(t, Config{Owners: 2}, nil, func(t *testing.T, b *bench) {
		var stops [2]func()
		ready, both := make(chan struct{}), make(chan struct{}, 2)
		meet := func(other int) func(snapshot.Delivery) {
			return func(snapshot.Delivery) {
				<-ready
				both <- struct{}{}
				time.Sleep(time.Second) // until the other one is in its call, too
				stops[other]()
			}
		}
		stops[0] = b.subscribe(t, rank0, meet(1))
		stops[1] = b.subscribe(t, rank1, meet(0))
		close(ready)
		for _, p := range b.bus.ports {
			for _, e := range []string{rank0, rank1} {
				if src := p.source(e); src != nil {
					src.push(message(1))
				}
			}
		}
		<-both
		<-both
		time.Sleep(time.Minute)
		for _, p := range b.bus.ports {
			if n := p.openSources(); n != 0 {
				t.Errorf("%d sources left", n)
			}
		}
	})
}

func TestSubscribeFromInsideDeliver(t *testing.T) {
	inBubble(t, Config{Owners: 2}, nil, func(t *testing.T, b *bench) {
		var in inbox
		var once sync.Once
		b.subscribe(t, rank0, func(snapshot.Delivery) {
			once.Do(func() { b.subscribe(t, rank1, in.deliver) })
		})
		b.port.source(rank0).push(message(1))
		synctest.Wait()
		b.port.source(rank1).push(message(2))
		time.Sleep(2 * roundEvery)
		if r, ok := in.last(); !ok || r.running != 2 {
			t.Errorf("deliveries: %+v", in.all())
		}
	})
}

func TestCloseFromInsideDeliver(t *testing.T) {
	inBubble(t, Config{}, nil, func(t *testing.T, b *bench) {
		var calls atomic.Int64
		b.subscribe(t, rank0, func(snapshot.Delivery) {
			calls.Add(1)
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if _, err := b.Subscribe(rank1, func(snapshot.Delivery) {}); !errors.Is(err, ErrClosed) {
				t.Errorf("Subscribe: %v, want ErrClosed", err)
			}
		})
		src := b.port.source(rank0)
		src.push(message(1), message(2))
		<-b.done
		if calls.Load() != 1 {
			t.Errorf("%d calls", calls.Load())
		}
		checkBooks(t, b.Stats().Counts)
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

func TestGoroutinesAreToldApart(t *testing.T) {
	mine := goroutineID()
	theirs := make(chan uint64)
	go func() { theirs <- goroutineID() }()
	if other := <-theirs; mine == 0 || other == 0 || mine == other || mine != goroutineID() {
		t.Errorf("goroutines %d and %d", mine, other)
	}
}
