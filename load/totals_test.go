package load

import (
	"math"
	"reflect"
	"testing"
	"time"
)

// totals is what a view taken now says of the worker.
func totals(t *testing.T, w *Worker) Totals {
	t.Helper()
	got, ok := entry(t, w).Totals()
	if !ok {
		t.Errorf("worker %s has no totals", w.ID())
	}
	return got
}

func TestTotalsAreTheSumOverTheRanksAsFarAsAllTell(t *testing.T) {
	n, f := Known[int64], Known[float64]
	many := n(math.MaxInt64)
	for _, tt := range []struct {
		name  string
		ranks []Report
		want  Totals
	}{
		{"one rank", []Report{{Running: 3, Waiting: 2, WaitingTokens: n(700), KVCapacity: n(1000), KVUsage: f(0.5)}},
			Totals{Running: 3, Waiting: 2, WaitingTokens: n(700), KVTokens: n(1000), KVUsage: f(0.5)}},
		{"two ranks", []Report{
			{Running: 3, Waiting: 2, WaitingTokens: n(700), KVCapacity: n(1000), KVUsage: f(0.5)},
			{Running: 10, Waiting: 20, WaitingTokens: n(30), KVCapacity: n(500), KVUsage: f(0.25)},
		}, Totals{Running: 13, Waiting: 22, WaitingTokens: n(730), KVTokens: n(1500), KVUsage: f(0.5)}},
		{"nothing but the counts", []Report{{Running: 1}, {Waiting: 1}}, Totals{Running: 1, Waiting: 1}},
		{"the first does not tell", []Report{{}, {WaitingTokens: n(30), KVCapacity: n(500), KVUsage: f(0.25)}}, Totals{KVUsage: f(0.25)}},
		{"the last does not tell", []Report{{WaitingTokens: n(30), KVCapacity: n(500), KVUsage: f(0.25)}, {}}, Totals{KVUsage: f(0.25)}},
		{"one between does not tell", []Report{
			{WaitingTokens: n(30), KVCapacity: n(500)}, {}, {WaitingTokens: n(30), KVCapacity: n(500), KVUsage: f(0.25)},
		}, Totals{KVUsage: f(0.25)}},
		{"zero is not unknown", []Report{{WaitingTokens: n(0), KVUsage: f(0)}, {WaitingTokens: n(0)}}, Totals{WaitingTokens: n(0), KVUsage: f(0)}},
		{"the fullest is not the first", []Report{{KVUsage: f(0.25)}, {KVUsage: f(0.75)}, {KVUsage: f(0.5)}}, Totals{KVUsage: f(0.75)}},
		{"a usage told in its parts", []Report{{KVUsage: f(0.25)}, {KVUsed: n(30), KVCapacity: n(40)}}, Totals{KVUsage: f(0.75)}},
		{"a usage told in both ways", []Report{{KVUsage: f(0.25), KVUsed: n(30), KVCapacity: n(40)}}, Totals{KVTokens: n(40), KVUsage: f(0.25)}},
		{"half of the parts", []Report{{KVUsed: n(30)}, {KVUsed: n(30)}}, Totals{}},
		{"the other half", []Report{{KVCapacity: n(40)}}, Totals{KVTokens: n(40)}},
		{"an engine that is booting", []Report{{KVUsed: n(0), KVCapacity: n(0)}}, Totals{KVTokens: n(0)}},
		{"more in use than there is", []Report{{KVUsed: n(50), KVCapacity: n(40)}}, Totals{KVTokens: n(40)}},
		{"pages are not tokens", []Report{{KVUsed: n(30), KVCapacity: n(40), Source: SourceBatch}}, Totals{KVUsage: f(0.75)}},
		{"pages of one rank", []Report{{KVCapacity: n(40), Source: SourcePoll}, {KVCapacity: n(40), Source: SourceBatch}}, Totals{}},
		{"as many as can be", []Report{
			{Running: math.MaxInt64, Waiting: math.MaxInt64, WaitingTokens: many, KVCapacity: many},
			{Running: 1, Waiting: math.MaxInt64, WaitingTokens: many, KVCapacity: n(1)},
		}, Totals{Running: math.MaxInt64, Waiting: math.MaxInt64, WaitingTokens: many, KVTokens: many}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table, _ := newTestTable()
			w, _ := advertised(t, table, "a", tt.ranks...)
			if got := totals(t, w); got != tt.want {
				t.Errorf("they are %+v\nwant %+v", got, tt.want)
			}
			// In whatever order they report.
			again := table.Add("b", "")
			f := again.Advertise(len(tt.ranks))
			for rank := range tt.ranks {
				rank = len(tt.ranks) - 1 - rank
				mustPut(t, f, rank, tt.ranks[rank])
			}
			if got := totals(t, again); got != tt.want {
				t.Errorf("in another order they are %+v\nwant %+v", got, tt.want)
			}
			if len(tt.ranks) == 1 {
				if got, ok := entry(t, w).RankTotals(0); got != tt.want || !ok {
					t.Errorf("those of the rank are %+v (%v)", got, ok)
				}
			}
		})
	}
}

func TestTotalsAreAsOldAsTheOldestReportOnTheClockOfTheView(t *testing.T) {
	table, clock := newTestTable()
	w := table.Add("a", "")
	f := w.Advertise(3)
	want := func(all time.Duration, ranks ...time.Duration) {
		t.Helper()
		if got := totals(t, w).At; got != all {
			t.Errorf("the totals are of %v, want %v", got, all)
		}
		for rank, want := range ranks {
			if got, ok := entry(t, w).RankTotals(rank); !ok || got.At != want {
				t.Errorf("rank %d is of %v (%v), want %v", rank, got.At, ok, want)
			}
		}
	}
	mustPut(t, f, 1, Report{Received: clockStart.Add(-time.Minute)}) // before the table was made
	want(-time.Minute)
	clock.advance(time.Second)
	mustPut(t, f, 1, Report{})
	clock.advance(time.Second)
	mustPut(t, f, 2, Report{})
	clock.advance(time.Second)
	mustPut(t, f, 0, Report{})
	want(time.Second, 3*time.Second, time.Second, 2*time.Second)
	mustPut(t, f, 1, Report{})
	want(2*time.Second, 3*time.Second, 3*time.Second, 2*time.Second)
	clock.advance(time.Second)
	v := table.View()
	if age := v.Now() - totals(t, w).At; age != 2*time.Second || v.Age(v.At(0)) != age {
		t.Errorf("they are %v old, and the view says %v", age, v.Age(v.At(0)))
	}
}

func TestTotalsStayAfterTheirReportsHaveGoneStale(t *testing.T) {
	table, clock := newTestTable()
	w, _ := advertised(t, table, "a", Report{Running: 1}, Report{Running: 2, KVUsage: Known(0.5)})
	before := totals(t, w)
	clock.advance(testWindow + 1)
	e := entry(t, w)
	if got, ok := e.Totals(); e.Trusted() || e.Why() != Stale || !ok || got != before || got.Running != 3 {
		t.Errorf("trusted %v, %v, totals %+v (%v), want stale and %+v", e.Trusted(), e.Why(), got, ok, before)
	}
	if got, ok := e.RankTotals(1); !ok || got.Running != 2 {
		t.Errorf("rank 1 has %+v (%v)", got, ok)
	}
}

func TestTotalsOfWhoHasNotReportedAreNone(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	want := func(ok bool, running int64, ranks ...bool) {
		t.Helper()
		e := entry(t, w)
		if got, has := e.Totals(); has != ok || got.Running != running || got.Owned {
			t.Errorf("the totals are %+v (%v), want %d running (%v)", got, has, running, ok)
		}
		for _, rank := range []int{math.MinInt, -1, len(ranks), math.MaxInt} {
			if got, has := e.RankTotals(rank); has || got != (Totals{}) {
				t.Errorf("rank %d, which is none, has %+v (%v)", rank, got, has)
			}
		}
		for rank, ok := range ranks {
			if got, has := e.RankTotals(rank); has != ok || !ok && got != (Totals{}) {
				t.Errorf("rank %d has %+v (%v), want %v", rank, got, has, ok)
			}
		}
	}
	want(false, 0)
	mustPut(t, w, 1, Report{Running: 4}) // by a host, of an engine that does not advertise
	want(true, 4, false, true)
	f := w.Advertise(3) // which drops that
	want(false, 0, false, false, false)
	mustPut(t, f, 2, Report{Running: 5})
	want(true, 5, false, false, true)
	w.SetNotPublishing("no")
	want(false, 0)
}

func TestTotalsHoldWhatThereWasOfOurOwnWhenTheReportCame(t *testing.T) {
	table, _ := newTestTable()
	w, f := advertised(t, table, "a", Report{}, Report{})
	begun, queued := reserve(t, w, 0, 100), reserve(t, w, 1, 30)
	begun.FirstToken()
	reserve(t, w, NoRank, 7)
	over := reserve(t, w, 0, 1000)
	over.Done()
	mustPut(t, f, 0, Report{})
	mustPut(t, f, 1, Report{})
	queued.Done()
	reserve(t, w, 0, 5000) // of which the reports know nothing

	got := totals(t, w)
	if want := (Own{InFlight: 3, Unstarted: 2, PendingTokens: 37}); got.Own != want || got.OwnTokens != 1137 {
		t.Errorf("the worker had %+v and %d tokens, want %+v and 1137", got.Own, got.OwnTokens, want)
	}
	for rank, want := range []Totals{{Own: Own{InFlight: 1}, OwnTokens: 1100}, {Own: Own{1, 1, 30}, OwnTokens: 30}} {
		if got, ok := entry(t, w).RankTotals(rank); got != want || !ok {
			t.Errorf("rank %d had %+v (%v), want %+v", rank, got, ok, want)
		}
	}
	// What has been sent since is a difference.
	if now := w.Count(); now.TokensPicked-got.OwnTokens != 5000 {
		t.Errorf("%d tokens since the reports, want 5000", now.TokensPicked-got.OwnTokens)
	}
	if now := w.CountOn(0); now.TokensPicked-1100 != 5000 {
		t.Errorf("%d tokens on rank 0 since its report, want 5000", now.TokensPicked-1100)
	}
}

func TestTotalsOfRanksThatReportedApartHoldTheMeanOfOurOwn(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	f := w.Advertise(3)
	mustPut(t, f, 0, Report{})
	reserve(t, w, NoRank, 10)
	mustPut(t, f, 1, Report{})
	check := func(own Own, tokens uint64) {
		t.Helper()
		if got := totals(t, w); got.Own != own || got.OwnTokens != tokens {
			t.Errorf("there were %+v and %d tokens, want %+v and %d", got.Own, got.OwnTokens, own, tokens)
		}
	}
	check(Own{1, 1, 5}, 5) // the mean of 0 and 1, of which a half is a whole
	for range 3 {
		reserve(t, w, NoRank, 10)
	}
	mustPut(t, f, 2, Report{})
	check(Own{2, 2, 17}, 16) // of 0, 1 and 4, and of 0, 10 and 40
	mustPut(t, f, 0, Report{})
	check(Own{3, 3, 30}, 30) // of 4, 1 and 4
	mustPut(t, f, 1, Report{})
	check(Own{4, 4, 40}, 40)
}

func TestTotalsOfAnAnswerHoldWhatThereWasWhenTheEngineWasAsked(t *testing.T) {
	table, clock := newTestTable()
	w := table.Add("a", "")
	f := w.Advertise(1)
	before := reserve(t, w, 0, 100)
	asked, at := f.Moment(), clock.now()
	clock.advance(time.Second)
	before.FirstToken()
	reserve(t, w, 0, 30).Dispatched()
	mustPut(t, f, 0, Report{Running: 1, Asked: asked, Received: at, Source: SourcePoll})
	got := totals(t, w)
	if want := (Own{1, 1, 100}); got.Own != want || got.OwnTokens != 100 || got.At != 0 || entry(t, w).OwnAtReport() != 1 {
		t.Errorf("there were %+v and %d tokens at %v, want %+v, 100 and 0", got.Own, got.OwnTokens, got.At, want)
	}
	// On the rank, what there was when the answer came.
	if got, _ := entry(t, w).RankTotals(0); got.Own != (Own{2, 1, 30}) || got.OwnTokens != 130 {
		t.Errorf("the rank had %+v and %d tokens", got.Own, got.OwnTokens)
	}
}

func TestTotalsOfAGroupWhoseRequestsAreAllOursAreKnownFromTheStart(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	w := c.worker
	want := func(t *testing.T, want Totals, ranks ...Totals) {
		t.Helper()
		got := totals(t, w)
		if got.Own, got.OwnTokens = (Own{}), 0; got != want {
			t.Errorf("they are %+v, want %+v", got, want)
		}
		for rank, want := range ranks {
			got, ok := entry(t, w).RankTotals(rank)
			if got.Own, got.OwnTokens = (Own{}), 0; got != want || !ok {
				t.Errorf("those of rank %d are %+v (%v), want %+v", rank, got, ok, want)
			}
		}
		if _, ok := entry(t, w).RankTotals(2); ok {
			t.Error("rank 2 has totals, and there is none")
		}
	}
	want(t, Totals{Owned: true}, Totals{Owned: true}, Totals{Owned: true})
	r, err := c.ReserveRank("a", 1, 10)
	if err != nil {
		t.Fatal(err)
	}
	mustObserve(t, c, batch(1, 2, 1, 0.5))
	spoken := Totals{Running: 2, Waiting: 1, KVUsage: Known(0.5), Owned: true}
	want(t, spoken, Totals{Owned: true}, spoken)
	r.Done() // nothing is left there
	quiet := Totals{KVUsage: Known(0.5), Owned: true}
	want(t, quiet, Totals{Owned: true}, quiet)

	c.Fail(nil)
	e := Entry{w.state} // which is in no view any more
	if got, ok := e.Totals(); ok || got != (Totals{}) || e.Why() != Dead {
		t.Errorf("when it is dead they are %+v (%v), %v", got, ok, e.Why())
	}
}

func TestTotalsOfAGroupThatOthersSendToAreReportedOrNone(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2, Shared: true})
	if got, ok := entry(t, c.worker).Totals(); ok || got != (Totals{}) {
		t.Errorf("they are %+v (%v)", got, ok)
	}
	mustObserve(t, c, batch(0, 2, 1, 0.5))
	e := entry(t, c.worker)
	want := Totals{Running: 2, Waiting: 1, KVUsage: Known(0.5)}
	if got, ok := e.Totals(); !ok || got != want {
		t.Errorf("they are %+v (%v), want %+v", got, ok, want)
	}
	if got, ok := e.RankTotals(1); ok || got != (Totals{}) {
		t.Errorf("those of the rank that is silent are %+v (%v)", got, ok)
	}
}

func TestAViewSaysWhyAsTheStatusDoes(t *testing.T) {
	table, clock := newTestTable()
	w := table.Add("a", "")
	want := func(why Why) {
		t.Helper()
		if got, st := entry(t, w).Why(), w.Status().Why; got != why || st != why {
			t.Errorf("the view says %v, the status %v, want %v", got, st, why)
		}
	}
	want(NoFeed)
	w.SetNoAnswer("refused")
	want(NoAnswer)
	w.SetNotPublishing("no")
	want(NotPublishing)
	f := w.Advertise(1)
	want(NeverReported)
	mustPut(t, f, 0, Report{KVCapacity: Known[int64](0)})
	want(Booting)
	clock.advance(testWindow)
	want(Booting)
	// One that died while it was starting is not starting for ever, though nobody
	// was trusted whose time could have run out.
	clock.advance(1)
	want(Stale)
	mustPut(t, f, 0, Report{})
	want(Trusted)
	clock.advance(testWindow + 1)
	want(Stale)
}

func TestTotalsInAViewThatIsHeldDoNotChange(t *testing.T) {
	table, _ := newTestTable()
	w, f := advertised(t, table, "a", Report{Running: 1}, Report{Running: 2})
	e := entry(t, w)
	read := func() (list []Totals) {
		all, _ := e.Totals()
		first, _ := e.RankTotals(0)
		return []Totals{all, first}
	}
	before := read()
	got, _ := e.Totals()
	got.Running = 99 // it is ours
	mustPut(t, f, 0, Report{Running: 9})
	reserve(t, w, 0, 5).FirstToken()
	if after := read(); !reflect.DeepEqual(after, before) {
		t.Errorf("they were %+v and are %+v", before, after)
	}
}
