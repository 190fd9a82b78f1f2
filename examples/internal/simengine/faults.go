package simengine

import (
	"fmt"
	"sync"
	"time"
)

// Failure is how a request is made to fail.
type Failure uint8

const (
	FailError Failure = iota // status 500 with an error body
	FailCut                  // the connection is cut before the first byte
)

// String returns the name that the fail endpoint reads.
func (f Failure) String() string {
	if f == FailCut {
		return "cut"
	}
	return "error"
}

func parseFailure(name string) (Failure, error) {
	switch name {
	case "", FailError.String():
		return FailError, nil
	case FailCut.String():
		return FailCut, nil
	}
	return 0, fmt.Errorf("unknown failure %q: want error or cut", name)
}

// failures counts the requests that are still to fail.
type failures struct {
	mu  sync.Mutex
	n   int
	how Failure
}

func (f *failures) set(n int, how Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n, f.how = n, how
}

// take reports whether the next request fails.
func (f *failures) take() (Failure, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n == 0 {
		return 0, false
	}
	f.n--
	return f.how, true
}

// forEver is a mute that only Unmute or Restart ends.
const forEver = 100 * 365 * 24 * time.Hour

// Mute stops load messages while everything else goes on: what a subscriber sees
// of a half-open link or a load socket that failed to bind. It ends after d, or
// with Unmute when d is 0.
func (e *Engine) Mute(d time.Duration) error {
	return e.MuteRank(allRanks, d)
}

// MuteRank is Mute for one rank, while the others go on: their sum is then no longer
// the engine's load. Unmute ends it too.
func (e *Engine) MuteRank(rank int, d time.Duration) error {
	if d <= 0 {
		d = forEver
	}
	return e.withPublisher(func(p *publisher) { p.mute(rank, time.Now().Add(d)) })
}

// Unmute ends Mute and MuteRank.
func (e *Engine) Unmute() error {
	return e.withPublisher(func(p *publisher) { p.mute(allRanks, time.Time{}) })
}

// Garbage publishes n broken messages on every rank, of each kind in turn, between
// the good ones and also while muted; 0 ends it. A subscriber that falls behind
// misses some, like any other message.
func (e *Engine) Garbage(n int) error {
	return e.withPublisher(func(p *publisher) { p.sendGarbage(max(n, 0)) })
}

// Flood has every rank repeat its load, changed or not, as fast as its socket takes
// it, until d has passed. It sheds what the socket does not take.
func (e *Engine) Flood(d time.Duration) error {
	return e.withPublisher(func(p *publisher) { p.flood(time.Now().Add(d)) })
}

// Freeze stops everything but the kernel's part of it, until Thaw or the end of this
// life: connections are taken, and nothing on them is answered; nothing is computed
// and nothing published. It is what a process that hangs looks like. ZeroMQ's own
// thread goes on answering heartbeats, as it does in a process that hangs in Python.
func (e *Engine) Freeze() error { return e.setFrozen(true) }

// Thaw ends Freeze. What was under way goes on.
func (e *Engine) Thaw() error { return e.setFrozen(false) }

// frozenSpeed is a speed at which nothing finishes. It must not be so low that the
// rest of a step stretched by it is longer than a duration can be.
const frozenSpeed = 1e-9

func (e *Engine) setFrozen(frozen bool) error {
	e.speedMu.Lock()
	defer e.speedMu.Unlock()
	l := e.life.Load()
	if l == nil {
		return ErrDead
	}
	e.frozen = frozen
	l.ice.set(frozen)
	if l.publisher != nil {
		l.publisher.freeze(frozen)
	}
	for _, r := range l.ranks {
		r.setSpeed(e.coreSpeedLocked())
	}
	return nil
}

// withPublisher does nothing for an engine without load sockets.
func (e *Engine) withPublisher(do func(*publisher)) error {
	l := e.life.Load()
	if l == nil {
		return ErrDead
	}
	if l.publisher != nil {
		do(l.publisher)
	}
	return nil
}

// SetSpeed makes the engine factor times as fast as configured, from now on: the
// step under way is stretched too, and the next life has the same speed. It
// reports an error for a factor that is not positive and finite.
func (e *Engine) SetSpeed(factor float64) error {
	e.speedMu.Lock()
	defer e.speedMu.Unlock()
	speed := e.config.Speed * e.config.TimeScale * factor
	if !usableSpeed(factor) || !usableSpeed(speed) {
		return fmt.Errorf("simengine: speed %v: want a positive number", factor)
	}
	e.speed = factor
	if l := e.life.Load(); l != nil {
		for _, r := range l.ranks {
			r.setSpeed(e.coreSpeedLocked())
		}
	}
	return nil
}

// FailNext makes the next n completion requests fail; 0 ends it.
func (e *Engine) FailNext(n int, how Failure) error {
	l := e.life.Load()
	if l == nil {
		return ErrDead
	}
	l.failures.set(max(n, 0), how)
	return nil
}

// freezeFor is Freeze that ends after d, if that is above 0.
func (e *Engine) freezeFor(d time.Duration) error {
	if err := e.Freeze(); err != nil || d <= 0 {
		return err
	}
	e.inBackground(func() {
		if e.pause(d) {
			_ = e.Thaw() // or it has died meanwhile
		}
	})
	return nil
}

// dieFor is Die for a fault handler, which the death has to wait for: it happens
// in the background. With d above 0 the engine comes back after it.
func (e *Engine) dieFor(d time.Duration) {
	e.inBackground(func() {
		e.Die()
		if d > 0 {
			e.restartAfter(d, 0)
		}
	})
}

// restart is Restart for a fault handler.
func (e *Engine) restart(down time.Duration, ranks int) {
	e.inBackground(func() {
		e.Die()
		e.restartAfter(down, ranks)
	})
}

func (e *Engine) restartAfter(d time.Duration, ranks int) {
	if !e.pause(d) {
		return
	}
	if err := e.Restart(ranks); err != nil {
		e.config.Logger.Error("engine did not come back", "url", e.URL(), "err", err)
	}
}

// pause returns false if the engine is closed meanwhile.
func (e *Engine) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-e.ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (e *Engine) inBackground(do func()) {
	if !e.background.enter() {
		return
	}
	go func() {
		defer e.background.leave()
		do()
	}()
}
