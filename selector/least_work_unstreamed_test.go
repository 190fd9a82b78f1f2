package selector

import (
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

func unstreamedPrompt(tokens int64) Request {
	r := prompt(tokens)
	r.Unstreamed = true
	return r
}

// look makes the policy look at what has begun by now, and takes nothing.
func look(t testing.TB, s *Selector, c *clock) {
	t.Helper()
	c.advance(modelFor)
	p, err := s.Pick(Request{PromptTokens: load.Known[int64](0)})
	if err != nil {
		t.Fatal(err)
	}
	p.Done()
}

func TestAPromptThatNobodySeesBeginPendsUntilThatIsExpected(t *testing.T) {
	table, clock := newTestTable()
	a := table.Add("a", "")
	s := leastWork1(table)
	first := mustPick(t, s, unstreamedPrompt(2000)) // 100 ms
	mustPick(t, s, unstreamedPrompt(1000))          // waits for the first: 150 ms
	mustPick(t, s, prompt(400))                     // that one will be seen
	for _, c := range []struct {
		at               time.Duration
		pending, started int64
	}{{10, 3400, 0}, {90, 3400, 0}, {110, 1400, 1}, {140, 1400, 1}, {160, 400, 2}, {100_000, 400, 2}} {
		clock.elapsed.Store(int64(c.at*time.Millisecond - modelFor))
		look(t, s, clock)
		if got, want := a.Own(), (load.Own{InFlight: 3, Unstarted: 3 - c.started, PendingTokens: c.pending}); got != want {
			t.Errorf("after %d ms the books are %+v, want %+v", c.at, got, want)
		}
	}
	// A host that marks the first byte at the end does no harm.
	first.FirstToken()
	first.Done()
	if got, want := a.Own(), (load.Own{InFlight: 2, Unstarted: 1, PendingTokens: 400}); got != want {
		t.Errorf("in the end the books are %+v, want %+v", got, want)
	}
}

func TestAPinnedPromptThatNobodySeesBeginIsNoException(t *testing.T) {
	table, clock := newTestTable()
	a := table.Add("a", "")
	table.Add("b", "")
	s := leastWork1(table)
	for _, r := range []Request{unstreamedPrompt(1000), {Unstreamed: true}} { // of unknown length: 1,000 as well
		r.Worker = a
		if p := mustPick(t, s, r); p.Reason != Pinned || p.Wait == 0 {
			t.Errorf("%v, expected to wait %v", p, p.Wait)
		}
	}
	for _, c := range []struct {
		at      time.Duration
		pending int64
	}{{40, 2000}, {60, 1000}, {110, 0}} {
		clock.elapsed.Store(int64(c.at*time.Millisecond - modelFor))
		clock.advance(modelFor)
		mustPick(t, s, Request{PromptTokens: load.Known[int64](0), Worker: a}).Done()
		if got := a.Own().PendingTokens; got != c.pending {
			t.Errorf("%d tokens pend after %d ms, want %d", got, c.at, c.pending)
		}
	}
}

func TestAPromptThatNobodySeesBeginWaitsForThoseOfOthersToo(t *testing.T) {
	// 50 µs · (4,000 + 1,000), on each of however many ranks.
	for _, ranks := range []int{1, 4} {
		table, clock := newTestTable()
		reports := make([]*load.Report, ranks)
		for rank := range reports {
			reports[rank] = waitingTokens(4000)
		}
		withRanks(t, table, "a", reports...)
		s := leastWork1(table)
		p := mustPick(t, s, unstreamedPrompt(1000))
		for _, c := range []struct {
			at      time.Duration
			pending int64
		}{{240, 1000}, {260, 0}} {
			clock.elapsed.Store(int64(c.at*time.Millisecond - modelFor))
			look(t, s, clock)
			if got := p.Worker.Own().PendingTokens; got != c.pending {
				t.Errorf("on %d ranks %d tokens pend after %d ms, want %d", ranks, got, c.at, c.pending)
			}
		}
	}
}

func TestAPromptThatNobodySeesBeginPendsOnItsRankToo(t *testing.T) {
	table, clock := newTestTable()
	a := withRanks(t, table, "a", running(0), running(0))
	s := leastWorkOfRanks1(table)
	p := mustPick(t, s, unstreamedPrompt(1000))
	clock.advance(time.Second)
	look(t, s, clock)
	e, _ := table.View().Find(a)
	if got := e.OwnOn(p.Rank); got != (load.Own{InFlight: 1}) {
		t.Errorf("the rank has %+v", got)
	}
}

func TestAnswersThatAreNotStreamedTeachNoWaits(t *testing.T) {
	w := newWorld(t, 4, Config{})
	w.unstreamed = true
	w.perToken, w.answer = 300*time.Microsecond, 2*time.Second
	w.serve(t, 2000, 0.5)
	l := w.learned()
	if l.PerToken != 50*time.Microsecond || l.Base != 0 || l.FirstToken != 100*time.Millisecond || l.Away != 1 {
		t.Errorf("%+v", l)
	}
	for _, s := range l.Speeds {
		if s.Speed != 1 || s.Requests != 0 {
			t.Errorf("%+v", s)
		}
	}
	if l.Response < 2*time.Second || l.Response > 6*time.Second {
		t.Errorf("a response takes %v", l.Response) // that is seen
	}
	about(t, "a prompt", l.Prompt, 2050, 0.3)

	// Nor if the host marks a first token, which comes with all others.
	w = newWorld(t, 4, Config{})
	for range 500 {
		p := must(w.selector.Pick(unstreamedPrompt(100 + w.rnd.Int64N(4000))))
		w.until(w.now() + time.Second)
		p.FirstToken()
		p.Done()
	}
	w.refresh(t)
	if l := w.learned(); l.PerToken != 50*time.Microsecond || l.Base != 0 || l.FirstToken != 100*time.Millisecond {
		t.Errorf("%+v", l)
	}
}

func TestWhatIsExpectedOfAnUnseenPromptFollowsWhatOthersTeach(t *testing.T) {
	w := newWorld(t, 1, Config{})
	w.perToken, w.base = 200*time.Microsecond, 100*time.Millisecond
	w.serve(t, 2000, 0.2)
	w.drain(t)
	l := w.learned()
	p := must(w.selector.Pick(unstreamedPrompt(3000)))
	defer p.Done()
	expected := l.Base + 3000*l.PerToken
	about(t, "the wait", expected, 700*time.Millisecond, 0.2)
	at := w.now()
	for _, c := range []struct {
		after   time.Duration
		pending int64
	}{{expected - 2*modelFor, 3000}, {expected + modelFor, 0}} {
		w.until(at + c.after)
		w.refresh(t)
		if got := p.Worker.Own().PendingTokens; got != c.pending {
			t.Errorf("%v of %v later %d tokens pend", c.after, expected, got)
		}
	}
}

func TestARequestThatIsDoneBeforeItIsExpectedToBeginLeavesNoTrace(t *testing.T) {
	// Its ticket is used again, by one that somebody will see begin.
	table, clock := newTestTable()
	a := table.Add("a", "")
	s := leastWork1(table)
	for range 50 {
		must(s.Pick(unstreamedPrompt(1000))).Done()
		p := must(s.Pick(prompt(700)))
		clock.advance(time.Second)
		look(t, s, clock)
		if got, want := a.Own(), (load.Own{InFlight: 1, Unstarted: 1, PendingTokens: 700}); got != want {
			t.Fatalf("the books are %+v, want %+v", got, want)
		}
		p.Done()
	}
}

func TestMoreUnseenRequestsThanAreRememberedPendUntilTheyAreDone(t *testing.T) {
	table, clock := newTestTable()
	a := table.Add("a", "")
	s := leastWork1(table)
	const n = 3000
	var picks []Pick
	for range n {
		picks = append(picks, must(s.Pick(unstreamedPrompt(10))))
	}
	clock.advance(time.Minute)
	look(t, s, clock)
	if got, want := a.Own(), (load.Own{InFlight: n, Unstarted: n - 1024, PendingTokens: (n - 1024) * 10}); got != want {
		t.Errorf("the books are %+v, want %+v", got, want)
	}
	for _, p := range picks {
		p.Done()
	}
	if got := a.Own(); got != (load.Own{}) {
		t.Errorf("in the end the books are %+v", got)
	}
	p := mustPick(t, s, unstreamedPrompt(10)) // and there is room again
	clock.advance(time.Minute)
	look(t, s, clock)
	if got := p.Worker.Own(); got != (load.Own{InFlight: 1}) {
		t.Errorf("the books are %+v", got)
	}
}

func TestUnseenRequestsAreNotRememberedForEver(t *testing.T) {
	// By the word of an engine that has lost count they begin in some hours.
	table, clock := newTestTable()
	a := table.Add("a", "")
	mustPut(t, a.Advertise(1), 0, load.Report{WaitingTokens: load.Known[int64](1 << 62)})
	s := leastWork1(table)
	for range 500 {
		must(s.Pick(unstreamedPrompt(10))).Done()
	}
	clock.advance(time.Minute)
	look(t, s, clock)
	if n := len(s.policy.(*leastWork).learner.beginning); n != 0 {
		t.Errorf("a minute later %d are remembered", n)
	}
}

func TestUnseenRequestsOnAWorkerThatIsGoneHarmNobody(t *testing.T) {
	table, clock := newTestTable()
	a := table.Add("a", "")
	s := leastWork1(table)
	p := mustPick(t, s, unstreamedPrompt(1000))
	b := table.Add("a", "") // in its place
	q := mustPick(t, s, prompt(500))
	if q.Worker != b {
		t.Fatalf("%v is gone", q)
	}
	clock.advance(time.Minute)
	look(t, s, clock)
	p.Done()
	if a.Own() != (load.Own{}) || b.Own() != (load.Own{InFlight: 1, Unstarted: 1, PendingTokens: 500}) {
		t.Errorf("%+v and %+v", a.Own(), b.Own())
	}
}
