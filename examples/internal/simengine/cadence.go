package simengine

import (
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// How often a rank speaks, in wall time whatever the time scale.
const (
	snapshotPeriod = 100 * time.Millisecond // LoadSnapshot: changed or not
	statHeartbeat  = time.Second            // LoadStat: unchanged values
	// statThrottle keeps a simulation that runs many times faster than real time
	// from publishing every few of its steps; next to real steps it is nothing.
	statThrottle = 10 * time.Millisecond
)

// cadence decides when the load of one rank is sent.
type cadence struct {
	wire   Wire
	marked bool      // the rank has finished something worth publishing
	sent   time.Time // zero = never
	last   snapshot.LoadStat
}

// mark says that the values may have changed enough to be told.
func (c *cadence) mark() { c.marked = true }

// next returns how long to wait before asking due; 0 or less means now.
func (c *cadence) next(now time.Time) time.Duration {
	if c.sent.IsZero() {
		return 0
	}
	period := snapshotPeriod
	if c.wire == WireLoadStat {
		period = statHeartbeat
		if c.marked {
			period = statThrottle
		}
	}
	return c.sent.Add(period).Sub(now)
}

// due reports whether stat is to be sent, and if so takes it as sent.
func (c *cadence) due(now time.Time, stat snapshot.LoadStat) bool {
	if c.next(now) > 0 {
		return false
	}
	c.marked = false
	// Repeating a value before its heartbeat tells nobody anything.
	if c.wire == WireLoadStat && !c.sent.IsZero() && stat == c.last && now.Sub(c.sent) < statHeartbeat {
		return false
	}
	c.sent, c.last = now, stat
	return true
}
