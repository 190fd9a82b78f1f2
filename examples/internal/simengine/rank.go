package simengine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine/batch"
)

// errStopped is what a job gets that was in an engine when it died.
var errStopped = errors.New("the engine stopped")

// stepsPerMark is how many decode steps the real scheduler lets pass before it
// offers its load to the publisher again.
const stepsPerMark = 5

// maxLag bounds how far a rank may be behind the wall clock and still catch up.
// Timers fire late by up to a millisecond, which has to be made good or fast
// simulations run slow; a machine that was suspended must not run wild.
const maxLag = 100 * time.Millisecond

// rank drives one batch.Core against the wall clock.
type rank struct {
	index   int
	wake    chan struct{} // capacity 1: there is something to do
	respeed chan struct{} // capacity 1: speed has changed
	marked  func()        // called without mu when the load is worth publishing
	// stepped is called without mu after each step, with the load as it was when the
	// step was formed and the tokens that came out of it, not to be kept. nil =
	// nobody asks.
	stepped func(batch.Load, []batch.Token)

	mu      sync.Mutex
	core    *batch.Core
	speed   float64
	jobs    map[batch.ID]*job
	nextID  batch.ID
	tokens  []batch.Token // reused
	formed  batch.Load    // when the step under way was; only where stepped asks
	steps   int           // since the last mark
	idle    bool          // and has been marked as such
	rate    meter
	stopped bool
}

func newRank(index int, config batch.Config, speed float64, marked func()) *rank {
	r := &rank{
		index:   index,
		wake:    make(chan struct{}, 1),
		respeed: make(chan struct{}, 1),
		marked:  marked,
		core:    batch.New(config),
		speed:   speed,
		jobs:    map[batch.ID]*job{},
	}
	r.core.SetSpeed(speed)
	return r
}

// run steps the core until ctx ends, and then fails what is left in it.
func (r *rank) run(ctx context.Context) {
	defer r.stop()
	var due time.Time // when the step under way ends; zero when idle
	for {
		d, speed, ok := r.begin()
		if !ok {
			due = time.Time{}
			select {
			case <-r.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if due, ok = r.sleepUntil(ctx, stepEnd(due, time.Now(), d), speed); !ok {
			return
		}
		r.finish(time.Now())
		if r.stepped != nil {
			r.stepped(r.formed, r.tokens) // only this goroutine writes to them
		}
	}
}

// stepEnd returns when a step that takes d ends: d after the step before was to
// end, or d from now where there was none, or it is too long ago.
func stepEnd(last, now time.Time, d time.Duration) time.Time {
	if last.IsZero() || now.Sub(last) > maxLag {
		last = now
	}
	return last.Add(d)
}

// sleepUntil waits for a step to end. A change of speed stretches or shortens what
// is left of it, so that an engine at a standstill can be set going again. It
// returns when the step ended, and false when ctx ended first.
func (r *rank) sleepUntil(ctx context.Context, due time.Time, speed float64) (time.Time, bool) {
	for {
		timer := time.NewTimer(time.Until(due))
		select {
		case <-timer.C:
			return due, true
		case <-ctx.Done():
			timer.Stop()
			return due, false
		case <-r.respeed:
			timer.Stop()
			now := r.currentSpeed()
			if left := time.Until(due); left > 0 {
				due = due.Add(stretched(left, speed/now) - left)
			}
			speed = now
		}
	}
}

// stretched multiplies d, saturating.
func stretched(d time.Duration, by float64) time.Duration {
	const most = time.Duration(1) << 61
	return time.Duration(min(float64(d)*by, float64(most)))
}

func (r *rank) begin() (d time.Duration, speed float64, ok bool) {
	r.mu.Lock()
	d, ok = r.core.Begin()
	if ok && r.stepped != nil {
		r.formed = r.core.Load()
	}
	speed = r.speed
	r.steps++
	mark := r.steps >= stepsPerMark || ok && r.core.Prefilling() || !ok && !r.idle
	if mark {
		r.steps = 0
	}
	r.idle = !ok
	if r.idle {
		r.rate.stop()
	}
	r.mu.Unlock()
	if mark {
		r.marked()
	}
	return d, speed, ok
}

func (r *rank) finish(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens = r.core.Finish(r.tokens[:0])
	r.rate.add(now, len(r.tokens))
	for _, t := range r.tokens {
		j := r.jobs[t.ID]
		j.produced = t.N
		if t.Last {
			j.done = true
			delete(r.jobs, t.ID)
		}
		nudge(j.ready)
	}
}

func (r *rank) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	for id, j := range r.jobs {
		r.core.Abort(id)
		j.err = errStopped
		nudge(j.ready)
	}
	clear(r.jobs)
}

// setSpeed also applies to the step under way.
func (r *rank) setSpeed(speed float64) {
	r.mu.Lock()
	r.speed = speed
	r.core.SetSpeed(speed)
	r.mu.Unlock()
	nudge(r.respeed)
}

func (r *rank) currentSpeed() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.speed
}

// submit queues a request. Errors are those of batch.Core.Add, and errStopped.
func (r *rank) submit(prompt, output int64) (*job, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil, errStopped
	}
	r.nextID++
	if err := r.core.Add(r.nextID, prompt, output); err != nil {
		return nil, err
	}
	j := &job{rank: r, id: r.nextID, ready: make(chan struct{}, 1)}
	r.jobs[j.id] = j
	nudge(r.wake)
	return j, nil
}

func (r *rank) current() batch.Load {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Load()
}

func (r *rank) totals() batch.Totals {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Totals()
}

// nudge makes sure that c, of capacity 1, has something in it.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// job is one request in a rank. It has one reader.
type job struct {
	rank  *rank
	id    batch.ID
	ready chan struct{} // capacity 1

	// guarded by rank.mu
	produced int64 // tokens
	done     bool
	err      error
}

// wait returns as soon as more than seen tokens have been produced, with their
// number and whether they are all. It fails with errStopped or the error of ctx.
func (j *job) wait(ctx context.Context, seen int64) (produced int64, done bool, err error) {
	for {
		j.rank.mu.Lock()
		produced, done, err = j.produced, j.done, j.err
		j.rank.mu.Unlock()
		if produced > seen || done || err != nil {
			return produced, done, err
		}
		select {
		case <-j.ready:
		case <-ctx.Done():
			return produced, false, ctx.Err()
		}
	}
}

// abort takes the job out of the engine and frees its KV. It does nothing to one
// that is done, so it can be deferred.
func (j *job) abort() {
	r := j.rank
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.jobs[j.id]; !ok {
		return
	}
	delete(r.jobs, j.id)
	r.core.Abort(j.id)
	// A rank with nothing left in it has to notice and say so.
	nudge(r.wake)
}
