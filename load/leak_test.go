package load

import (
	"runtime"
	"testing"
	"time"
	"weak"
)

// collectUntil runs the garbage collector until it has had its effect. Finalizers
// run in a goroutine of their own, which each round yields to.
func collectUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 2000 {
		if done() {
			return
		}
		runtime.GC()
		runtime.Gosched()
	}
	t.Fatalf("after 2000 garbage collections still not: %s", what)
}

//go:noinline
func dropTickets(w *Worker, marks ...func(Ticket)) {
	k := w.Reserve(0, 11)
	for _, mark := range marks {
		mark(k)
	}
}

func TestATicketThatIsDroppedIsReleasedAndCountedAsLeaked(t *testing.T) {
	for name, marks := range map[string][]func(Ticket){
		"unmarked":              nil,
		"sent":                  {Ticket.Dispatched},
		"after its first token": {Ticket.FirstToken},
	} {
		t.Run(name, func(t *testing.T) {
			table, _ := newTestTable()
			w, _ := advertised(t, table, "a", Report{})
			held := reserve(t, w, 0, 5)
			const dropped = 3
			for range dropped {
				dropTickets(w, marks...)
			}
			collectUntil(t, "released", func() bool { return w.InFlight() == 1 })
			want := counts{picked: 4, left: 3, started: 3, done: 3, tokensPicked: 38, tokensStarted: 33, leaked: 3}
			collectUntil(t, "counted as leaked", func() bool { return countsOf(&w.books) == want && countsOf(w.rankBook(0)) == want })
			if st := w.Status(); st.Leaked != dropped || st.Picked != dropped+1 || st.InFlight != 1 || st.PendingTokens != 5 {
				t.Errorf("the status shows %+v", st)
			}
			held.Done()
			if w.Own() != (Own{}) {
				t.Errorf("it ends with %+v", w.Own())
			}
		})
	}
}

func TestATicketThatIsDoneOrHeldIsNeverCountedAsLeaked(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	held := w.Reserve(NoRank, 5)
	for range 1000 { // the pool is emptied by the collector, with all these in it
		w.Reserve(NoRank, 1).Done()
	}
	sentinel := table.Add("sentinel", "")
	for range 5 {
		dropTickets(sentinel)
		n := sentinel.books.picked.Load()
		collectUntil(t, "sentinel collected", func() bool { return sentinel.books.leaked.Load() == n })
	}
	if st := w.Status(); st.Leaked != 0 || st.InFlight != 1 {
		t.Errorf("%d leaked, %d in flight", st.Leaked, st.InFlight)
	}
	held.Done()
	if st := w.Status(); st.Leaked != 0 || st.InFlight != 0 {
		t.Errorf("after Done: %d leaked, %d in flight", st.Leaked, st.InFlight)
	}
}

func TestATicketThatIsDroppedAfterItsWorkersRemovalHarmsNoNewWorker(t *testing.T) {
	table, _ := newTestTable()
	old := table.Add("a", "")
	dropTickets(old)
	table.Remove(old)
	again := table.Add("a", "")
	k := reserve(t, again, NoRank, 0)
	collectUntil(t, "released", func() bool { return old.InFlight() == 0 })
	if again.InFlight() != 1 || again.Status().Leaked != 0 {
		t.Errorf("the new worker has %d in flight and %d leaked", again.InFlight(), again.Status().Leaked)
	}
	k.Done()
}

// policy holds the tickets that it has handed out. They lead back to it: by its watch,
// and by the clock of their table if it is a simulation.
type policy struct {
	table   *Table
	watch   Watch
	tickets []Ticket
	told    int
	elapsed time.Duration
}

func (p *policy) firstToken(*Worker, time.Duration, uint64) { p.told++ }

func (p *policy) now() time.Time { return clockStart.Add(p.elapsed) }

//go:noinline
func dropPolicy(table *Table, done bool) weak.Pointer[policy] {
	p := new(policy)
	p.watch.FirstToken = p.firstToken
	if p.table = table; table == nil {
		p.table = NewTable(Config{Clock: p.now})
	}
	w := p.table.Add("a", "")
	for range 3 {
		k := p.table.View().Reserve(w, Booking{Rank: NoRank, Watch: &p.watch})
		k.FirstToken()
		if p.tickets = append(p.tickets, k); done {
			k.Done()
		}
	}
	return weak.Make(p)
}

func TestWhoHoldsTicketsThatLeadBackToHimIsCollectedAllTheSame(t *testing.T) {
	table, _ := newTestTable()
	for name, tt := range map[string]struct {
		table  *Table // nil: one of the policy's own
		done   bool
		leaked uint64
	}{
		"by their watch, not done":         {table, false, 3},
		"by their watch, done":             {table, true, 0},
		"by their table's clock, not done": {nil, false, 0},
		"by their table's clock, done":     {nil, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := dropPolicy(tt.table, tt.done)
			collectUntil(t, "collected", func() bool { return p.Value() == nil })
			if tt.table != nil {
				w, _ := tt.table.Worker("a")
				collectUntil(t, "released", func() bool { return w.InFlight() == 0 && w.books.leaked.Load() == tt.leaked })
			}
		})
	}
}
