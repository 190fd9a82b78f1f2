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
	// roundEvery plus roundPerSocket for each socket is the least time between
	// two rounds while messages flow. A Poll costs 0.5 to 1 µs per socket (two
	// system calls), whether one is ready or all of them: without a rest, 500
	// ranks that publish ten times a second keep an owner polling all the time.
	// This way it is at most a twentieth of it, at the price of readings that
	// are some milliseconds later; they come 100 ms apart.
	roundEvery     = 2 * time.Millisecond
	roundPerSocket = 20 * time.Microsecond

	// burst is how many messages of one drain mean that more may be behind
	// them: half the receive queue. libzmq's I/O thread stops at a full queue
	// and is told of the room again only after half of it has been read, so a
	// smaller drain cannot have found it stopped.
	burst = 128

	// quietFor is how long a socket that is catching up has to have nothing to
	// read before its newest message counts as the newest.
	quietFor = 2 * time.Millisecond

	// settleLimit is how long catching up may hold a reading back.
	settleLimit = 100 * time.Millisecond

	// settlePause is how long after that a publisher that never paused is not
	// held back again: an owner does not rest while somebody is catching up.
	settlePause = time.Second

	// drainFrames and drainBytes bound what one socket may take of a round.
	drainFrames = 1024
	drainBytes  = 1 << 20

	logEvery = time.Minute

	// pollFailurePause keeps a Poll that fails at once from spinning.
	pollFailurePause = 100 * time.Millisecond
)

// owner is a goroutine with its share of the sockets. Nobody else touches them;
// others leave a function in its queue and wake it.
type owner struct {
	s      *Subscriber
	port   port
	kick   chan struct{} // wakes it while it rests
	gone   chan struct{} // closed when the goroutine has let go of everything
	weight int           // subscriptions placed here, guarded by Subscriber.mu

	id         atomic.Uint64 // of its goroutine
	delivering atomic.Bool   // inside a deliver function
	closing    atomic.Bool

	mu    sync.Mutex // after Subscriber.mu
	queue []func()   // guarded by mu
	dead  bool       // guarded by mu; nothing is queued any more

	// The rest belongs to the goroutine.

	subs        []*subscription
	reading     snapshot.Reading // of the delivery in progress
	timer       *time.Timer
	pollFailure time.Time // when one was last logged
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

// do runs f on the owner goroutine and returns what it returns.
func (o *owner) do(f func() error) error {
	reply := make(chan error, 1)
	if !o.post(func() { reply <- f() }) {
		return ErrClosed
	}
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
	o.id.Store(goroutineID())
	o.timer = time.NewTimer(time.Hour)
	defer o.timer.Stop()
	for !o.closing.Load() {
		ready, err := o.port.wait(o.patience(time.Now()))
		start := time.Now()
		if err != nil {
			o.pollFailed(err, start)
			continue
		}
		catchingUp := o.round(ready)
		if len(ready) > 0 && !catchingUp {
			o.rest(start.Add(roundEvery + time.Duration(len(o.subs))*roundPerSocket))
		}
	}
}

// patience is how long the owner may wait if nothing arrives; negative: forever.
func (o *owner) patience(now time.Time) time.Duration {
	if len(o.subs) == 0 {
		return -1
	}
	due := o.subs[0].due()
	for _, sub := range o.subs[1:] {
		if t := sub.due(); t.Before(due) {
			due = t
		}
	}
	return max(0, due.Sub(now))
}

// round serves the sockets that have something to read and the timers that have
// passed. It reports whether some socket is catching up, and so wants no rest.
func (o *owner) round(ready []*subscription) (catchingUp bool) {
	o.runQueue()
	for _, sub := range ready {
		if o.closing.Load() {
			return false
		}
		if sub.source != nil {
			o.drain(sub)
		}
	}
	now := time.Now()
	// By index, because a deliver function may add to the list.
	for i := 0; i < len(o.subs) && !o.closing.Load(); i++ {
		sub := o.subs[i]
		o.tick(sub, now)
		catchingUp = catchingUp || sub.settle.catchingUp(now)
	}
	return catchingUp
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

func (o *owner) pollFailed(err error, now time.Time) {
	if o.pollFailure.IsZero() || now.Sub(o.pollFailure) >= logEvery {
		o.pollFailure = now
		o.s.config.Logger.Error("load sockets cannot be polled", slog.Any("error", err))
	}
	o.runQueue()
	o.rest(now.Add(pollFailurePause))
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
	for frames < drainFrames && size < drainBytes {
		frame, more, err := sub.source.recv()
		if err != nil {
			if !errors.Is(err, errQuiet) {
				sub.report.note(err) // the connection is renewed once it has been silent for long enough
			}
			break
		}
		frames++
		size += len(frame)
		if len(sub.parts) < 4 { // one more than is valid tells all there is to tell
			sub.parts = append(sub.parts, frame)
		}
		if more {
			continue
		}
		messages++
		sub.message(sub.parts, o.s.config.MaxPayload)
		clear(sub.parts)
		sub.parts = sub.parts[:0]
	}
	if messages == 0 {
		return
	}
	now := time.Now()
	sub.stamp(now)
	sub.link.reset(now, o.s.config.Silence)
	big := messages >= burst || frames >= drainFrames || size >= drainBytes
	if !sub.settle.drained(big, now) {
		o.hand(sub)
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
		o.call(sub, bad.delivery)
	}
	if newest.ok {
		newest.delivery.Reading = &o.reading
		o.call(sub, newest.delivery)
	}
}

// call is the only place that deliver is called from.
func (o *owner) call(sub *subscription, d snapshot.Delivery) {
	sub.call <- struct{}{}
	defer func() { <-sub.call }()
	stopped := sub.stopped.Load() || o.closing.Load()
	if d.Err == nil {
		sub.mu.Lock()
		if stopped {
			sub.counts.drop(reasonStopped)
		} else {
			sub.counts.Delivered++
		}
		sub.mu.Unlock()
	}
	if stopped {
		return
	}
	o.delivering.Store(true)
	defer o.delivering.Store(false)
	sub.deliver(d)
}

// reasonStopped is the one drop that is nobody's fault.
const reasonStopped = "stopped"

// tick serves the timers of one subscription.
func (o *owner) tick(sub *subscription, now time.Time) {
	if sub.settle.quiet(now) {
		o.hand(sub)
	}
	if !now.Before(sub.link.renewAt) {
		o.renew(sub)
	}
	if sub.report.pending && !now.Before(sub.report.notBefore) {
		o.log(sub, now)
	}
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
	sub.link.reset(time.Now(), o.s.config.Silence)
	if err := o.dial(sub); err != nil {
		src.close()
		sub.source = nil
		return err
	}
	sub.index = len(o.subs)
	o.subs = append(o.subs, sub)
	o.s.enter(sub)
	return nil
}

// remove ends a subscription that has been stopped.
func (o *owner) remove(sub *subscription) {
	if sub.source == nil {
		return
	}
	last := len(o.subs) - 1
	o.subs[sub.index] = o.subs[last]
	o.subs[sub.index].index = sub.index
	o.subs[last] = nil
	o.subs = o.subs[:last]
	o.discard(sub)
}

// discard closes the socket of a subscription and settles its accounts.
func (o *owner) discard(sub *subscription) {
	sub.source.close()
	sub.source = nil
	if sub.newest.ok {
		sub.mu.Lock()
		sub.counts.drop(reasonStopped)
		sub.mu.Unlock()
	}
	sub.newest, sub.bad, sub.parts = held{}, held{}, nil
	o.s.retire(sub)
}

// log writes what has gone wrong since the last record of this endpoint.
func (o *owner) log(sub *subscription, now time.Time) {
	n := &sub.report
	var dropped []any
	for _, reason := range slices.Sorted(maps.Keys(n.dropped)) {
		dropped = append(dropped, slog.Uint64(reason, n.dropped[reason]))
	}
	attrs := []any{
		slog.String("endpoint", sub.endpoint),
		slog.Group("dropped", dropped...),
		slog.Uint64("reconnects", n.reconnects),
		slog.Duration("silent", now.Sub(sub.link.heard).Round(time.Millisecond)),
	}
	if n.err != nil {
		attrs = append(attrs, slog.Any("error", n.err))
	}
	*n = troubleNote{notBefore: now.Add(logEvery)}
	o.s.config.Logger.Warn("trouble on a load socket", attrs...)
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
