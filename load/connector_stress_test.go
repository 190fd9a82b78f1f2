package load

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Sixteen goroutines do to one group whatever can be done to it, as fast as they
// can. Each choice is checked in the critical section that it was made in; all
// else is checked when it is over. Two locks taken in opposite orders would leave
// it hanging.
func TestConnectorUnderStress(t *testing.T) {
	const (
		ranks      = 8
		goroutines = 16
		duration   = 5 * time.Second
	)
	table := NewTable(Config{})
	c := must(NewConnector(table.Add("group", ""), ConnectorConfig{Ranks: ranks}))
	other := must(NewConnector(table.Add("other", ""), ConnectorConfig{Ranks: ranks})) // writers of the same table

	var picks, firsts, ends atomic.Int64
	watch := &Watch{
		FirstToken: func(*Worker, time.Duration, uint64) { firsts.Add(1) },
		Done: func(*Worker, time.Duration, uint64) {
			c.Status() // which takes the lock
			ends.Add(1)
		},
	}
	pick := func() Ticket {
		picks.Add(1)
		return table.View().Reserve(c.worker, Booking{Rank: NoRank, Watch: watch})
	}

	stop := make(chan struct{})
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() { stress(t, c, other, g, pick, stop) })
	}
	// Readers of what the writers publish.
	wg.Go(func() {
		for !closed(stop) {
			v := table.View()
			for i := range v.Len() {
				e := v.At(i)
				if depth, _ := e.DepthNow(); depth < 0 || !e.Trusted() {
					t.Errorf("a group reads depth %d, trusted %v", depth, e.Trusted())
					return
				}
			}
			c.Status()
			c.worker.Status()
		}
	})
	time.Sleep(duration)
	close(stop)
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(time.Minute):
		stacks := make([]byte, 1<<20)
		t.Fatalf("stuck:\n%s", stacks[:runtime.Stack(stacks, true)])
	}

	st := c.Status()
	if st.InFlight != 0 || c.worker.Own() != (Own{}) {
		t.Errorf("it ends with %d ids and %+v in the books", st.InFlight, c.worker.Own())
	}
	if st.Reserved != st.Finished+st.Released+st.Aborted || st.Reserved == 0 || st.Finished == 0 || st.Released == 0 || st.Aborted == 0 || st.Duplicates == 0 || st.Unknown == 0 {
		t.Errorf("the counts do not add up: %+v", st)
	}
	e := entry(t, c.worker)
	for rank := range ranks {
		r, ok := e.Report(rank)
		if !ok || r.Running != 0 || r.Waiting != 0 || !r.KVUsage.IsKnown() || c.ranks[rank].requests != 0 || e.OwnOn(rank) != (Own{}) {
			t.Errorf("rank %d ends with %+v, %d ids and %+v in the books", rank, *r, c.ranks[rank].requests, e.OwnOn(rank))
		}
	}
	if n := picks.Load(); n == 0 || firsts.Load() != n || ends.Load() != n {
		t.Errorf("of %d picks that were watched, %d began and %d ended", n, firsts.Load(), ends.Load())
	}
	if depth, _ := e.DepthNow(); depth != 0 || st.Dropped["no_rank"] == 0 {
		t.Errorf("it ends at depth %d with drops %v", depth, st.Dropped)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func stress(t *testing.T, c, other *Connector, g int, pick func() Ticket, stop <-chan struct{}) {
	rng := rand.New(rand.NewPCG(uint64(g), 1))
	random := func(rank int) Batch {
		return batch(rank, rng.Int64N(9), rng.Int64N(9), rng.Float64())
	}
	for i := 0; !closed(stop); i++ {
		id := fmt.Sprintf("%d-%d", g, i)
		var r Reservation
		var err error
		if i%4 == 3 { // by a selector
			r, err = c.Register(id, pick())
		} else {
			r, err = checkedReserve(t, c, id)
		}
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := c.Reserve(id, 0); !errors.Is(err, ErrDuplicate) {
			t.Errorf("a duplicate: %v", err)
		}
		r.Dispatched()
		c.Observe(random(rng.IntN(len(c.ranks))))
		other.Observe(random(rng.IntN(len(c.ranks))))
		r.FirstToken()
		switch b := random(r.Rank()); rng.IntN(6) {
		case 0: // the engine ends it
			b.Finished = [][]byte{[]byte(id)}
			c.Observe(b)
		case 1: // the client leaves, and the engine says so later
			r.Abort()
			b.Finished = [][]byte{[]byte(id), []byte("unknown")}
			c.Observe(b)
		case 2:
			c.Abort(id)
		case 3: // everybody at once
			var wg sync.WaitGroup
			wg.Go(r.Done)
			wg.Go(r.Done)
			wg.Go(func() { c.Release(id) })
			wg.Go(r.Ticket.FirstToken)
			wg.Wait()
		case 4: // a rank that calls itself by a wrong index
			b.Rank = len(c.ranks)
			b.Finished = [][]byte{[]byte(id)}
			if err := c.Observe(b); !errors.Is(err, ErrNoRank) {
				t.Errorf("rank %d: %v", b.Rank, err)
			}
		case 5: // the end comes without a load
			c.Observe(Batch{Rank: r.Rank(), Finished: [][]byte{[]byte(id), []byte(id)}})
		}
		r.Done()
		if r.Abort() || c.Release(id) {
			t.Errorf("%s was in flight after it was done", id)
		}
	}
}

// checkedReserve reserves, and checks with nothing moving that the choice was the
// lowest score there was, by what the table shows and not by the connector's word.
func checkedReserve(t *testing.T, c *Connector, id string) (Reservation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, _ := c.worker.table.View().Find(c.worker)
	var scores []float64
	var own []int64
	lowest := 0
	for rank := range e.Ranks() {
		scores = append(scores, e.RankScore(rank))
		own = append(own, e.OwnOn(rank).InFlight)
		if scores[rank] < scores[lowest] {
			lowest = rank
		}
	}
	r, err := c.reserveLocked(id, NoRank, 0, 0)
	if err == nil && scores[r.Rank()] != scores[lowest] {
		t.Errorf("rank %d was reserved, of %v", r.Rank(), scores)
	}
	// Whoever got in between choosing and counting would show here.
	for rank := range own {
		if rank == r.Rank() {
			own[rank]++
		}
		if got := e.OwnOn(rank).InFlight; got != own[rank] {
			t.Errorf("rank %d has %d requests after the reservation of rank %d, want %d", rank, got, r.Rank(), own[rank])
		}
	}
	return r, err
}
