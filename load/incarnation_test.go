package load

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestALateReportOfARemovedWorkerReachesNothing(t *testing.T) {
	table, _ := newTestTable()
	old, oldFeed := advertised(t, table, "http://a", Report{Running: 9})
	table.Remove(old)
	if err := oldFeed.Put(0, Report{Running: 9}); !errors.Is(err, ErrGone) {
		t.Errorf("a late report's error is %v, want ErrGone", err)
	}
	if _, ok := table.View().Find(old); ok || table.View().Len() != 0 {
		t.Error("the removed worker is still in the view")
	}

	again := table.Add("http://a", "")
	wantUntrusted(t, again, NoFeed)
	for name, put := range map[string]func() error{
		"through the feed":          func() error { return oldFeed.Put(0, Report{Running: 9}) },
		"through the old worker":    func() error { return old.Put(0, Report{Running: 9}) },
		"through a feed made later": func() error { return old.Advertise(1).Put(0, Report{Running: 9}) },
	} {
		if err := put(); !errors.Is(err, ErrGone) {
			t.Errorf("a late report %s: error is %v, want ErrGone", name, err)
		}
	}
	old.SetNotPublishing("late")
	old.SetNoAnswer("late")
	old.SetAside()
	old.SetHealthy(false)
	oldFeed.Drop(0, "late", errors.New("late"))
	table.Remove(old) // a second time
	wantUntrusted(t, again, NoFeed)
	if st := again.Status(); !st.Healthy || st.Aside || st.Advertised != 0 || len(st.Ranks) != 0 {
		t.Errorf("the new worker has something of the old one: %+v", st)
	}
	if got, ok := table.Worker("http://a"); !ok || got != again {
		t.Error("the table does not have the new worker")
	}
}

func TestAddingAnIDAnewReplacesTheWorkerThatHasIt(t *testing.T) {
	table, _ := newTestTable()
	old, oldFeed := advertised(t, table, "http://a", Report{Running: 9})
	old.SetHealthy(false)
	reserve(t, old, NoRank, 100)
	again := table.Add("http://a", "http://a:1")
	if table.View().Len() != 1 || table.View().Known() != 1 {
		t.Fatalf("there are %d workers of %d, want 1 of 1", table.View().Len(), table.View().Known())
	}
	if err := oldFeed.Put(0, Report{Running: 9}); !errors.Is(err, ErrGone) {
		t.Errorf("a late report's error is %v, want ErrGone", err)
	}
	if n := again.InFlight(); n != 0 {
		t.Errorf("the new worker starts with %d in flight", n)
	}
	wantUntrusted(t, again, NoFeed)
	if again.URL() != "http://a:1" || again.ID() != "http://a" {
		t.Errorf("it is %q at %q", again.ID(), again.URL())
	}
	table.Remove(old)
	if _, ok := table.Worker("http://a"); !ok {
		t.Error("removing the old incarnation removed the new one")
	}
}

func TestALateReleaseActsOnTheIncarnationThatItWasTakenFrom(t *testing.T) {
	table, _ := newTestTable()
	old := table.Add("http://a", "")
	a := reserve(t, old, NoRank, 10)
	table.Remove(old)
	again := table.Add("http://a", "")
	b := reserve(t, again, NoRank, 20)
	if n := again.InFlight(); n != 1 {
		t.Fatalf("%d in flight, want 1", n)
	}
	a.FirstToken()
	a.Done()
	a.Done()
	if got, want := again.Own(), (Own{InFlight: 1, Unstarted: 1, PendingTokens: 20}); got != want {
		t.Fatalf("after the old request's release the new worker has %+v, want %+v", got, want)
	}
	if got := old.Own(); got != (Own{}) {
		t.Errorf("the old worker is left with %+v", got)
	}
	b.Done()
	if got := again.Own(); got != (Own{}) {
		t.Errorf("after all is done the new worker has %+v", got)
	}
}

func TestAReservationOnARemovedWorkerHarmsNobody(t *testing.T) {
	table, _ := newTestTable()
	old := table.Add("a", "")
	table.Remove(old)
	again := table.Add("a", "")
	k := reserve(t, old, 3, 10) // a pick that was made a moment before
	k.Dispatched()
	if again.InFlight() != 0 || old.InFlight() != 1 {
		t.Errorf("%d in flight on the new worker, %d on the old one", again.InFlight(), old.InFlight())
	}
	k.Done()
	if again.InFlight() != 0 || old.InFlight() != 0 {
		t.Errorf("after Done: %d and %d", again.InFlight(), old.InFlight())
	}
}

func TestAnAdvertisementDropsTheReportsAndTheFeedOfTheOneBefore(t *testing.T) {
	table, clock := newTestTable()
	w, first := advertised(t, table, "a", Report{Running: 1}, Report{Running: 1})
	first.Drop(0, "truncated", errors.New("short"))
	k := reserve(t, w, 1, 50)
	clock.advance(time.Second)

	second := w.Advertise(1)
	wantUntrusted(t, w, NeverReported)
	if err := first.Put(0, Report{Running: 7}); !errors.Is(err, ErrGone) {
		t.Errorf("a report through the dead feed: error is %v, want ErrGone", err)
	}
	first.Drop(0, "truncated", errors.New("late"))
	st := w.Status()
	if st.Advertised != 1 || len(st.Ranks) != 1 || st.Ranks[0].Reports != 0 || st.Ranks[0].Dropped != nil || st.Ranks[0].LastDrop != "" {
		t.Errorf("something of the first feed is left: %+v", st)
	}
	if st.InFlight != 1 || st.PendingTokens != 50 {
		t.Errorf("the books did not survive: %+v", st)
	}
	mustPut(t, second, 0, Report{Running: 4})
	wantTrusted(t, w, 4)
	k.Done()
	if w.InFlight() != 0 {
		t.Errorf("%d in flight at the end", w.InFlight())
	}
	if first.Worker() != w || first.Ranks() != 2 || second.Ranks() != 1 {
		t.Error("a feed does not know whose and how wide it is")
	}
}

func TestMoreRanksAdvertisedThanBeforeMustAllReport(t *testing.T) {
	table, _ := newTestTable()
	w, _ := advertised(t, table, "a", Report{Running: 1})
	f := w.Advertise(3)
	for rank := range 3 {
		wantUntrusted(t, w, NeverReported)
		mustPut(t, f, rank, Report{Running: 1})
	}
	wantTrusted(t, w, 3)
}

func TestAnAdvertisementOfNoRanksIsOneOfOne(t *testing.T) {
	table, _ := newTestTable()
	for _, ranks := range []int{0, -1} {
		w := table.Add("a", "")
		f := w.Advertise(ranks)
		if f.Ranks() != 1 || w.Status().Advertised != 1 {
			t.Errorf("Advertise(%d) advertises %d", ranks, f.Ranks())
		}
		wantUntrusted(t, w, NeverReported)
		mustPut(t, f, 0, Report{})
		wantTrusted(t, w, 0)
	}
}

func TestARankOutsideTheAdvertisedOnesIsRefused(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	f := w.Advertise(2)
	for _, rank := range []int{-1, 2, 1 << 20, -1 << 40} {
		if err := f.Put(rank, Report{}); !errors.Is(err, ErrNoRank) {
			t.Errorf("rank %d through the feed: error is %v, want ErrNoRank", rank, err)
		}
		if err := w.Put(rank, Report{}); !errors.Is(err, ErrNoRank) {
			t.Errorf("rank %d through the worker: error is %v, want ErrNoRank", rank, err)
		}
		f.Drop(rank, "truncated", nil) // counted nowhere, and no panic
	}
	wantUntrusted(t, w, NeverReported)
}

func TestAWorkerThatIsFedByItsHostIsTakenAtFaceValueOnTheRanksItHas(t *testing.T) {
	table, clock := newTestTable()
	w := table.Add("a", "")
	wantUntrusted(t, w, NoFeed)
	mustPut(t, w, 0, Report{Running: 5, Waiting: 1})
	wantTrusted(t, w, 6)
	mustPut(t, w, 2, Report{Running: 3}) // rank 1 was never advertised and is not missed
	wantTrusted(t, w, 9)
	if _, ok := entry(t, w).Report(1); ok {
		t.Error("rank 1 has a report")
	}
	clock.advance(testWindow)
	mustPut(t, w, 2, Report{Running: 3})
	wantTrusted(t, w, 9)
	clock.advance(1)
	wantUntrusted(t, w, Stale) // rank 0 has said nothing for too long
	for _, rank := range []int{-1, maxRanks, 1 << 40} {
		if err := w.Put(rank, Report{}); !errors.Is(err, ErrNoRank) {
			t.Errorf("rank %d: error is %v, want ErrNoRank", rank, err)
		}
	}
	if st := w.Status(); st.Advertised != 0 || len(st.Ranks) != 3 {
		t.Errorf("it advertises %d and shows %d ranks", st.Advertised, len(st.Ranks))
	}
}

func TestTheHostsOwnReportsSurviveThatTheEngineDoesNotPublish(t *testing.T) {
	for name, tell := range map[string]func(*Worker){
		"not publishing": func(w *Worker) { w.SetNotPublishing("no kv_events block") },
		"no answer":      func(w *Worker) { w.SetNoAnswer("connection refused") },
	} {
		t.Run(name, func(t *testing.T) {
			table, clock := newTestTable()
			w := table.Add("a", "")
			mustPut(t, w, 0, Report{Running: 2})
			tell(w)
			wantTrusted(t, w, 2)
			clock.advance(testWindow + 1)
			wantUntrusted(t, w, Stale)
		})
	}
}

func TestAnAdvertisementTakesTheHostsReportsAwayButNotItsRightToReport(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	mustPut(t, w, 0, Report{Running: 2})
	f := w.Advertise(2)
	wantUntrusted(t, w, NeverReported)
	mustPut(t, w, 0, Report{Running: 1})
	mustPut(t, f, 1, Report{Running: 1})
	wantTrusted(t, w, 2)
}

func TestAnEngineThatDoesNotPublishLosesItsFeedAndStaysEligible(t *testing.T) {
	table, _ := newTestTable()
	w, f := advertised(t, table, "a", Report{Running: 3}, Report{Running: 3})
	w.SetNotPublishing("load_endpoint_port_base is missing")
	wantUntrusted(t, w, NotPublishing)
	if got := w.Status().Reason; got != "load_endpoint_port_base is missing" {
		t.Errorf("the reason is %q", got)
	}
	if err := f.Put(0, Report{}); !errors.Is(err, ErrGone) {
		t.Errorf("a report through its feed: error is %v, want ErrGone", err)
	}
	if st := w.Status(); st.Advertised != 0 || len(st.Ranks) != 0 || st.Age != 0 {
		t.Errorf("something of its feed is left: %+v", st)
	}
	w.SetNoAnswer("timeout") // what is known now is that nobody answers
	wantUntrusted(t, w, NoAnswer)
	if got := w.Status().Reason; got != "timeout" {
		t.Errorf("the reason is %q", got)
	}
	g := w.Advertise(1)
	wantUntrusted(t, w, NeverReported)
	mustPut(t, g, 0, Report{Running: 1})
	wantTrusted(t, w, 1)
	if reason := w.Status().Reason; reason != "" {
		t.Errorf("an old reason is left: %q", reason)
	}
}

func TestFailingToAskAnEngineLeavesTheFeedThatItHas(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	w.SetNoAnswer("connection refused")
	wantUntrusted(t, w, NoAnswer)
	f := w.Advertise(1)
	w.SetNoAnswer("timeout")
	wantUntrusted(t, w, NeverReported)
	mustPut(t, f, 0, Report{Running: 3})
	w.SetNoAnswer("timeout")
	wantTrusted(t, w, 3)
	mustPut(t, f, 0, Report{Running: 4})
	wantTrusted(t, w, 4)
}

func TestAnEngineThatIsBootingIsNotTrustedUntilEveryRankHasCapacity(t *testing.T) {
	table, clock := newTestTable()
	booting := Report{KVCapacity: Known[int64](0)}
	w, f := advertised(t, table, "a", booting, Report{Running: 1, KVCapacity: Known[int64](10)})
	wantUntrusted(t, w, Booting)
	if _, depth, _ := table.View().Trusted(); depth != 0 {
		t.Errorf("a booting worker counts in the sums: %d", depth)
	}
	mustPut(t, f, 0, Report{Running: 1, KVCapacity: Known[int64](10)})
	wantTrusted(t, w, 2)
	mustPut(t, f, 1, booting)
	wantUntrusted(t, w, Booting)
	mustPut(t, f, 1, Report{}) // a wire without a capacity says nothing of booting
	wantTrusted(t, w, 1)

	mustPut(t, f, 0, booting)
	mustPut(t, f, 1, booting)
	clock.advance(testWindow)
	wantUntrusted(t, w, Booting)
	clock.advance(1)
	wantUntrusted(t, w, Stale) // it died on the way up
}

func TestOneSourceOwnsARankWhileItsReportIsFresh(t *testing.T) {
	for _, tt := range []struct {
		name        string
		owner, next Source
		outranked   bool
	}{
		{"a poll does not replace what was pushed", SourcePush, SourcePoll, true},
		{"a push replaces what was polled", SourcePoll, SourcePush, false},
		{"a push replaces what was pushed", SourcePush, SourcePush, false},
		{"a poll replaces what was polled", SourcePoll, SourcePoll, false},
		{"the host replaces what was pushed", SourcePush, SourceHost, false},
		{"a push does not replace what the host put", SourceHost, SourcePush, true},
		{"a poll does not replace what the host put", SourceHost, SourcePoll, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table, clock := newTestTable()
			w := table.Add("a", "")
			f := w.Advertise(2)
			mustPut(t, f, 0, Report{Running: 1, Source: tt.owner})
			mustPut(t, f, 1, Report{Running: 10, Source: tt.next}) // of another rank: no matter
			clock.advance(testWindow)
			mustPut(t, f, 1, Report{Running: 10, Source: tt.next})
			err := f.Put(0, Report{Running: 2, Source: tt.next})
			if !tt.outranked {
				if err != nil {
					t.Fatal(err)
				}
				wantTrusted(t, w, 12)
				return
			}
			if !errors.Is(err, ErrOutranked) {
				t.Fatalf("error is %v, want ErrOutranked", err)
			}
			wantTrusted(t, w, 11)
			rank := w.Status().Ranks[0]
			if rank.Reports != 1 || rank.Dropped["outranked"] != 1 || rank.Report.Source != tt.owner {
				t.Errorf("the rank shows %d taken, %v dropped, from %v", rank.Reports, rank.Dropped, rank.Report.Source)
			}
			clock.advance(1) // the owner has fallen silent
			mustPut(t, f, 0, Report{Running: 2, Source: tt.next})
			wantTrusted(t, w, 12)
			mustPut(t, f, 0, Report{Running: 1, Source: tt.owner}) // and speaks again
			wantTrusted(t, w, 11)
		})
	}
}

func TestAReportWithoutASourceIsTheFeedsOrTheHosts(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	f := w.Advertise(1)
	mustPut(t, f, 0, Report{})
	if got := w.Status().Ranks[0].Report.Source; got != SourcePush {
		t.Errorf("through the feed: %v, want push", got)
	}
	mustPut(t, w, 0, Report{})
	if got := w.Status().Ranks[0].Report.Source; got != SourceHost {
		t.Errorf("through the worker: %v, want host", got)
	}
}

func TestALowerSequenceNumberAfterARestartIsTakenAtOnce(t *testing.T) {
	table, _ := newTestTable()
	w, f := advertised(t, table, "a", Report{Running: 9, Seq: Known[int64](500)})
	mustPut(t, f, 0, Report{Running: 1, Seq: Known[int64](0)})
	wantTrusted(t, w, 1)
}

func TestAnotherTablesWorkerCannotBeRemoved(t *testing.T) {
	one, _ := newTestTable()
	two, _ := newTestTable()
	w := one.Add("a", "")
	two.Add("a", "")
	two.Remove(w)
	two.Remove(nil)
	if one.View().Len() != 1 || two.View().Len() != 1 {
		t.Error("a worker was removed from a table that it is not in")
	}
	if _, ok := two.View().Find(w); ok {
		t.Error("a worker is found in another table's view")
	}
}

func TestWorkersAreListedOldestFirstWhateverBecomesOfThem(t *testing.T) {
	table, _ := newTestTable()
	a, b, c := table.Add("a", ""), table.Add("b", ""), table.Add("c", "")
	b.SetHealthy(false)
	c.SetAside()
	again := table.Add("a", "")
	if got, want := table.Workers(), []*Worker{b, c, again}; !slices.Equal(got, want) {
		t.Errorf("the workers are %v, want %v", got, want)
	}
	table.Remove(a) // gone already
	table.Remove(b)
	if got, want := table.Workers(), []*Worker{c, again}; !slices.Equal(got, want) {
		t.Errorf("the workers are %v, want %v", got, want)
	}
}
