//go:build cgo

package zmqsub

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// waiters are the waiters that work here.
func waiters() map[string]func() (zmqWaiter, error) {
	return map[string]func() (zmqWaiter, error){
		"of this platform": newWaiter,
		"ticking":          func() (zmqWaiter, error) { return newTicking(), nil },
	}
}

func TestEveryWaiterHearsItsSockets(t *testing.T) {
	for name, newWaiter := range waiters() {
		t.Run(name, func(t *testing.T) {
			c, err := Config{Owners: 1}.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			bus, err := openZMQ(c)
			if err != nil {
				t.Fatal(err)
			}
			bus.(*zmqBus).newWaiter = newWaiter
			s, err := start(c, bus, newLookup())
			if err != nil {
				t.Fatal(err)
			}
			defer closeSubscriber(t, s)
			ctx := newContext(t)
			var stops []func()
			for i := range 5 {
				p := publish(t, ctx, "tcp://127.0.0.1:*")
				var in inbox
				stops = append(stops, subscribe(t, s, p.endpoint, in.deliver))
				p.await()
				for seq := range int64(20) {
					p.send(message(seq))
					eventually(t, fmt.Sprintf("message %d of socket %d", seq, i), in.has(seq))
				}
			}
			for _, stop := range stops {
				stop()
			}
			subscribe(t, s, "tcp://127.0.0.1:1", func(snapshot.Delivery) {})()
		})
	}
}

func TestWakeIsNeverLost(t *testing.T) {
	for name, newWaiter := range waiters() {
		t.Run(name, func(t *testing.T) {
			w, err := newWaiter()
			if err != nil {
				t.Fatal(err)
			}
			var posted, seen atomic.Int64
			var over atomic.Bool
			var owner, others sync.WaitGroup
			owner.Go(func() {
				for !over.Load() {
					if _, err := w.wait(time.Time{}); err != nil {
						t.Error(err)
					}
					seen.Store(posted.Load())
				}
			})
			for range 4 {
				others.Go(func() {
					for range 250 {
						mine := posted.Add(1)
						w.wake()
						eventually(t, "the owner to wake", func() bool { return seen.Load() >= mine })
					}
				})
			}
			others.Wait()
			over.Store(true)
			w.wake()
			owner.Wait()
			w.close()
			w.wake() // harmless
		})
	}
}
