package selector

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

func TestWhatAPromptTokenTakesIsLearnedFromTheWaitsForFirstTokens(t *testing.T) {
	for _, perToken := range []time.Duration{20 * time.Microsecond, 50 * time.Microsecond, 400 * time.Microsecond} {
		for _, busy := range []float64{0.1, 0.5, 0.9} {
			t.Run(fmt.Sprint(perToken, busy), func(t *testing.T) {
				w := newWorld(t, 8, Config{})
				w.perToken, w.base = perToken, 400*perToken
				w.serve(t, 3000, busy)
				w.refresh(t)
				l := w.learned()
				// A prompt that is half computed is pending in full, which makes tokens look
				// cheaper the more of them wait.
				tolerance := 0.02 + 0.35*busy
				about(t, "a prompt token", l.PerToken, perToken, tolerance)
				about(t, "what comes on top", l.Base.Seconds()+2050*l.PerToken.Seconds(), w.base.Seconds()+2050*perToken.Seconds(), tolerance)
				about(t, "a request", l.PerRequest, 40*l.PerToken, 1e-6)
				about(t, "a prompt", l.Prompt, 2050, 0.3)
				for _, s := range l.Speeds {
					if s.Speed != 1 || s.Requests < 10 {
						t.Errorf("%+v, of equals", s)
					}
				}
				// And that is what a pick expects.
				w.drain(t)
				x := explained(t, w.selector, prompt(1000))
				about(t, "the cost of an idle worker", x.Workers[0].Cost, 1000*l.PerToken+40*l.PerToken, 0.01)
			})
		}
	}
}

func TestAPromptTokenTakesWhatItCanTakeAtAll(t *testing.T) {
	for perToken, want := range map[time.Duration]time.Duration{50 * time.Nanosecond: time.Microsecond, 30 * time.Millisecond: 5 * time.Millisecond} {
		w := newWorld(t, 2, Config{})
		w.perToken = perToken
		for range 200 {
			w.send(t, Request{}, 100+w.rnd.Int64N(1000))
			w.drain(t)
		}
		if l := w.learned(); l.PerToken != want || l.PerRequest != 40*want {
			t.Errorf("a token that takes %v is taken to take %v, and a request %v", perToken, l.PerToken, l.PerRequest)
		}
	}
}

func TestSlowEnginesAreLearnedToo(t *testing.T) {
	for _, perToken := range []time.Duration{time.Millisecond, 4 * time.Millisecond} {
		w := newWorld(t, 2, Config{})
		w.serve(t, 100*(int(perToken/time.Millisecond)-1), 0.2) // or from what faster ones have taught
		w.perToken, w.base = perToken, 2*time.Second
		for range 1500 {
			w.send(t, Request{}, 100+w.rnd.Int64N(3000))
			w.drain(t)
		}
		about(t, "a token", w.learned().PerToken, perToken, 0.35)
	}
}

func TestNothingIsBelievedBeforeThereAreSamples(t *testing.T) {
	w := newWorld(t, 2, Config{})
	w.perToken = 500 * time.Microsecond
	for range 49 {
		w.send(t, Request{}, 100+w.rnd.Int64N(1000))
		w.drain(t)
	}
	if l := w.learned(); l.PerToken != 50*time.Microsecond || l.Base != 0 {
		t.Errorf("after 49 requests a token takes %v, and all %v", l.PerToken, l.Base)
	}
	for range 20 {
		w.send(t, Request{}, 100+w.rnd.Int64N(1000))
		w.drain(t)
	}
	about(t, "a prompt token", w.learned().PerToken, w.perToken, 0.02)
}

func TestWaitsThatAreNoLineTeachNoCost(t *testing.T) {
	for name, c := range map[string]struct {
		tokens func(rnd *rand.Rand) int64
		wait   func(tokens int64, rnd *rand.Rand) time.Duration
	}{
		"prompts that are all alike": {
			func(*rand.Rand) int64 { return 777 },
			func(_ int64, rnd *rand.Rand) time.Duration { return time.Duration(rnd.Int64N(1e8)) },
		},
		"prompts that are nearly alike": {
			func(rnd *rand.Rand) int64 { return 12_340 + rnd.Int64N(10) },
			func(_ int64, rnd *rand.Rand) time.Duration { return time.Duration(rnd.Int64N(1e8)) },
		},
		"no prompts": {
			func(*rand.Rand) int64 { return 0 },
			func(_ int64, rnd *rand.Rand) time.Duration { return time.Duration(rnd.Int64N(1e8)) },
		},
		"waits that get shorter with more to do": {
			func(rnd *rand.Rand) int64 { return rnd.Int64N(4000) },
			func(tokens int64, _ *rand.Rand) time.Duration {
				return time.Second - time.Duration(tokens)*50*time.Microsecond
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, Config{})
			for i := range 2000 {
				tokens := c.tokens(w.rnd)
				w.between = func(Pick, time.Duration) time.Duration { return c.wait(tokens, w.rnd) }
				w.send(t, Request{}, tokens)
				w.drain(t)
				if l := w.learned(); l.PerToken != 50*time.Microsecond || l.PerRequest != 2*time.Millisecond || l.Base != 0 {
					t.Fatalf("after %d requests a token takes %v, a request is worth %v and all take %v", i+1, l.PerToken, l.PerRequest, l.Base)
				}
			}
		})
	}
}

func TestWaitsWithoutRhymeOrReasonTeachNothingThatCannotBe(t *testing.T) {
	w := newWorld(t, 4, Config{Peers: replica(0, 2)})
	for range 4000 {
		w.between = func(Pick, time.Duration) time.Duration {
			switch w.rnd.IntN(4) {
			case 0:
				return 0
			case 1:
				return time.Duration(w.rnd.Int64N(int64(24 * time.Hour)))
			}
			return time.Duration(w.rnd.ExpFloat64() * 1e8)
		}
		w.answer = time.Duration(w.rnd.Int64N(2) * w.rnd.Int64N(int64(24*time.Hour)))
		r := Request{}
		if w.rnd.IntN(3) == 0 {
			r.Candidates = w.workers[w.rnd.IntN(4):]
		}
		w.send(t, r, w.rnd.Int64N(1<<w.rnd.IntN(20)))
		w.until(w.now() + time.Duration(w.rnd.ExpFloat64()*1e8))
		l := w.learned()
		ok := l.PerToken >= time.Microsecond && l.PerToken <= 5*time.Millisecond && l.PerRequest == 40*l.PerToken &&
			l.Base >= 0 && l.Base < 24*time.Hour && l.FirstToken >= time.Millisecond && l.FirstToken <= 24*time.Hour &&
			l.Response >= 10*time.Millisecond && l.Response <= 48*time.Hour && l.Prompt >= 0 && l.Prompt <= 1<<31 &&
			l.Bias >= 0 && l.Bias <= 500*time.Millisecond && l.Away >= 1 && l.Away <= 2
		for _, s := range l.Speeds {
			ok = ok && s.Speed >= 0.1 && s.Speed <= 10
		}
		if !ok {
			t.Fatalf("%+v", l)
		}
	}
	w.between, w.answer = nil, time.Second
	w.drain(t)
	w.serve(t, 20_000, 0.3)
	w.refresh(t)
	about(t, "a prompt token, after it all", w.learned().PerToken, w.perToken, 0.3)
}

func TestOneRequestThatHangsTeachesNothingOfTheOthers(t *testing.T) {
	w := newWorld(t, 8, Config{})
	w.serve(t, 2000, 0.5)
	w.refresh(t)
	before := w.learned()
	w.between = func(Pick, time.Duration) time.Duration { return 10 * time.Minute }
	p := w.send(t, Request{}, 1000)
	w.between = nil
	w.drain(t)
	after := w.learned()
	about(t, "a prompt token", after.PerToken, before.PerToken, 0.1)
	about(t, "the mean wait", after.FirstToken, before.FirstToken, 0.3)
	if got := w.speed(p.Worker); got != 1 {
		t.Errorf("the worker seems to be of speed %v", got)
	}
}

func TestAnEngineThatHasLostCountTeachesNothing(t *testing.T) {
	w := newWorld(t, 8, Config{})
	w.serve(t, 2000, 0.5)
	w.refresh(t)
	before := w.learned()
	for _, worker := range w.workers {
		worker.Advertise(1)
	}
	for range 20 { // requests that only it may be sent
		mustPut(t, w.workers[3], 0, load.Report{WaitingTokens: load.Known[int64](1 << 62)})
		w.refresh(t)
		w.send(t, Request{Candidates: w.workers[3:4]}, 1000)
		w.drain(t)
	}
	after := w.learned()
	about(t, "a prompt token", after.PerToken, before.PerToken, 0.01)
	about(t, "what all take", after.Base, before.Base, 0.01)
	if got := w.speed(w.workers[3]); got != 1 {
		t.Errorf("it seems to be of speed %v", got)
	}
}

func TestASlowWorkerIsLearnedAndGetsLess(t *testing.T) {
	for _, perToken := range []time.Duration{50 * time.Microsecond, 4 * time.Microsecond} { // some minutes, some seconds
		w := newWorld(t, 6, Config{})
		w.perToken, w.base = perToken, 400*perToken
		slow := w.workers[2]
		w.speeds[slow] = 0.5
		w.serve(t, 3000, 0.7)
		clear(w.picked)
		w.serve(t, 2000, 0.7)
		if got := w.speed(slow); got < 0.45 || got > 0.75 {
			t.Errorf("half as fast as the others, it seems to be of speed %v", got)
		}
		others := (2000 - w.picked[slow]) / 5
		if w.picked[slow] > others*2/3 || w.picked[slow] < others/4 {
			t.Errorf("half as fast as the others, it got %d requests, the others %d each", w.picked[slow], others)
		}
		for _, worker := range w.workers {
			if got := w.speed(worker); worker != slow && got != 1 {
				t.Errorf("%s is as fast as most, and seems to be of speed %v", worker.ID(), got)
			}
		}

		w.speeds[slow] = 1
		w.serve(t, 4000, 0.7)
		clear(w.picked)
		w.serve(t, 2000, 0.7)
		if got := w.speed(slow); got != 1 {
			t.Errorf("as fast as the others again, it seems to be of speed %v", got)
		}
		if n := w.picked[slow]; n < 280 || n > 390 {
			t.Errorf("as fast as the others again, it got %d of 2000", n)
		}
	}
}

func TestAFastWorkerIsLearnedAndGetsMore(t *testing.T) {
	w := newWorld(t, 6, Config{})
	fast := w.workers[4]
	w.speeds[fast] = 3
	w.serve(t, 4000, 0.8)
	clear(w.picked)
	w.serve(t, 3000, 0.8)
	if got := w.speed(fast); got < 1.5 || got > 3.5 {
		t.Errorf("three times as fast as the others, it seems to be of speed %v", got)
	}
	if others := (3000 - w.picked[fast]) / 5; w.picked[fast] < others*3/2 {
		t.Errorf("three times as fast as the others, it got %d requests, the others %d each", w.picked[fast], others)
	}
}

func TestAWorkerThatSeemedSlowIsTriedAgain(t *testing.T) {
	// Also where the others are not so busy that it is ever needed.
	w := newWorld(t, 8, Config{})
	w.serve(t, 2000, 0.2)
	slow := w.workers[3]
	w.speeds[slow] = 0.05
	w.serve(t, 2000, 0.2)
	if got := w.speed(slow); got > 0.8 {
		t.Fatalf("it seems to be of speed %v", got)
	}
	w.speeds[slow] = 1
	begin := w.now()
	for w.speed(slow) != 1 {
		w.serve(t, 100, 0.2)
		if w.now()-begin > 15*time.Minute {
			t.Fatalf("a quarter of an hour later it seems to be of speed %v", w.speed(slow))
		}
	}
}

func TestIfAllWorkersChangeItIsTheCostThatChanges(t *testing.T) {
	// Also where there are so few that each knows it before the line does.
	for _, n := range []int{1, 2, 8} {
		for _, factor := range []time.Duration{1, 10} { // from 50 µs
			w := newWorld(t, n, Config{})
			w.perToken, w.base = 50*time.Microsecond, 20*time.Millisecond
			w.serve(t, 2000, 0.3)
			w.perToken, w.base = factor*20*time.Microsecond, factor*8*time.Millisecond
			w.serve(t, 6000, 0.3)
			about(t, fmt.Sprintf("of %d workers, a prompt token", n), w.learned().PerToken, w.perToken, 0.45)
			for _, s := range w.learned().Speeds {
				if s.Speed < 0.6 || s.Speed > 1.6 {
					t.Errorf("%s is as fast as all, and seems to be of speed %v", s.Worker, s.Speed)
				}
			}
		}
	}
}

func TestAWorkerThatGetsNoRequestsIsNotSlowForEver(t *testing.T) {
	w := newWorld(t, 3, Config{})
	slow := w.workers[1]
	w.speeds[slow] = 0.2
	w.serve(t, 2000, 0.5)
	w.drain(t)
	if got := w.speed(slow); got > 0.5 {
		t.Fatalf("it seems to be of speed %v", got)
	}
	for range 20 {
		w.until(w.now() + time.Minute)
		must(w.selector.Pick(Request{Exclude: []*load.Worker{slow}})).Done()
	}
	if got := w.speed(slow); got != 1 {
		t.Errorf("after 20 minutes without a request it seems to be of speed %v", got)
	}
}

func TestANoteHoldsWhatAnEngineMayClaim(t *testing.T) {
	for _, ahead := range []float64{0, 1, 12_345, 1e9, 1e18, math.Inf(1), -5} {
		for _, expected := range []float64{0, 0.25, 3600, 1e18, math.Inf(1), -5} {
			for _, away := range []bool{false, true} {
				n := newNote(ahead, away, expected)
				wantAhead := min(max(ahead, 0), 1<<31-1)
				wantExpected := time.Duration(min(max(expected, 0), math.MaxUint32/1e3) * 1e9)
				if n.ahead() != wantAhead || n.away() != away || (n.expected()-wantExpected).Abs() > time.Millisecond {
					t.Errorf("of %v, %v and %v it holds %v, %v and %v", ahead, away, expected, n.ahead(), n.away(), n.expected())
				}
			}
		}
	}
}

func TestAFewSamplesOfAWorkerDoNotMakeItSlow(t *testing.T) {
	w := newWorld(t, 2, Config{})
	w.serve(t, 500, 0.2)
	w.drain(t)
	late := w.table.Add("late", "")
	w.workers = append(w.workers, late)
	w.speeds[late] = 0.5
	for i := range 8 {
		w.send(t, Request{Worker: nil, Candidates: []*load.Worker{late}}, 1000)
		w.drain(t)
		if got := w.speed(late); got != 1 {
			t.Errorf("after %d requests that took twice as long it seems to be of speed %v", i+1, got)
		}
	}
	for range 100 {
		w.send(t, Request{Candidates: []*load.Worker{late}}, 1000)
		w.drain(t)
	}
	if got := w.speed(late); got < 0.4 || got > 0.8 {
		t.Errorf("after 108 it seems to be of speed %v", got)
	}
}

func TestMeansFollowWhatIsSeen(t *testing.T) {
	w := newWorld(t, 3, Config{})
	w.answer = 3 * time.Second
	for _, wait := range []time.Duration{200 * time.Millisecond, 50 * time.Millisecond, 400 * time.Microsecond} {
		w.between = func(Pick, time.Duration) time.Duration { return wait }
		for range 400 {
			w.send(t, Request{}, 700)
			w.drain(t)
		}
		l := w.learned()
		about(t, "the wait", l.FirstToken, max(wait, time.Millisecond), 0.02)
		about(t, "the response", l.Response, wait+w.answer, 0.02)
		about(t, "the bias", l.Bias, max(l.FirstToken*3/2, 20*time.Millisecond), 0.001)
	}
	w.between = func(Pick, time.Duration) time.Duration { return 0 }
	w.answer = 0
	for range 800 {
		w.send(t, Request{}, 700)
		w.drain(t)
	}
	if l := w.learned(); l.Response != 10*time.Millisecond || l.FirstToken != time.Millisecond {
		t.Errorf("of answers that take no time the response is taken to be %v, the wait %v", l.Response, l.FirstToken)
	}
	w.between = func(_ Pick, wait time.Duration) time.Duration { return wait }
	w.perToken = time.Millisecond
	for range 400 {
		w.send(t, Request{}, 2000)
		w.drain(t)
	}
	if l := w.learned(); l.Bias != 500*time.Millisecond {
		t.Errorf("of waits of %v the bias is %v", l.FirstToken, l.Bias)
	}
}

func TestWhatFailsTeachesNothing(t *testing.T) {
	w := newWorld(t, 3, Config{})
	w.serve(t, 500, 0.3)
	w.drain(t)
	before := w.learned()
	for range 500 { // refused, cut off, given up
		p := must(w.selector.Pick(prompt(2050)))
		w.until(w.now() + time.Minute)
		p.Dispatched()
		p.Done()
		p.FirstToken()
	}
	w.refresh(t)
	after := w.learned()
	if after.FirstToken != before.FirstToken || after.Response != before.Response || after.PerToken != before.PerToken || after.Base != before.Base {
		t.Errorf("it was\n%+v\nand is\n%+v", before, after)
	}
}

func TestAPromptOfUnknownLengthIsTakenForTheMeanOne(t *testing.T) {
	table, clock := newTestTable()
	table.Add("a", "")
	s := leastWork1(table)
	x := explained(t, s, Request{})
	wantAmount(t, x.of(t, "a"), "prompt_tokens", 1000) // nothing is known yet
	for range 500 {
		clock.advance(modelFor)
		must(s.Pick(prompt(300))).Done()
		clock.advance(modelFor)
		must(s.Pick(Request{})).Done() // which says nothing of lengths
	}
	p := mustPick(t, s, Request{})
	about(t, "what is booked", p.Worker.Own().PendingTokens, 300, 0.02)
	about(t, "the prompt", explained(t, s, Request{}).of(t, "a").amount("prompt_tokens"), 300, 0.02)
	for range 500 {
		clock.advance(modelFor)
		must(s.Pick(prompt(0))).Done()
	}
	if got := s.policy.(Learner).Learned().Prompt; got > 1 || got < 0 {
		t.Errorf("of empty prompts the mean is %v", got)
	}
	for _, tokens := range []int64{math.MinInt64, math.MaxInt64} {
		clock.advance(modelFor)
		must(s.Pick(prompt(tokens))).Done()
	}
	if got := s.policy.(Learner).Learned().Prompt; got < 0 || got > 1<<31 {
		t.Errorf("a prompt of more than there can be makes the mean %v", got)
	}
}

func TestHowMuchLongerRequestsWaitOutsideOfTheSliceIsLearned(t *testing.T) {
	for _, c := range []struct{ longer, want float64 }{{1, 1}, {1.6, 1.6}, {5, 2}, {0.3, 1}} {
		w := newWorld(t, 4, Config{Peers: replica(0, 2)})
		home, abroad := w.workers[:2], w.workers[2:]
		w.between = func(p Pick, wait time.Duration) time.Duration {
			if p.Reason == LeastWaitingAway {
				return time.Duration(float64(wait) * c.longer)
			}
			return wait
		}
		for range 500 {
			for _, some := range [][]*load.Worker{home, abroad} {
				w.send(t, Request{Candidates: some}, 100+w.rnd.Int64N(3000))
				w.drain(t)
			}
		}
		l := w.learned()
		about(t, fmt.Sprintf("where they wait %v times as long, that", c.longer), l.Away, c.want, 0.05)
		about(t, "a token at home", l.PerToken, w.perToken, 0.02)
		for _, s := range l.Speeds {
			if c.want == c.longer && s.Speed != 1 {
				t.Errorf("%+v: all abroad are as slow as that", s)
			}
		}

		x := explained(t, w.selector, Request{PromptTokens: load.Known[int64](1000), Candidates: w.workers})
		a, c := x.of(t, home[0].ID()), x.of(t, abroad[0].ID())
		wantAmount(t, c, "away", l.Away)
		plain := time.Duration(0)
		for _, term := range c.Terms {
			if term.Name != "away" && term.Name != "bias" {
				plain += term.Cost
			}
		}
		wantCost(t, c, time.Duration(float64(plain)*l.Away)+l.Bias)
		wantAmount(t, a, "away", 0)
	}
}

func TestAFewWaitsOutsideOfTheSliceProveNothing(t *testing.T) {
	w := newWorld(t, 4, Config{Peers: replica(0, 2)})
	w.serve(t, 300, 0.2)
	w.drain(t)
	before := w.learned().Away
	w.between = func(_ Pick, wait time.Duration) time.Duration { return 3 * wait }
	for range 4 {
		w.send(t, Request{Candidates: w.workers[2:]}, 1000)
		w.drain(t)
	}
	if got := w.learned().Away; got > before+0.4 || got <= before {
		t.Errorf("it was %v, and after four that waited three times as long is %v", before, got)
	}
}

func TestTheCostsOfAWorkerFollowItsSpeed(t *testing.T) {
	w := newWorld(t, 3, Config{})
	w.speeds[w.workers[0]] = 0.4
	w.serve(t, 3000, 0.6)
	w.drain(t)
	mustPut(t, w.workers[0].Advertise(1), 0, load.Report{Running: 4, WaitingTokens: load.Known[int64](800)})
	holdPrompt(t, w.workers[0], 300)
	w.refresh(t)
	x := explained(t, w.selector, prompt(1000))
	speed := w.speed(w.workers[0])
	if speed > 0.8 {
		t.Fatalf("it seems to be of speed %v", speed)
	}
	a := x.of(t, "a")
	perToken := x.Learned.PerToken.Seconds() / speed
	want := perToken*(300+a.amount("others_tokens")+1000) + 40*perToken*(1+a.amount("others_requests")+1)
	about(t, "the cost", a.Cost.Seconds(), want, 1e-3)
	if a.amount("others_requests") == 0 || a.amount("others_tokens") == 0 {
		t.Errorf("%v", a)
	}
}

func TestLearnersAreThosePoliciesThatLearn(t *testing.T) {
	anyPolicy(t, func(t *testing.T, policy Policy) {
		if _, ok := policy.(Learner); ok != (policy.Name() == LeastWorkName) {
			t.Errorf("a learner: %v", ok)
		}
	})
	for _, ranks := range []bool{false, true} {
		table, _ := newTestTable()
		withRanks(t, table, "a", running(1), running(2))
		table.Add("b", "").SetHealthy(false)
		table.Add("c", "")
		policy := LeastWork(LeastWorkConfig{Ranks: ranks})
		if l := policy.(Learner).Learned(); len(l.Speeds) != 0 || l.PerToken != 50*time.Microsecond {
			t.Errorf("before any pick it knows %+v", l)
		}
		mustPick(t, New(table, Config{Policy: policy}), Request{})
		want := "[{a 1 0} {c 1 0}]"
		if got := fmt.Sprint(policy.(Learner).Learned().Speeds); got != want {
			t.Errorf("ranks: %v: the speeds are %v, want %v", ranks, got, want)
		}
	}
}

// known is how many workers the learner of a selector remembers.
func known(s *Selector) (n int) {
	p, ok := s.policy.(*leastWork)
	if !ok {
		p = s.policy.(leastWorkOfRanks).leastWork
	}
	p.learner.waits.Range(func(any, any) bool { n++; return true })
	return n
}

func TestWorkersThatAreGoneAreForgotten(t *testing.T) {
	table, clock := newTestTable()
	stays := table.Add("stays", "")
	s := leastWork1(table)
	for i := range fewer(fewer(100_000)) / 50 {
		var some []*load.Worker
		for j := range 50 {
			some = append(some, table.Add(fmt.Sprint(j), ""))
		}
		clock.advance(500 * time.Millisecond)
		var picks []Pick
		for range 60 {
			picks = append(picks, must(s.Pick(prompt(100))))
		}
		for _, w := range some {
			table.Remove(w)
		}
		for _, p := range picks {
			p.FirstToken() // of workers that are gone
			p.Done()
		}
		if i%50 > 0 {
			continue
		}
		if n := known(s); n > 3*50*125 { // what came within two sweeps
			t.Fatalf("after %d workers, of which 51 are here, it knows %d", i*50, n)
		}
	}
	for range 3 {
		clock.advance(time.Minute)
		must(s.Pick(prompt(100))).Done()
	}
	if n := known(s); n != 1 {
		t.Errorf("in the end it knows %d, want that which stays", n)
	}
	if len(s.policy.(Learner).Learned().Speeds) != 1 || stays.InFlight() != 0 {
		t.Errorf("%+v", s.policy.(Learner).Learned())
	}
}

func TestAWorkerThatIsAwayForAMomentIsAsFastAsBefore(t *testing.T) {
	w := newWorld(t, 3, Config{})
	slow := w.workers[1]
	w.speeds[slow] = 0.3
	w.serve(t, 3000, 0.6)
	w.drain(t)
	before := w.speed(slow)
	if before > 0.7 {
		t.Fatalf("it seems to be of speed %v", before)
	}
	slow.SetHealthy(false)
	w.refresh(t)
	if got := w.speed(slow); got != 0 {
		t.Errorf("who is not healthy has speed %v", got)
	}
	w.until(w.now() + 50*time.Second)
	w.refresh(t)
	slow.SetHealthy(true)
	w.refresh(t)
	about(t, "its speed, after a while,", w.speed(slow), before, 0.15)

	slow.SetHealthy(false)
	for range 3 {
		w.until(w.now() + time.Minute)
		w.refresh(t)
	}
	slow.SetHealthy(true)
	w.refresh(t)
	if got := w.speed(slow); got != 1 {
		t.Errorf("its speed, after three minutes, is %v", got)
	}
}
