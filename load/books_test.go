package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// counts are the raw counters of a worker's books.
type counts struct{ picked, left, started, done, tokensPicked, tokensStarted, leaked uint64 }

func countsOf(b *books) counts {
	return counts{
		b.picked.Load(), b.left.Load(), b.started.Load(), b.done.Load(),
		b.tokensPicked.Load(), b.tokensStarted.Load(), b.leaked.Load(),
	}
}

func TestMarksCountOnceWhateverTheirOrderAndHoweverOften(t *testing.T) {
	sent, first, assumed, done := Ticket.Dispatched, Ticket.FirstToken, Ticket.AssumeStarted, Ticket.Done
	const tokens = 40
	for _, tt := range []struct {
		name  string
		marks []func(Ticket)
		want  counts
	}{
		{"no mark", nil, counts{picked: 1, tokensPicked: tokens}},
		{"sent", []func(Ticket){sent}, counts{picked: 1, left: 1, tokensPicked: tokens}},
		{"sent twice", []func(Ticket){sent, sent}, counts{picked: 1, left: 1, tokensPicked: tokens}},
		{"the first token implies that it was sent", []func(Ticket){first}, counts{1, 1, 1, 0, tokens, tokens, 0}},
		{"sent after the first token adds nothing", []func(Ticket){first, sent}, counts{1, 1, 1, 0, tokens, tokens, 0}},
		{"sent and the first token", []func(Ticket){sent, first}, counts{1, 1, 1, 0, tokens, tokens, 0}},
		{"the first token twice", []func(Ticket){sent, first, first}, counts{1, 1, 1, 0, tokens, tokens, 0}},
		{"done implies all", []func(Ticket){done}, counts{1, 1, 1, 1, tokens, tokens, 0}},
		{"done twice", []func(Ticket){done, done}, counts{1, 1, 1, 1, tokens, tokens, 0}},
		{"done after sent", []func(Ticket){sent, done}, counts{1, 1, 1, 1, tokens, tokens, 0}},
		{"done after all", []func(Ticket){sent, first, done}, counts{1, 1, 1, 1, tokens, tokens, 0}},
		{"the first token after done", []func(Ticket){done, first}, counts{1, 1, 1, 1, tokens, tokens, 0}},
		{"sent after done", []func(Ticket){first, done, sent, done}, counts{1, 1, 1, 1, tokens, tokens, 0}},
		{"taken to have started, and nobody says that it was sent", []func(Ticket){assumed, assumed}, counts{1, 0, 1, 0, tokens, tokens, 0}},
		{"taken to have started, when it was sent", []func(Ticket){sent, assumed}, counts{1, 1, 1, 0, tokens, tokens, 0}},
		{"sent after it was taken to have started", []func(Ticket){assumed, sent}, counts{1, 1, 1, 0, tokens, tokens, 0}},
		{"the first token after that adds that it was sent", []func(Ticket){assumed, first}, counts{1, 1, 1, 0, tokens, tokens, 0}},
		{"the first token before that", []func(Ticket){first, assumed}, counts{1, 1, 1, 0, tokens, tokens, 0}},
		{"done after that", []func(Ticket){assumed, done}, counts{1, 1, 1, 1, tokens, tokens, 0}},
		{"done before that", []func(Ticket){done, assumed}, counts{1, 1, 1, 1, tokens, tokens, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table, _ := newTestTable()
			w, _ := advertised(t, table, "a", Report{}, Report{})
			k := reserve(t, w, 1, tokens)
			for _, mark := range tt.marks {
				mark(k)
			}
			if got := countsOf(&w.books); got != tt.want {
				t.Errorf("the worker's books are %+v\nwant %+v", got, tt.want)
			}
			if got := countsOf(w.rankBook(1)); got != tt.want {
				t.Errorf("the rank's books are %+v\nwant %+v", got, tt.want)
			}
			if got := countsOf(w.rankBook(0)); got != (counts{}) {
				t.Errorf("the other rank's books are %+v", got)
			}
			reading := Count{tt.want.picked, tt.want.done, tt.want.tokensPicked, tt.want.tokensStarted}
			if w.Count() != reading || w.CountOn(1) != reading || w.CountOn(0) != (Count{}) {
				t.Errorf("the counts are %+v, of rank 1 %+v and of rank 0 %+v, want %+v, %[4]v and none", w.Count(), w.CountOn(1), w.CountOn(0), reading)
			}
			want := Own{
				InFlight:      int64(tt.want.picked - tt.want.done),
				Unstarted:     int64(tt.want.picked - tt.want.started),
				PendingTokens: int64(tt.want.tokensPicked - tt.want.tokensStarted),
			}
			if got := w.Own(); got != want || w.InFlight() != want.InFlight || entry(t, w).Own() != want ||
				reading.InFlight() != want.InFlight || reading.PendingTokens() != want.PendingTokens {
				t.Errorf("it has %+v, by its count %d and %d, want %+v", got, reading.InFlight(), reading.PendingTokens(), want)
			}
			if st := w.Status(); st.InFlight != want.InFlight || st.Unstarted != want.Unstarted || st.PendingTokens != want.PendingTokens ||
				st.Picked != 1 || st.Leaked != 0 || st.Ranks[1].InFlight != want.InFlight || st.Ranks[0].InFlight != 0 {
				t.Errorf("the status shows %+v, want %+v", st, want)
			}
		})
	}
}

func TestTheZeroTicketIsInert(t *testing.T) {
	var k Ticket
	k.Dispatched()
	k.AssumeStarted()
	k.FirstToken()
	k.Done()
	k.Done()
}

func TestCopiesOfATicketMarkOneRequest(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	k := w.Reserve(NoRank, 10)
	a, b := k, k
	a.Dispatched()
	b.Dispatched()
	a.FirstToken()
	b.Done()
	a.Done()
	k.Done()
	if got, want := countsOf(&w.books), (counts{1, 1, 1, 1, 10, 10, 0}); got != want {
		t.Errorf("the books are %+v, want %+v", got, want)
	}
}

func TestMarksOfOneTicketFromManyGoroutinesCountOnce(t *testing.T) {
	table, _ := newTestTable()
	w, _ := advertised(t, table, "a", Report{}, Report{})
	const rounds, goroutines = 200, 6
	for round := range rounds {
		k := w.Reserve(1, 7)
		start := make(chan struct{})
		var all sync.WaitGroup
		for g := range goroutines {
			marks := []func(){k.Dispatched, k.FirstToken, k.AssumeStarted, k.Done}
			rnd := rand.New(rand.NewPCG(uint64(round), uint64(g)))
			rnd.Shuffle(len(marks), func(i, j int) { marks[i], marks[j] = marks[j], marks[i] })
			all.Go(func() {
				<-start
				for _, mark := range marks {
					mark()
				}
			})
		}
		close(start)
		all.Wait()
		n := uint64(round + 1)
		want := counts{n, n, n, n, 7 * n, 7 * n, 0}
		if got := countsOf(&w.books); got != want {
			t.Fatalf("after %d requests the books are %+v", n, got)
		}
		if got := countsOf(w.rankBook(1)); got != want {
			t.Fatalf("after %d requests the rank's books are %+v", n, got)
		}
	}
}

func TestMarksThatMeetOnTheSameTicketCountOnce(t *testing.T) {
	// Goroutines that go down the same list catch up with each other at whoever is
	// ahead, and meet there at the very same mark.
	table, _ := newTestTable()
	w := table.Add("a", "")
	const each, goroutines = 500, 4
	rounds := 500
	if raceEnabled { // it makes them meet more often
		rounds = 100
	}
	tickets := make([]Ticket, each)
	for round := range rounds {
		for i := range tickets {
			tickets[i] = w.Reserve(NoRank, 1)
		}
		for _, mark := range []func(Ticket){Ticket.Dispatched, Ticket.FirstToken, Ticket.Done} {
			var ready, all sync.WaitGroup
			ready.Add(goroutines)
			for range goroutines {
				all.Go(func() {
					ready.Done()
					ready.Wait()
					for _, k := range tickets {
						mark(k)
					}
				})
			}
			all.Wait()
		}
		n := uint64(each * (round + 1))
		if got, want := countsOf(&w.books), (counts{n, n, n, n, n, n, 0}); got != want {
			t.Fatalf("after %d requests the books are %+v", n, got)
		}
	}
}

func TestAStaleTicketCannotTouchTheRequestThatHasItsFlightNow(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	for range 10_000 {
		old := w.Reserve(NoRank, 1)
		old.Done()
		k := w.Reserve(NoRank, 1)
		if k.flight != old.flight { // another one out of the pool
			k.Done()
			continue
		}
		before := countsOf(&w.books)
		old.Dispatched()
		old.AssumeStarted()
		old.FirstToken()
		old.Done()
		if got := countsOf(&w.books); got != before {
			t.Fatalf("marks of a request that was done changed the books from %+v to %+v", before, got)
		}
		if k.Done(); w.InFlight() != 0 {
			t.Fatalf("%d in flight after the second request's Done", w.InFlight())
		}
		// And the other way round: the new ticket has not lost its marks.
		again := w.Reserve(NoRank, 1)
		again.Dispatched()
		old.Done()
		k.Done()
		if w.InFlight() != 1 {
			t.Fatalf("%d in flight, want 1", w.InFlight())
		}
		again.Done()
		return
	}
	t.Fatal("no flight was ever used again")
}

func TestStaleTicketsOfManyGoroutinesNeverReleaseAnothersRequest(t *testing.T) {
	table, _ := newTestTable()
	workers := []*Worker{table.Add("a", ""), table.Add("b", "")}
	held := make([]Ticket, len(workers))
	for i, w := range workers {
		held[i] = w.Reserve(NoRank, 0)
	}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			var old [8]Ticket
			for i := range 2000 {
				w := workers[(g+i)%len(workers)]
				k := w.Reserve(NoRank, 3)
				if n := w.InFlight(); n < 2 {
					t.Errorf("%d in flight right after a reservation beside one that is held", n)
					return
				}
				old[i%len(old)].Done()
				old[(i+3)%len(old)].FirstToken()
				k.FirstToken()
				k.Done()
				old[i%len(old)] = k
			}
		})
	}
	all.Wait()
	for i, w := range workers {
		if got := w.Own(); got.InFlight != 1 {
			t.Errorf("worker %d has %+v, want one in flight", i, got)
		}
		held[i].Done()
		if got := w.Own(); got != (Own{}) {
			t.Errorf("worker %d ends with %+v", i, got)
		}
	}
}

func TestWhatIsInFlightIsNeverReadAsNegative(t *testing.T) {
	table, _ := newTestTable()
	w, f := advertised(t, table, "a", Report{})
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		writers.Go(func() {
			for range 20_000 {
				k := w.Reserve(0, 5)
				k.FirstToken()
				k.Done()
			}
		})
	}
	writers.Go(func() {
		for range 200 {
			if err := f.Put(0, Report{}); err != nil {
				t.Error(err)
			}
		}
	})
	readers.Go(func() {
		e := table.View().At(0)
		for {
			select {
			case <-stop:
				return
			default:
			}
			own := e.Own()
			n, _ := e.InFlight()
			depth, _ := e.DepthNow()
			if own.InFlight < 0 || own.Unstarted < 0 || own.PendingTokens < 0 || n < 0 || depth < 0 {
				t.Errorf("own %+v, in flight %d, depth %d", own, n, depth)
				return
			}
			for _, c := range []Count{w.Count(), w.CountOn(0)} {
				if c.InFlight() < 0 || c.PendingTokens() < 0 {
					t.Errorf("%+v: %d in flight, with %d tokens", c, c.InFlight(), c.PendingTokens())
					return
				}
			}
		}
	})
	writers.Wait()
	close(stop)
	readers.Wait()
	if got := w.Own(); got != (Own{}) {
		t.Errorf("it ends with %+v", got)
	}
}

func TestAReaderThatIsInterruptedReadsNothingNegative(t *testing.T) {
	// On one processor, whoever is interrupted between two of its readings resumes
	// after many requests have come and gone.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	table, _ := newTestTable()
	w, _ := advertised(t, table, "a", Report{})
	var stop atomic.Bool
	var writer sync.WaitGroup
	writer.Go(func() {
		for !stop.Load() {
			for range 100 {
				k := w.Reserve(0, 5)
				k.FirstToken()
				k.Done()
			}
			runtime.Gosched()
		}
	})
	defer writer.Wait()
	defer stop.Store(true)
	for what, read := range map[string]func() (int64, int64){
		"the count":         func() (int64, int64) { c := w.Count(); return c.InFlight(), c.PendingTokens() },
		"the rank's count":  func() (int64, int64) { c := w.CountOn(0); return c.InFlight(), c.PendingTokens() },
		"what it has":       func() (int64, int64) { own := w.Own(); return own.InFlight, min(own.Unstarted, own.PendingTokens) },
		"what is in flight": func() (int64, int64) { return w.InFlight(), 0 },
	} {
		for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
			for range 10_000 {
				if n, rest := read(); n < 0 || rest < 0 {
					t.Fatalf("%s: %d in flight, %d of which is to start", what, n, rest)
				}
			}
		}
	}
}

func TestNoOneIsDoneBeforeItHasLeftAndStarted(t *testing.T) {
	// The differences between the counters are what a reader sees; for a request
	// that is marked by one goroutine they move in order.
	table, _ := newTestTable()
	w := table.Add("a", "")
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			done := w.books.done.Load()
			started := w.books.started.Load()
			left := w.books.left.Load()
			if left < done || started < done {
				t.Errorf("%d done, %d started, %d left", done, started, left)
				return
			}
		}
	})
	for range 200_000 {
		w.Reserve(NoRank, 0).Done()
	}
	close(stop)
	reader.Wait()
}

func TestAConditionalReservationFailsIfAnotherCameFirst(t *testing.T) {
	table, _ := newTestTable()
	w, _ := advertised(t, table, "a", Report{}, Report{})
	_, seen := entry(t, w).DepthNow()
	_, same := entry(t, w).InFlight()
	if seen != same {
		t.Fatalf("two readings of an unchanged worker are moments %v and %v", seen, same)
	}
	k, ok := w.ReserveIf(seen, 1, 10)
	if !ok || w.InFlight() != 1 {
		t.Fatalf("with nobody else about: %v, %d in flight", ok, w.InFlight())
	}
	if _, ok := w.ReserveIf(seen, 1, 10); ok {
		t.Fatal("reserved twice at one moment")
	}
	before := countsOf(&w.books)
	k.Dispatched()
	k.FirstToken()
	if _, ok := w.ReserveIf(seen, 1, 10); ok {
		t.Fatal("a moment of before the reservation is still good")
	}
	k.Done() // fewer in flight, as many picked: that moment is still past
	if _, ok := w.ReserveIf(seen, 1, 10); ok {
		t.Fatal("a release brought a past moment back")
	}
	if got := countsOf(&w.books); got.picked != before.picked || got.tokensPicked != before.tokensPicked {
		t.Errorf("failed reservations were counted: %+v after %+v", got, before)
	}
	// On the rank they come and go.
	if got := w.rankBook(1).read(); got != (Own{}) {
		t.Errorf("failed reservations were left on the rank: %+v", got)
	}
	_, now := entry(t, w).InFlight()
	again, ok := w.ReserveIf(now, NoRank, 0)
	if !ok {
		t.Fatal("a fresh moment is refused")
	}
	again.Done()
}

func TestACountIsAMomentForAConditionalReservation(t *testing.T) {
	table, _ := newTestTable()
	w, _ := advertised(t, table, "a", Report{}, Report{})
	before := w.Count()
	k, ok := w.ReserveIf(before.Seen(), 1, 10)
	if !ok {
		t.Fatal("refused with nobody else about")
	}
	if _, ok := w.ReserveIf(before.Seen(), 1, 10); ok {
		t.Fatal("reserved twice at one moment")
	}
	// The refused one came and went on its rank, and was never on the worker.
	if got, want := w.Count(), (Count{Picked: 1, TokensPicked: 10}); got != want {
		t.Errorf("the worker's count is %+v, want %+v", got, want)
	}
	if got, want := w.CountOn(1), (Count{2, 1, 20, 10}); got != want {
		t.Errorf("the rank's count is %+v, want %+v", got, want)
	}
	for _, rank := range []int{0, NoRank, 2, math.MinInt, math.MaxInt} {
		if got := w.CountOn(rank); got != (Count{}) {
			t.Errorf("the count of rank %d is %+v", rank, got)
		}
	}
	k.Done()
}

func TestAConditionalReservationOutlivesMarksOfOthers(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	k := reserve(t, w, NoRank, 0)
	_, seen := entry(t, w).InFlight()
	k.Dispatched()
	k.FirstToken()
	k.Done() // none of it is a reservation
	k, ok := w.ReserveIf(seen, NoRank, 0)
	if !ok {
		t.Fatal("refused, though nobody else was counted")
	}
	k.Done()
}

func TestARequestWithoutARankCountsOnTheWorkerAlone(t *testing.T) {
	table, _ := newTestTable()
	w, _ := advertised(t, table, "a", Report{}, Report{})
	for _, rank := range []int{NoRank, 2, 1000, maxRanks, 1 << 40, math.MinInt} {
		k := w.Reserve(rank, 5)
		if w.InFlight() != 1 || countsOf(w.rankBook(0)).picked != 0 || countsOf(w.rankBook(1)).picked != 0 {
			t.Errorf("rank %d: %d in flight, and the ranks have %+v and %+v", rank, w.InFlight(), countsOf(w.rankBook(0)), countsOf(w.rankBook(1)))
		}
		k.Done()
		if w.Own() != (Own{}) {
			t.Errorf("rank %d: it ends with %+v", rank, w.Own())
		}
	}
}

func TestARankThatAppearsWhileARequestIsOutIsNotReleasedForIt(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	k := w.Reserve(0, 5) // it has no rank 0 yet
	w.Advertise(1)
	k.FirstToken()
	k.Done()
	if got := countsOf(w.rankBook(0)); got != (counts{}) {
		t.Errorf("the rank's books are %+v", got)
	}
	if w.Own() != (Own{}) {
		t.Errorf("the worker ends with %+v", w.Own())
	}
}

func TestTheBooksOfARankSurviveNewAdvertisements(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	w.Advertise(4)
	k := w.Reserve(3, 5)
	w.Advertise(1) // rank 3 is gone for now
	w.Advertise(8)
	if got := w.Status().Ranks[3].InFlight; got != 1 {
		t.Errorf("rank 3 has %d in flight, want 1", got)
	}
	k.Done()
	for _, r := range w.Status().Ranks {
		if r.InFlight != 0 {
			t.Errorf("rank %d ends with %d in flight", r.Rank, r.InFlight)
		}
	}
}

func TestPromptTokensAreBoundedAndNeverNegative(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	for _, tt := range []struct{ tokens, want int64 }{
		{0, 0}, {-1, 0}, {math.MinInt64, 0}, {1, 1}, {maxTokens, maxTokens}, {maxTokens + 1, maxTokens}, {math.MaxInt64, maxTokens},
	} {
		k := w.Reserve(NoRank, tt.tokens)
		if got := w.Own().PendingTokens; got != tt.want {
			t.Errorf("%d prompt tokens are booked as %d, want %d", tt.tokens, got, tt.want)
		}
		if k.FirstToken(); w.Own().PendingTokens != 0 {
			t.Errorf("%d prompt tokens: %d are pending after the first token", tt.tokens, w.Own().PendingTokens)
		}
		k.Done()
	}
	for _, rank := range []int{NoRank, 0, 1, maxRanks - 1} {
		r := newRequest(rank, 12345)
		if r.rank() != rank || r.tokens() != 12345 {
			t.Errorf("rank %d and 12345 tokens come back as %d and %d", rank, r.rank(), r.tokens())
		}
	}
}

func TestADispatchBetweenTheReportsOfTwoRanksIsCountedOnTop(t *testing.T) {
	orders := map[string][2]int{"rank 0 reports first": {0, 1}, "rank 1 reports first": {1, 0}}
	for name, order := range orders {
		for _, gap := range []time.Duration{0, time.Millisecond} { // 0: clocks are coarse, and drains come in batches
			t.Run(fmt.Sprintf("%s, %v apart", name, gap), func(t *testing.T) {
				table, clock := newTestTable()
				w := table.Add("a", "")
				f := w.Advertise(2)
				mustPut(t, f, order[0], Report{Running: 1})
				clock.advance(gap)
				reserve(t, w, NoRank, 0).Dispatched()
				clock.advance(gap)
				mustPut(t, f, order[1], Report{Running: 1})
				if got := depthNow(t, w); got != 3 {
					t.Errorf("1+1 and one dispatch between the reports is %d, want 3", got)
				}
				mustPut(t, f, order[0], Report{Running: 2})
				if got := depthNow(t, w); got != 3 {
					t.Errorf("2+1, both since the dispatch, is %d, want 3", got)
				}
			})
		}
	}
}

func TestReportsThatArriveOutOfOrderOfTheirTimesNeverHideADispatch(t *testing.T) {
	// A poll carries the time at which it was asked for and is put when it is answered.
	table, clock := newTestTable()
	clock.advance(time.Minute)
	w := table.Add("a", "")
	f := w.Advertise(2)
	asked := clock.now()
	clock.advance(time.Millisecond)
	mustPut(t, f, 0, Report{Running: 1})
	reserve(t, w, NoRank, 0).Dispatched()
	mustPut(t, f, 1, Report{Running: 1, Received: asked})
	if got := depthNow(t, w); got != 3 {
		t.Errorf("1+1 and one dispatch after rank 0's report is %d, want 3", got)
	}
}

func TestWhatIsSentWhileAnEngineIsBeingAskedIsCountedOnTopOfItsAnswer(t *testing.T) {
	table, clock := newTestTable()
	w := table.Add("a", "")
	f := w.Advertise(1)
	first := w.Moment()
	before := reserve(t, w, NoRank, 0)
	before.Dispatched()
	asked, at := f.Moment(), clock.now()
	clock.advance(time.Second)
	reserve(t, w, NoRank, 0).Dispatched()
	mustPut(t, f, 0, Report{Running: 1, Asked: asked, Received: at, Source: SourcePoll})
	if got := depthNow(t, w); got != 2 {
		t.Errorf("one in the answer and one sent since the question is %d, want 2", got)
	}
	mustPut(t, f, 0, Report{Running: 2, Asked: w.Moment(), Source: SourcePoll})
	if got := depthNow(t, w); got != 2 {
		t.Errorf("both in the answer is %d, want 2", got)
	}
	mustPut(t, f, 0, Report{Running: 2, Asked: first, Source: SourcePoll})
	if got := depthNow(t, w); got != 4 {
		t.Errorf("two in an answer to a question of before both is %d, want 4", got)
	}
	// That of another worker says nothing, nor does that of an earlier incarnation.
	old := table.Add("b", "")
	for name, other := range map[string]Moment{"": {}, "of another worker": w.Moment(), "of an earlier incarnation": old.Moment()} {
		b, fb := advertised(t, table, "b", Report{Running: 1})
		reserve(t, b, NoRank, 30).Dispatched()
		mustPut(t, fb, 0, Report{Running: 1, Asked: other, Source: SourcePush})
		if got, own := depthNow(t, b), entry(t, b).OwnAtReport(); got != 1 || own != 1 {
			t.Errorf("with a moment %s, the depth is %d and there were %d at the report, want 1 and 1", name, got, own)
		}
	}
}

func TestARequestThatHadNotLeftWhenTheReportCameIsNotInIt(t *testing.T) {
	table, _ := newTestTable()
	w, f := advertised(t, table, "a", Report{Running: 1})
	k := reserve(t, w, NoRank, 0)
	if got := depthNow(t, w); got != 2 {
		t.Errorf("one picked since the report: depth %d, want 2", got)
	}
	mustPut(t, f, 0, Report{Running: 1}) // still in our hands: the engine cannot know of it
	if got := depthNow(t, w); got != 2 {
		t.Errorf("one picked and not sent: depth %d, want 2", got)
	}
	k.Dispatched()
	if got := depthNow(t, w); got != 2 {
		t.Errorf("one sent since the report: depth %d, want 2", got)
	}
	mustPut(t, f, 0, Report{Running: 2}) // now it is in there
	if got := depthNow(t, w); got != 2 {
		t.Errorf("one in the report: depth %d, want 2", got)
	}
	k.Done()
	mustPut(t, f, 0, Report{Running: 1})
	if got := depthNow(t, w); got != 1 {
		t.Errorf("none left: depth %d, want 1", got)
	}
	if got := w.Status().SinceReport; got != 0 {
		t.Errorf("the status has %d since the report", got)
	}
}

func TestARequestThatIsOverBeforeTheNextReportIsNotAddedToTheLast(t *testing.T) {
	table, _ := newTestTable()
	w, _ := advertised(t, table, "a", Report{Running: 1})
	var tickets []Ticket
	for range 5 {
		tickets = append(tickets, reserve(t, w, NoRank, 0))
	}
	if got := depthNow(t, w); got != 6 {
		t.Errorf("five picked since: depth %d, want 6", got)
	}
	if got := w.Status().SinceReport; got != 5 {
		t.Errorf("the status has %d since the report, want 5", got)
	}
	for i, k := range tickets {
		k.Done()
		if got := depthNow(t, w); got != int64(5-i) {
			t.Errorf("%d of five over: depth %d, want %d", i+1, got, 5-i)
		}
	}
}

func TestDepthIsNeverUnderCountedWhateverTheMarks(t *testing.T) {
	// Each request is in the newest report of its worker or it is not. Those that
	// cannot be, because they had not been sent by then, must all be in the depth.
	rnd := rand.New(rand.NewPCG(2, 3))
	for range 200 {
		table, clock := newTestTable()
		w := table.Add("a", "")
		ranks := 1 + rnd.IntN(3)
		f := w.Advertise(ranks)
		type request struct {
			Ticket
			sent, done bool
			missed     []bool // by the newest report of each rank
		}
		var requests []*request
		put := func(rank int) {
			mustPut(t, f, rank, Report{Running: 2})
			for _, r := range requests {
				r.missed[rank] = !r.sent
			}
		}
		for rank := range ranks {
			put(rank)
		}
		for range 60 {
			clock.advance(time.Duration(rnd.IntN(3)))
			switch rnd.IntN(5) {
			case 0:
				put(rnd.IntN(ranks))
			case 1, 2:
				r := &request{Ticket: w.Reserve(NoRank, 0), missed: slices.Repeat([]bool{true}, ranks)}
				requests = append(requests, r)
			case 3:
				if len(requests) > 0 {
					r := requests[rnd.IntN(len(requests))]
					r.Dispatched()
					r.sent = true
				}
			case 4:
				if len(requests) > 0 {
					r := requests[rnd.IntN(len(requests))]
					r.Done()
					r.sent, r.done = true, true
				}
			}
			var missing, inFlight int64
			for _, r := range requests {
				if !r.done {
					inFlight++
					if slices.Contains(r.missed, true) {
						missing++
					}
				}
			}
			reported := int64(2 * ranks)
			if got := depthNow(t, w); got < reported+missing || got > reported+inFlight {
				t.Fatalf("depth is %d: %d reported, of %d in flight %d cannot be in every report", got, reported, inFlight, missing)
			}
		}
		for _, r := range requests {
			r.Done()
		}
		if got := depthNow(t, w); got != int64(2*ranks) {
			t.Fatalf("with nothing in flight the depth is %d, want %d", got, 2*ranks)
		}
	}
}

func TestOwnRequestsAtTheNewestReportAreWhatTheSumsHold(t *testing.T) {
	table, clock := newTestTable()
	w := table.Add("a", "")
	f := w.Advertise(2)
	put := func(rank int) { clock.advance(1); mustPut(t, f, rank, Report{Running: 1}) }
	put(0)
	put(1)
	a := reserve(t, w, NoRank, 0)
	reserve(t, w, NoRank, 0)
	check := func(want int64) {
		t.Helper()
		if _, _, own := table.View().Trusted(); own != want || entry(t, w).OwnAtReport() != want {
			t.Errorf("the sum is %d, the worker has %d, want %d", own, entry(t, w).OwnAtReport(), want)
		}
	}
	check(0)
	put(0)
	check(2)
	a.Done()
	check(2)
	put(1)
	check(1)
}

func TestARequestThatIsReleasedTwiceFreesOneSlotOfItsRank(t *testing.T) {
	table := NewTable(Config{})
	w := table.Add("a", "")
	w.Advertise(2)
	first, second := w.Reserve(0, 10), w.Reserve(0, 20)
	again := first
	first.Done()
	again.Done()
	if n := w.Status().Ranks[0].InFlight; n != 1 || w.InFlight() != 1 {
		t.Errorf("%d in flight on the rank and %d on the worker, want 1 and 1", n, w.InFlight())
	}
	second.Done()
	if n := w.Status().Ranks[0].InFlight; n != 0 || w.InFlight() != 0 {
		t.Errorf("%d in flight on the rank and %d on the worker, want 0 and 0", n, w.InFlight())
	}
}
