package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func newTestConnector(t *testing.T, c ConnectorConfig) (*Connector, *clock) {
	t.Helper()
	table, clock := newTestTable()
	return must(NewConnector(table.Add("group", ""), c)), clock
}

func mustReserve(t *testing.T, c *Connector, id string) Reservation {
	t.Helper()
	r, err := c.Reserve(id, 0)
	if err != nil {
		t.Fatalf("Reserve(%q): %v", id, err)
	}
	return r
}

func mustReserveRank(t *testing.T, c *Connector, id string, rank int) Reservation {
	t.Helper()
	r, err := c.ReserveRank(id, rank, 0)
	if err != nil {
		t.Fatalf("ReserveRank(%q, %d): %v", id, rank, err)
	}
	if r.Rank() != rank {
		t.Fatalf("rank %d was asked for and %d reserved", rank, r.Rank())
	}
	return r
}

// batch is an output batch with a load.
func batch(rank int, running, waiting int64, kv float64, finished ...string) Batch {
	b := Batch{Rank: rank, HasLoad: true, Load: Report{Running: running, Waiting: waiting, KVUsage: Known(kv)}}
	for _, id := range finished {
		b.Finished = append(b.Finished, []byte(id))
	}
	return b
}

func mustObserve(t *testing.T, c *Connector, b Batch) {
	t.Helper()
	if err := c.Observe(b); err != nil {
		t.Fatalf("Observe: %v", err)
	}
}

// wantRank checks a rank as the table shows it, in the view and in the status, and
// as the connector's next choice sees it.
func wantRank(t *testing.T, c *Connector, rank int, running, waiting int64, kv Maybe[float64], inFlight int64) {
	t.Helper()
	r, ok := entry(t, c.worker).Report(rank)
	if !ok {
		t.Fatalf("rank %d has no report", rank)
	}
	rs := c.worker.Status().Ranks[rank]
	if r.Running != running || r.Waiting != waiting || r.KVUsage != kv || rs.InFlight != inFlight {
		t.Fatalf("rank %d reads running %d, waiting %d, KV usage %v, in flight %d; want %d, %d, %v, %d",
			rank, r.Running, r.Waiting, r.KVUsage, rs.InFlight, running, waiting, kv, inFlight)
	}
	if *rs.Report != *r {
		t.Fatalf("rank %d: the status shows %+v, the view %+v", rank, *rs.Report, *r)
	}
	if got, want := c.Status().Ranks[rank].Score, entry(t, c.worker).RankScore(rank); got != want {
		t.Fatalf("rank %d: the next choice scores it %v, want %v", rank, got, want)
	}
}

func TestABurstBetweenTwoReportsSpreadsOverTheRanks(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 4})
	var per [4]int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			r, err := c.Reserve(fmt.Sprint(i), 0)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			per[r.Rank()]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if per != [4]int{25, 25, 25, 25} {
		t.Errorf("100 requests at once spread as %v over 4 idle ranks", per)
	}
}

func TestTheLeastLoadedRankIsReserved(t *testing.T) {
	for _, c := range []struct {
		name string
		load [3]Report
		want int
	}{
		{"fewest requests", [3]Report{{Running: 3}, {Running: 1, Waiting: 1}, {Running: 3}}, 1},
		{"waiting counts", [3]Report{{Running: 1, Waiting: 3}, {Running: 3}, {Running: 5}}, 1},
		{"a queue on a full cache counts up to four times",
			[3]Report{{Running: 1, Waiting: 2, KVUsage: Known(1.0)}, {Running: 8}, {Running: 10}}, 1},
		{"a queue on a cache half empty counts once",
			[3]Report{{Running: 1, Waiting: 2, KVUsage: Known(0.5)}, {Running: 8}, {Running: 10}}, 0},
		{"a full cache without a queue counts nothing",
			[3]Report{{Running: 2, KVUsage: Known(1.0)}, {Running: 3}, {Running: 3}}, 0},
		{"NaN usage is unknown, also on the rank that is looked at first",
			[3]Report{{Running: 1, Waiting: 1, KVUsage: Known(math.NaN())}, {Running: 1, KVUsage: Known(math.NaN())}, {Running: 3, KVUsage: Known(math.NaN())}}, 1},
	} {
		for first := range 3 {
			t.Run(fmt.Sprintf("%s/from %d", c.name, first), func(t *testing.T) {
				conn, _ := newTestConnector(t, ConnectorConfig{Ranks: 3})
				for rank, r := range c.load {
					mustReserveRank(t, conn, fmt.Sprint("held", rank), rank) // else they would be quiet
					mustObserve(t, conn, Batch{Rank: rank, Load: r, HasLoad: true})
				}
				conn.next = first
				if r := mustReserve(t, conn, "new"); r.Rank() != c.want {
					t.Errorf("rank %d was reserved, want %d", r.Rank(), c.want)
				}
			})
		}
	}
}

func TestTheScoreOfARank(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		own, since, running, waiting int64
		kv                           Maybe[float64]
		want                         float64
	}{
		{0, 0, 0, 0, Known(0.0), 0},
		{3, 0, 1, 1, Known(0.2), 3},
		{1, 0, 3, 2, Known(0.2), 5},
		{0, 0, 3, 2, Known(0.75), 5 + 3},
		{9, 0, 3, 2, Known(0.75), 9 + 3},
		{0, 0, 3, 2, Known(1.0), 5 + 6},
		{0, 0, 5, 0, Known(1.0), 5},
		{0, 0, 3, 2, Maybe[float64]{}, 5},
		{0, 0, 3, 2, Known(nan), 5},
		{0, 0, math.MaxInt64, math.MaxInt64, Known(0.0), math.MaxInt64},
		{2, 2, 3, 2, Known(0.2), 7},
		{9, 2, 3, 2, Known(0.2), 9},
		{1, 9, 3, 2, Known(0.2), 6}, // no more since than there are
		{1, -1, 3, 2, Known(0.2), 5},
		{2, 2, math.MaxInt64, 0, Known(0.0), math.MaxInt64},
	} {
		r := Report{Running: c.running, Waiting: c.waiting, KVUsage: c.kv}
		if got := RankScore(c.own, c.since, &r); got != c.want {
			t.Errorf("own %d, since %d, running %d, waiting %d, usage %v: %v, want %v", c.own, c.since, c.running, c.waiting, c.kv, got, c.want)
		}
	}
	if got := RankScore(7, 3, nil); got != 7 {
		t.Errorf("without a report: %v, want 7", got)
	}
}

func TestEqualRanksTakeTurns(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 4})
	var order []int
	for i := range 8 {
		r := mustReserve(t, c, fmt.Sprint(i))
		order = append(order, r.Rank())
		r.Done()
	}
	for i, rank := range order {
		if want := (order[0] + i) % 4; rank != want {
			t.Fatalf("idle ranks were reserved in the order %v", order)
		}
	}
}

func TestConnectorsDoNotAllBeginWithTheSameRank(t *testing.T) {
	first := make(map[int]bool)
	for i := 0; len(first) < 8; i++ {
		if i == 10_000 {
			t.Fatalf("10,000 connectors began with ranks %v only", first)
		}
		c, _ := newTestConnector(t, ConnectorConfig{Ranks: 8})
		first[mustReserve(t, c, "a").Rank()] = true
	}
}

func TestADuplicateIDIsRefusedAndLeavesTheLiveRequestAlone(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	live := mustReserveRank(t, c, "a", 1)
	for name, again := range map[string]func() (Reservation, error){
		"any rank":  func() (Reservation, error) { return c.Reserve("a", 0) },
		"same rank": func() (Reservation, error) { return c.ReserveRank("a", 1, 0) },
		"register": func() (Reservation, error) {
			k := c.worker.Reserve(0, 0)
			defer k.Done()
			return c.Register("a", k)
		},
	} {
		r, err := again()
		if !errors.Is(err, ErrDuplicate) {
			t.Fatalf("%s: %v, want ErrDuplicate", name, err)
		}
		r.Done()
		if r.Abort() {
			t.Errorf("%s: a refused reservation aborted something", name)
		}
		if got := c.inFlight(1); got != 1 || c.worker.InFlight() != 1 {
			t.Fatalf("%s: %d in flight on the rank, %d on the worker, want 1", name, got, c.worker.InFlight())
		}
	}
	live.Done()
	if c.worker.InFlight() != 0 || c.Status().Duplicates != 3 {
		t.Errorf("it ends with %d in flight and %d duplicates", c.worker.InFlight(), c.Status().Duplicates)
	}
}

// The terminal batch of an engine counts the requests that it ends.
func TestATerminalBatchThatSaysBusyLeavesTheRankIdle(t *testing.T) {
	c, clock := newTestConnector(t, ConnectorConfig{Ranks: 2})
	mustReserveRank(t, c, "a", 0)
	mustReserveRank(t, c, "b", 1)
	mustObserve(t, c, batch(1, 1, 0, 0.1))
	mustObserve(t, c, batch(0, 3, 5, 0.7, "a"))

	wantRank(t, c, 0, 0, 0, Known(0.7), 0)
	wantRank(t, c, 1, 1, 0, Known(0.1), 1)
	if st := c.Status().Ranks[0]; !st.Quiet || st.Running != Known[int64](3) || st.Waiting != Known[int64](5) || st.Silenced != 1 {
		t.Errorf("the engine's last word is shown as %+v", st)
	}
	clock.advance(time.Hour)
	wantRank(t, c, 0, 0, 0, Known(0.7), 0)
	wantTrusted(t, c.worker, 1)
	if r := mustReserve(t, c, "next"); r.Rank() != 0 {
		t.Errorf("the next request goes to rank %d, not to the idle one", r.Rank())
	}
}

func TestALateBatchAfterAnAbortThatEmptiedTheRankIsClamped(t *testing.T) {
	for name, abort := range map[string]func(*Connector, Reservation) bool{
		"by id":          func(c *Connector, r Reservation) bool { return c.Abort("a") },
		"by reservation": func(c *Connector, r Reservation) bool { return r.Abort() },
		"release":        func(c *Connector, r Reservation) bool { return c.Release("a") },
		"done":           func(c *Connector, r Reservation) bool { r.Done(); return true },
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
			r := mustReserveRank(t, c, "a", 0)
			mustObserve(t, c, batch(0, 2, 1, 0.4))
			wantRank(t, c, 0, 2, 1, Known(0.4), 1)
			if !abort(c, r) {
				t.Fatal("there was nothing to abort")
			}
			wantRank(t, c, 0, 0, 0, Known(0.4), 0)
			mustObserve(t, c, batch(0, 2, 0, 0.6))
			wantRank(t, c, 0, 0, 0, Known(0.6), 0)
			mustObserve(t, c, batch(0, 2, 0, 0.6, "a")) // the engine ends it as well
			wantRank(t, c, 0, 0, 0, Known(0.6), 0)
		})
	}
}

func TestARankWithRequestsLeftKeepsItsReport(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	mustReserve(t, c, "a")
	mustReserve(t, c, "b")
	mustObserve(t, c, batch(0, 2, 0, 0.5, "a"))
	wantRank(t, c, 0, 2, 0, Known(0.5), 1)
	mustObserve(t, c, batch(0, 1, 0, 0.5))
	wantRank(t, c, 0, 1, 0, Known(0.5), 1)
}

func TestAQuietRankIsBelievedAgainWithItsNextRequest(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	mustReserve(t, c, "a")
	mustObserve(t, c, batch(0, 4, 4, 0.5, "a"))
	mustReserve(t, c, "b")
	wantRank(t, c, 0, 0, 0, Known(0.5), 1) // what it said before is not brought back
	mustObserve(t, c, batch(0, 1, 0, 0.5))
	wantRank(t, c, 0, 1, 0, Known(0.5), 1)
}

func TestZeroingCoversWaitingTokensAndNothingElse(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	mustReserve(t, c, "a")
	b := batch(0, 4, 4, 0.5, "a")
	b.Load.WaitingTokens, b.Load.KVUsed, b.Load.KVCapacity, b.Load.MaxRunning = Known[int64](900), Known[int64](50), Known[int64](100), Known[int64](64)
	mustObserve(t, c, b)
	r, _ := entry(t, c.worker).Report(0)
	if r.WaitingTokens != Known[int64](0) || r.KVUsed != Known[int64](50) || r.KVCapacity != Known[int64](100) || r.MaxRunning != Known[int64](64) || r.KVUsage != Known(0.5) {
		t.Errorf("a quiet rank reads %+v", *r)
	}
	mustReserve(t, c, "b")
	mustObserve(t, c, batch(0, 4, 4, 0.5, "b"))
	if r, _ := entry(t, c.worker).Report(0); r.WaitingTokens.IsKnown() {
		t.Errorf("waiting tokens that nobody reported are %v", r.WaitingTokens)
	}
}

func TestSeveralClientsOfOneGroupZeroNothing(t *testing.T) {
	c, clock := newTestConnector(t, ConnectorConfig{Ranks: 2, Shared: true})
	mustReserveRank(t, c, "a", 0)
	mustReserveRank(t, c, "b", 1)
	mustObserve(t, c, batch(1, 1, 0, 0.1))
	mustObserve(t, c, batch(0, 3, 5, 0.4, "a"))
	wantRank(t, c, 0, 3, 5, Known(0.4), 0)
	if r := mustReserve(t, c, "next"); r.Rank() != 1 {
		t.Errorf("the next request goes to rank %d, where others have eight", r.Rank())
	}
	wantTrusted(t, c.worker, 9)

	clock.advance(testWindow)
	wantTrusted(t, c.worker, 9)
	clock.advance(1)
	wantUntrusted(t, c.worker, Stale)
}

func TestARankThatNothingFreshIsKnownOfIsNotTakenForIdleWhereOthersSendToo(t *testing.T) {
	c, clock := newTestConnector(t, ConnectorConfig{Ranks: 3, Shared: true})
	// Ranks 0 and 1 each have one of ours and 20 of others; 2 has never been heard.
	for rank := range 2 {
		mustReserveRank(t, c, fmt.Sprint(rank), rank)
		mustObserve(t, c, batch(rank, 21, 0, 0.1))
	}
	if got := c.Status().Ranks[2].Score; got != 20 {
		t.Errorf("the silent rank scores %v, want the 20 that others have on the average one", got)
	}
	var per [3]int
	for i := range 30 {
		per[mustReserve(t, c, fmt.Sprint("new", i)).Rank()]++
	}
	if per[2] == 0 || per[2] > 12 {
		t.Errorf("30 requests spread as %v: the silent rank should take about its share", per)
	}
	clock.advance(testWindow + 1)
	if got := c.Status().Ranks[0].Score; got != float64(c.inFlight(0)) {
		t.Errorf("with no fresh report at all a rank scores %v, want our own %d", got, c.inFlight(0))
	}
}

func TestSilenceOfARankWithoutRequestsIsIdleness(t *testing.T) {
	c, clock := newTestConnector(t, ConnectorConfig{Ranks: 2})
	wantTrusted(t, c.worker, 0) // before it has ever spoken
	if _, ok := entry(t, c.worker).Report(0); ok {
		t.Error("a report was made up")
	}
	mustReserveRank(t, c, "a", 0)
	mustObserve(t, c, batch(0, 1, 0, 0.2))
	clock.advance(100 * testWindow)
	wantTrusted(t, c.worker, 1)
	if age := c.worker.table.View().Age(entry(t, c.worker)); age != 100*testWindow {
		t.Errorf("a rank that is at work and silent has age %v", age)
	}
	c.Release("a")
	wantTrusted(t, c.worker, 0)
	if age := c.worker.table.View().Age(entry(t, c.worker)); age != 0 {
		t.Errorf("a group that is idle by our own books has age %v", age)
	}
	for _, r := range c.worker.Status().Ranks {
		if !r.Fresh {
			t.Errorf("rank %d is shown as stale", r.Rank)
		}
	}
}

func TestTheDepthOfAGroupIsWhatIsInFlight(t *testing.T) {
	c, clock := newTestConnector(t, ConnectorConfig{Ranks: 2})
	mustReserveRank(t, c, "a", 1).Dispatched()
	mustObserve(t, c, batch(1, 2, 1, 0.2)) // it counts what waits twice, and computes in silence from now on
	clock.advance(time.Hour)
	for i := range 5 {
		mustReserveRank(t, c, fmt.Sprint(i), 0).Dispatched()
	}
	mustObserve(t, c, batch(0, 5, 0, 0.2))
	if got := depthNow(t, c.worker); got != 6 {
		t.Errorf("six requests make a depth of %d", got)
	}
	if got := c.worker.Status().Depth; got != Known[int64](6) {
		t.Errorf("the status shows a depth of %v", got)
	}
	if _, depth, own := c.worker.table.View().Trusted(); depth != 6 || own != 6 {
		t.Errorf("the group adds a depth of %d for %d own requests to the fleet's sums", depth, own)
	}
	mustObserve(t, c, batch(1, 2, 1, 0.2)) // the newest report, of a time when there were six
	for i := range 5 {
		c.Release(fmt.Sprint(i))
	}
	if _, depth, own := c.worker.table.View().Trusted(); depth != 1 || own != 1 {
		t.Errorf("with one left the group adds a depth of %d for %d own requests to the fleet's sums", depth, own)
	}
	c.Release("a")
	if workers, depth, own := c.worker.table.View().Trusted(); workers != 1 || depth != 0 || own != 0 {
		t.Errorf("a group that is idle adds a depth of %d for %d own requests to the fleet's sums", depth, own)
	}
}

func TestABurstSpreadsOverRanksThatOthersHaveFilled(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 4, Shared: true})
	for rank := range 4 {
		mustObserve(t, c, batch(rank, 20+int64(min(rank, 1)), 0, 0.1)) // 20, 21, 21, 21
	}
	var per [4]int
	for i := range 41 {
		r := mustReserve(t, c, fmt.Sprint(i))
		r.Dispatched()
		per[r.Rank()]++
	}
	if per != [4]int{11, 10, 10, 10} {
		t.Errorf("41 requests between two reports spread as %v", per)
	}
	mustObserve(t, c, batch(2, 25, 0, 0.1))
	if r := mustReserve(t, c, "next"); r.Rank() != 2 {
		t.Errorf("the next request goes to rank %d, not to the one that has just said that it has fewer", r.Rank())
	}
}

func TestReleaseIsIdempotentAndByIdentity(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	a := mustReserve(t, c, "a")
	mustReserve(t, c, "b")
	ends := map[string]func(){
		"finished in a batch": func() { mustObserve(t, c, batch(0, 1, 0, 0.1, "a", "a", "a")) },
		"done":                a.Done,
		"ticket done":         a.Ticket.Done,
		"release":             func() { c.Release("a") },
		"abort":               func() { c.Abort("a") },
		"abort by handle":     func() { a.Abort() },
	}
	for first := range ends {
		ends[first]()
		for name, end := range ends {
			end()
			if got := c.worker.InFlight(); got != 1 {
				t.Fatalf("after %s, %s leaves %d in flight, want 1", first, name, got)
			}
		}
		a = mustReserve(t, c, "a")
		ends["done"], ends["ticket done"], ends["abort by handle"] = a.Done, a.Ticket.Done, func() { a.Abort() }
	}
	if !c.Release("a") || !c.Release("b") || c.Release("a") || c.worker.InFlight() != 0 {
		t.Errorf("it ends with %d in flight", c.worker.InFlight())
	}
	if st := c.Status(); st.Reserved != st.Finished+st.Released+st.Aborted {
		t.Errorf("the counts do not add up: %+v", st)
	}
}

func TestAnOldReservationDoesNotReleaseALaterRequestOfTheSameID(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	old := mustReserve(t, c, "a")
	old.Done()
	mustReserve(t, c, "a")
	old.Done()
	if old.Abort() || c.worker.InFlight() != 1 {
		t.Errorf("an old reservation released the new request")
	}
}

func TestATicketThatIsDoneByItselfEndsItsRequest(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	for name, request := range map[string]func() (Reservation, Ticket){
		"reserved": func() (Reservation, Ticket) {
			r := mustReserveRank(t, c, "a", 0)
			return r, r.Ticket
		},
		"a pick with a rank": func() (Reservation, Ticket) {
			k := c.worker.Reserve(0, 5)
			r, err := c.Register("a", k)
			if err != nil {
				t.Fatal(err)
			}
			return r, k
		},
		"a pick without a rank": func() (Reservation, Ticket) {
			c.next = 0
			k := c.worker.Reserve(NoRank, 5)
			r, err := c.Register("a", k)
			if err != nil || r.Rank() != 0 {
				t.Fatalf("rank %d, %v", r.Rank(), err)
			}
			return r, k
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, k := request()
			mustReserveRank(t, c, "b", 1)
			mustObserve(t, c, batch(0, 4, 0, 0.3))
			wantRank(t, c, 0, 4, 0, Known(0.3), 1)
			k.FirstToken()
			k.Done() // a deferred Done of the selector's pick, say
			wantRank(t, c, 0, 0, 0, Known(0.3), 0)
			if r.Abort() || c.Release("a") {
				t.Error("it was in flight still")
			}
			if e := entry(t, c.worker); e.OwnOn(0) != (Own{}) || e.Own() != (Own{1, 1, 0}) {
				t.Errorf("the books are %+v, of the rank %+v", e.Own(), e.OwnOn(0))
			}
			c.Release("b")
		})
	}
	if st := c.Status(); st.InFlight != 0 || st.Released != 6 || c.worker.InFlight() != 0 {
		t.Errorf("the status shows %+v", st)
	}
}

func TestMarksOfAPickWithoutARankReachTheRankThatItGets(t *testing.T) {
	for name, before := range map[string]func(Ticket){
		"nothing":     func(Ticket) {},
		"dispatched":  Ticket.Dispatched,
		"first token": Ticket.FirstToken,
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
			k := c.worker.Reserve(NoRank, 300)
			before(k)
			r, err := c.Register("a", k)
			if err != nil {
				t.Fatal(err)
			}
			want := entry(t, c.worker).Own()
			if got := entry(t, c.worker).OwnOn(r.Rank()); got != want {
				t.Errorf("registered: %+v on the rank, %+v on the worker", got, want)
			}
			k.Dispatched()
			r.FirstToken()
			if got := entry(t, c.worker).OwnOn(r.Rank()); got != (Own{1, 0, 0}) {
				t.Errorf("started: %+v on the rank", got)
			}
			books := countsOf(c.worker.rankBook(r.Rank()))
			k.Done()
			books.done++
			if got := countsOf(c.worker.rankBook(r.Rank())); got != books || got != countsOf(&c.worker.books) {
				t.Errorf("done: the rank's books are %+v, the worker's %+v, want %+v", got, countsOf(&c.worker.books), books)
			}
		})
	}
}

func TestAPickWithoutARankGetsTheLeastLoadedOne(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 3})
	var ranks []int
	for i := range 6 {
		k := c.worker.Reserve(NoRank, 7)
		r, err := c.Register(fmt.Sprint(i), k)
		if err != nil {
			t.Fatal(err)
		}
		ranks = append(ranks, r.Rank())
		if got := entry(t, c.worker).OwnOn(r.Rank()); got.PendingTokens != 7*got.InFlight {
			t.Errorf("the rank has %+v", got)
		}
	}
	slices.Sort(ranks)
	if !slices.Equal(ranks, []int{0, 0, 1, 1, 2, 2}) {
		t.Errorf("6 picks went to ranks %v", ranks)
	}
	mustObserve(t, c, batch(1, 1, 1, 0.5, "0", "1", "2", "3", "4", "5"))
	for rank := range 3 {
		if own := entry(t, c.worker).OwnOn(rank); own != (Own{}) {
			t.Errorf("rank %d ends with %+v", rank, own)
		}
	}
	if c.worker.Own() != (Own{}) || c.worker.Status().Picked != 6 {
		t.Errorf("it ends with %+v, %d picked", c.worker.Own(), c.worker.Status().Picked)
	}
}

func TestATicketIsRegisteredOnce(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	k := reserve(t, c.worker, 0, 0)
	if _, err := c.Register("a", k); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Register("b", k); !errors.Is(err, ErrForeignTicket) {
		t.Errorf("a second time: %v, want ErrForeignTicket", err)
	}
	if c.Status().InFlight != 1 {
		t.Errorf("%d in flight", c.Status().InFlight)
	}

	// Nor does a refused one take a turn or count anywhere.
	k = reserve(t, c.worker, NoRank, 0)
	if _, err := c.Register("b", k); err != nil {
		t.Fatal(err)
	}
	next, books := c.next, [2]counts{countsOf(c.rankBook(0)), countsOf(c.rankBook(1))}
	if _, err := c.Register("c", k); !errors.Is(err, ErrForeignTicket) {
		t.Errorf("a second time: %v, want ErrForeignTicket", err)
	}
	if now := [2]counts{countsOf(c.rankBook(0)), countsOf(c.rankBook(1))}; c.next != next || now != books {
		t.Errorf("the turn went from %d to %d, the books from %+v to %+v", next, c.next, books, now)
	}
}

func TestUnknownIDsAreNoFault(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	mustReserveRank(t, c, "a", 1)
	mustObserve(t, c, batch(0, 1, 1, 0.5, "never", "", "seen"))
	wantRank(t, c, 0, 0, 0, Known(0.5), 0)
	if st := c.Status(); st.Unknown != 3 || st.InFlight != 1 || c.Release("never") || c.Abort("") {
		t.Errorf("unknown ids: %+v", st)
	}
}

func TestABatchMayEndRequestsOfOtherRanks(t *testing.T) {
	// A sender that does not name its rank calls itself 0.
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	mustReserveRank(t, c, "a", 1)
	mustObserve(t, c, batch(1, 3, 0, 0.4))
	mustObserve(t, c, Batch{Rank: 0, Finished: [][]byte{[]byte("a")}})
	wantRank(t, c, 1, 0, 0, Known(0.4), 0)
}

func TestABatchOfAnUnknownRankIsCountedAndDropped(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2, FirstIndex: 8})
	mustReserveRank(t, c, "a", 0)
	for _, index := range []int{0, 7, 10, math.MaxInt, math.MinInt, -2} {
		if err := c.Observe(batch(index, 5, 5, 0.5, "a")); !errors.Is(err, ErrNoRank) {
			t.Errorf("engine index %d: %v, want ErrNoRank", index, err)
		}
	}
	st := c.Status()
	if st.Dropped["no_rank"] != 6 || st.LastDrop == "" || st.Batches != 0 || st.InFlight != 1 {
		t.Errorf("the status shows %+v", st)
	}
	for rank := range 2 {
		if _, ok := entry(t, c.worker).Report(rank); ok {
			t.Errorf("rank %d has got a report", rank)
		}
	}
	mustObserve(t, c, batch(8, 1, 0, 0.5))
	mustReserveRank(t, c, "b", 1)
	mustObserve(t, c, batch(9, 2, 0, 0.6))
	wantRank(t, c, 0, 1, 0, Known(0.5), 1)
	wantRank(t, c, 1, 2, 0, Known(0.6), 1)
}

func TestABatchThatNamesNoRankEndsItsRequests(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2, FirstIndex: 4})
	mustReserveRank(t, c, "a", 1)
	mustObserve(t, c, batch(5, 3, 0, 0.4))
	b := batch(NoRank, 9, 9, 0.9, "a")
	mustObserve(t, c, b)
	wantRank(t, c, 1, 0, 0, Known(0.4), 0)
	if _, ok := entry(t, c.worker).Report(0); ok || c.Status().Batches != 2 {
		t.Errorf("it was taken for one of rank 0: %+v", c.Status())
	}
}

func TestABatchWithoutALoadStoresNone(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	mustReserve(t, c, "a")
	mustReserve(t, c, "b")
	mustObserve(t, c, Batch{Rank: 0, Finished: [][]byte{[]byte("a")}})
	if _, ok := entry(t, c.worker).Report(0); ok {
		t.Error("a batch without a load has stored one")
	}
	mustObserve(t, c, batch(0, 2, 1, 0.5))
	mustObserve(t, c, Batch{Rank: 0})
	wantRank(t, c, 0, 2, 1, Known(0.5), 1)
	mustObserve(t, c, Batch{Rank: 0, Finished: [][]byte{[]byte("b")}})
	wantRank(t, c, 0, 0, 0, Known(0.5), 0)
	if st := c.Status(); st.WithoutLoad != 3 || st.Batches != 4 {
		t.Errorf("the status shows %+v", st)
	}
}

func TestAMalformedBatchReleasesWhatCanBeTrustedAndIsReported(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	mustReserve(t, c, "a")
	mustReserve(t, c, "b")
	mustObserve(t, c, batch(0, 2, 0, 0.5))
	ragged := errors.New("ragged")
	if err := c.Observe(Batch{Rank: 0, Finished: [][]byte{[]byte("a")}, Err: ragged}); err != ragged {
		t.Errorf("Observe returns %v", err)
	}
	wantRank(t, c, 0, 2, 0, Known(0.5), 1)
	if err := c.Observe(Batch{Rank: NoRank, Err: ragged}); err != ragged {
		t.Errorf("of a message about no rank Observe returns %v", err)
	}
	st := c.Status()
	if st.Dropped["other"] != 2 || st.LastDrop != "ragged" || c.worker.Status().Ranks[0].Dropped["other"] != 1 {
		t.Errorf("the status shows %+v, and the rank's %+v", st, c.worker.Status().Ranks[0])
	}
}

func TestAMessageAboutNoRankTouchesNone(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	mustReserve(t, c, "a")
	mustObserve(t, c, batch(0, 2, 0, 0.5))
	before := c.Status()
	mustObserve(t, c, Batch{Rank: NoRank})
	after := c.Status()
	if after.Batches != before.Batches || len(after.Dropped) != 0 {
		t.Errorf("the status went from %+v to %+v", before, after)
	}
	wantRank(t, c, 0, 2, 0, Known(0.5), 1)
}

func TestALoadThatNoEngineCanMeanIsRefusedAndTheBatchCounts(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	mustReserve(t, c, "a")
	mustReserve(t, c, "b")
	mustObserve(t, c, batch(0, 2, 0, 0.5))
	if err := c.Observe(batch(0, -1, 3, 0.5, "a")); !errors.Is(err, ErrBadReport) {
		t.Errorf("Observe returns %v", err)
	}
	wantRank(t, c, 0, 2, 0, Known(0.5), 1)
	if err := c.Observe(batch(0, 1, -1, 0.5, "b")); !errors.Is(err, ErrBadReport) {
		t.Errorf("Observe returns %v", err)
	}
	wantRank(t, c, 0, 0, 0, Known(0.5), 0)
	if st := c.Status(); st.Dropped["bad_report"] != 2 || c.worker.Status().Ranks[0].Dropped["bad_report"] != 2 {
		t.Errorf("the status shows %+v", st)
	}
	mustReserve(t, c, "c")
	mustObserve(t, c, batch(0, 1, 0, 7))
	wantRank(t, c, 0, 1, 0, Maybe[float64]{}, 1)
}

func TestAnUnknownRankCannotBeReserved(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	for _, rank := range []int{-1, 2, math.MaxInt, math.MinInt} {
		if _, err := c.ReserveRank("a", rank, 0); !errors.Is(err, ErrNoRank) {
			t.Errorf("rank %d: %v, want ErrNoRank", rank, err)
		}
	}
	if c.worker.InFlight() != 0 || c.Status().InFlight != 0 {
		t.Errorf("%d in flight", c.worker.InFlight())
	}
	mustReserve(t, c, "a") // the id is free
}

func TestDeathReleasesEveryRequestAndSaysWhich(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	for i := range 5 {
		mustReserve(t, c, fmt.Sprint(i))
	}
	c.Release("3")
	cause := errors.New("connection reset")
	held := mustReserve(t, c, "held")
	if ids := c.Fail(cause); !slices.Equal(ids, []string{"0", "1", "2", "4", "held"}) {
		t.Errorf("failed %q", ids)
	}
	if ids := c.Fail(errors.New("again")); ids != nil {
		t.Errorf("failed %q a second time", ids)
	}
	held.Done()
	if held.Abort() || c.Release("0") || c.worker.InFlight() != 0 || c.inFlight(0) != 0 || c.inFlight(1) != 0 {
		t.Errorf("%d in flight on a dead engine", c.worker.InFlight())
	}
	for name, err := range map[string]error{
		"Reserve":     second(c.Reserve("new", 0)),
		"ReserveRank": second(c.ReserveRank("new", 0, 0)),
		"Observe":     c.Observe(batch(0, 1, 1, 0.5, "1")),
	} {
		if !errors.Is(err, ErrDead) || !errors.Is(err, cause) {
			t.Errorf("%s after death: %v", name, err)
		}
	}
	st, ws := c.Status(), c.worker.Status()
	if st.Dead != cause.Error() || st.Failed != 5 || st.InFlight != 0 {
		t.Errorf("the status shows %+v", st)
	}
	if ws.Why != Dead || ws.Reason != cause.Error() || ws.Healthy || ws.Trusted {
		t.Errorf("the worker's status shows %+v", ws)
	}
	if _, ok := c.worker.table.View().Find(c.worker); ok {
		t.Error("a dead engine is in the view")
	}
}

func TestADeadEngineIsNotMadeHealthyByAHealthCheck(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	c.Fail(errors.New("reset"))
	c.worker.SetHealthy(true)
	if ws := c.worker.Status(); ws.Healthy || ws.Why != Dead {
		t.Errorf("the worker's status shows %+v", ws)
	}
}

func TestTheStatusOfAGroupCountsWhatIsInFlight(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	mustReserveRank(t, c, "a", 0)
	mustReserveRank(t, c, "b", 0)
	if ws := c.worker.Status(); ws.Depth != Known[int64](2) || !ws.Trusted || !ws.Owned {
		t.Errorf("the worker's status shows %+v", ws)
	}
}

func second[T any](_ T, err error) error { return err }

func TestAWorkerThatWasRemovedKeepsItsConnectorsBooksRight(t *testing.T) {
	table, _ := newTestTable()
	old := must(NewConnector(table.Add("a", ""), ConnectorConfig{Ranks: 2}))
	r := mustReserve(t, old, "x")
	again := must(NewConnector(table.Add("a", ""), ConnectorConfig{Ranks: 2}))
	mustReserveRank(t, again, "x", 1)
	if err := old.Observe(batch(1, 9, 9, 0.9, "x")); !errors.Is(err, ErrGone) {
		t.Errorf("a batch of the old incarnation: %v, want ErrGone", err)
	}
	r.Done()
	if old.worker.InFlight() != 0 || again.worker.InFlight() != 1 {
		t.Errorf("%d in flight on the old worker, %d on the new one", old.worker.InFlight(), again.worker.InFlight())
	}
	if _, ok := entry(t, again.worker).Report(1); ok {
		t.Error("a late batch has reached the new worker")
	}
	old.Fail(errors.New("gone"))
	again.Release("x")
	wantTrusted(t, again.worker, 0)
}

func TestAContextCancelledWhileSendingReleasesTheReservation(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	serve := func(ctx context.Context, send func(context.Context, int) error) error {
		r, err := c.Reserve("a", 100)
		if err != nil {
			return err
		}
		defer r.Done()
		if err := send(ctx, r.Rank()); err != nil {
			return err
		}
		r.Dispatched()
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	sending := make(chan struct{})
	result := make(chan error)
	go func() {
		result <- serve(ctx, func(ctx context.Context, _ int) error {
			close(sending)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	<-sending
	if c.worker.InFlight() != 1 {
		t.Errorf("%d in flight while sending", c.worker.InFlight())
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("serve returns %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = serve(t.Context(), func(context.Context, int) error { panic("in the sender") })
	}()
	if own := c.worker.Own(); own != (Own{}) || c.Status().InFlight != 0 {
		t.Errorf("it ends with %+v", own)
	}
	mustReserve(t, c, "a")
}

func TestAPickOfASelectorIsReleasedByTheBatchThatEndsIt(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	pick := c.worker.Reserve(1, 10)
	r, err := c.Register("a", pick)
	if err != nil || r.Rank() != 1 {
		t.Fatalf("Register: rank %d, %v", r.Rank(), err)
	}
	mustObserve(t, c, batch(1, 1, 0, 0.5))
	wantRank(t, c, 1, 1, 0, Known(0.5), 1)
	mustObserve(t, c, batch(1, 1, 0, 0.5, "a"))
	wantRank(t, c, 1, 0, 0, Known(0.5), 0)
	r.Done()
	pick.Done()
	if c.worker.Own() != (Own{}) {
		t.Errorf("it ends with %+v", c.worker.Own())
	}
}

func TestATicketThatIsNotOfTheGroupIsNotRegistered(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	other := c.worker.table.Add("other", "")
	other.Advertise(3)
	done := c.worker.Reserve(0, 0)
	done.Done()
	for name, k := range map[string]Ticket{
		"the zero ticket":   {},
		"of another worker": reserve(t, other, 0, 0),
		"of another rank":   reserve(t, other, 2, 0),
		"done":              done,
	} {
		if _, err := c.Register("a", k); !errors.Is(err, ErrForeignTicket) {
			t.Errorf("a ticket %s: %v, want ErrForeignTicket", name, err)
		}
	}
	if c.Status().InFlight != 0 {
		t.Errorf("%d in flight", c.Status().InFlight)
	}
}

func TestTheZeroReservationIsInert(t *testing.T) {
	var r Reservation
	r.Dispatched()
	r.FirstToken()
	r.Done()
	if r.Abort() {
		t.Error("it aborted something")
	}
}

func TestMarksOfAReservationReachTheBooks(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	r, err := c.ReserveRank("a", 1, 300)
	if err != nil {
		t.Fatal(err)
	}
	if own := entry(t, c.worker).OwnOn(1); own != (Own{1, 1, 300}) {
		t.Errorf("reserved: %+v", own)
	}
	r.FirstToken()
	if own := entry(t, c.worker).OwnOn(1); own != (Own{1, 0, 0}) {
		t.Errorf("started: %+v", own)
	}
	if own := entry(t, c.worker).OwnOn(0); own != (Own{}) {
		t.Errorf("on the other rank: %+v", own)
	}
	if own := entry(t, c.worker).OwnOn(7); own != (Own{}) {
		t.Errorf("on a rank that is not there: %+v", own)
	}
}

func TestAConnectorThatCannotBeIsRefused(t *testing.T) {
	table, _ := newTestTable()
	for _, c := range []ConnectorConfig{
		{Ranks: -1}, {Ranks: math.MaxInt}, {Ranks: math.MinInt}, {Ranks: maxEngines + 1},
		{FirstIndex: -1}, {FirstIndex: maxEngines}, {Ranks: 2, FirstIndex: maxEngines - 1}, {FirstIndex: math.MaxInt},
	} {
		w := table.Add("group", "")
		if conn, err := NewConnector(w, c); conn != nil || !errors.Is(err, ErrConnector) {
			t.Errorf("%+v: %v, want ErrConnector", c, err)
		}
		if st := w.Status(); st.Why != NoFeed || st.Advertised != 0 {
			t.Errorf("%+v: the worker's status is %+v", c, st)
		}
	}
	w := table.Add("group", "")
	first := must(NewConnector(w, ConnectorConfig{Ranks: 3, FirstIndex: maxEngines - 3}))
	mustReserveRank(t, first, "a", 2)
	if conn, err := NewConnector(w, ConnectorConfig{}); conn != nil || !errors.Is(err, ErrConnector) {
		t.Errorf("a second connector: %v, want ErrConnector", err)
	}
	mustObserve(t, first, batch(maxEngines-1, 1, 0, 0.5, "a"))
	wantRank(t, first, 2, 0, 0, Known(0.5), 0)
}

func TestAConnectorOfAWorkerThatIsGoneHarmsNobody(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("group", "")
	table.Remove(w)
	c := must(NewConnector(w, ConnectorConfig{Ranks: 2}))
	r := mustReserve(t, c, "a")
	if err := c.Observe(batch(0, 1, 1, 0.5)); !errors.Is(err, ErrGone) {
		t.Errorf("Observe: %v, want ErrGone", err)
	}
	if st := c.Status(); st.InFlight != 1 || w.InFlight() != 1 {
		t.Errorf("the status shows %+v", st)
	}
	r.Done()
	if w.Own() != (Own{}) {
		t.Errorf("it ends with %+v", w.Own())
	}
}

func TestAFeedThatTookTheConnectorsPlaceIsNotSilencedByIt(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	mustReserveRank(t, c, "a", 0)
	mustObserve(t, c, batch(0, 3, 0, 0.5))
	f := c.worker.Advertise(2)
	mustPut(t, f, 0, Report{Running: 7})
	c.Release("a")
	if r, _ := entry(t, c.worker).Report(0); r.Running != 7 {
		t.Errorf("the new feed's rank reads %+v", *r)
	}
	c.worker.SetNotPublishing("off")
	mustReserveRank(t, c, "b", 0)
	c.Release("b")
}

// Whoever looks at a view while a batch is stored must not see the rank busy with
// what the batch has ended: it would be published twice, and once wrong.
func TestATerminalBatchIsPublishedOnceAndIdle(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	mustReserve(t, c, "a")
	mustObserve(t, c, batch(0, 1, 0, 0.5))
	before := c.worker.table.view.Load()
	var seen []int64
	c.worker.table.clock = func() time.Time { // read at each step that publishes
		if v := c.worker.table.view.Load(); v != before {
			r := v.at(0).ranks[0].report
			seen = append(seen, r.Running)
		}
		return clockStart
	}
	mustObserve(t, c, batch(0, 3, 5, 0.5, "a"))
	r := c.worker.table.view.Load().at(0).ranks[0].report
	if seen = append(seen, r.Running); slices.Max(seen) != 0 {
		t.Errorf("views showed the rank with %v running", seen)
	}
	if own := c.worker.Own(); own != (Own{}) {
		t.Errorf("it ends with %+v", own)
	}
}

func TestAConnectorWithoutConfigurationHasOneRank(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{})
	if r := mustReserve(t, c, "a"); r.Rank() != 0 || len(c.Status().Ranks) != 1 || c.Worker().Status().Advertised != 1 {
		t.Errorf("rank %d of %d", r.Rank(), len(c.Status().Ranks))
	}
}

func TestTheStatusOfAConnectorAsJSON(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	mustReserveRank(t, c, "a", 0)
	mustObserve(t, c, batch(0, 3, 5, 0.75, "a"))
	b, err := json.Marshal(c.Status())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"worker":"group","shared":false,"dead":"","in_flight":0,"reserved":1,"finished":1,`,
		`{"rank":0,"in_flight":0,"score":0,"running":3,"waiting":5,"kv_usage":0.75,"quiet":true,"silenced":1}`,
		`{"rank":1,"in_flight":0,"score":0,"running":null,"waiting":null,"kv_usage":null,"quiet":false,"silenced":0}`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s lacks %s", b, want)
		}
	}
}

func TestAReportThatIsSilencedIsNoFieldThatNeverWasAnythingElse(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	mustReserve(t, c, "a")
	mustObserve(t, c, batch(0, 3, 5, 0.75, "a"))
	rs := c.worker.Status().Ranks[0]
	if slices.Contains(rs.NeverNonzero, "running") || slices.Contains(rs.NeverNonzero, "waiting") {
		t.Errorf("said to have been 0 always: %v", rs.NeverNonzero)
	}
	if !rs.Quiet || rs.Report.Source != SourceBatch || rs.Reports != 1 {
		t.Errorf("the rank's status shows %+v", rs)
	}
}

func TestBatchesAndReservationsAllocateNothingButTheirReport(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 8})
	wantAllocs(t, "a reservation and its release", 0, func() {
		mustReserve(t, c, "a").Done()
	})
	id := "b2b5c1f0-6a0e-4a8e-9f4e-2d1c8a3f7e55-1" // more than fits in a small buffer
	finished := Batch{Rank: 3, Finished: [][]byte{[]byte(id), []byte("unknown")}}
	wantAllocs(t, "a reservation that a batch without a load ends", 0, func() {
		mustReserve(t, c, id)
		mustObserve(t, c, finished)
	})
	wantAllocs(t, "a reservation whose ticket is done by itself", 0, func() {
		mustReserve(t, c, id).Ticket.Done()
	})
	runtime.KeepAlive(c)
}

func TestAHostCannotPutAReportThatNeverGoesStale(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	mustReserveRank(t, c, "a", 0)
	mustObserve(t, c, batch(0, 1, 0, 0.5))
	if err := c.worker.Put(0, Report{Running: 50}); !errors.Is(err, ErrOutranked) {
		t.Errorf("Put: %v, want ErrOutranked", err)
	}
	wantRank(t, c, 0, 1, 0, Known(0.5), 1)
	if got := c.worker.Status().Ranks[0].Dropped["outranked"]; got != 1 {
		t.Errorf("it was counted %d times", got)
	}
}

func TestAGroupThatIsBootingIsNotTrustedBecauseItIsQuiet(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	b := batch(0, 0, 0, 0)
	b.Load.KVCapacity = Known[int64](0)
	mustObserve(t, c, b)
	wantUntrusted(t, c.worker, Booting)
}

func TestTheDeadStayDead(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 2})
	c.Fail(errors.New("reset"))
	w := c.worker
	for name, revive := range map[string]func(){
		"health check":   func() { w.SetHealthy(true) },
		"no answer":      func() { w.SetNoAnswer("refused") },
		"not publishing": func() { w.SetNotPublishing("off") },
		"advertised":     func() { _ = w.Advertise(2).Put(0, Report{}) },
		"put":            func() { _ = w.Put(0, Report{}) },
	} {
		revive()
		if ws := w.Status(); ws.Healthy || ws.Trusted || ws.Why != Dead || ws.Reason != "reset" {
			t.Errorf("%s: the worker's status shows %+v", name, ws)
		}
	}
	if err := w.Advertise(1).Put(0, Report{}); !errors.Is(err, ErrGone) {
		t.Errorf("a feed of a dead engine takes a report: %v", err)
	}
}

func TestWhatAnEnginePublishesIsNoNewsOfAGroup(t *testing.T) {
	c, _ := newTestConnector(t, ConnectorConfig{Ranks: 1})
	mustReserve(t, c, "a")
	c.worker.SetNotPublishing("no kv_events block")
	c.worker.SetNoAnswer("refused")
	mustObserve(t, c, batch(0, 1, 0, 0.5))
	wantGroupTrusted(t, c, 1)
}

// wantGroupTrusted is wantTrusted for a group, whose depth is what is in flight.
func wantGroupTrusted(t *testing.T, c *Connector, inFlight int64) {
	t.Helper()
	if st := c.worker.Status(); !st.Trusted || st.Depth != Known(inFlight) || st.InFlight != inFlight {
		t.Errorf("the worker's status shows %+v", st)
	}
}

func TestAConnectorThatIsDroppedHasItsRequestsReleased(t *testing.T) {
	w := NewTable(Config{}).Add("group", "")
	func() {
		c := must(NewConnector(w, ConnectorConfig{Ranks: 2}))
		mustReserve(t, c, "a")
		mustReserve(t, c, "b")
	}()
	collectUntil(t, "released", func() bool { return w.InFlight() == 0 && w.Status().Leaked == 2 })
}

// The tickets that a connector holds know their worker, and its table.
func TestAGroupThatIsDroppedWithARequestInFlightIsCollected(t *testing.T) {
	var collected atomic.Int64
	const tables = 20
	for range tables {
		func() {
			c := must(NewConnector(NewTable(Config{}).Add("group", ""), ConnectorConfig{}))
			mustReserve(t, c, "a")
			runtime.AddCleanup(c.worker.table, func(int) { collected.Add(1) }, 0)
		}()
	}
	collectUntil(t, "collected", func() bool { return collected.Load() > tables/2 })
}

// Marks that follow a registration at once must not be booked before it.
func TestALateRankIsNeverShortOfARequest(t *testing.T) {
	c := must(NewConnector(NewTable(Config{}).Add("group", ""), ConnectorConfig{}))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for !closed(stop) {
			if own := c.rankBook(0).read(); own.InFlight < 0 || own.Unstarted < 0 || own.PendingTokens < 0 {
				t.Errorf("the rank has %+v", own)
				return
			}
		}
	})
	for range fewerRounds(20_000) {
		k := c.worker.Reserve(NoRank, 7)
		var both sync.WaitGroup
		both.Go(k.FirstToken)
		both.Go(func() { _, _ = c.Register("a", k) })
		both.Go(k.Done)
		both.Wait()
		c.Release("a")
	}
	close(stop)
	wg.Wait()
	if own := c.rankBook(0).read(); own != (Own{}) || c.worker.Own() != (Own{}) {
		t.Errorf("the rank ends with %+v, the worker with %+v", own, c.worker.Own())
	}
}

func fewerRounds(n int) int {
	if raceEnabled {
		return n / 10
	}
	return n
}
