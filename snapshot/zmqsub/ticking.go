//go:build cgo

package zmqsub

import (
	"maps"
	"slices"
	"time"

	zmq "github.com/pebbe/zmq4"
)

// tickEvery is how often sockets are looked at where nothing tells which of them
// has something to read.
const tickEvery = 2 * time.Millisecond

// ticking is a waiter for platforms without epoll. It supposes at every tick
// that each socket might have something, which takes no system's help and is
// cheap enough for the machine somebody develops on.
type ticking struct {
	woken chan struct{}
	timer *time.Timer
	subs  map[*zmq.Socket]*subscription
}

func newTicking() *ticking {
	return &ticking{
		woken: make(chan struct{}, 1),
		timer: time.NewTimer(0),
		subs:  make(map[*zmq.Socket]*subscription),
	}
}

func (t *ticking) add(soc *zmq.Socket, sub *subscription) error {
	t.subs[soc] = sub
	return nil
}

func (t *ticking) remove(soc *zmq.Socket) { delete(t.subs, soc) }

// wait takes no notice of its deadline, which the next tick is soon enough for;
// without a socket there is none.
func (t *ticking) wait(time.Time) ([]*subscription, error) {
	var tick <-chan time.Time
	if len(t.subs) > 0 {
		t.timer.Reset(tickEvery)
		tick = t.timer.C
	}
	select {
	case <-t.woken:
	case <-tick:
	}
	return slices.Collect(maps.Values(t.subs)), nil
}

func (t *ticking) wake() {
	select {
	case t.woken <- struct{}{}:
	default:
	}
}

func (t *ticking) close() { t.timer.Stop() }
