package simengine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine/batch"
	"github.com/plimsoll-go/plimsoll/examples/internal/tswire"
	"github.com/plimsoll-go/plimsoll/tokenspeed"
)

// driven is an engine of TokenSpeed's kind with its frontend.
type driven struct {
	*TokenSpeed
	frontend *tswire.Frontend
	messages chan [][]byte
}

// drive brings both up.
func drive(t *testing.T, config Config) *driven {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	frontend, err := tswire.Listen(tswire.FrontendConfig{Ranks: max(config.Ranks, 1), FirstIndex: config.EngineIndex, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	config.Wire, config.Handshake, config.Logger = WireTokenSpeed, frontend.Endpoint(), logger
	if config.Speed == 0 {
		config.TimeScale = 10_000
	}
	ctx := testContext(t)
	accepted := make(chan error, 1)
	go func() {
		said, err := frontend.Accept(ctx)
		if err == nil && (said[0].Model != "sim-8b" || said[0].Ranks != int64(len(said)) || said[0].KVPages*said[0].PageTokens < said[0].KVCacheTokens) {
			t.Errorf("rank 0 says of itself %+v", said[0])
		}
		accepted <- err
	}()
	engine, err := StartTokenSpeed(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Kill() })
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	d := &driven{engine, frontend, make(chan [][]byte, 1000)}
	served := make(chan error, 1)
	go func() { served <- frontend.Serve(func(frames [][]byte) { d.messages <- frames }) }()
	t.Cleanup(func() {
		frontend.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return d
}

// request has a prompt of so many tokens, and wants every token as it comes.
func request(id string, prompt, output int64) tswire.Request {
	return tswire.Request{ID: id, Prompt: make([]int64, prompt), MaxNewTokens: output, Stream: true}
}

func (d *driven) add(t *testing.T, rank int, q tswire.Request) {
	t.Helper()
	if err := d.frontend.Add(rank, q); err != nil {
		t.Fatal(err)
	}
}

func (d *driven) frames(t *testing.T) [][]byte {
	t.Helper()
	select {
	case frames := <-d.messages:
		return frames
	case <-time.After(patience):
		t.Fatal("no message")
		return nil
	}
}

// next returns the next message, which must be a batch.
func (d *driven) next(t *testing.T) *tokenspeed.Batch {
	t.Helper()
	payload, err := tokenspeed.Split(d.frames(t))
	if err != nil {
		t.Fatal(err)
	}
	var b tokenspeed.Batch
	if err := b.Decode(payload); err != nil {
		t.Fatal(err)
	}
	if b.LoadErr != nil {
		t.Fatal(b.LoadErr)
	}
	return &b
}

// untilEnd returns the batches up to the one that ends a request.
func (d *driven) untilEnd(t *testing.T, id string) (batches []*tokenspeed.Batch) {
	t.Helper()
	for {
		b := d.next(t)
		batches = append(batches, b)
		if ends(b, id) {
			return batches
		}
	}
}

func ends(b *tokenspeed.Batch, id string) bool {
	return slices.ContainsFunc(b.Finished, func(f []byte) bool { return string(f) == id })
}

// untilLoads waits for the truth about rank 0.
func (d *driven) untilLoads(t *testing.T, want func(batch.Load) bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !want(d.Loads()[0]); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("rank 0 is at %+v", d.Loads()[0])
		}
	}
}

// The flaw that a connector is there for.
func TestTheLastWordOfALoneRequestIsBusy(t *testing.T) {
	d := drive(t, Config{Ranks: 2, EngineIndex: 5})
	d.add(t, 1, request("a", 100, 3))
	batches := d.untilEnd(t, "a")
	if len(batches) != 3 {
		t.Fatalf("%d batches for 3 tokens", len(batches))
	}
	for i, b := range batches {
		if b.EngineIndex != 6 || b.Elements != 14 || b.Len() != 1 {
			t.Fatalf("batch %d of engine %d has %d elements and %d requests", i, b.EngineIndex, b.Elements, b.Len())
		}
		q := b.At(0)
		if string(q.ID) != "a" || q.PromptTokens != 100 || q.CompletionTokens != int64(i+1) || len(q.OutputIDs) != 1 {
			t.Errorf("batch %d: %+v", i, q)
		}
		// 100 prompt tokens and those of the answer are two pages of 64.
		want := tokenspeed.Load{Known: true, Running: 1, KVActivePages: 2, KVTotalPages: 6250}
		if b.Load != want {
			t.Errorf("batch %d says %+v, want %+v", i, b.Load, want)
		}
		if last := i == 2; (q.FinishReason == tokenspeed.FinishLength) != last {
			t.Errorf("batch %d: %v", i, q.FinishReason)
		}
	}
	d.untilLoads(t, func(l batch.Load) bool { return l == batch.Load{} })

	// Nothing was said between that and what comes next.
	d.add(t, 1, request("b", 1, 1))
	if b := d.next(t); !ends(b, "b") {
		t.Errorf("an idle rank said %+v", b.Summary)
	}
}

func TestRunningCountsThoseThatWait(t *testing.T) {
	d := drive(t, Config{MaxRunning: 1, Speed: standstill})
	for _, id := range []string{"a", "b", "c"} {
		d.add(t, 0, request(id, 10, 2))
	}
	d.untilLoads(t, func(l batch.Load) bool { return l.Running == 1 && l.Waiting == 2 })
	if err := d.SetSpeed(1 / standstill); err != nil {
		t.Fatal(err)
	}
	// The step of the first token was formed when the other two may not have been
	// there yet; that of the second was not.
	end := d.untilEnd(t, "a")[1]
	if end.Load.Running != 3 || end.Load.Waiting != 2 || end.Load.KVActivePages != 1 {
		t.Errorf("%+v", end.Load)
	}
	rest := d.untilEnd(t, "c")
	if end := rest[len(rest)-1]; end.Load.Running != 1 || end.Load.Waiting != 0 {
		t.Errorf("at last %+v", end.Load)
	}
}

func TestAbortedRequestIsNeverHeardOf(t *testing.T) {
	d := drive(t, Config{Speed: standstill})
	d.add(t, 0, request("a", 10, 2))
	d.add(t, 0, request("b", 10, 2))
	d.untilLoads(t, func(l batch.Load) bool { return l.Running+l.Waiting == 2 })
	if err := d.frontend.Abort(0, "a", "unknown"); err != nil {
		t.Fatal(err)
	}
	d.untilLoads(t, func(l batch.Load) bool { return l.Running+l.Waiting == 1 })
	if err := d.SetSpeed(1 / standstill); err != nil {
		t.Fatal(err)
	}
	for _, b := range d.untilEnd(t, "b") {
		if b.Len() != 1 || string(b.At(0).ID) != "b" {
			t.Errorf("%d requests, first %q", b.Len(), b.At(0).ID)
		}
	}
	if totals := d.Totals(); totals.Aborted != 1 || totals.Finished != 1 {
		t.Errorf("%+v", totals)
	}
}

func TestRefusedRequestEndsAtOnce(t *testing.T) {
	d := drive(t, Config{KVTokens: 1000})
	d.add(t, 0, request("long", 1000, 10))
	b := d.next(t)
	if !ends(b, "long") || b.Reasons[0] != tokenspeed.FinishAbort || len(b.At(0).OutputIDs) != 0 {
		t.Errorf("%+v", b.At(0))
	}
	if b.Load.Known {
		t.Errorf("before its first step the rank says %+v", b.Load)
	}
}

func TestIDThatIsInUseLeavesTheRequestAlone(t *testing.T) {
	d := drive(t, Config{Speed: standstill})
	d.add(t, 0, request("a", 10, 2))
	d.add(t, 0, request("a", 20, 5))
	d.add(t, 0, request("b", 10, 2))
	d.untilLoads(t, func(l batch.Load) bool { return l.Running+l.Waiting == 2 })
	if err := d.SetSpeed(1 / standstill); err != nil {
		t.Fatal(err)
	}
	end := d.untilEnd(t, "a")
	if q := end[len(end)-1].At(0); q.PromptTokens != 10 || q.CompletionTokens != 2 {
		t.Errorf("%+v", q)
	}
}

// What is sent of an answer of 120 tokens, and when.
func TestTokensThatWaitForOthers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*tswire.Request)
		want   []int64 // completion tokens
	}{
		{"not streamed", func(q *tswire.Request) { q.Stream = false }, []int64{1, 50, 100, 120}},
		{"in fifties", func(q *tswire.Request) { q.StreamInterval = 50 }, []int64{1, 51, 101, 120}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := drive(t, Config{})
			q := request("a", 10, 120)
			tt.change(&q)
			d.add(t, 0, q)
			var got []int64
			var sent int64
			for _, b := range d.untilEnd(t, "a") {
				q := b.At(0)
				got = append(got, q.CompletionTokens)
				if sent += int64(len(q.OutputIDs)); sent != q.CompletionTokens {
					t.Errorf("%d tokens came of %d", sent, q.CompletionTokens)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func TestOlderSenders(t *testing.T) {
	for _, tt := range []struct {
		config          Config
		elements, index int
	}{
		{Config{Elements: 9}, 9, 0},
		{Config{Elements: 10}, 10, 3},
		{Config{NoLoad: true}, 14, 3},
	} {
		tt.config.EngineIndex = 3
		d := drive(t, tt.config)
		d.add(t, 0, request("a", 10, 1))
		if b := d.next(t); b.Elements != tt.elements || b.EngineIndex != tt.index || b.Load.Known || !ends(b, "a") {
			t.Errorf("%+v says %+v", tt.config, b.Summary)
		}
	}
}

func TestRequestWithoutALengthStops(t *testing.T) {
	d := drive(t, Config{MaxTokens: 4})
	d.add(t, 0, request("a", 10, 0))
	end := d.untilEnd(t, "a")
	if q := end[len(end)-1].At(0); q.FinishReason != tokenspeed.FinishStop || q.CompletionTokens != 4 {
		t.Errorf("%+v", q)
	}
}

func TestEveryRankHasALastWord(t *testing.T) {
	d := drive(t, Config{Ranks: 3, Speed: standstill})
	d.add(t, 1, request("a", 10, 1)) // lost
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := tokenspeed.Split(d.frames(t)); !errors.Is(err, tokenspeed.ErrEngineDead) {
			t.Errorf("%v", err)
		}
	}
	if err := d.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

// Nobody takes the batches any more, and that must not keep the engine from noticing.
func TestEngineMissesItsFrontend(t *testing.T) {
	d := drive(t, Config{Ranks: 2})
	select {
	case <-d.Gone():
		t.Error("the engine misses a frontend that is there")
	default:
	}
	d.add(t, 1, request("a", 10, 100_000))
	d.next(t)
	d.frontend.Close()
	select {
	case <-d.Gone():
	case <-time.After(patience):
		t.Error("the engine does not miss its frontend")
	}
	if err := d.Kill(); err != nil {
		t.Error(err)
	}
}

func TestTokenSpeedRefusesBadConfigs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		config Config
		says   string
	}{
		{Config{}, "load_stat"},
		{Config{Wire: WireTokenSpeed, Ranks: -1}, "ranks"},
		{Config{Wire: WireTokenSpeed, EngineIndex: -1}, "index"},
		{Config{Wire: WireTokenSpeed, EngineIndex: 65_535, Ranks: 2}, "index"},
		{Config{Wire: WireTokenSpeed, Elements: 11}, "elements"},
		{Config{Wire: WireTokenSpeed, Handshake: "nowhere"}, "nowhere"},
		{Config{Wire: WireTokenSpeed, Handshake: "tcp://127.0.0.1:9", Ranks: 2}, "waiting for the frontend at tcp://127.0.0.1:9"},
	} {
		if _, err := StartTokenSpeed(ctx, tt.config); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%+v: %v", tt.config, err)
		}
	}
	if _, err := Start(Config{Wire: WireTokenSpeed}); err == nil {
		t.Error("Start made an engine that nobody can reach")
	}
}
