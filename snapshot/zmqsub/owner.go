package zmqsub

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

const (
	// roundEvery is how far apart rounds are, at least. The first message after a
	// pause is taken at once. Where ranks are many, or one never pauses, what
	// comes within that time is read together: a wake-up costs some ten times what
	// a message does.
	roundEvery = 3 * time.Millisecond

	// drainFrames and drainBytes bound what one socket may take of a round.
	drainFrames = 1024
	drainBytes  = 1 << 20

	// A message of more than maxFrames, or of more than oversize times
	// Config.MaxPayload, is not one that went wrong: its connection is given up,
	// and with it the queue that may be full of such messages. Anything below is
	// dropped and counted, and its neighbours are used.
	maxFrames = 128
	oversize  = 2

	// renewalsPerRound bounds what the fresh connections of ranks that went
	// silent together take of a round; one costs about 100 µs.
	renewalsPerRound = 8

	logEvery = time.Minute

	// waitFailurePause keeps a wait that fails at once from spinning.
	waitFailurePause = 100 * time.Millisecond
)

// owner is a goroutine with its share of the sockets. Nobody else touches them;
// others leave a function in its queue and wake it.
type owner struct {
	s       *Subscriber
	port    port
	kick    chan struct{} // wakes it while it rests
	gone    chan struct{} // closed when the goroutine has let go of everything
	placed  int           // subscriptions, guarded by Subscriber.mu
	closing atomic.Bool

	mu    sync.Mutex // after Subscriber.mu
	queue []func()   // guarded by mu
	dead  bool       // guarded by mu; nothing is queued any more

	// The rest belongs to the goroutine.

	subs        []*subscription
	due         time.Time        // no subscription wants to be looked at before; zero = never
	lastRound   time.Time        // that had something to read
	reading     snapshot.Reading // of the delivery in progress
	timer       *time.Timer
	waitFailure time.Time // when one was last logged
}

func newOwner(s *Subscriber, p port) *owner {
	return &owner{s: s, port: p, kick: make(chan struct{}, 1), gone: make(chan struct{})}
}

// post leaves f to the owner. It reports false, and f never runs, once the
// owner is on its way out.
func (o *owner) post(f func()) bool {
	o.mu.Lock()
	dead := o.dead
	if !dead {
		o.queue = append(o.queue, f)
	}
	o.mu.Unlock()
	if !dead {
		o.wake()
	}
	return !dead
}

// do runs f on the owner goroutine and returns what it returns. After ErrClosed
// the goroutine is gone, and f may have run or not.
func (o *owner) do(f func() error) error {
	reply := make(chan error, 1)
	o.post(func() { reply <- f() })
	select {
	case err := <-reply:
		return err
	case <-o.gone:
		return ErrClosed
	}
}

func (o *owner) wake() {
	select {
	case o.kick <- struct{}{}:
	default:
	}
	o.port.wake()
}

func (o *owner) close() {
	o.closing.Store(true)
	o.wake()
}

func (o *owner) run() {
	// Deferred, so that Goexit in a deliver function leaves no socket behind.
	defer o.finish()
	o.timer = time.NewTimer(time.Hour)
	defer o.timer.Stop()
	for !o.closing.Load() {
		ready, err := o.port.wait(o.due)
		o.runQueue()
		now := time.Now()
		switch {
		case err != nil:
			o.waitFailed(err, now)
		case len(ready) == 0:
			o.round(nil)
		case now.Sub(o.lastRound) < roundEvery:
			o.rest(o.lastRound.Add(roundEvery)) // what is ready now still is then
		default:
			flowing := now.Sub(o.lastRound) < 2*roundEvery
			o.lastRound = now
			o.round(ready)
			if flowing {
				o.rest(now.Add(roundEvery)) // and not be woken by the next message only to do so then
			}
		}
	}
}

// round serves the sockets that have something to read and the timers that have
// passed.
func (o *owner) round(ready []*subscription) {
	for _, sub := range ready {
		if o.closing.Load() {
			return
		}
		if sub.source != nil {
			o.drain(sub)
			o.runQueue() // whoever stops a subscription waits for one drain, not for all
		}
	}
	now := time.Now()
	if o.due.IsZero() || now.Before(o.due) {
		return
	}
	o.due = time.Time{}
	renewals := 0
	for i := 0; i < len(o.subs) && !o.closing.Load(); i++ {
		sub := o.subs[i]
		if sub.unsettled() && !now.Before(sub.again) {
			o.drain(sub)
		}
		if !now.Before(sub.renewAt) && renewals < renewalsPerRound {
			renewals++
			o.renew(sub)
		}
		if sub.trouble.pending && !now.Before(sub.trouble.notBefore) {
			o.log(sub, now)
		}
		o.expect(sub.due())
	}
}

// expect makes the owner look at its subscriptions then, at the latest.
func (o *owner) expect(t time.Time) {
	if o.due.IsZero() || t.Before(o.due) {
		o.due = t
	}
}

// rest waits until then, serving the queue meanwhile.
func (o *owner) rest(until time.Time) {
	o.timer.Reset(time.Until(until))
	for !o.closing.Load() {
		select {
		case <-o.timer.C:
			return
		case <-o.kick:
			o.runQueue()
		}
	}
}

func (o *owner) waitFailed(err error, now time.Time) {
	if o.waitFailure.IsZero() || now.Sub(o.waitFailure) >= logEvery {
		o.waitFailure = now
		o.s.config.Logger.Error("load sockets cannot be waited for", slog.Any("error", err))
	}
	o.rest(now.Add(waitFailurePause))
}

func (o *owner) runQueue() {
	o.mu.Lock()
	queue := o.queue
	o.queue = nil
	o.mu.Unlock()
	for _, f := range queue {
		f()
	}
}

// drain empties a socket, as far as one round goes, and hands its newest
// message on unless there may be newer ones behind it.
func (o *owner) drain(sub *subscription) {
	var messages, frames, size int
	full, excess := false, false
	for {
		frame, more, err := sub.source.recv()
		if err != nil {
			if !errors.Is(err, errQuiet) {
				sub.clearParts()
				sub.note(err) // the connection is renewed once it has been silent for long enough
				o.expect(sub.due())
			}
			break
		}
		frames++
		size += len(frame)
		sub.frames++
		sub.size += len(frame)
		if err := sub.excess(o.s.config.MaxPayload); err != nil {
			messages++
			excess = true
			o.hangUp(sub, err)
			break
		}
		if len(sub.parts) < 4 { // one more than is valid tells all there is to tell
			sub.keep(frame)
		}
		if !more {
			messages++
			sub.message(o.s.config.MaxPayload)
		}
		if full = frames >= drainFrames || size >= drainBytes; full {
			break
		}
	}
	if messages == 0 && !full && !sub.unsettled() {
		return
	}
	now := time.Now()
	if messages > 0 {
		sub.stamp(now)
		if !excess {
			sub.heard(now, o.s.config.Silence)
		}
	}
	if sub.settle(messages, full, now) {
		o.hand(sub)
	}
	if sub.unsettled() || sub.trouble.pending {
		o.expect(sub.due())
	}
}

// hand passes on what was held: at most one dropped message and one reading,
// the reading last.
func (o *owner) hand(sub *subscription) {
	newest := sub.newest
	sub.newest = held{}
	if newest.ok {
		if err := o.reading.Decode(newest.payload); err != nil {
			newest.ok = false
			newest.delivery.Err = err
			sub.drop(newest.delivery)
		}
	}
	bad := sub.bad
	sub.bad = held{}
	if bad.ok {
		sub.deliver(bad.delivery)
	}
	if newest.ok {
		sub.count(func(c *Counts) { c.Delivered++ })
		newest.delivery.Reading = &o.reading
		sub.deliver(newest.delivery)
	}
	sub.last = trimmed(sub.last)
}

// add starts a subscription.
func (o *owner) add(sub *subscription) error {
	if o.closing.Load() {
		return ErrClosed
	}
	src, err := o.port.open(sub)
	if err != nil {
		return err
	}
	sub.source = src
	now := time.Now()
	sub.heard(now, o.s.config.Silence)
	sub.trouble.notBefore = now
	if err := o.dial(sub); err != nil {
		src.close()
		sub.source = nil
		return err
	}
	sub.index = len(o.subs)
	o.subs = append(o.subs, sub)
	o.expect(sub.due())
	o.s.enter(sub)
	return nil
}

// remove ends a subscription, unless it has ended.
func (o *owner) remove(sub *subscription) {
	if sub.source == nil {
		return
	}
	last := len(o.subs) - 1
	o.subs[sub.index] = o.subs[last]
	o.subs[sub.index].index = sub.index
	o.subs[last] = nil
	o.subs = o.subs[:last]
	if last == 0 {
		o.due = time.Time{}
	}
	o.discard(sub)
}

// discard closes the socket of a subscription and settles its accounts.
func (o *owner) discard(sub *subscription) {
	sub.source.close()
	sub.source = nil
	if sub.newest.ok {
		sub.count(func(c *Counts) { c.drop(reasonStopped) })
	}
	sub.newest, sub.bad, sub.parts = held{}, held{}, nil
	o.s.retire(sub)
}

// log writes what has gone wrong with an endpoint.
func (o *owner) log(sub *subscription, now time.Time) {
	c := sub.stats().Counts
	var dropped []any
	for _, reason := range slices.Sorted(maps.Keys(c.Dropped)) {
		dropped = append(dropped, slog.Uint64(reason, c.Dropped[reason]))
	}
	attrs := []any{
		slog.String("endpoint", sub.endpoint),
		slog.Group("dropped", dropped...),
		slog.Uint64("reconnects", c.Reconnects),
		slog.Duration("silent", now.Sub(sub.heardAt).Round(time.Millisecond)),
	}
	if o.s.config.Curve != nil {
		attrs = append(attrs, slog.Bool("curve", true))
	}
	if err := sub.trouble.err; err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	sub.trouble = trouble{notBefore: now.Add(logEvery)}
	o.s.config.Logger.Warn("trouble on a load socket; counts are since it was subscribed", attrs...)
}

// finish lets go of everything. The last owner out closes the context.
func (o *owner) finish() {
	o.s.shut() // a no-op, unless a deliver function ended the goroutine
	o.mu.Lock()
	o.dead = true
	o.queue = nil
	o.mu.Unlock()
	for _, sub := range o.subs {
		o.discard(sub)
	}
	o.subs = nil
	o.port.close()
	close(o.gone)
	o.s.ownerGone()
}
