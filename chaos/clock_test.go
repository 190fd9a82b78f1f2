//go:build chaos && linux

package chaos

import (
	"sync"
	"testing"
	"time"
)

// awake is the clock that everything is judged by here: what was sent how long ago, and
// who has had how long to notice. A machine that stands still for a second takes that
// second from everybody, and nobody is late because of it: the clock stands still as well.
var awake = startClock()

// clock measures how long this process has been running. It is looked at all the time,
// and goes on by no more than stride until it is looked at again.
type clock struct {
	mu     sync.Mutex
	passed time.Time // on this clock, when it was looked at last
	looked time.Time // when that was
}

const stride = 20 * time.Millisecond

func startClock() *clock {
	now := time.Now()
	c := &clock{passed: now, looked: now}
	go func() {
		for ; ; time.Sleep(stride / 10) {
			c.mu.Lock()
			now := time.Now()
			c.passed, c.looked = c.at(now), now
			c.mu.Unlock()
		}
	}()
	return c
}

func (c *clock) at(now time.Time) time.Time {
	return c.passed.Add(min(now.Sub(c.looked), stride))
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at(time.Now())
}

func (c *clock) sleepUntil(at time.Time) {
	for d := at.Sub(c.now()); d > 0; d = at.Sub(c.now()) {
		time.Sleep(d)
	}
}

func TestClockStandsStillWithItsMachine(t *testing.T) {
	began := time.Now()
	c := &clock{passed: began, looked: began}
	for _, step := range []struct{ after, shows time.Duration }{
		{stride / 2, stride / 2},
		{stride, stride},
		{time.Hour, stride},
	} {
		if got := c.at(began.Add(step.after)).Sub(began); got != step.shows {
			t.Errorf("after %v it shows %v, want %v", step.after, got, step.shows)
		}
	}
	if before, after := awake.now(), awake.now(); after.Before(before) {
		t.Error("it goes back")
	}
}
