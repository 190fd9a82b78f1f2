package watch

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-go/plimsoll/examples/soak/internal/check"
	"github.com/plimsoll-go/plimsoll/examples/soak/internal/truth"
	"github.com/plimsoll-go/plimsoll/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each test below has a real table in it, and real time that does not take any. What
// happens is true unless the test says otherwise.

var limits = Limits{
	Window: 5 * time.Second, Way: 250 * time.Millisecond, Reconnect: 2500 * time.Millisecond,
	List: 2500 * time.Millisecond, Trust: 30 * time.Second, Unhide: time.Minute, Settle: 9 * time.Second,
}

// scene is one engine, a table that knows it, and an observer.
type scene struct {
	*testing.T
	world    *truth.World
	engine   *truth.Engine
	table    *load.Table
	worker   *load.Worker
	feed     *load.Feed
	checks   Checks
	list     *check.List
	observer *Observer
	seq      int64
}

// stage sets a scene in which the engine has so many ranks.
func stage(t *testing.T, ranks int, tables load.Config) *scene {
	s := &scene{T: t, world: truth.NewWorld("http://a", "http://b"), table: load.NewTable(tables), list: check.NewList(time.Now())}
	s.engine = s.world.Engines[0]
	s.checks = NewChecks(s.list, 1, 1)
	s.observer = NewObserver("gateway a", s.table, s.world, limits, NewStalls(), s.checks)
	s.engine.Lives(ranks)
	s.write("http://a")
	s.worker = s.table.Add("http://a", "http://a")
	s.feed = s.worker.Advertise(ranks)
	return s
}

func (s *scene) write(ids ...string) {
	if err := s.world.List.Write(ids, func() error { return nil }); err != nil {
		s.Fatal(err)
	}
}

// says has a rank publish, and the table hear it.
func (s *scene) says(rank int, running int64) {
	s.seq++
	s.engine.Sends(truth.Report{Rank: rank, Seq: s.seq, Running: running, KVs: 7})
	s.hears(rank, s.seq, running)
}

func (s *scene) hears(rank int, seq, running int64) {
	r := load.Report{Running: running, KVUsed: load.Known[int64](7), Seq: load.Known(seq), Received: time.Now(), Source: load.SourcePush}
	if err := s.feed.Put(rank, r); err != nil {
		s.Fatal(err)
	}
}

const step = 100 * time.Millisecond

// goOn lets time pass, in which the ranks publish and the observer looks.
func (s *scene) goOn(d time.Duration, ranks ...int) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		for _, rank := range ranks {
			s.says(rank, s.seq%3)
		}
		time.Sleep(step)
		s.observer.Look()
	}
}

// broke checks that a check, and no other, was broken, for a reason that says so; "" is
// that none was.
func (s *scene) broke(c *check.Check, because string) {
	s.Helper()
	for _, r := range s.list.Results() {
		switch {
		case c != nil && r.Name == c.Name:
			if r.Broken == 0 || !strings.Contains(strings.Join(r.First, "\n"), because) {
				s.Errorf("%q was broken %d times, want it broken because %q:\n%s", r.Name, r.Broken, because, strings.Join(r.First, "\n"))
			}
		case r.Broken > 0:
			s.Errorf("%q was broken:\n%s", r.Name, strings.Join(r.First, "\n"))
		}
	}
}

func play(t *testing.T, ranks int, tables load.Config, act func(s *scene)) {
	synctest.Test(t, func(t *testing.T) { act(stage(t, ranks, tables)) })
}

func TestTableThatIsRightBreaksNothing(t *testing.T) {
	play(t, 2, load.Config{}, func(s *scene) {
		s.goOn(time.Second, 0) // half of a picture is none
		s.goOn(10*time.Second, 0, 1)
		s.engine.Begins(truth.Mute)
		s.goOn(8*time.Second, 0)
		s.engine.Ends(truth.Mute)
		s.goOn(10*time.Second, 0, 1)
		died := s.engine.Dies()
		died()
		s.goOn(time.Minute)
		s.engine.Lives(3)
		s.feed = s.worker.Advertise(3)
		s.goOn(10*time.Second, 0, 1, 2)
		s.engine.Begins(truth.Hidden)
		s.worker.SetNotPublishing("no load port")
		s.goOn(time.Minute)
		s.engine.Ends(truth.Hidden)
		s.goOn(50 * time.Second)
		s.feed = s.worker.Advertise(3)
		s.goOn(time.Second, 0, 1, 2)
		s.broke(nil, "")
		for _, r := range s.list.Results() {
			if !r.Passed() {
				t.Errorf("%q was not looked at", r.Name)
			}
		}
		seen := s.observer.Seen()
		if seen.Trusted == 0 || seen.Reports == 0 || len(seen.Handles) != 1 || seen.Distrust.Len() != 2 || seen.Trust.Len() == 0 ||
			seen.Untrusted[load.Stale] == 0 || seen.Untrusted[load.NeverReported] == 0 || seen.Untrusted[load.NotPublishing] == 0 {
			t.Errorf("%+v", seen)
		}
		if worst := seen.Distrust.At(1); worst < limits.Window || worst > limits.Window+200*time.Millisecond {
			t.Errorf("distrusted after %v", worst)
		}
	})
}

func TestTableThatTrustsAStaleWorkerIsSeen(t *testing.T) {
	play(t, 2, load.Config{Window: 2 * limits.Window}, func(s *scene) {
		s.goOn(time.Second, 0, 1)
		s.engine.Begins(truth.Mute)
		s.goOn(limits.Window-step, 1)
		s.broke(nil, "") // it may still be right
		s.goOn(time.Second, 1)
		s.broke(s.checks.Stale, "rank 0 was last heard 5.")
	})
}

func TestTableWhoseClockStandsStillIsSeen(t *testing.T) {
	play(t, 1, load.Config{Clock: func() time.Time { return time.Unix(1000, 0) }}, func(s *scene) {
		s.goOn(time.Second, 0)
		s.engine.Begins(truth.Mute)
		s.goOn(limits.Window+time.Second, 0)
		s.broke(nil, "")
		s.goOn(limits.Window + time.Second)
		s.broke(s.checks.Stale, "is trusted")
	})
}

// The table hears what no engine sends, again and again.
func TestTableThatStampsOldReportsFreshIsSeen(t *testing.T) {
	play(t, 1, load.Config{}, func(s *scene) {
		s.says(0, 3)
		s.observer.Look()
		s.engine.Begins(truth.Mute)
		for range 12 {
			time.Sleep(500 * time.Millisecond)
			s.hears(0, s.seq, 3)
			s.observer.Look()
		}
		text := strings.Join(s.checks.Stale.Result().First, "\n")
		if !strings.Contains(text, "rank 0 last published 5.5s ago") {
			t.Errorf("not seen to be stale: %s", text)
		}
		text = strings.Join(s.checks.Invented.Result().First, "\n")
		if !strings.Contains(text, "is said to have come 500ms after it was sent") {
			t.Errorf("not seen to be old: %s", text)
		}
	})
}

func TestTableThatTrustsAnIncompletePictureIsSeen(t *testing.T) {
	play(t, 1, load.Config{}, func(s *scene) {
		s.goOn(10*time.Second, 0)
		s.engine.Dies()()
		s.engine.Lives(2)
		s.goOn(limits.Birth()-step, 0)
		s.broke(nil, "")
		s.goOn(time.Second, 0)
		s.broke(s.checks.Incomplete, "is trusted on 1 ranks, and has had 2 for 8.")
		s.feed = s.worker.Advertise(2)
		s.goOn(time.Second, 0)
		if seen := s.observer.Seen(); seen.Partial.Len() != 1 || seen.Partial.At(1) < limits.Birth() {
			t.Errorf("%+v", seen)
		}
	})
}

func TestTableThatFillsANewPictureWithOldReportsIsSeen(t *testing.T) {
	play(t, 2, load.Config{}, func(s *scene) {
		s.goOn(10*time.Second, 0, 1)
		s.engine.Dies()()
		old := s.seq
		s.engine.Lives(3)
		s.feed = s.worker.Advertise(3)
		s.says(2, 0)
		s.observer.Look()
		s.broke(nil, "")
		for rank := range 2 { // what they said last, when there were two
			seq := old - 1 + int64(rank)
			r := load.Report{Running: (seq - 1) % 3, KVUsed: load.Known[int64](7), Seq: load.Known(seq), Received: time.Now().Add(-step), Source: load.SourcePush}
			if err := s.feed.Put(rank, r); err != nil {
				t.Fatal(err)
			}
		}
		s.observer.Look()
		s.broke(s.checks.Incomplete, "is trusted on all of its 3 ranks, and what rank 0 said it said before it had so many")
	})
}

func TestTableThatBelievesWhatNobodySaidIsSeen(t *testing.T) {
	for _, tt := range []struct {
		name, because string
		lie           func(s *scene)
	}{
		{"another number", "which it never did", func(s *scene) { s.hears(0, s.seq, 77) }},
		{"another message", "which it never did", func(s *scene) { s.hears(0, s.seq+1, s.seq%3) }},
		{"late", "is said to have come 2s after it was sent", func(s *scene) {
			s.seq++
			s.engine.Sends(truth.Report{Rank: 0, Seq: s.seq, KVs: 7})
			s.goOn(2*time.Second, 1)
			s.hears(0, s.seq-20, 0)
		}},
		{"another rank", "what rank 1 said is taken for rank 0", func(s *scene) {
			s.seq++
			s.engine.Sends(truth.Report{Rank: 1, Seq: s.seq, KVs: 7})
			s.hears(0, s.seq, 0)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			play(t, 2, load.Config{}, func(s *scene) {
				s.goOn(10*time.Second, 0, 1)
				s.broke(nil, "")
				tt.lie(s)
				s.observer.Look()
				s.broke(s.checks.Invented, tt.because)
			})
		})
	}
}

func TestTableThatDoesNotFollowTheListIsSeen(t *testing.T) {
	play(t, 1, load.Config{}, func(s *scene) {
		s.goOn(5*time.Second, 0)
		s.write("http://a", "http://b")
		s.goOn(limits.List-step, 0)
		s.broke(nil, "")
		s.goOn(time.Second, 0)
		s.broke(s.checks.List, "(http://b) is not in the table, and in the list")
	})
	play(t, 1, load.Config{}, func(s *scene) {
		s.goOn(5*time.Second, 0)
		s.write()
		s.goOn(limits.List-step, 0)
		s.broke(nil, "")
		s.goOn(time.Second, 0)
		s.broke(s.checks.List, "(http://a) is in the table, and not in the list")
	})
	play(t, 1, load.Config{}, func(s *scene) {
		s.table.Add("http://c", "http://c")
		s.goOn(time.Second, 0)
		s.broke(s.checks.List, "a worker that there never was")
	})
}

func TestTableThatRemembersARemovedWorkerIsSeen(t *testing.T) {
	play(t, 1, load.Config{}, func(s *scene) {
		s.goOn(5*time.Second, 0)
		s.write()
		s.goOn(limits.List+100*time.Millisecond, 0)
		s.table.Remove(s.worker)
		s.engine.Sends(truth.Report{Seq: 1_000_000, KVs: 7})
		before := time.Now()
		s.goOn(2 * time.Second)
		s.write("http://a")
		// It should start from nothing, and is given what was said before.
		s.goOn(time.Second)
		received := before
		s.feed = s.table.Add("http://a", "http://a").Advertise(1)
		r := load.Report{KVUsed: load.Known[int64](7), Seq: load.Known[int64](1_000_000), Received: received, Source: load.SourcePush}
		if err := s.feed.Put(0, r); err != nil {
			t.Fatal(err)
		}
		s.observer.Look()
		text := strings.Join(s.checks.List.Result().First, "\n")
		if !strings.Contains(text, "and has a report from before it came back") {
			t.Errorf("not seen: %s", text)
		}
	})
}

func TestTableThatNeverTrustsIsSeen(t *testing.T) {
	play(t, 1, load.Config{}, func(s *scene) {
		s.worker.SetNoAnswer("refused")
		s.feed = s.worker.Advertise(2) // of one
		s.goOn(limits.Trust-step, 0)
		s.broke(nil, "")
		s.goOn(time.Second, 0)
		s.broke(s.checks.Trust, "and is not trusted: never_reported")
	})
}

func TestWorkerThatIsKeptOutIsSeen(t *testing.T) {
	play(t, 1, load.Config{}, func(s *scene) {
		s.goOn(20*time.Second, 0)
		died := s.engine.Dies()
		s.worker.SetHealthy(false)
		died()
		s.goOn(time.Second)
		s.engine.Lives(1)
		s.goOn(limits.Settle-step, 0)
		s.broke(nil, "")
		s.goOn(time.Second, 0)
		s.broke(s.checks.Healthy, "has been well for 9s and more, and cannot be picked")
	})
}

func TestObserverRunsUntilItIsToldNotTo(t *testing.T) {
	play(t, 1, load.Config{}, func(s *scene) {
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		if seen := s.observer.Run(ctx, 100*time.Millisecond); seen.Looks < 9 || seen.Looks > 10 {
			t.Errorf("%d looks", seen.Looks)
		}
	})
}

func TestStallsAreForgottenAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStalls()
		ctx, cancel := context.WithCancel(t.Context())
		go s.Run(ctx)
		time.Sleep(time.Minute)
		if s.Worst() != 0 {
			t.Errorf("stood still for %v in a world where nothing takes time", s.Worst())
		}
		s.note(time.Now(), time.Second)
		if s.Lately() != time.Second {
			t.Errorf("lately %v", s.Lately())
		}
		time.Sleep((stallMemory - 1) * time.Second)
		if s.Lately() != time.Second {
			t.Errorf("lately %v", s.Lately())
		}
		time.Sleep(2 * time.Second)
		if s.Lately() != 0 || s.Worst() != time.Second {
			t.Errorf("lately %v, ever %v", s.Lately(), s.Worst())
		}
		cancel()
		synctest.Wait()
	})
}

func TestTimes(t *testing.T) {
	var a, b Times
	if a.At(1) != 0 {
		t.Error("of nothing")
	}
	for i := range 100 {
		a.add(time.Duration((i * 37) % 100))
	}
	b.add(1000)
	both := a.Plus(b)
	if a.At(0) != 0 || a.At(0.5) != 50 || a.At(1) != 99 || both.At(1) != 1000 || both.Len() != 101 {
		t.Error(a, both)
	}
}
