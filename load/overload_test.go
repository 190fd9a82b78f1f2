package load

import (
	"testing"
	"time"
)

// ids lists the workers of a view taken now, in its order.
func ids(table *Table) (list []string) {
	v := table.View()
	for i := range v.Len() {
		list = append(list, v.At(i).Worker().ID())
	}
	return list
}

func wantIDs(t *testing.T, table *Table, want ...string) {
	t.Helper()
	got := ids(table)
	if len(got) != len(want) {
		t.Fatalf("eligible are %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("eligible are %v, want %v", got, want)
		}
	}
}

func TestAnOverloadedWorkerIsSetAsideUntilItsNextReportEvenAnUnchangedOne(t *testing.T) {
	table, clock := newTestTable()
	a, f := advertised(t, table, "a", Report{Running: 3}, Report{})
	advertised(t, table, "b", Report{Running: 5})
	a.SetAside()
	wantIDs(t, table, "b")
	if workers, depth, _ := table.View().Trusted(); workers != 1 || depth != 5 {
		t.Errorf("an overloaded worker is part of the sums: %d workers, depth %d", workers, depth)
	}
	if st := a.Status(); !st.Aside || !st.Trusted || !st.Healthy {
		t.Errorf("its status is overloaded %v, trusted %v, healthy %v", st.Aside, st.Trusted, st.Healthy)
	}
	clock.advance(time.Millisecond)
	mustPut(t, f, 1, Report{}) // as before, and of the other rank
	wantIDs(t, table, "a", "b")
	if a.Status().Aside {
		t.Error("the mark is still shown")
	}
}

func TestAnOverloadMarkEndsAfterOneWindowWithoutAnyReport(t *testing.T) {
	table, clock := newTestTable()
	a := table.Add("a", "")
	table.Add("b", "")
	a.SetAside()
	clock.advance(testWindow - 1)
	wantIDs(t, table, "b")
	if !a.Status().Aside {
		t.Error("the mark is not shown")
	}
	a.SetAside() // again: a window from now
	clock.advance(testWindow - 1)
	wantIDs(t, table, "b")
	clock.advance(1)
	wantIDs(t, table, "a", "b")
	if a.Status().Aside {
		t.Error("the mark is still shown")
	}
}

func TestOverloadedWorkersAreEligibleWhenNoOthersAreLeft(t *testing.T) {
	table, clock := newTestTable()
	a, b, c := table.Add("a", ""), table.Add("b", ""), table.Add("c", "")
	a.SetAside()
	clock.advance(time.Second)
	b.SetAside()
	wantIDs(t, table, "c")
	c.SetHealthy(false)
	wantIDs(t, table, "a", "b")
	c.SetHealthy(true)
	wantIDs(t, table, "c")
	c.SetAside()
	wantIDs(t, table, "a", "b", "c")
	clock.advance(testWindow - time.Second) // the first mark ends
	wantIDs(t, table, "a")
	clock.advance(time.Second)
	wantIDs(t, table, "a", "b", "c")
}

func TestWorkersThatAreSetAsideComeLastInAView(t *testing.T) {
	table, clock := newTestTable()
	a, _ := advertised(t, table, "a", Report{Running: 1})
	b, _ := advertised(t, table, "b", Report{Running: 10})
	c, f := advertised(t, table, "c", Report{Running: 100})
	d, _ := advertised(t, table, "d", Report{Running: 1000})
	d.SetHealthy(false)
	c.SetAside()
	a.SetAside()
	v := table.View()
	if v.Len() != 1 || v.Healthy() != 3 || v.Known() != 4 {
		t.Fatalf("%d eligible of %d healthy of %d, want 1 of 3 of 4", v.Len(), v.Healthy(), v.Known())
	}
	for i, w := range []*Worker{b, a, c} {
		if at, ok := v.Position(w); !ok || at != i || v.At(i).Worker() != w || !v.At(i).Trusted() {
			t.Errorf("worker %s is at %d (%v), want %d", w.ID(), at, ok, i)
		}
	}
	if _, ok := v.Find(d); ok {
		t.Error("the unhealthy worker is in the view")
	}
	if trusted, depth, _ := v.Trusted(); trusted != 1 || depth != 10 {
		t.Errorf("the sums are %d and %d, want those of the eligible one: 1 and 10", trusted, depth)
	}
	clock.advance(1)
	mustPut(t, f, 0, Report{Running: 200})
	v = table.View()
	for i, w := range []*Worker{b, c, a} {
		if at, ok := v.Position(w); !ok || at != i {
			t.Errorf("after c's report worker %s is at %d (%v), want %d", w.ID(), at, ok, i)
		}
	}
	if trusted, depth, _ := v.Trusted(); trusted != 2 || depth != 210 {
		t.Errorf("after c's report the sums are %d and %d, want 2 and 210", trusted, depth)
	}
	// What is set aside goes stale like anything else.
	clock.advance(testWindow)
	table.mu.Lock()
	v = table.View()
	table.mu.Unlock()
	if e, _ := v.Find(a); e.Trusted() {
		t.Error("a stale worker that is set aside is trusted")
	}
}

func TestARefusedReportDoesNotClearAnOverloadMark(t *testing.T) {
	table, clock := newTestTable()
	a, f := advertised(t, table, "a", Report{Source: SourcePush})
	table.Add("b", "")
	a.SetAside()
	if f.Put(0, Report{Running: -1}) == nil || f.Put(0, Report{Source: SourcePoll}) == nil || f.Put(1, Report{}) == nil {
		t.Fatal("a bad report was taken")
	}
	wantIDs(t, table, "b")
	clock.advance(1)
	mustPut(t, f, 0, Report{})
	wantIDs(t, table, "a", "b")
}

func TestAnUnhealthyWorkerIsInNoViewAndKeepsWhatItHas(t *testing.T) {
	table, clock := newTestTable()
	a, f := advertised(t, table, "a", Report{})
	advertised(t, table, "b", Report{Running: 40})
	k := reserve(t, a, NoRank, 10)
	a.SetHealthy(false)
	wantIDs(t, table, "b")
	if v := table.View(); v.Known() != 2 {
		t.Errorf("%d known, want 2", v.Known())
	}
	if workers, depth, own := table.View().Trusted(); workers != 1 || depth != 40 || own != 0 {
		t.Errorf("it tilts the sums: %d, %d, %d", workers, depth, own)
	}
	if _, ok := table.View().Find(a); ok {
		t.Error("it is found in the view")
	}
	mustPut(t, f, 0, Report{Running: 7}) // its reports go on
	if st := a.Status(); st.Healthy || !st.Trusted || st.Depth != Known[int64](7) || st.InFlight != 1 {
		t.Errorf("its status is %+v", st)
	}
	a.SetHealthy(true)
	wantIDs(t, table, "a", "b")
	wantTrusted(t, a, 7)
	k.Done()
	clock.advance(testWindow + 1)
	a.SetHealthy(false)
	a.SetHealthy(true)
	wantUntrusted(t, a, Stale)
}

func TestAWorkerThatWasMarkedOverloadedWhileUnhealthyComesBackOverloaded(t *testing.T) {
	table, clock := newTestTable()
	a := table.Add("a", "")
	table.Add("b", "")
	a.SetHealthy(false)
	a.SetAside()
	a.SetHealthy(true)
	wantIDs(t, table, "b")
	clock.advance(testWindow)
	wantIDs(t, table, "a", "b")
}

func TestAnOverloadMarkEndsInTimeAlsoWhileALockIsHeld(t *testing.T) {
	table, clock := newTestTable()
	a, f := advertised(t, table, "a", Report{})
	advertised(t, table, "b", Report{})
	a.SetAside()
	clock.advance(testWindow + 1)
	table.mu.Lock()
	v := table.View()
	table.mu.Unlock()
	if v.Len() != 2 || v.At(0).Trusted() || v.At(1).Trusted() {
		t.Errorf("%d eligible, trusted %v and %v", v.Len(), v.At(0).Trusted(), v.At(1).Trusted())
	}
	mustPut(t, f, 0, Report{Running: 3}) // a's place has changed behind its back
	wantTrusted(t, a, 3)
	if e, ok := table.View().Find(a); !ok || e.Depth() != 3 {
		t.Errorf("its report is not in the view: %v", ok)
	}
	wantIDs(t, table, "a", "b")
}

// A report that was on its way when the engine refused says nothing about after.
func TestAReportFromBeforeTheRefusalDoesNotBringAWorkerBack(t *testing.T) {
	table, clock := newTestTable()
	a, f := advertised(t, table, "a", Report{})
	table.Add("b", "")
	clock.advance(time.Second)
	asked := clock.now()
	clock.advance(time.Millisecond)
	a.SetAside()
	clock.advance(time.Millisecond)
	mustPut(t, f, 0, Report{Received: asked})
	wantIDs(t, table, "b")
	mustPut(t, f, 0, Report{})
	wantIDs(t, table, "a", "b")
}
