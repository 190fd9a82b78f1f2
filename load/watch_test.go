package load

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// ear is a watch that notes what it is told.
type ear struct {
	Watch
	mu    sync.Mutex
	heard []heard
}

type heard struct {
	told
	note uint64
}

func newEar() *ear {
	e := new(ear)
	hear := func(what string) func(*Worker, time.Duration, uint64) {
		return func(w *Worker, took time.Duration, note uint64) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.heard = append(e.heard, heard{told{what, w, took}, note})
		}
	}
	e.Watch = Watch{FirstToken: hear("first token"), Done: hear("done")}
	return e
}

func (e *ear) want(t *testing.T, want ...heard) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Equal(e.heard, want) {
		t.Errorf("it was told %+v\nwant %+v", e.heard, want)
	}
	e.heard = nil
}

func firstToken(w *Worker, wait time.Duration, note uint64) heard {
	return heard{told{"first token", w, wait}, note}
}

func done(w *Worker, response time.Duration, note uint64) heard {
	return heard{told{"done", w, response}, note}
}

// watched reserves a request that the ear is told of.
func (e *ear) watched(w *Worker, note uint64) Ticket {
	return w.table.View().Reserve(w, Booking{Rank: NoRank, Watch: &e.Watch, Note: note})
}

func TestAWatchIsToldOnceOfTheFirstTokenAndOfTheEndOfWhatHasBegun(t *testing.T) {
	sent, first, assumed, over := Ticket.Dispatched, Ticket.FirstToken, Ticket.AssumeStarted, Ticket.Done
	for _, tt := range []struct {
		name  string
		marks []func(Ticket) // one after each second
		want  []string
	}{
		{"no mark", nil, nil},
		{"sent", []func(Ticket){sent}, nil},
		{"the first token", []func(Ticket){sent, first}, []string{"first token 2s"}},
		{"the first token twice", []func(Ticket){first, first}, []string{"first token 1s"}},
		{"the end", []func(Ticket){first, over}, []string{"first token 1s", "done 2s"}},
		{"the end twice", []func(Ticket){first, over, over}, []string{"first token 1s", "done 2s"}},
		{"the end of what never began", []func(Ticket){sent, over}, nil},
		{"the first token after the end", []func(Ticket){over, first}, nil},
		{"assumed to have begun", []func(Ticket){assumed}, nil},
		{"the first token after that", []func(Ticket){assumed, first}, nil},
		{"the end after that", []func(Ticket){assumed, over}, []string{"done 2s"}},
		{"the first token and the end after that", []func(Ticket){assumed, first, over}, []string{"done 3s"}},
		{"assumed after the first token", []func(Ticket){first, assumed, over}, []string{"first token 1s", "done 3s"}},
		{"assumed after the end", []func(Ticket){over, assumed, over}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table, clock := newTestTable()
			w := table.Add("a", "")
			e := newEar()
			k := e.watched(w, 7)
			t.Cleanup(k.Done)
			for _, mark := range tt.marks {
				clock.advance(time.Second)
				mark(k)
			}
			var got []string
			for _, h := range e.heard {
				if h.w != w || h.note != 7 {
					t.Errorf("it was told of worker %p and note %d, want %p and 7", h.w, h.note, w)
				}
				got = append(got, fmt.Sprint(h.what, " ", h.took))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("it was told %q, want %q", got, tt.want)
			}
		})
	}
}

func TestWhatAWatchIsToldIsCountedFromTheViewThatTheRequestWasPickedBy(t *testing.T) {
	for name, reserve := range map[string]func(View, *Worker, Booking) Ticket{
		"Reserve": View.Reserve,
		"ReserveIf": func(v View, w *Worker, b Booking) Ticket {
			k, ok := v.ReserveIf(w, w.Count().Seen(), b)
			if !ok {
				t.Error("refused with nobody else about")
			}
			return k
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := NewTable(Config{})
				w := table.Add("a", "")
				e := newEar()
				time.Sleep(time.Hour)
				v := table.View()
				if v.Now() != time.Hour {
					t.Errorf("the view is of %v", v.Now())
				}
				time.Sleep(time.Second) // while the policy chooses
				k := reserve(v, w, Booking{Rank: NoRank, Watch: &e.Watch, Note: 3})
				time.Sleep(time.Second)
				k.FirstToken()
				time.Sleep(time.Second)
				k.Done()
				e.want(t, firstToken(w, 2*time.Second, 3), done(w, 3*time.Second, 3))
			})
		})
	}
}

func TestABookingCountsAsAReservationDoes(t *testing.T) {
	table, _ := newTestTable()
	w, _ := advertised(t, table, "a", Report{}, Report{})
	v := table.View()
	seen := w.Count().Seen()
	b := Booking{Rank: 1, PromptTokens: 30}
	first, ok := v.ReserveIf(w, seen, b)
	if !ok {
		t.Fatal("refused with nobody else about")
	}
	if k, ok := v.ReserveIf(w, seen, b); ok || k != (Ticket{}) {
		t.Fatal("reserved twice at one moment")
	}
	second := v.Reserve(w, b)
	want := Own{InFlight: 2, Unstarted: 2, PendingTokens: 60}
	if w.Own() != want || w.rankBook(1).read() != want {
		t.Errorf("the worker has %+v and the rank %+v, want %+v", w.Own(), w.rankBook(1).read(), want)
	}
	first.Done()
	second.Done()
}

func TestAWatchNeedNotWantToKnowAll(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	e := newEar()
	for _, tt := range []struct {
		watch Watch
		want  []heard
	}{
		{Watch{}, nil},
		{Watch{FirstToken: e.FirstToken}, []heard{firstToken(w, 0, 5)}},
		{Watch{Done: e.Done}, []heard{done(w, 0, 5)}},
	} {
		k := table.View().Reserve(w, Booking{Rank: NoRank, Watch: &tt.watch, Note: 5})
		k.FirstToken()
		k.Done()
		e.want(t, tt.want...)
	}
}

// reused calls f with a ticket that is done and another that has its flight.
func reused(t *testing.T, next func() Ticket, before func() Ticket, f func(old, k Ticket)) {
	t.Helper()
	for range 10_000 {
		old := before()
		old.Done()
		if k := next(); k.flight == old.flight {
			f(old, k)
			return
		} else {
			k.Done() // of another one out of the pool
		}
	}
	t.Fatal("no flight was ever used again")
}

func TestAWatchIsNotToldOfWhoHasItsRequestsFlightNow(t *testing.T) {
	table, clock := newTestTable()
	w, other := table.Add("a", ""), table.Add("b", "")
	e, f := newEar(), newEar()
	before := func() Ticket { return e.watched(w, 1) }
	end := func(_, k Ticket) {
		clock.advance(time.Second)
		k.FirstToken()
		k.Done()
	}
	t.Run("nobody watches that", func(t *testing.T) {
		reused(t, func() Ticket { return other.Reserve(NoRank, 0) }, before, end)
		e.want(t)
	})
	t.Run("another one watches it", func(t *testing.T) {
		reused(t, func() Ticket { return f.watched(other, 2) }, before, end)
		e.want(t)
		f.want(t, firstToken(other, time.Second, 2), done(other, time.Second, 2))
	})
	t.Run("it watches that too", func(t *testing.T) {
		reused(t, func() Ticket { return e.watched(other, 2) }, before, end)
		e.want(t, firstToken(other, time.Second, 2), done(other, time.Second, 2))
	})
	t.Run("and only that", func(t *testing.T) {
		reused(t, func() Ticket { return e.watched(other, 2) }, func() Ticket { return w.Reserve(NoRank, 0) }, end)
		e.want(t, firstToken(other, time.Second, 2), done(other, time.Second, 2))
	})
}

func TestMarksOfARequestThatIsOverTellNobody(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	e, f := newEar(), newEar()
	next := func() Ticket { return f.watched(w, 2) }
	reused(t, next, func() Ticket { return e.watched(w, 1) }, func(old, k Ticket) {
		old.FirstToken()
		old.AssumeStarted()
		old.Done()
		e.want(t)
		f.want(t)
		k.FirstToken()
		old.Done()
		f.want(t, firstToken(w, 0, 2))
		k.Done()
		f.want(t, done(w, 0, 2))
	})
}

func TestAWatchIsToldOfTheIncarnationThatTheRequestIsOn(t *testing.T) {
	table, clock := newTestTable()
	w := table.Add("a", "")
	e := newEar()
	k := e.watched(w, 1)
	table.Remove(w)
	again := table.Add("a", "")
	clock.advance(time.Second)
	k.FirstToken()
	k.Done()
	e.want(t, firstToken(w, time.Second, 1), done(w, time.Second, 1))
	if w.Own() != (Own{}) || again.Count() != (Count{}) {
		t.Errorf("the old one ends with %+v, the new one with %+v", w.Own(), again.Count())
	}
}

//go:noinline
func dropWatched(e *ear, w *Worker) { e.watched(w, 1).FirstToken() }

func TestAWatchIsNotToldOfTheEndOfATicketThatWasDropped(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	e := newEar()
	for range 3 {
		dropWatched(e, w)
	}
	collectUntil(t, "released", func() bool { return w.books.leaked.Load() == 3 })
	e.want(t, firstToken(w, 0, 1), firstToken(w, 0, 1), firstToken(w, 0, 1))
}

func TestAWatchMayReserveAndReleaseByItself(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	var hedge Ticket
	var watch Watch
	watch = Watch{
		FirstToken: func(w *Worker, _ time.Duration, note uint64) {
			if note == 0 {
				hedge = table.View().Reserve(w, Booking{Rank: NoRank, PromptTokens: 5, Watch: &watch, Note: 1})
				hedge.FirstToken()
			}
		},
		Done: func(_ *Worker, _ time.Duration, note uint64) { hedge.Done() },
	}
	k := table.View().Reserve(w, Booking{Rank: NoRank, PromptTokens: 5, Watch: &watch})
	k.FirstToken()
	if got, want := w.Count(), (Count{Picked: 2, TokensPicked: 10, TokensStarted: 10}); got != want {
		t.Errorf("after the first token there is %+v, want %+v", got, want)
	}
	k.Done()
	if got, want := w.Count(), (Count{2, 2, 10, 10}); got != want {
		t.Errorf("after the end there is %+v, want %+v", got, want)
	}
}

// panics calls f, which has to.
func panics(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("it does not panic")
		}
	}()
	f()
}

func TestAWatchThatPanicsLeavesNothingUndone(t *testing.T) {
	boom := func(*Worker, time.Duration, uint64) { panic("boom") }
	watch := &Watch{FirstToken: boom, Done: boom}
	for name, end := range map[string]func(*Connector, Ticket){
		"done":      func(_ *Connector, k Ticket) { k.Done() },
		"abort":     func(c *Connector, _ Ticket) { c.Abort("a") },
		"its batch": func(c *Connector, _ Ticket) { c.Observe(batch(0, 3, 0, 0.5, "a", "b")) },
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
			k := c.worker.table.View().Reserve(c.worker, Booking{Rank: NoRank, Watch: watch})
			if _, err := c.Register("a", k); err != nil {
				t.Fatal(err)
			}
			mustReserve(t, c, "b")
			panics(t, k.FirstToken)
			if own := c.worker.Own(); own != (Own{InFlight: 2, Unstarted: 1}) {
				t.Errorf("after the first token there is %+v", own)
			}
			panics(t, func() { end(c, k) })
			c.Release("b")
			if st := c.Status(); st.InFlight != 0 || c.worker.InFlight() != 0 || c.inFlight(0) != 0 {
				t.Errorf("%d in flight at the connector, %d on the worker, %d on the rank", st.InFlight, c.worker.InFlight(), c.inFlight(0))
			}
			mustReserve(t, c, "a") // the id is free
			a, b := c.worker.Reserve(NoRank, 0), c.worker.Reserve(NoRank, 0)
			if a.flight == b.flight {
				t.Error("two requests have one flight")
			}
			a.Done()
			b.Done()
		})
	}
}

func TestAWatchIsToldOnceOfARequestThatAConnectorHolds(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *Connector, Reservation, Ticket){
		"its ticket is done":      func(_ *testing.T, _ *Connector, _ Reservation, k Ticket) { k.Done() },
		"its reservation is done": func(_ *testing.T, _ *Connector, r Reservation, _ Ticket) { r.Done() },
		"it is aborted":           func(_ *testing.T, _ *Connector, r Reservation, _ Ticket) { r.Abort() },
		"its id is released":      func(_ *testing.T, c *Connector, _ Reservation, _ Ticket) { c.Release("a") },
		"its id is aborted":       func(_ *testing.T, c *Connector, _ Reservation, _ Ticket) { c.Abort("a") },
		"its engine is dead":      func(_ *testing.T, c *Connector, _ Reservation, _ Ticket) { c.Fail(nil) },
		"its batch": func(t *testing.T, c *Connector, _ Reservation, _ Ticket) {
			if err := c.Observe(batch(0, 2, 0, 0.5, "a")); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, clock := newTestConnector(t, ConnectorConfig{Ranks: 2})
			e := newEar()
			watch := e.Watch
			watch.Done = func(w *Worker, response time.Duration, note uint64) {
				e.Done(w, response, note)
				// With no lock held: these would hang. And all is done by now.
				if n := c.Status().InFlight; n != 0 {
					t.Errorf("%d in flight at the connector", n)
				}
				w.table.Status()
				w.SetHealthy(true)
				w.SetAside()
				if r, err := c.Reserve("a", 0); err == nil { // of which nothing is to be told
					r.FirstToken()
					r.Done()
				}
			}
			k := c.worker.table.View().Reserve(c.worker, Booking{Rank: NoRank, Watch: &watch, Note: 4})
			r, err := c.Register("a", k)
			if err != nil {
				t.Fatal(err)
			}
			clock.advance(time.Second)
			r.FirstToken()
			k.FirstToken()
			e.want(t, firstToken(c.worker, time.Second, 4))
			clock.advance(time.Second)
			end(t, c, r, k)
			e.want(t, done(c.worker, 2*time.Second, 4))
			r.Done()
			k.Done()
			c.Release("a")
			e.want(t)
		})
	}
}

func TestABatchTellsOfAllThatItEnds(t *testing.T) {
	c, clock := newTestConnector(t, ConnectorConfig{Ranks: 2})
	e := newEar()
	var ids []string
	var want []heard
	for note := range uint64(5) {
		id := fmt.Sprint(note)
		k := e.watched(c.worker, note)
		if _, err := c.Register(id, k); err != nil {
			t.Fatal(err)
		}
		if ids = append(ids, id); note != 3 { // that one has not begun
			k.AssumeStarted()
			want = append(want, done(c.worker, time.Second, note))
		}
	}
	clock.advance(time.Second)
	for range 2 {
		if err := c.Observe(batch(0, 2, 0, 0.5, ids...)); err != nil {
			t.Fatal(err)
		}
		e.want(t, want...)
		want = nil
	}
}

func TestAFirstTokenAndAnEndThatMeetAreBothToldOrNeither(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	const each, goroutines = 500, 4
	rounds := 100
	if raceEnabled { // it makes them meet more often
		rounds = 20
	}
	var firsts, ends [each]atomic.Int32
	count := func(n *[each]atomic.Int32) func(*Worker, time.Duration, uint64) {
		return func(_ *Worker, _ time.Duration, note uint64) { n[note].Add(1) }
	}
	watch := &Watch{FirstToken: count(&firsts), Done: count(&ends)}
	var tickets [each]Ticket
	for range rounds {
		v := table.View()
		for i := range tickets {
			tickets[i] = v.Reserve(w, Booking{Rank: NoRank, Watch: watch, Note: uint64(i)})
			firsts[i].Store(0)
			ends[i].Store(0)
		}
		var ready, all sync.WaitGroup
		ready.Add(goroutines)
		for g := range goroutines {
			mark := []func(Ticket){Ticket.FirstToken, Ticket.Done}[g%2]
			all.Go(func() {
				ready.Done()
				ready.Wait()
				for _, k := range tickets {
					mark(k)
				}
			})
		}
		all.Wait()
		for i := range tickets {
			if first, end := firsts[i].Load(), ends[i].Load(); first != end || first > 1 {
				t.Fatalf("told of %d first tokens and %d ends", first, end)
			}
		}
	}
	if w.Own() != (Own{}) {
		t.Errorf("it ends with %+v", w.Own())
	}
}

// Goroutines mark each other's tickets, most of them of requests that have long been
// over and whose flights others have, on two workers for two watches.
func TestStaleTicketsOfManyGoroutinesNeverTellOfAnothersRequest(t *testing.T) {
	table, _ := newTestTable()
	workers := []*Worker{table.Add("a", ""), table.Add("b", "")}
	const goroutines = 4
	each := 20_000
	if raceEnabled {
		each = 3000
	}
	type request struct{ firsts, ends, strangers atomic.Int32 }
	requests := make([]request, goroutines*each)
	watchOf := func(note uint64) int { return int(note / 2 % 2) }
	workerOf := func(note uint64) *Worker { return workers[note%2] }
	var watches [2]Watch
	for i := range watches {
		hear := func(n func(*request) *atomic.Int32) func(*Worker, time.Duration, uint64) {
			return func(w *Worker, _ time.Duration, note uint64) {
				r := &requests[note]
				n(r).Add(1)
				if watchOf(note) != i || workerOf(note) != w {
					r.strangers.Add(1)
				}
			}
		}
		watches[i] = Watch{
			FirstToken: hear(func(r *request) *atomic.Int32 { return &r.firsts }),
			Done:       hear(func(r *request) *atomic.Int32 { return &r.ends }),
		}
	}
	var hands [16]atomic.Pointer[Ticket]
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			for i := range each {
				note := uint64(g*each + i)
				b := Booking{Rank: NoRank, Watch: &watches[watchOf(note)], Note: note}
				if note%5 == 4 {
					b.Watch = nil
				}
				k := table.View().Reserve(workerOf(note), b)
				hands[rnd.IntN(len(hands))].Store(&k)
				for range 3 {
					if k := hands[rnd.IntN(len(hands))].Load(); k != nil {
						[]func(Ticket){Ticket.FirstToken, Ticket.Done, Ticket.Dispatched}[rnd.IntN(3)](*k)
					}
				}
				k.FirstToken()
				k.Done()
			}
		})
	}
	all.Wait()
	told := 0
	for note := range requests {
		r := &requests[note]
		first, end := r.firsts.Load(), r.ends.Load()
		if first != end || first > 1 || note%5 == 4 && first > 0 || r.strangers.Load() > 0 {
			t.Fatalf("request %d: told of %d first tokens and %d ends, %d by or of others", note, first, end, r.strangers.Load())
		}
		told += int(first)
	}
	if told < len(requests)/10 {
		t.Errorf("told of %d of %d", told, len(requests))
	}
	for _, w := range workers {
		if w.Own() != (Own{}) {
			t.Errorf("%s ends with %+v", w.ID(), w.Own())
		}
	}
}
