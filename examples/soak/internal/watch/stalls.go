package watch

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	stallTick   = 5 * time.Millisecond
	stallMemory = 16 // seconds
)

// Stalls measures for how long the machine stands still: how late a goroutine wakes
// that asked to be woken. Nothing that happens at a time can be told from something
// that happens so much later.
type Stalls struct {
	began time.Time

	mu      sync.Mutex
	worst   time.Duration              // ever
	seconds [stallMemory]time.Duration // the worst of each of the last, in turn
	second  int64                      // since began, that was noted last
}

// NewStalls returns one that has measured nothing yet.
func NewStalls() *Stalls { return &Stalls{began: time.Now()} }

// Run measures until ctx ends.
func (s *Stalls) Run(ctx context.Context) {
	timer := time.NewTimer(stallTick)
	defer timer.Stop()
	asked := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := time.Now()
		s.note(now, now.Sub(asked)-stallTick)
		asked = now
		timer.Reset(stallTick)
	}
}

// note takes how late a tick was.
func (s *Stalls) note(now time.Time, late time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	second := int64(now.Sub(s.began) / time.Second)
	for ; s.second < second; s.second++ {
		s.seconds[(s.second+1)%stallMemory] = 0
	}
	slot := &s.seconds[second%stallMemory]
	*slot = max(*slot, late)
	s.worst = max(s.worst, late)
}

// hops is how many threads a report may go through, each of which may be kept waiting:
// the publisher's, ZeroMQ's on either side, and the subscriber's, which the runtime wakes.
const hops = 4

// Lately returns the longest standstill of the last quarter of a minute.
func (s *Stalls) Lately() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Max(s.seconds[:])
}

// Worst returns the longest one ever.
func (s *Stalls) Worst() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.worst
}
