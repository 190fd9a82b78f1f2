package load

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

func TestAReportIsFreshAtTheWindowExactlyAndStaleANanosecondLater(t *testing.T) {
	for _, tt := range []struct {
		name           string
		config, window time.Duration
	}{
		{"the default window is five seconds", 0, 5 * time.Second},
		{"a negative window is the default", -1, 5 * time.Second},
		{"a window of ten seconds", 10 * time.Second, 10 * time.Second},
		{"a window of one nanosecond", 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := NewTable(Config{Window: tt.config})
				if table.Window() != tt.window {
					t.Fatalf("the window is %v, want %v", table.Window(), tt.window)
				}
				w, f := advertised(t, table, "a", Report{Running: 3})
				before := table.View()

				time.Sleep(tt.window) // of the bubble's clock, which this moves and nothing else
				wantTrusted(t, w, 3)
				if age := table.View().Age(entry(t, w)); age != tt.window {
					t.Errorf("the age is %v, want %v", age, tt.window)
				}
				time.Sleep(time.Nanosecond)
				wantUntrusted(t, w, Stale)
				if age := table.View().Age(entry(t, w)); age != tt.window+1 {
					t.Errorf("the age is %v, want %v", age, tt.window+1)
				}
				if workers, depth, own := table.View().Trusted(); workers != 0 || depth != 0 || own != 0 {
					t.Errorf("what is stale still counts in the sums: %d, %d, %d", workers, depth, own)
				}
				if !before.At(0).Trusted() {
					t.Error("a view that is held changed")
				}

				mustPut(t, f, 0, Report{Running: 3}) // unchanged, and news all the same
				wantTrusted(t, w, 3)
			})
		})
	}
}

func TestAReportIsFreshAtTheWindowExactlyByTheClockOfTheTable(t *testing.T) {
	table, clock := newTestTable()
	w, _ := advertised(t, table, "a", Report{Running: 3})
	for _, d := range []time.Duration{testWindow - 1, 1} {
		clock.advance(d)
		wantTrusted(t, w, 3)
	}
	clock.advance(1)
	wantUntrusted(t, w, Stale)
}

func TestAWindowWithoutEndNeverTurnsAReportStale(t *testing.T) {
	clock := new(clock)
	table := NewTable(Config{Window: math.MaxInt64, Clock: clock.now})
	w, _ := advertised(t, table, "a", Report{Running: 3})
	clock.advance(50 * 365 * 24 * time.Hour)
	wantTrusted(t, w, 3)
}

func TestAWorkerIsTrustedOnlyWhileEveryAdvertisedRankIsFresh(t *testing.T) {
	table, clock := newTestTable()
	w := table.Add("a", "")
	f := w.Advertise(2)
	wantUntrusted(t, w, NeverReported)
	mustPut(t, f, 1, Report{Running: 3, Waiting: 2})
	wantUntrusted(t, w, NeverReported) // no partial sum
	clock.advance(testWindow - 1)
	mustPut(t, f, 0, Report{Running: 5, Waiting: 1})
	wantTrusted(t, w, 11)
	clock.advance(1)
	wantTrusted(t, w, 11)
	clock.advance(1)
	wantUntrusted(t, w, Stale) // rank 1 alone
	mustPut(t, f, 0, Report{})
	wantUntrusted(t, w, Stale) // the other rank's news does not help
	mustPut(t, f, 1, Report{})
	wantTrusted(t, w, 0)
}

func TestTheAgeOfAWorkerIsThatOfItsOldestRank(t *testing.T) {
	table, clock := newTestTable()
	w := table.Add("a", "")
	f := w.Advertise(3)
	if age := table.View().Age(entry(t, w)); age != 0 {
		t.Errorf("without any report the age is %v, want 0", age)
	}
	for _, rank := range []int{1, 2, 0} { // 1 is the oldest
		mustPut(t, f, rank, Report{})
		clock.advance(time.Second)
	}
	for _, step := range []struct {
		rank int
		want time.Duration
	}{{0, 3 * time.Second}, {1, 2 * time.Second}, {2, 0}} {
		mustPut(t, f, step.rank, Report{})
		if age := table.View().Age(entry(t, w)); age != step.want {
			t.Errorf("after a report of rank %d the age is %v, want %v", step.rank, age, step.want)
		}
		if age := w.Status().Age; age != step.want {
			t.Errorf("after a report of rank %d the status says %v, want %v", step.rank, age, step.want)
		}
	}
}

func TestAReportThatSaysWhenItWasReceivedAgesFromThen(t *testing.T) {
	table, clock := newTestTable()
	clock.advance(time.Minute)
	w := table.Add("a", "")
	f := w.Advertise(1)
	mustPut(t, f, 0, Report{Running: 1, Received: clock.now().Add(-testWindow)})
	wantTrusted(t, w, 1)
	clock.advance(1)
	wantUntrusted(t, w, Stale)
	mustPut(t, f, 0, Report{Running: 1, Received: clock.now().Add(-testWindow - 1)})
	wantUntrusted(t, w, Stale) // stale on arrival
	if got := w.Status().Ranks[0].Age; got != testWindow+1 {
		t.Errorf("its age is %v", got)
	}
}

func TestAReportFromTheFutureIsFreshForAWindowAndNoLonger(t *testing.T) {
	table, clock := newTestTable()
	w := table.Add("a", "")
	mustPut(t, w.Advertise(1), 0, Report{Running: 1, Received: clock.now().Add(time.Hour)})
	if age := table.View().Age(entry(t, w)); age != 0 {
		t.Errorf("its age is %v, want 0", age)
	}
	clock.advance(testWindow)
	wantTrusted(t, w, 1)
	clock.advance(1)
	wantUntrusted(t, w, Stale)
}

func TestAReportFromTheBeginningOfTimeIsStaleAndOwnsNothing(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	f := w.Advertise(1)
	mustPut(t, f, 0, Report{Running: 1, Received: time.Time{}.Add(1), Source: SourceHost})
	wantUntrusted(t, w, Stale)
	if rank := w.Status().Ranks[0]; rank.Fresh || rank.Age <= 0 || rank.Report == nil {
		t.Errorf("the rank is fresh %v at an age of %v", rank.Fresh, rank.Age)
	}
	mustPut(t, f, 0, Report{Running: 2, Source: SourcePoll})
	wantTrusted(t, w, 2)
}

func TestAnAnswerThatWasOvertakenByANewerOneIsRefused(t *testing.T) {
	table, clock := newTestTable()
	clock.advance(time.Minute)
	w, f := advertised(t, table, "a", Report{Running: 5})
	if err := f.Put(0, Report{Running: 9, Received: clock.now().Add(-1)}); !errors.Is(err, ErrSuperseded) {
		t.Fatalf("error is %v, want ErrSuperseded", err)
	}
	wantTrusted(t, w, 5)
	if rank := w.Status().Ranks[0]; rank.Reports != 1 || rank.Dropped["superseded"] != 1 {
		t.Errorf("the rank shows %d taken and %v dropped", rank.Reports, rank.Dropped)
	}
	mustPut(t, f, 0, Report{Running: 6, Received: clock.now()}) // as old as the one that is there: the last wins
	wantTrusted(t, w, 6)
	clock.advance(testWindow + time.Second)
	if err := f.Put(0, Report{Running: 9, Received: clock.now().Add(-testWindow - 2*time.Second)}); !errors.Is(err, ErrSuperseded) {
		t.Errorf("beside a stale report: error is %v, want ErrSuperseded", err)
	}
	wantUntrusted(t, w, Stale)
}

func TestTheEnginesWallClockIsShownAndNeverComparedWithOurs(t *testing.T) {
	table, clock := newTestTable()
	w := table.Add("a", "")
	f := w.Advertise(1)
	for _, engine := range []float64{0, 1, -1e18, 1e18, float64(clock.now().Unix()) - 3600, float64(clock.now().Unix()) + 3600} {
		mustPut(t, f, 0, Report{Running: 1, EngineTime: Known(engine)})
		clock.advance(testWindow)
		wantTrusted(t, w, 1)
		if got := w.Status().Ranks[0].Report.EngineTime; got != Known(engine) {
			t.Errorf("the status shows %v, want %v", got, engine)
		}
		clock.advance(1)
		wantUntrusted(t, w, Stale)
	}
}

func TestAWallClockThatJumpsAnHourTurnsNoReportStaleOrFresh(t *testing.T) {
	// An adjusted wall clock with an undisturbed monotonic one beside it. Only real
	// times have both, so the window is one that no test run outlives.
	const window = 30 * time.Minute
	jumped := func(at time.Time, by time.Duration) time.Time {
		wall := (*uint64)(unsafe.Pointer(&at)) // has the seconds above 30 bits of nanoseconds
		*wall += uint64(by/time.Second) << 30
		return at
	}
	now := time.Now()
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		if j := jumped(now, by); j.Sub(now) != 0 || j.Unix() != now.Add(by).Unix() {
			t.Fatalf("this Go keeps its times differently: %v became %v", now, j)
		}
		table := NewTable(Config{Window: window})
		w := table.Add("a", "")
		f := w.Advertise(1)
		mustPut(t, f, 0, Report{Running: 1, Received: jumped(now, by)})
		wantTrusted(t, w, 1)
		if age := w.Status().Age; age >= window {
			t.Errorf("jumped by %v: a report of this moment has an age of %v", by, age)
		}

		old := table.Add("old", "")
		mustPut(t, old.Advertise(1), 0, Report{Running: 1, Received: jumped(now.Add(-window-time.Minute), by)})
		wantUntrusted(t, old, Stale)
	}
}

func TestAViewTakenWhileAWriterHoldsTheLockTrustsNothingStale(t *testing.T) {
	table, clock := newTestTable()
	stale, _ := advertised(t, table, "stale", Report{Running: 1})
	clock.advance(time.Second)
	fresh, f := advertised(t, table, "fresh", Report{Running: 2})
	reserve(t, fresh, NoRank, 0)
	mustPut(t, f, 0, Report{Running: 2})
	clock.advance(testWindow - time.Second + 1)

	check := func(when string, v View) {
		t.Helper()
		if v.Len() != 2 || v.Known() != 2 {
			t.Fatalf("%s: %d workers of %d", when, v.Len(), v.Known())
		}
		s, _ := v.Find(stale)
		fr, _ := v.Find(fresh)
		if s.Trusted() || !fr.Trusted() {
			t.Errorf("%s: stale is trusted %v, fresh is trusted %v", when, s.Trusted(), fr.Trusted())
		}
		if workers, depth, own := v.Trusted(); workers != 1 || depth != 2 || own != 1 {
			t.Errorf("%s: sums are %d, %d, %d, want 1, 2, 1", when, workers, depth, own)
		}
	}
	table.mu.Lock()
	check("with the lock held", table.View())
	check("with the lock held, again", table.View())
	table.mu.Unlock()
	check("with the lock free", table.View())
	table.mu.Lock()
	check("with the lock held after the renewal", table.View())
	table.mu.Unlock()

	clock.advance(time.Second)
	table.mu.Lock()
	v := table.View()
	table.mu.Unlock()
	if workers, depth, own := v.Trusted(); workers != 0 || depth != 0 || own != 0 {
		t.Errorf("with the lock held and all stale the sums are %d, %d, %d", workers, depth, own)
	}
}

func TestReadersThatLoseTheLockDoNotWait(t *testing.T) {
	table, clock := newTestTable()
	advertised(t, table, "a", Report{})
	clock.advance(testWindow + 1)
	table.mu.Lock()
	defer table.mu.Unlock()
	done := make(chan View)
	for range 8 {
		go func() { done <- table.View() }()
	}
	for range 8 {
		if (<-done).At(0).Trusted() { // a reader that waited would hang here
			t.Error("a stale worker is trusted")
		}
	}
}

func TestAnOldReportThatExpiresFirstIsNoticedBehindNewerOnes(t *testing.T) {
	table, clock := newTestTable()
	var feeds []*Feed
	for i := range 10 {
		_, f := advertised(t, table, fmt.Sprint(i), Report{Running: 1})
		feeds = append(feeds, f)
		clock.advance(time.Millisecond)
	}
	// All but one keep reporting, so that every new view begins with news.
	silent := 4
	for range 2 * testWindow / time.Second {
		clock.advance(time.Second)
		for i, f := range feeds {
			if i != silent {
				mustPut(t, f, 0, Report{Running: 1})
			}
			v := table.View()
			for k := range v.Len() {
				if e := v.At(k); e.Trusted() && v.Age(e) > testWindow {
					t.Fatalf("worker %s is trusted at an age of %v", e.Worker().ID(), v.Age(e))
				}
			}
		}
	}
	if workers, depth, _ := table.View().Trusted(); workers != 9 || depth != 9 {
		t.Errorf("sums are %d workers and depth %d, want 9 and 9", workers, depth)
	}
}

func TestAReaderThatComesSecondTakesTheViewThatTheFirstRenewed(t *testing.T) {
	table, clock := newTestTable()
	advertised(t, table, "a", Report{})
	old := table.view.Load()
	clock.advance(testWindow + 1)
	renewed := table.View()
	if got := table.renew(old, table.now()); got != renewed.v || got == old {
		t.Error("the view was renewed twice")
	}
}
