package simengine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine/batch"
)

// tick is a rank whose every step takes 10 ms.
var tick = batch.Config{Cost: batch.Cost{Base: 10 * time.Millisecond}, KVTokens: 1000, MaxRunning: 8, ChunkTokens: 100}

// startRank runs a rank until the test's bubble ends.
func startRank(t *testing.T, config batch.Config, speed float64) (r *rank, marks func() int, stop func()) {
	t.Helper()
	n := 0
	r = newRank(0, config, speed, func() { n++ })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.run(ctx)
	}()
	return r, func() int { synctest.Wait(); return n }, func() { cancel(); <-done }
}

func mustSubmit(t *testing.T, r *rank, prompt, output int64) *job {
	t.Helper()
	j, err := r.submit(prompt, output)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// mustWait returns when token n is there, and the time since the bubble began.
func mustWait(t *testing.T, j *job, n int64, since time.Time) time.Duration {
	t.Helper()
	if _, _, err := j.wait(t.Context(), n-1); err != nil {
		t.Fatal(err)
	}
	return time.Since(since)
}

func TestTokensComeWhenTheirStepsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, stop := startRank(t, tick, 1)
		defer stop()
		start := time.Now()
		j := mustSubmit(t, r, 250, 3) // three chunks, then two decodes
		for n, want := range []time.Duration{30 * time.Millisecond, 40 * time.Millisecond, 50 * time.Millisecond} {
			if got := mustWait(t, j, int64(n+1), start); got != want {
				t.Errorf("token %d came after %v, want %v", n+1, got, want)
			}
		}
		if _, done, _ := j.wait(t.Context(), 3); !done {
			t.Error("the job is not done after its last token")
		}
		if l := r.load(time.Now()); l.NumRunningReqs != 0 || l.NumUsedTokens != 0 {
			t.Errorf("load after the last request: %d running, %d tokens", l.NumRunningReqs, l.NumUsedTokens)
		}
	})
}

func TestHalfSpeedRankTakesTwiceTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, stop := startRank(t, tick, 0.5)
		defer stop()
		start := time.Now()
		if got := mustWait(t, mustSubmit(t, r, 1, 5), 5, start); got != 100*time.Millisecond {
			t.Errorf("5 steps took %v, want 100ms", got)
		}
	})
}

func TestNewSpeedAppliesToTheStepUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, stop := startRank(t, tick, 1e-6) // a step takes almost three hours
		defer stop()
		start := time.Now()
		j := mustSubmit(t, r, 1, 2)
		synctest.Wait()
		r.setSpeed(2)
		if got := mustWait(t, j, 2, start); got != 10*time.Millisecond {
			t.Errorf("2 steps at double speed took %v, want 10ms", got)
		}

		// Half of a step, and then the other half at half the speed.
		r.setSpeed(1)
		start = time.Now()
		j = mustSubmit(t, r, 1, 1)
		time.Sleep(5 * time.Millisecond)
		r.setSpeed(0.5)
		if got := mustWait(t, j, 1, start); got != 15*time.Millisecond {
			t.Errorf("a step slowed down half way took %v, want 15ms", got)
		}
	})
}

func TestStoppedRankFailsItsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, stop := startRank(t, tick, 1)
		running, waiting := mustSubmit(t, r, 900, 5), mustSubmit(t, r, 900, 5)
		synctest.Wait()
		stop()
		for _, j := range []*job{running, waiting} {
			if _, _, err := j.wait(t.Context(), 0); !errors.Is(err, errStopped) {
				t.Errorf("a job of a stopped rank: %v, want %v", err, errStopped)
			}
			j.abort() // harmless
		}
		if _, err := r.submit(1, 1); !errors.Is(err, errStopped) {
			t.Errorf("submit to a stopped rank: %v, want %v", err, errStopped)
		}
	})
}

func TestAbortFreesItsShareAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, stop := startRank(t, tick, 1)
		defer stop()
		j, other := mustSubmit(t, r, 50, 1000-50), mustSubmit(t, r, 10, 3)
		synctest.Wait() // both in their first step
		j.abort()
		j.abort()
		if l := r.load(time.Now()); l.NumRunningReqs != 1 || l.NumUsedTokens != 10 {
			t.Errorf("%d running with %d tokens, want 1 with 10", l.NumRunningReqs, l.NumUsedTokens)
		}
		mustWait(t, other, 3, time.Now())
		if totals := r.totals(); totals.Aborted != 1 || totals.Finished != 1 {
			t.Errorf("%d aborted and %d finished, want 1 and 1", totals.Aborted, totals.Finished)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, stop := startRank(t, tick, 1)
		defer stop()
		j := mustSubmit(t, r, 1, 100)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if _, _, err := j.wait(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait: %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

func TestRankMarksWhatIsWorthPublishing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, marks, stop := startRank(t, tick, 1)
		defer stop()
		if got := marks(); got != 1 {
			t.Errorf("%d marks at the start, want the one for being idle", got)
		}
		j := mustSubmit(t, r, 1, 21) // a prefill and 20 decode steps
		synctest.Wait()
		if got := marks(); got != 2 {
			t.Errorf("%d marks once the prefill began, want 2", got)
		}
		mustWait(t, j, 21, time.Now())
		// Every fifth of 20 decode steps, and idle again.
		if got := marks(); got != 2+4+1 {
			t.Errorf("%d marks in all, want 7", got)
		}
	})
}

func TestThroughputIsOfTheLastSecondAndZeroWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, stop := startRank(t, tick, 1)
		defer stop()
		j := mustSubmit(t, r, 1, 250)
		mustWait(t, j, 150, time.Now())
		if got := r.load(time.Now()).GenThroughput; got < 95 || got > 105 {
			t.Errorf("throughput %v with a token every 10 ms, want about 100", got)
		}
		mustWait(t, j, 250, time.Now())
		synctest.Wait()
		if got := r.load(time.Now()).GenThroughput; got != 0 {
			t.Errorf("throughput %v when idle", got)
		}
	})
}

// Real timers fire late. The steps after a late one are shorter by as much.
func TestLateTimersDoNotSlowTheEngineDown(t *testing.T) {
	start := time.Unix(1000, 0)
	const d = 10 * time.Millisecond
	for _, tt := range []struct {
		name      string
		last      time.Time // when the step before was to end
		now, want time.Duration
	}{
		{"an idle rank begins now", time.Time{}, 70 * time.Millisecond, 80 * time.Millisecond},
		{"on time", start, 0, d},
		{"a little late", start, 3 * time.Millisecond, d},
		{"late by the limit", start, maxLag, d},
		{"too late to catch up", start, maxLag + 1, maxLag + 1 + d},
	} {
		if got := stepEnd(tt.last, start.Add(tt.now), d).Sub(start); got != tt.want {
			t.Errorf("%s: the step ends at %v, want %v", tt.name, got, tt.want)
		}
	}
}
