package batch

import (
	"errors"
	"math"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// small is a Core whose step times are easy to add up.
var small = Config{
	Cost:        Cost{Base: time.Millisecond, PerPrefillToken: time.Microsecond, PerDecode: 10 * time.Microsecond, PerKVToken: time.Nanosecond},
	KVTokens:    1000,
	MaxRunning:  4,
	ChunkTokens: 100,
}

func mustAdd(t *testing.T, c *Core, id ID, prompt, output int64) {
	t.Helper()
	if err := c.Add(id, prompt, output); err != nil {
		t.Fatalf("Add(%d, %d, %d): %v", id, prompt, output, err)
	}
}

// drain steps until the Core is idle.
func drain(c *Core) {
	for ok := true; ok; {
		_, _, ok = c.Step(nil)
	}
}

func TestStepTimeIsTheSumOfItsTerms(t *testing.T) {
	c := New(small)
	mustAdd(t, c, 1, 40, 3)

	d, _ := c.Begin()
	if want := time.Millisecond + 40*time.Microsecond; d != want {
		t.Errorf("prefill step took %v, want %v", d, want)
	}
	c.Finish(nil)

	// The decode step reads the 40 tokens of the prompt and the one it writes.
	d, _ = c.Begin()
	if want := time.Millisecond + 10*time.Microsecond + 41*time.Nanosecond; d != want {
		t.Errorf("decode step took %v, want %v", d, want)
	}
	c.Finish(nil)

	// A decode and another request's prompt share a step.
	mustAdd(t, c, 2, 50, 1)
	d, _ = c.Begin()
	if want := time.Millisecond + 50*time.Microsecond + 10*time.Microsecond + 42*time.Nanosecond; d != want {
		t.Errorf("mixed step took %v, want %v", d, want)
	}
	tokens := c.Finish(nil)
	if len(tokens) != 2 || !tokens[0].Last || !tokens[1].Last {
		t.Errorf("mixed step produced %+v, want the last token of both", tokens)
	}
}

func TestHalfSpeedTakesTwiceAsLong(t *testing.T) {
	full, half := New(small), New(small)
	half.SetSpeed(0.5)
	half.SetSpeed(0)  // ignored
	half.SetSpeed(-1) // ignored
	mustAdd(t, full, 1, 70, 2)
	mustAdd(t, half, 1, 70, 2)
	for range 2 {
		a, _ := full.Begin()
		b, _ := half.Begin()
		if b != 2*a {
			t.Errorf("step took %v at full and %v at half speed", a, b)
		}
		full.Finish(nil)
		half.Finish(nil)
	}
	if a, b := full.Totals().PrefillBusy, half.Totals().PrefillBusy; b != 2*a {
		t.Errorf("prefill busy %v at full and %v at half speed", a, b)
	}
}

func TestStandstillDoesNotOverflow(t *testing.T) {
	c := New(small)
	c.SetSpeed(1e-300)
	mustAdd(t, c, 1, 1, 1)
	if d, _ := c.Begin(); d < 50*365*24*time.Hour {
		t.Errorf("a step of a stopped engine takes %v", d)
	}
}

func TestLongPromptIsPrefilledInChunks(t *testing.T) {
	c := New(small)
	mustAdd(t, c, 1, 250, 1)
	for i, want := range []Load{
		{Running: 1, WaitingTokens: 250, KVUsed: 100},
		{Running: 1, WaitingTokens: 150, KVUsed: 200},
		{Running: 1, WaitingTokens: 50, KVUsed: 250},
	} {
		c.Begin()
		if !c.Prefilling() {
			t.Errorf("step %d is not a prefill step", i)
		}
		if got := c.Load(); got != want {
			t.Errorf("during step %d load is %+v, want %+v", i, got, want)
		}
		tokens := c.Finish(nil)
		if done := i == 2; (len(tokens) == 1) != done {
			t.Errorf("step %d produced %+v", i, tokens)
		}
	}
	if got := c.Load(); got != (Load{}) {
		t.Errorf("load is %+v after the last request", got)
	}
}

func TestChunkIsSharedInOrderOfArrival(t *testing.T) {
	c := New(small)
	mustAdd(t, c, 1, 60, 5)
	mustAdd(t, c, 2, 60, 5)
	mustAdd(t, c, 3, 60, 5)
	c.Begin()
	// 60 of the first, 40 of the second; the third finds no budget and waits.
	want := Load{Running: 2, Waiting: 1, WaitingTokens: 180, KVUsed: 100, KVQueued: 60}
	if got := c.Load(); got != want {
		t.Errorf("load is %+v, want %+v", got, want)
	}
	if tokens := c.Finish(nil); len(tokens) != 1 || tokens[0].ID != 1 {
		t.Errorf("first step produced %+v, want one token of request 1", tokens)
	}
}

func TestAdmissionStopsAtTheConcurrencyCap(t *testing.T) {
	c := New(small)
	for id := range ID(6) {
		mustAdd(t, c, id, 1, 2)
	}
	c.Begin()
	if l := c.Load(); l.Running != 4 || l.Waiting != 2 {
		t.Errorf("%d running and %d waiting, want 4 and 2", l.Running, l.Waiting)
	}
	c.Finish(nil)
}

func TestAdmissionIsFirstComeFirstServedEvenWhenALaterOneWouldFit(t *testing.T) {
	config := small
	config.ChunkTokens = 1000
	c := New(config)
	mustAdd(t, c, 1, 600, 2)
	mustAdd(t, c, 2, 500, 2)
	mustAdd(t, c, 3, 10, 2)
	c.Begin()
	if l := c.Load(); l.Running != 1 || l.Waiting != 2 {
		t.Errorf("%d running and %d waiting, want 1 and 2", l.Running, l.Waiting)
	}
	c.Finish(nil)
}

func TestOverflowRetractsTheNewestAndRecomputesIt(t *testing.T) {
	config := small
	config.KVTokens = 100
	c := New(config)
	mustAdd(t, c, 1, 48, 10)
	mustAdd(t, c, 2, 48, 10)
	c.Step(nil) // both prefilled: 96 of 100
	c.Step(nil) // 98
	c.Step(nil) // 100
	c.Begin()   // needs 102
	if c.Prefilling() {
		t.Error("the retracted request was admitted again at once")
	}
	// 48 + 3 of the first; the second is back in the queue with what it had.
	want := Load{Running: 1, Waiting: 1, WaitingTokens: 51, KVUsed: 51, KVQueued: 51}
	if got := c.Load(); got != want {
		t.Errorf("load is %+v, want %+v", got, want)
	}
	c.Finish(nil)
	if n := c.Totals().Retracted; n != 1 {
		t.Errorf("%d retracted, want 1", n)
	}
	drain(c)
	totals := c.Totals()
	if totals.Finished != 2 || totals.OutputTokens != 20 {
		t.Errorf("%d finished with %d tokens, want 2 with 20", totals.Finished, totals.OutputTokens)
	}
	if want := int64(48 + 48 + 51); totals.PrefillTokens != want {
		t.Errorf("%d tokens prefilled, want %d with the recomputed ones", totals.PrefillTokens, want)
	}
}

func TestAbortFreesKVWhereverTheRequestIs(t *testing.T) {
	c := New(small)
	mustAdd(t, c, 1, 10, 5)
	mustAdd(t, c, 2, 300, 5)
	mustAdd(t, c, 3, 10, 5)
	c.Step(nil)
	c.Begin() // 1 decodes, 2 is in its second chunk, 3 waits
	for id := ID(1); id <= 3; id++ {
		if !c.Abort(id) {
			t.Errorf("request %d was not there", id)
		}
		if c.Abort(id) {
			t.Errorf("request %d was there twice", id)
		}
	}
	if tokens := c.Finish(nil); len(tokens) != 0 {
		t.Errorf("aborted requests produced %+v", tokens)
	}
	if got := c.Load(); got != (Load{}) {
		t.Errorf("load is %+v, want nothing", got)
	}
	if _, ok := c.Begin(); ok {
		t.Error("an empty core began a step")
	}
}

func TestAddRefuses(t *testing.T) {
	config := small
	config.MaxQueue = 1
	c := New(config)
	for _, tt := range []struct {
		name           string
		id             ID
		prompt, output int64
		want           error
	}{
		{"what cannot fit", 1, 1000, 1, ErrTooLong},
		{"what cannot fit with its output", 1, 1, 1000, ErrTooLong},
		{"a sum past the integers", 1, 2, math.MaxInt64, ErrTooLong},
		{"nothing of a request that just fits", 1, 999, 1, nil},
		{"one more than may wait", 2, 1, 1, ErrQueueFull},
	} {
		if err := c.Add(tt.id, tt.prompt, tt.output); !errors.Is(err, tt.want) {
			t.Errorf("Add %s: %v, want %v", tt.name, err, tt.want)
		}
	}
	c.Step(nil)
	if err := c.Add(1, 1, 1); !errors.Is(err, ErrDuplicate) {
		t.Errorf("Add of a running id: %v, want %v", err, ErrDuplicate)
	}
}

// TestEverythingIsConserved drives random traffic with aborts through a Core small
// enough to retract, and checks after each step that the books add up.
func TestEverythingIsConserved(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		config := Config{KVTokens: 300 + rng.Int64N(700), MaxRunning: 1 + rng.IntN(12), MaxQueue: 1 + rng.IntN(30), ChunkTokens: 16 + rng.Int64N(200)}
		c := New(config)
		wanted, got := map[ID]int64{}, map[ID]int64{}
		var next ID
		check := func() {
			l := c.Load()
			if l.KVUsed < 0 || l.KVUsed > config.KVTokens {
				t.Fatalf("seed %d: %d of %d KV tokens used", seed, l.KVUsed, config.KVTokens)
			}
			if l.Running > int64(config.MaxRunning) {
				t.Fatalf("seed %d: %d running, cap %d", seed, l.Running, config.MaxRunning)
			}
			totals := c.Totals()
			if totals.Added != totals.Finished+totals.Aborted+l.Running+l.Waiting {
				t.Fatalf("seed %d: %+v do not add up with %+v", seed, totals, l)
			}
		}
		step := func(abort bool) bool {
			_, ok := c.Begin()
			check()
			if abort && next > 0 {
				id := ID(rng.Uint64N(uint64(next)))
				if c.Abort(id) {
					delete(wanted, id)
				}
			}
			if ok {
				for _, tok := range c.Finish(nil) {
					got[tok.ID]++
					if tok.Last != (tok.N == wanted[tok.ID]) {
						t.Fatalf("seed %d: token %+v, request wants %d", seed, tok, wanted[tok.ID])
					}
				}
			}
			check()
			return ok
		}
		for range 400 {
			if rng.IntN(3) == 0 {
				prompt, output := 1+rng.Int64N(200), 1+rng.Int64N(60)
				if c.Add(next, prompt, output) == nil {
					wanted[next] = output
				}
				next++
			}
			step(rng.IntN(10) == 0)
		}
		for step(false) {
		}
		for id, n := range wanted {
			if got[id] != n {
				t.Fatalf("seed %d: request %d got %d of %d tokens", seed, id, got[id], n)
			}
		}
		if l := c.Load(); l != (Load{}) {
			t.Fatalf("seed %d: load is %+v after everything finished", seed, l)
		}
	}
}

func TestSameCallsGiveSameTokens(t *testing.T) {
	run := func() (tokens []Token, total time.Duration) {
		c := New(Config{KVTokens: 500, ChunkTokens: 64})
		for id := range ID(20) {
			if err := c.Add(id, int64(10+id*7), int64(5+id)); err != nil {
				t.Fatal(err)
			}
		}
		for {
			var d time.Duration
			var ok bool
			if tokens, d, ok = c.Step(tokens); !ok {
				return tokens, total
			}
			total += d
		}
	}
	a, da := run()
	b, db := run()
	if da != db || len(a) != len(b) {
		t.Fatalf("%d tokens in %v, then %d in %v", len(a), da, len(b), db)
	}
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("token %d is %+v, then %+v", i, a[i], b[i])
		}
	}
}

func TestStepsMustAlternate(t *testing.T) {
	panics := func(f func()) (did bool) {
		defer func() { did = recover() != nil }()
		f()
		return false
	}
	c := New(small)
	if !panics(func() { c.Finish(nil) }) {
		t.Error("Finish without Begin was accepted")
	}
	mustAdd(t, c, 1, 1, 1)
	c.Begin()
	if !panics(func() { c.Begin() }) {
		t.Error("Begin twice was accepted")
	}
}

// The core is only worth trusting as arithmetic: no goroutines, no I/O, nothing
// but the standard library's small change.
func TestCoreImportsNothingThatActs(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{join .Imports " "}}`, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(out)); got != "errors math slices time" {
		t.Errorf("batch imports %q", got)
	}
}

func BenchmarkStepOfAFullBatch(b *testing.B) {
	c := New(Config{KVTokens: math.MaxInt64 / 2, MaxRunning: 256, ChunkTokens: math.MaxInt64 / 4})
	for id := range ID(256) {
		if err := c.Add(id, 1000, math.MaxInt64/1024); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	var tokens []Token
	for b.Loop() {
		tokens, _, _ = c.Step(tokens[:0])
	}
}
