package simengine

import (
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

func TestCadence(t *testing.T) {
	type ask struct {
		at      time.Duration
		running int64
		mark    bool
		want    bool
	}
	for _, tt := range []struct {
		name string
		wire Wire
		asks []ask
	}{
		{"the first reading goes out at once, whatever the wire", WireLoadStat, []ask{
			{at: 0, want: true},
		}},
		{"snapshots go out every 100 ms, changed or not, marked or not", WireLoadSnapshot, []ask{
			{at: 0, want: true},
			{at: 50 * time.Millisecond, running: 1, mark: true, want: false},
			{at: 100*time.Millisecond - 1, running: 1, want: false},
			{at: 100 * time.Millisecond, running: 1, want: true},
			{at: 200 * time.Millisecond, running: 1, want: true},
		}},
		{"a changed stat goes out when the rank says so, past the throttle", WireLoadStat, []ask{
			{at: 0, want: true},
			{at: 5 * time.Millisecond, running: 1, mark: true, want: false},
			{at: 10*time.Millisecond - 1, running: 1, want: false},
			{at: 10 * time.Millisecond, running: 1, want: true},
			{at: 30 * time.Millisecond, running: 2, want: false}, // no mark
		}},
		{"an unchanged stat waits for its heartbeat", WireLoadStat, []ask{
			{at: 0, want: true},
			{at: 500 * time.Millisecond, mark: true, want: false},
			{at: time.Second - 1, mark: true, want: false},
			{at: time.Second, want: true},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := cadence{wire: tt.wire}
			start := time.Unix(1000, 0)
			for i, a := range tt.asks {
				if a.mark {
					c.mark()
				}
				if got := c.due(start.Add(a.at), snapshot.LoadStat{NumRunningReqs: a.running}); got != a.want {
					t.Errorf("ask %d at %v: %v, want %v", i, a.at, got, a.want)
				}
			}
		})
	}
}

func TestCadenceSaysWhenToAskAgain(t *testing.T) {
	now := time.Unix(1000, 0)
	stat := cadence{wire: WireLoadStat}
	snap := cadence{wire: WireLoadSnapshot}
	if d := stat.next(now); d != 0 {
		t.Errorf("before the first message: %v", d)
	}
	stat.due(now, snapshot.LoadStat{})
	snap.due(now, snapshot.LoadStat{})
	if d := stat.next(now); d != time.Second {
		t.Errorf("unmarked stat: %v", d)
	}
	stat.mark()
	if d := stat.next(now); d != 10*time.Millisecond {
		t.Errorf("marked stat: %v", d)
	}
	if d := snap.next(now.Add(30 * time.Millisecond)); d != 70*time.Millisecond {
		t.Errorf("snapshot: %v", d)
	}
}
