package truth

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFaultsAreFoundWhereverTheyOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewWorld("a").Engines[0]
		start := time.Now()
		at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
		e.Lives(2)
		time.Sleep(10 * time.Second)
		e.Begins(Frozen)
		time.Sleep(5 * time.Second)
		e.Ends(Frozen)
		time.Sleep(5 * time.Second)
		died := e.Dies() // at 20
		time.Sleep(time.Second)
		died()
		for _, tt := range []struct {
			fault    Fault
			from, to float64
			want     bool
		}{
			{Frozen, 0, 9.9, false},
			{Frozen, 0, 10, true},
			{Frozen, 11, 12, true},
			{Frozen, 15, 16, true},
			{Frozen, 15.1, 20, false},
			{Mute | Failing, 0, 21, false},
			{Mute | Frozen, 14, 21, true},
			{Dying, 21, 21, true},
			{Dying, 21.1, 30, false},
			{Down, 21.1, 30, true},
		} {
			if got := e.Had(tt.fault, at(tt.from), at(tt.to)); got != tt.want {
				t.Errorf("fault %b from %v to %v: %v", tt.fault, tt.from, tt.to, got)
			}
		}
		for _, tt := range []struct{ from, to, want float64 }{{0, 9, 0}, {0, 12, 2}, {12, 30, 5}, {14, 14.5, 4.5}, {16, 30, 0}} {
			if got := e.Hung(at(tt.from), at(tt.to)); got != time.Duration(tt.want*float64(time.Second)) {
				t.Errorf("hung from %v to %v: %v", tt.from, tt.to, got)
			}
		}
		if ranks, _ := e.Life(); ranks != 0 {
			t.Errorf("a dead engine has %d ranks", ranks)
		}
		time.Sleep(time.Second)
		e.Lives(3)
		if !e.Had(Down, at(21.1), at(30)) || e.Had(Down, at(22.1), at(30)) {
			t.Error("a new life does not end the old one's death")
		}
	})
}

func TestRanksOfFormerLivesAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewWorld("a").Engines[0]
		start := time.Now()
		e.Lives(2)
		time.Sleep(time.Second)
		e.Lives(4)
		for _, tt := range []struct {
			ranks int
			by    time.Duration
			want  bool
		}{{2, 0, true}, {2, -1, false}, {4, 0, false}, {4, time.Second, true}, {3, time.Hour, false}} {
			if got := e.HadRanks(tt.ranks, start.Add(tt.by)); got != tt.want {
				t.Errorf("%d ranks by %v: %v", tt.ranks, tt.by, got)
			}
		}
		time.Sleep(2 * memory)
		e.Lives(1)
		if e.HadRanks(2, time.Now()) || !e.HadRanks(4, time.Now()) || len(e.lives) != 2 {
			t.Errorf("remembered: %v", e.lives)
		}
	})
}

func TestEngineIsPublishingWhenNothingKeepsItFromThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewWorld("a").Engines[0]
		want := func(ok bool, since time.Time) {
			t.Helper()
			if got, is := e.Publishing(); is != ok || ok && !got.Equal(since) {
				t.Errorf("publishing %v since %v, want %v since %v", is, got, ok, since)
			}
		}
		want(false, time.Time{})
		e.Lives(1)
		born := time.Now()
		want(true, born)
		time.Sleep(time.Second)
		e.Begins(Mute)
		want(false, time.Time{})
		time.Sleep(time.Second)
		e.Begins(Failing) // is nothing that it does not publish for
		e.Ends(Mute)
		want(true, born.Add(2*time.Second))
		e.Dies()()
		want(false, time.Time{})
		time.Sleep(time.Second)
		e.Lives(1)
		want(true, born.Add(3*time.Second))
		e.Begins(Hidden)
		want(false, time.Time{})
	})
}

func TestReportsAreFoundByWhatTheySay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewWorld("a").Engines[0]
		start := time.Now()
		e.Lives(2)
		say := func(rank int, seq, running int64) time.Time {
			e.Sends(Report{Rank: rank, Seq: seq, Running: running})
			return time.Now()
		}
		first := say(0, 1, 5)
		time.Sleep(time.Second)
		other := say(1, 1, 6)
		time.Sleep(time.Second)
		second := say(0, 2, 5)
		time.Sleep(10 * time.Second)
		again := say(1, 1, 5) // of a new life, where what was rank 0 is rank 1
		now := time.Now()
		for _, tt := range []struct {
			report   Report
			received time.Time
			at       time.Time
			rank     int
			ok       bool
		}{
			{Report{Rank: 0, Seq: 1, Running: 5}, first, first, 0, true},
			{Report{Rank: 0, Seq: 1, Running: 5}, first.Add(-1), time.Time{}, 0, false},
			{Report{Rank: 0, Seq: 2, Running: 5}, second.Add(100), second, 0, true},
			{Report{Rank: 0, Seq: 2, Running: 6}, now, time.Time{}, 0, false},
			{Report{Rank: 0, Seq: 3, Running: 5}, now, time.Time{}, 0, false},
			{Report{Rank: 0, Seq: 1, Running: 6}, now, other, 1, true},
			{Report{Rank: 0, Seq: 1, Running: 5}, now, again, 1, true},
			{Report{Rank: 7, Seq: 1, Running: 6}, now, other, 1, true},
		} {
			at, rank, ok := e.Find(tt.report, tt.received, time.Second)
			if ok != tt.ok || ok && (!at.Equal(tt.at) || rank != tt.rank) {
				t.Errorf("%+v: sent at %v by %d, %v; want %v by %d, %v", tt.report, at.Sub(start), rank, ok, tt.at.Sub(start), tt.rank, tt.ok)
			}
		}
		if at, ok := e.Spoke(1); !ok || !at.Equal(again) {
			t.Errorf("rank 1 spoke at %v, %v", at, ok)
		}
		if _, ok := e.Spoke(2); ok {
			t.Error("a rank that there never was has spoken")
		}
	})
}

func TestFloodIsRememberedInLittleRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewWorld("a").Engines[0]
		e.Lives(1)
		for seq := range int64(100_000) {
			e.Sends(Report{Seq: seq})
			time.Sleep(100 * time.Microsecond)
		}
		for _, seq := range []int64{0, 5_000, 99_999} {
			sent := time.Now().Add(-time.Duration(100_000-seq) * 100 * time.Microsecond)
			at, _, ok := e.Find(Report{Seq: seq}, time.Now(), time.Hour)
			if early := sent.Sub(at); !ok || early < 0 || early > runLength {
				t.Errorf("report %d: %v, %v too early", seq, ok, early)
			}
		}
		time.Sleep(2 * keepReports)
		for seq := range int64(10_000) {
			e.Sends(Report{Seq: 200_000 + 2*seq})
		}
		if n := len(e.voices[0].runs); n > 10_000+2000 {
			t.Errorf("%d runs are kept", n)
		}
		if _, _, ok := e.Find(Report{Seq: 5_000}, time.Now(), time.Hour); ok {
			t.Error("what is long over is still known")
		}
	})
}

func TestListIsWhatItsReadersMayHaveRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 2 * time.Second
		w := NewWorld("a", "b", "c")
		l := &w.List
		write := func(ids ...string) {
			t.Helper()
			if err := l.Write(ids, func() error { time.Sleep(100 * time.Millisecond); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		want := func(what string, always, ever []string) {
			t.Helper()
			var gotAlways, gotEver []string
			for _, e := range w.Engines {
				if l.Always(e.ID, time.Now(), time.Now(), every) {
					gotAlways = append(gotAlways, e.ID)
				}
				if l.Ever(e.ID, time.Now(), time.Now(), every) {
					gotEver = append(gotEver, e.ID)
				}
			}
			if !slices.Equal(gotAlways, always) || !slices.Equal(gotEver, ever) {
				t.Errorf("%s: always %v, ever %v; want %v and %v", what, gotAlways, gotEver, always, ever)
			}
		}
		want("before it is written", nil, nil)
		write("a", "b")
		want("when it has been written", []string{"a", "b"}, []string{"a", "b"})
		time.Sleep(time.Minute)
		write("b", "c")
		want("when some have read the next", []string{"b"}, []string{"a", "b", "c"})
		time.Sleep(every)
		want("when all have", []string{"b", "c"}, []string{"b", "c"})
		l.Spoil()
		time.Sleep(time.Minute)
		want("when there is none", []string{"b", "c"}, []string{"b", "c"})
		write("a")
		time.Sleep(every / 2)
		l.Spoil()
		time.Sleep(time.Minute)
		want("when the newest was there for too short a time", nil, []string{"a", "b", "c"})
		write()
		time.Sleep(every)
		want("when it is empty", nil, nil)

		boom := errors.New("boom")
		if err := l.Write(nil, func() error { return boom }); err != boom {
			t.Errorf("%v, want %v", err, boom)
		}
	})
}

func TestSpellsInTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l List
		write := func(ids ...string) {
			if err := l.Write(ids, func() error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		write("a")
		if s := l.Spell("a"); !s.Listed || !s.Since.Equal(time.Now()) {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Second)
		write("b")
		gone := time.Now()
		if s := l.Spell("a"); s.Listed || !s.Since.Equal(gone) {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Second)
		write("a", "b")
		if s := l.Spell("a"); !s.Listed || s.Out != time.Second || !s.Since.Equal(gone.Add(time.Second)) {
			t.Errorf("%+v", s)
		}
		for range 1000 { // what is long over is forgotten
			time.Sleep(time.Minute)
			write("a")
		}
		if n := len(l.said); n > 5 {
			t.Errorf("%d editions are kept", n)
		}
	})
}

func TestHealthyEngineIsListedAndWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const settle, every = 10 * time.Second, 2 * time.Second
		w := NewWorld("a", "b")
		healthy := func() string {
			if e := w.Healthy(time.Now(), time.Now(), settle, every); e != nil {
				return e.ID
			}
			return ""
		}
		want := func(what, id string) {
			t.Helper()
			if got := healthy(); got != id {
				t.Errorf("%s: %q, want %q", what, got, id)
			}
		}
		a, b := w.Engines[0], w.Engines[1]
		a.Lives(1)
		b.Lives(1)
		time.Sleep(time.Minute)
		want("not in the list", "")
		if err := w.List.Write([]string{"b"}, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		want("just listed", "b") // b was in every list that there ever was
		time.Sleep(time.Minute)
		b.Begins(Mute | Failing)
		want("mute", "b")
		b.Begins(Frozen)
		want("frozen", "")
		b.Ends(Frozen)
		time.Sleep(settle)
		want("just thawed", "")
		time.Sleep(time.Nanosecond)
		want("thawed", "b")
		b.Dies()()
		want("dead", "")
		b.Lives(1)
		time.Sleep(settle)
		want("reborn", "")
		time.Sleep(time.Nanosecond)
		want("grown up", "b")
		b.Begins(Frozen)
		b.Ends(Frozen)
		time.Sleep(time.Nanosecond)
		w.Settles()
		want("known to be well again", "b")
	})
}

func TestAttemptsBelongToRequests(t *testing.T) {
	w := NewWorld("a", "b")
	a, b, q := w.Engines[0], w.Engines[1], &w.Requests
	q.Open("1")
	q.Open("2")
	q.Accepted(a, "1")
	q.Ended(a, "1", false)
	q.Accepted(b, "1")
	q.Accepted(a, "1")
	q.Ended(a, "1", true)
	q.Accepted(a, "3")
	q.Ended(b, "3", true)
	got := q.Close("1")
	if len(got) != 3 || got[0].Engine != a || got[0].Ended.IsZero() || got[0].Whole ||
		got[1].Engine != b || !got[1].Ended.IsZero() || got[2].Engine != a || !got[2].Whole {
		t.Errorf("%+v", got)
	}
	if got := q.Close("2"); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	q.Accepted(b, "1")
	if n := q.Late(); n != 2 {
		t.Errorf("%d were late, want 2", n)
	}
	if len(q.open) != 0 {
		t.Errorf("%d requests are kept", len(q.open))
	}
}
