package fleetsim_test

import (
	"math"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
	"github.com/plimsoll-go/plimsoll/internal/fleetsim/trace"
	"github.com/plimsoll-go/plimsoll/selector"
)

const (
	ms = time.Millisecond
	us = time.Microsecond
)

// plain is an engine whose steps take 10 ms, and 1 ms for each prompt token.
var plain = fleetsim.EngineConfig{Base: 10 * ms, PrefillPerToken: ms, PerRequest: -1, PerKVToken: -1, ChunkTokens: 1000}

func requests(list ...trace.Request) *trace.Trace { return &trace.Trace{Requests: list} }

// times compares when first and last tokens were seen.
func times(t *testing.T, r *fleetsim.Result, want ...[2]time.Duration) {
	t.Helper()
	for i, o := range r.Requests {
		if o.FirstToken != want[i][0] || o.Over != want[i][1] {
			t.Errorf("request %d: first token at %v, over at %v, want %v", i, o.FirstToken, o.Over, want[i])
		}
	}
}

// The network takes 1 ms either way.
func TestStepsTakeWhatTheyAreSaidTo(t *testing.T) {
	engine := fleetsim.EngineConfig{Base: 10 * ms, PrefillPerToken: ms, PerRequest: 2 * ms, PerKVToken: us, ChunkTokens: 30}
	tr := requests(
		trace.Request{At: 0, Prompt: 20, Output: 2},
		trace.Request{At: 5 * ms, Prompt: 25, Output: 3},
		trace.Request{At: 6 * ms, Prompt: 10, Output: 1},
	)
	r := run(t, fleetsim.Config{Trace: tr, Engines: fleetsim.Fleet(1, engine), Chooser: leastRequest})
	// What a step does, when it begins and how long it takes, in milliseconds:
	//   1.000  20 tokens of the first prompt                            10+20
	//  31.000  25 of the second, 5 of the third; the first decodes      10+30+2+0.021
	//  73.021  5 of the third; the second decodes                       10+5+2+0.026
	//  90.047  the second decodes                                       10+2+0.027
	times(t, r, [2]time.Duration{32 * ms, 74021 * us}, [2]time.Duration{74021 * us, 103074 * us}, [2]time.Duration{91047 * us, 91047 * us})

	engine.Speed = 2
	r = run(t, fleetsim.Config{Trace: tr, Engines: fleetsim.Fleet(1, engine), Chooser: leastRequest})
	//   1.0    the first prompt, 15
	//  16.0    25 and 5 tokens, and one request decodes, 21.0105
	//  37.0105 5 tokens, 8.513
	//  45.5235 the second decodes, 6.0135
	times(t, r, [2]time.Duration{17 * ms, 38010500}, [2]time.Duration{38010500, 52537 * us}, [2]time.Duration{46523500, 46523500})
}

func TestAdmissionIsFirstComeFirstServed(t *testing.T) {
	engine := plain
	engine.MaxRunning = 2
	tr := requests(
		trace.Request{Prompt: 10, Output: 3},
		trace.Request{Prompt: 10, Output: 2},
		trace.Request{Prompt: 10, Output: 1},
		trace.Request{Prompt: 1, Output: 1},
	)
	r := run(t, fleetsim.Config{Trace: tr, Engines: fleetsim.Fleet(1, engine), Chooser: leastRequest})
	//  1  the first is alone: the others come one event later
	// 21  second; first decodes   20
	// 41  both decode and end     10
	// 51  third and fourth        21
	times(t, r, [2]time.Duration{22 * ms, 52 * ms}, [2]time.Duration{42 * ms, 52 * ms}, [2]time.Duration{73 * ms, 73 * ms}, [2]time.Duration{73 * ms, 73 * ms})
}

func TestKVOverflowRetractsTheNewest(t *testing.T) {
	engine := plain
	engine.KVTokens, engine.KVReserve = 100, 1
	tr := requests(
		trace.Request{Prompt: 40, Output: 25},
		trace.Request{Prompt: 40, Output: 20},
	)
	r := run(t, fleetsim.Config{Trace: tr, Engines: fleetsim.Fleet(1, engine), Chooser: leastRequest})
	//   1  first prompt                                     50, ends at  51
	//  51  second prompt, first decodes (41 of KV cache)    50, ends at 101
	// 101  both decode; before the k-th such step they hold 81+2(k-1) tokens, and need 2 more.
	//      Nine fit: until 191 the first has made 11 tokens, the second 10.
	// 191  99+2 > 100: the second is retracted. The first decodes alone, 14 steps of 10,
	//      while 51 to 64 of 100 tokens are in use and the second needs 50 and 1: it does
	//      not fit until the first is over, but for the first steps after 191, of which
	//      the one at 201 could take it only with 51+50 ≤ 100.
	// 331  the second again: 40 and 10 tokens are computed  60, ends at 391, with its 11th token
	// 391  nine more                                        90
	times(t, r, [2]time.Duration{52 * ms, 332 * ms}, [2]time.Duration{102 * ms, 482 * ms})
	if r.Requests[0].Retractions != 0 || r.Requests[1].Retractions != 1 {
		t.Errorf("retractions: %d and %d, want 0 and 1", r.Requests[0].Retractions, r.Requests[1].Retractions)
	}
}

func TestLockstepPaceIsThatOfTheSlowest(t *testing.T) {
	engine := plain
	engine.Ranks = 2
	tr := requests(
		trace.Request{At: 0, Prompt: 100, Output: 2}, // to rank 0
		trace.Request{At: 1, Prompt: 10, Output: 3},  // to rank 1
	)
	free := run(t, fleetsim.Config{Trace: tr, Engines: fleetsim.Fleet(1, engine), Chooser: leastRequest})
	times(t, free, [2]time.Duration{112 * ms, 122 * ms}, [2]time.Duration{22*ms + 1, 42*ms + 1})

	engine.Lockstep = true
	lockstep := run(t, fleetsim.Config{Trace: tr, Engines: fleetsim.Fleet(1, engine), Chooser: leastRequest})
	//   1  rank 0 computes, rank 1 has nothing to do yet    110
	// 111  rank 0 decodes, rank 1 computes                   20
	// 131  rank 1 decodes                                    10
	// 141  and again                                         10
	times(t, lockstep, [2]time.Duration{112 * ms, 132 * ms}, [2]time.Duration{132 * ms, 152 * ms})
	if a, b := lockstep.Ranks[0].Stepping, lockstep.Ranks[1].Stepping; a != 150*ms || b != 150*ms {
		t.Errorf("ranks have been stepping for %v and %v, want 150ms", a, b)
	}
}

func TestTheEngineTakesItsRanksInTurnUnlessTheGatewayChooses(t *testing.T) {
	engine := plain
	engine.Ranks = 3
	var list []trace.Request
	for i := range 6 {
		list = append(list, trace.Request{At: time.Duration(i) * time.Second, Prompt: 1, Output: 1})
	}
	r := run(t, fleetsim.Config{Trace: requests(list...), Engines: fleetsim.Fleet(1, engine), Chooser: leastRequest})
	for i, o := range r.Requests {
		if o.Rank != i%3 {
			t.Errorf("request %d is on rank %d", i, o.Rank)
		}
	}
	always := policy(func() selector.Policy { return onRank{2} })
	r = run(t, fleetsim.Config{Trace: requests(list...), Engines: fleetsim.Fleet(1, engine), Chooser: always})
	for i, o := range r.Requests {
		if o.Rank != 2 {
			t.Errorf("request %d is on rank %d, want 2", i, o.Rank)
		}
	}
}

type onRank struct{ rank int }

func (onRank) Name() string { return "on_rank" }
func (onRank) ChoosesRank() {}
func (p onRank) Choose(d *selector.Decision) selector.Choice {
	return selector.Choice{Candidate: d.Candidate(0), Reason: selector.Turn}.OnRank(p.rank)
}

func TestPrefixesAreComputedOnce(t *testing.T) {
	engine := plain
	engine.PrefixCache = true
	engine.ChunkTokens = 10_000
	tr := requests(
		trace.Request{At: 0, Prompt: 1100, Output: 1, Blocks: []uint64{1, 2, 3}},
		trace.Request{At: 2 * time.Second, Prompt: 1100, Output: 1, Blocks: []uint64{1, 2, 4}}, // two full blocks
		trace.Request{At: 4 * time.Second, Prompt: 1024, Output: 1, Blocks: []uint64{1, 2}},    // all of it
		trace.Request{At: 6 * time.Second, Prompt: 1100, Output: 1, Blocks: []uint64{5, 2, 3}}, // not from the beginning
		trace.Request{At: 8 * time.Second, Prompt: 600, Output: 1},                             // content unknown
	)
	r := run(t, fleetsim.Config{Trace: tr, Engines: fleetsim.Fleet(1, engine), Chooser: leastRequest})
	for i, want := range []struct {
		cached int
		ttft   time.Duration
	}{{0, 1112 * ms}, {1024, 88 * ms}, {1023, 13 * ms}, {0, 1112 * ms}, {0, 612 * ms}} {
		if o := r.Requests[i]; o.Cached != want.cached || o.TTFT() != want.ttft {
			t.Errorf("request %d: %d tokens cached, first token after %v, want %+v", i, o.Cached, o.TTFT(), want)
		}
	}
	if hits, want := r.Summary().CacheHits, 2047.0/4924; math.Abs(hits-want) > 1e-9 {
		t.Errorf("cache hits are %v, want %v", hits, want)
	}
}

func TestTheCacheKeepsWhatWasUsedLast(t *testing.T) {
	engine := plain
	engine.PrefixCache = true
	engine.KVTokens = 3 * 512
	prompt := func(second int, block uint64) trace.Request {
		return trace.Request{At: time.Duration(second) * time.Second, Prompt: 513, Output: 1, Blocks: []uint64{block, block + 100}}
	}
	// Three blocks fit, one of which is needed for the tokens that are not shared.
	tr := requests(prompt(0, 1), prompt(1, 2), prompt(2, 1), prompt(3, 3), prompt(4, 1), prompt(5, 2))
	r := run(t, fleetsim.Config{Trace: tr, Engines: fleetsim.Fleet(1, engine), Chooser: leastRequest})
	for i, want := range []int{0, 0, 512, 0, 512, 0} {
		if got := r.Requests[i].Cached; got != want {
			t.Errorf("request %d: %d tokens cached, want %d", i, got, want)
		}
	}
}

// One request a step, all of one length, at random times: the queue that theory
// knows best.
func TestWaitIsThatOfMD1(t *testing.T) {
	const n = 20_000
	engine := plain
	engine.ChunkTokens = 90 // with the base, 100 ms of service
	for _, busy := range []float64{0.3, 0.5, 0.7} {
		tr := trace.Generate("", trace.Mix{Seed: 4, Requests: n, Rate: 10 * busy, Classes: []trace.Class{
			{Weight: 1, PromptMedian: 90, PromptMax: 90, OutputMedian: 1, OutputMax: 1}}})
		r := run(t, fleetsim.Config{Trace: tr, Engines: fleetsim.Fleet(1, engine), Chooser: leastRequest})
		got := r.Summary().TTFT.Mean - 102*ms
		want := time.Duration(busy / (2 * (1 - busy)) * float64(100*ms))
		if math.Abs(float64(got-want)) > 0.05*float64(want) {
			t.Errorf("at %v busy, the mean wait is %v, want %v", busy, got, want)
		}
		stepping := float64(r.Ranks[0].Stepping) / float64(r.End)
		if math.Abs(stepping-busy) > 0.02 {
			t.Errorf("at %v busy, the engine has been stepping for %v of the time", busy, stepping)
		}
	}
}
