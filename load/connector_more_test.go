package load

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// checkBooksOfConnector holds a connector's own counts to the ids that it knows.
func checkBooksOfConnector(t *testing.T, c *Connector) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	held := make([]int, len(c.ranks))
	for id, h := range c.requests {
		if h.rank != h.ticket.request.rank() {
			t.Errorf("%q is held on rank %d with a ticket of rank %d", id, h.rank, h.ticket.request.rank())
		}
		held[h.rank]++
	}
	for rank, n := range held {
		if r := &c.ranks[rank]; r.requests != n {
			t.Errorf("rank %d counts %d requests, and %d ids are held", rank, r.requests, n)
		}
	}
}

// A group dies, is removed, comes back, is advertised by others and is judged by
// health checks, while everybody goes on as if nothing had happened. Nothing is
// asserted of what anybody sees meanwhile but that it is not absurd; in the end
// every book of every incarnation is at 0.
func TestTheBooksEndAtZeroWhateverIsDoneToAGroupAtOnce(t *testing.T) {
	const ranks, goroutines = 4, 8
	rounds := 3000
	if raceEnabled {
		rounds = 600
	}
	table := NewTable(Config{})
	var mu sync.Mutex // of all, and of who adds
	var all []*Connector
	var current atomic.Pointer[Connector]
	again := func() {
		mu.Lock()
		defer mu.Unlock()
		c := must(NewConnector(table.Add("group", ""), ConnectorConfig{Ranks: ranks, Shared: len(all)%3 == 2}))
		all = append(all, c)
		current.Store(c)
	}
	again()
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 2))
			for i := range rounds {
				c := current.Load()
				id := fmt.Sprint(rng.IntN(20)) // of all goroutines
				old := c
				if rng.IntN(4) == 0 {
					mu.Lock()
					old = all[rng.IntN(len(all))]
					mu.Unlock()
				}
				switch roll := rng.IntN(200); {
				case roll < 60:
					r, err := old.Reserve(id, 10)
					if err != nil {
						if !errors.Is(err, ErrDuplicate) && !errors.Is(err, ErrDead) {
							t.Errorf("Reserve: %v", err)
						}
						break
					}
					r.Dispatched()
					if rng.IntN(2) == 0 {
						r.FirstToken()
					}
					switch rng.IntN(4) {
					case 0:
						r.Done()
					case 1:
						r.Ticket.Done()
						defer r.Done()
					default:
						defer r.Done()
					}
				case roll < 90: // a selector's pick
					k := c.worker.Reserve(rng.IntN(ranks+2)-1, 10)
					r, err := old.Register(id, k)
					if err != nil && !errors.Is(err, ErrDuplicate) && !errors.Is(err, ErrDead) && !errors.Is(err, ErrForeignTicket) {
						t.Errorf("Register: %v", err)
					}
					if rng.IntN(2) == 0 {
						r.Done()
					}
					if rng.IntN(2) == 0 {
						k.Done()
					} else {
						defer r.Done()
						defer k.Done()
					}
				case roll < 120:
					old.Abort(id)
				case roll < 180:
					b := batch(rng.IntN(ranks), rng.Int64N(9), rng.Int64N(9), rng.Float64(), id, fmt.Sprint(rng.IntN(20)))
					b.HasLoad = rng.IntN(4) > 0
					if err := old.Observe(b); err != nil && !errors.Is(err, ErrDead) && !errors.Is(err, ErrGone) {
						t.Errorf("Observe: %v", err)
					}
				case roll < 183:
					old.Fail(errors.New("reset"))
				case roll < 186:
					again()
				case roll < 187:
					table.Remove(old.worker)
				case roll < 188:
					old.worker.Advertise(ranks - 1)
				case roll < 189:
					old.worker.SetNotPublishing("says somebody")
				case roll < 192:
					old.worker.SetHealthy(i%2 == 0)
				case roll < 194:
					old.worker.SetAside()
				default:
					if st := old.Status(); st.InFlight < 0 || st.Reserved < st.Finished+st.Released+st.Aborted+st.Failed {
						t.Errorf("the status shows %+v", st)
					}
					for _, ws := range table.Status() {
						if ws.InFlight < 0 || ws.Depth.Or(0) < 0 || ws.Age < 0 {
							t.Errorf("the worker's status shows %+v", ws)
						}
					}
					v := table.View()
					for i := range v.Len() {
						if depth, _ := v.At(i).DepthNow(); depth < 0 || v.Age(v.At(i)) < 0 {
							t.Errorf("the view shows a depth of %d, %v old", depth, v.Age(v.At(i)))
						}
					}
				}
			}
		})
	}
	wg.Wait()
	dead, gone := 0, 0
	for _, c := range all {
		checkBooksOfConnector(t, c)
		if own := c.worker.Own(); own != (Own{}) {
			t.Errorf("a worker ends with %+v", own)
		}
		for rank := range ranks {
			if own := c.worker.rankBook(rank).read(); own != (Own{}) {
				t.Errorf("rank %d of a worker ends with %+v", rank, own)
			}
		}
		if c.worker.Status().Leaked != 0 {
			t.Errorf("%d tickets were dropped", c.worker.Status().Leaked)
		}
		if c.Status().Dead != "" {
			dead++
		}
		if c.Status().Dropped["gone"] > 0 {
			gone++
		}
	}
	if dead == 0 || gone == 0 || len(all) < 3 {
		t.Errorf("%d groups, of which %d died and %d were sent to when they were gone", len(all), dead, gone)
	}
}

func TestADeathWithoutACauseIsADeath(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	mustReserve(t, c, "a")
	if ids := c.Fail(nil); len(ids) != 1 {
		t.Errorf("failed %q", ids)
	}
	if _, err := c.Reserve("b", 0); !errors.Is(err, ErrDead) {
		t.Errorf("Reserve after it: %v", err)
	}
	if st := c.Status(); st.Dead == "" || c.worker.Status().Reason != st.Dead {
		t.Errorf("the status shows dead %q, that of the worker %q", st.Dead, c.worker.Status().Reason)
	}
}

func TestABatchKeepsNothingOfTheRequestsThatItEnded(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	for i := range 5 {
		mustReserve(t, c, fmt.Sprint(i))
	}
	mustObserve(t, c, batch(0, 5, 0, 0.5, "0", "1", "2", "3", "4"))
	for _, h := range c.ended[:cap(c.ended)] {
		if h != (held{}) {
			t.Errorf("%+v is kept", h)
		}
	}
}

func TestALoadThatAHigherSourceOutranksIsCountedAndTheBatchCounts(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1, Shared: true})
	mustReserve(t, c, "a")
	mustPut(t, c.worker, 0, Report{Running: 7})
	if err := c.Observe(batch(0, 1, 0, 0.5, "a")); !errors.Is(err, ErrOutranked) {
		t.Errorf("Observe returns %v", err)
	}
	if st := c.Status(); st.Dropped["outranked"] != 1 || st.Finished != 1 || c.worker.InFlight() != 0 {
		t.Errorf("the status shows %+v", st)
	}
	wantTrusted(t, c.worker, 7)
}

func TestInfiniteUsageAddsNothingWhereNobodyWaits(t *testing.T) {
	if got := RankScore(2, 0, &Report{Running: 5, KVUsage: Known(math.Inf(1))}); got != 5 {
		t.Errorf("the score is %v, want 5", got)
	}
}

func TestTheStatusOfARemovedGroupIsWhatWasLastKnown(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	mustReserve(t, c, "a")
	mustObserve(t, c, batch(0, 3, 1, 0.5))
	c.worker.table.Remove(c.worker)
	c.Release("a")
	if rs := c.worker.Status().Ranks[0]; rs.Quiet || rs.Report.Running != 3 || rs.InFlight != 0 {
		t.Errorf("the rank's status shows %+v, running %d", rs, rs.Report.Running)
	}
	if st := c.Status().Ranks[0]; !st.Quiet || st.Score != 0 {
		t.Errorf("to its connector the rank is %+v", st)
	}
}

// A worker that others advertised, before it got its connector, may have tickets of
// more ranks than the group has.
func TestATicketOfARankThatTheGroupDoesNotHaveIsNotRegistered(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("group", "")
	w.Advertise(4)
	k := reserve(t, w, 3, 0)
	c := must(NewConnector(w, ConnectorConfig{Ranks: 3}))
	if _, err := c.Register("a", k); !errors.Is(err, ErrForeignTicket) {
		t.Errorf("Register returns %v, want ErrForeignTicket", err)
	}
	if _, err := c.Register("b", reserve(t, w, 2, 0)); err != nil {
		t.Errorf("a ticket of the last rank: %v", err)
	}
}

func TestTheZeroReservationIsOfNoRank(t *testing.T) {
	if got := (Reservation{}).Rank(); got != NoRank {
		t.Errorf("it is of rank %d", got)
	}
}

// A Done of a ticket is overtaken, between the end of its flight and the word to the
// connector, by a release of its id, and then by another request of that id.
func TestADoneThatIsOvertakenEndsOneRequestAndGivesItsFlightBackOnce(t *testing.T) {
	for name, end := range map[string]func(*Connector) error{
		"by a release": func(c *Connector) error { c.Release("a"); return nil },
		"by a batch":   func(c *Connector) error { return c.Observe(batch(0, 1, 0, 0.5, "a")) },
	} {
		for _, rank := range []int{0, NoRank} {
			t.Run(fmt.Sprint(name, ", rank ", rank), func(t *testing.T) {
				c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
				k := c.worker.Reserve(rank, 10)
				if _, err := c.Register("a", k); err != nil {
					t.Fatal(err)
				}
				if held, _ := k.release(false); !held {
					t.Fatal("it was not held")
				}
				if err := end(c); err != nil {
					t.Fatal(err)
				}
				mustReserve(t, c, "a")
				c.ticketDone(k)
				flights.Put(k.flight)
				if st := c.Status(); st.InFlight != 1 || c.worker.InFlight() != 1 || c.inFlight(0) != 1 || st.Reserved != 2 {
					t.Errorf("with another request of its id, %d are in flight: %+v", c.worker.InFlight(), st)
				}
				a, b := c.worker.Reserve(NoRank, 0), c.worker.Reserve(NoRank, 0)
				if a.flight == b.flight {
					t.Error("two requests have one flight")
				}
				a.Done()
				b.Done()
				c.Release("a")
				if own := c.worker.Own(); own != (Own{}) || c.rankBook(0).read() != (Own{}) {
					t.Errorf("it ends with %+v, %+v on the rank", own, c.rankBook(0).read())
				}
			})
		}
	}
}

// The other way round: what a batch ends first is not ended again by its ticket, nor
// is whoever has its flight next.
func TestATicketThatIsDoneAfterItsBatchTouchesNobody(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	for i := range 100 {
		k := c.worker.Reserve(i%2-1, 10)
		if _, err := c.Register("a", k); err != nil {
			t.Fatal(err)
		}
		mustObserve(t, c, batch(0, 1, 0, 0.5, "a"))
		next := mustReserve(t, c, "a") // of the same id, and as a rule in the same flight
		k.FirstToken()
		k.Done()
		if own := c.worker.Own(); own != (Own{1, 1, 0}) || c.Status().InFlight != 1 {
			t.Fatalf("the next request is %+v in the books", own)
		}
		next.Done()
	}
}

func TestAStatusDoesNotChangeInTheHandsOfItsReader(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	if err := c.Observe(batch(7, 1, 0, 0.5)); !errors.Is(err, ErrNoRank) {
		t.Fatal(err)
	}
	st := c.Status()
	c.Observe(batch(7, 1, 0, 0.5))
	if st.Dropped["no_rank"] != 1 || c.Status().Dropped["no_rank"] != 2 {
		t.Errorf("it shows %v", st.Dropped)
	}
}

// Done can come between a Register's look at a ticket and its hold.
func TestATicketThatIsDoneIsNotHeldAndCountsOnNoRank(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	for _, rank := range []int{0, NoRank} {
		k := c.worker.Reserve(rank, 10)
		k.Done()
		if k.hold(0) {
			t.Errorf("a ticket of rank %d was held after its end", rank)
		}
		next := c.worker.Reserve(rank, 10) // as a rule in its flight
		if k.hold(0) {
			t.Errorf("a ticket of rank %d was held in another's place", rank)
		}
		next.Done()
		if own := c.rankBook(0).read(); own != (Own{}) {
			t.Errorf("the rank has %+v", own)
		}
	}
}

func TestOnlyARankThatIsThereIsThere(t *testing.T) {
	table, _ := newTestTable()
	fed, advertised, c := table.Add("fed", ""), table.Add("advertised", ""), must(NewConnector(table.Add("group", ""), ConnectorConfig{Ranks: 2}))
	mustPut(t, fed, 1, Report{})
	advertised.Advertise(2)
	for rank, want := range map[int][3]bool{
		math.MinInt: {}, -1: {}, 0: {false, true, true}, 1: {true, true, true}, 2: {}, math.MaxInt: {},
	} {
		for i, w := range []*Worker{fed, advertised, c.worker} {
			if got := entry(t, w).HasRank(rank); got != want[i] {
				t.Errorf("worker %s has rank %d: %v", w.ID(), rank, got)
			}
		}
	}
}

func TestAnAdvertisementOfARemovedWorkerIsNoNewsOfIt(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	mustReserve(t, c, "a")
	mustObserve(t, c, batch(0, 3, 1, 0.5))
	c.worker.table.Remove(c.worker)
	f := c.worker.Advertise(2)
	if err := f.Put(0, Report{}); !errors.Is(err, ErrGone) {
		t.Errorf("a report through it: %v", err)
	}
	if ws := c.worker.Status(); len(ws.Ranks) != 1 || !ws.Owned || ws.Ranks[0].Reports != 1 {
		t.Errorf("the status of the worker shows %+v", ws)
	}
	c.Release("a")
}
