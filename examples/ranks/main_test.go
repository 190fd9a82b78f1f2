package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
	"github.com/plimsoll-go/plimsoll/examples/internal/simengine/batch"
	"github.com/plimsoll-go/plimsoll/examples/internal/tswire"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/tokenspeed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// standstill is a speed at which nothing finishes while a test looks on, and fast
// what to set it to for everything to be done at once.
const (
	standstill = 1e-12
	fast       = 1e4 / standstill
)

// patience bounds a wait for something that must happen. Nothing is concluded from
// its length.
const patience = time.Minute

func start(t *testing.T, c groupConfig) *group {
	t.Helper()
	c.inProcess, c.logger, c.progress = true, slog.New(slog.DiscardHandler), io.Discard
	g, err := startGroup(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func newRequest(id string, output int64) tswire.Request {
	return tswire.Request{ID: id, Prompt: []int64{1, 2, 3}, MaxNewTokens: output, Stream: true}
}

// inBackground sends requests to a rank, in their order, and returns what came of
// them when it is called.
func (g *group) inBackground(t *testing.T, ctx context.Context, rank int, requests ...tswire.Request) (wait func() []outcome) {
	t.Helper()
	outcomes := make([]outcome, len(requests))
	var sent sync.WaitGroup
	for i, q := range requests {
		sent.Go(func() { outcomes[i] = g.do(ctx, q, rank) })
	}
	return func() []outcome { sent.Wait(); return outcomes }
}

// until waits for the truth about a rank.
func (g *group) until(t *testing.T, rank int, running, waiting int64) {
	t.Helper()
	g.untilLoad(t, rank, func(l batch.Load) bool { return l.Running == running && l.Waiting == waiting })
}

// untilThere waits until a rank has so many requests, whether they came before a step of
// its began or within it.
func (g *group) untilThere(t *testing.T, rank int, requests int64) {
	t.Helper()
	g.untilLoad(t, rank, func(l batch.Load) bool { return l.Running+l.Waiting == requests })
}

func (g *group) untilLoad(t *testing.T, rank int, is func(batch.Load) bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		l := g.engine.Loads()[rank]
		if is(l) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("rank %d is at %+v", rank, l)
		}
	}
}

// afterABurst has four requests end in one step of rank 0, and then 40 go through
// the group one after another. It returns how many each rank got of those.
func afterABurst(t *testing.T, believe bool) []int {
	t.Helper()
	const ranks, burst, chat = 4, 4, 40
	g := start(t, groupConfig{ranks: ranks, believe: believe, speed: standstill})
	// While the first is in the engine's step, the others can only be waiting: for
	// one and the same step.
	opener := g.inBackground(t, t.Context(), 0, newRequest("opener", 1))
	g.until(t, 0, 1, 0)
	var requests []tswire.Request
	for i := range burst {
		requests = append(requests, newRequest(fmt.Sprint("burst-", i), 3))
	}
	others := g.inBackground(t, t.Context(), 0, requests...)
	g.until(t, 0, 1, burst)
	if err := g.engine.SetSpeed(fast); err != nil {
		t.Fatal(err)
	}
	for _, o := range slices.Concat(opener(), others()) {
		if o.err != nil || o.left || o.rank != 0 {
			t.Fatalf("%+v", o)
		}
	}
	quiet := g.connector.Status().Ranks[0]
	if n, _ := quiet.Running.Get(); n != burst || quiet.InFlight != 0 {
		t.Fatalf("the last word of rank 0 is that %v run, and %d are in flight", quiet.Running, quiet.InFlight)
	}
	// The others speak once, too: of a rank that never has, a connector that shares
	// it thinks what it thinks of the average one.
	for rank := 1; rank < ranks; rank++ {
		if o := g.do(t.Context(), newRequest(fmt.Sprint("first-", rank), 1), rank); o.err != nil {
			t.Fatal(o.err)
		}
	}
	got := make([]int, ranks)
	for i := range chat {
		o := g.do(t.Context(), newRequest(fmt.Sprint("chat-", i), 2), load.NoRank)
		if o.err != nil || o.left {
			t.Fatalf("%+v", o)
		}
		got[o.rank]++
	}
	return got
}

func TestQuietRankGetsItsShare(t *testing.T) {
	if got := afterABurst(t, false); !slices.Equal(got, []int{10, 10, 10, 10}) {
		t.Errorf("the ranks got %v", got)
	}
}

func TestQuietRankWhoseLastWordIsBelievedIsShunned(t *testing.T) {
	if got := afterABurst(t, true); got[0] != 0 {
		t.Errorf("the ranks got %v", got)
	}
}

func TestClientThatLeavesFreesItsRank(t *testing.T) {
	g := start(t, groupConfig{ranks: 2, speed: standstill})
	ctx, leave := context.WithCancel(t.Context())
	wait := g.inBackground(t, ctx, 1, newRequest("a", 5))
	g.until(t, 1, 1, 0)
	if n := g.connector.Status().Ranks[1].InFlight; n != 1 {
		t.Errorf("%d in flight", n)
	}
	leave()
	if o := wait()[0]; !o.left || o.err != nil || o.rank != 1 {
		t.Errorf("%+v", o)
	}
	g.until(t, 1, 0, 0)
	if st := g.connector.Status(); st.InFlight != 0 || st.Aborted != 1 {
		t.Errorf("%+v", st)
	}
}

func TestRequestThatTheEngineRefusesFails(t *testing.T) {
	g := start(t, groupConfig{ranks: 2})
	if o := g.do(t.Context(), newRequest("a", 1<<40), load.NoRank); o.err == nil || o.left {
		t.Errorf("%+v", o)
	}
	if st := g.connector.Status(); st.InFlight != 0 || st.Finished != 1 {
		t.Errorf("%+v", st)
	}
}

func TestEngineThatDiesFailsItsRequests(t *testing.T) {
	g := start(t, groupConfig{ranks: 2, speed: standstill})
	wait := g.inBackground(t, t.Context(), load.NoRank, newRequest("a", 5), newRequest("b", 5))
	g.until(t, 0, 1, 0)
	g.until(t, 1, 1, 0)
	if err := g.engine.Close(); err != nil {
		t.Fatal(err)
	}
	for _, o := range wait() {
		if !errors.Is(o.err, tokenspeed.ErrEngineDead) || o.left {
			t.Errorf("%+v", o)
		}
	}
	if o := g.do(t.Context(), newRequest("c", 1), load.NoRank); !errors.Is(o.err, load.ErrDead) || o.rank != load.NoRank {
		t.Errorf("afterwards: %+v", o)
	}
	if r := measure(t.Context(), g, little, io.Discard); !errors.Is(r.err(), tokenspeed.ErrEngineDead) || r.unsent == 0 {
		t.Errorf("measured all the same: %+v", r)
	}
}

// Nobody says that a rank is gone that was killed. It must not become the idle one
// that gets everything.
func TestKilledRankIsNotedWithTheNextRequest(t *testing.T) {
	g := start(t, groupConfig{ranks: 2, speed: standstill})
	wait := g.inBackground(t, t.Context(), 1, newRequest("a", 5))
	g.until(t, 1, 1, 0)
	if err := g.engine.Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); g.frontend.Abort(0, "nothing") == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the killed rank still takes commands")
		}
	}
	if o := g.do(t.Context(), newRequest("b", 1), 0); !errors.Is(o.err, tswire.ErrUnreachable) || o.rank != 0 {
		t.Errorf("%+v", o)
	}
	if o := wait()[0]; !errors.Is(o.err, tswire.ErrUnreachable) {
		t.Errorf("what was in flight: %+v", o)
	}
	if st := g.connector.Status(); st.InFlight != 0 || st.Dead == "" {
		t.Errorf("%+v", st)
	}
}

func TestMessageThatMakesNoSenseHarmsNobody(t *testing.T) {
	worker := load.NewTable(load.Config{}).Add("group", "")
	connector, err := load.NewConnector(worker, load.ConnectorConfig{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	r := router{connector: connector, logger: slog.New(slog.DiscardHandler), calls: map[string]*call{}}
	if _, err := r.connector.Reserve("a", 1); err != nil {
		t.Fatal(err)
	}
	c := r.expect("a")
	for _, frames := range [][][]byte{{}, {[]byte("nonsense")}, {{0xc0}, {}}} {
		r.receive(frames)
	}
	if st := r.connector.Status(); st.InFlight != 1 || st.Batches != 0 || len(st.Dropped) == 0 {
		t.Errorf("%+v", st)
	}
	var b tokenspeed.Batch
	b.Add(tokenspeed.Request{ID: []byte("a"), OutputIDs: []int64{1}, FinishReason: tokenspeed.FinishStop})
	b.Add(tokenspeed.Request{ID: []byte("b"), OutputIDs: []int64{1}, FinishReason: tokenspeed.FinishStop}) // nobody's
	r.receive([][]byte{b.Append(nil)})
	<-c.first
	<-c.ended
	if st := r.connector.Status(); c.err != nil || st.InFlight != 0 {
		t.Errorf("%v, %+v", c.err, st)
	}
}

// little is enough to see that everything works.
var little = traffic{ranks: 2, seed: 1, burst: 4, length: 300 * time.Millisecond, rate: 20, drain: patience}

func TestRun(t *testing.T) {
	var stdout, stderr bytes.Buffer
	o := options{group: groupConfig{ranks: 2, inProcess: true}, believe: []bool{true, false}, traffic: little}
	if err := run(t.Context(), o, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	rows := regexp.MustCompile(`(?m)^ +[01] +\d+ +\d+\.\d% .*s$`).FindAllString(stdout.String(), -1)
	if len(rows) != 4 || strings.Count(stdout.String(), "Time to the first token") != 2 {
		t.Errorf("no two tables of two rows in\n%s", &stdout)
	}
	if believed, counted := strings.Index(stdout.String(), "-zero=false"), strings.Index(stdout.String(), "-zero=true"); believed < 0 || counted < believed {
		t.Errorf("not one after the other:\n%s", &stdout)
	}
	if !strings.Contains(stdout.String(), "Believing the last word, ") {
		t.Errorf("the two are not compared:\n%s", &stdout)
	}
	if !strings.Contains(stderr.String(), " 0.1s  in flight on each rank   ") {
		t.Errorf("no news in\n%s", &stderr)
	}
}

// What there is, is shown.
func TestRunThatIsCutShort(t *testing.T) {
	for name, tt := range map[string]struct {
		drain time.Duration
		cut   func(*group, context.CancelFunc)
		want  error
	}{
		"interrupted":   {patience, func(_ *group, interrupt context.CancelFunc) { interrupt() }, context.Canceled},
		"dead engine":   {patience, func(g *group, _ context.CancelFunc) { g.engine.Close() }, tokenspeed.ErrEngineDead},
		"slower engine": {time.Millisecond, func(*group, context.CancelFunc) {}, errTooSlow},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, groupConfig{ranks: 2, speed: standstill})
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			c := little
			c.burst, c.drain = 2, tt.drain
			measured := make(chan *result, 1)
			go func() { measured <- measure(ctx, g, c, io.Discard) }()
			if tt.drain == patience {
				g.untilThere(t, 0, 2)
				g.untilThere(t, 1, 2)
			}
			tt.cut(g, interrupt)
			r := <-measured
			if !errors.Is(r.err(), tt.want) || r.failed != 4 || r.unsent == 0 || r.chat != 0 {
				t.Errorf("%v, %+v", r.err(), r)
			}
			var table strings.Builder
			r.print(&table)
			for _, want := range []string{"\n   1     0   0.0%", "Cut short: " + r.cut.Error(), "4 requests were sent and have no answer", fmt.Sprintf("%d were not sent", r.unsent), "says little"} {
				if !strings.Contains(table.String(), want) {
					t.Errorf("no %q in\n%s", want, &table)
				}
			}
		})
	}
}

// The second half of a comparison is spared whoever has interrupted the first.
func TestRunThatFailsIsTheLast(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var stdout bytes.Buffer
	news := writerFunc(func(text []byte) {
		if bytes.Contains(text, []byte("in flight")) {
			interrupt()
		}
	})
	o := options{group: groupConfig{ranks: 2, inProcess: true, speed: standstill}, believe: []bool{true, false}, traffic: little}
	if err := run(ctx, o, &stdout, news); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := strings.Count(stdout.String(), "Cut short"); n != 1 || strings.Contains(stdout.String(), "Believing") {
		t.Errorf("%s", &stdout)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

func TestRunWithRanksElsewhere(t *testing.T) {
	said, stderr := io.Pipe()
	engine := make(chan error, 1)
	go func() {
		defer io.Copy(io.Discard, said)
		var endpoint string
		for lines := bufio.NewScanner(said); endpoint == "" && lines.Scan(); {
			endpoint = regexp.MustCompile(`tcp://\S+`).FindString(lines.Text())
		}
		e, err := simengine.StartTokenSpeed(t.Context(), simengine.Config{
			Wire: simengine.WireTokenSpeed, Handshake: endpoint, Ranks: 2, Logger: slog.New(slog.DiscardHandler),
		})
		if err == nil {
			t.Cleanup(func() { e.Kill() })
		}
		engine <- err
	}()
	o := options{group: groupConfig{ranks: 2, handshake: "tcp://127.0.0.1:*"}, believe: []bool{false}, traffic: little}
	err := run(t.Context(), o, io.Discard, stderr)
	stderr.Close()
	if err := errors.Join(err, <-engine); err != nil {
		t.Error(err)
	}
}

func TestRunThatIsInterruptedEnds(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	for _, inProcess := range []bool{true, false} {
		o := options{group: groupConfig{ranks: 2, inProcess: inProcess, handshake: "tcp://127.0.0.1:*"}, believe: []bool{true, false}, traffic: little}
		if err := run(ctx, o, io.Discard, io.Discard); !errors.Is(err, context.Canceled) {
			t.Errorf("in process %v: %v", inProcess, err)
		}
	}
}

func TestSameTrafficGivesTheSamePlan(t *testing.T) {
	c := traffic{ranks: 5, seed: 7, burst: 64, length: 5 * time.Second, rate: 3}
	plan := c.plan()
	if !reflect.DeepEqual(plan, c.plan()) {
		t.Error("two plans of the same traffic differ")
	}
	ids := map[string]bool{}
	inAStep := 0
	for phase, requests := range plan {
		if !slices.IsSortedFunc(requests, func(a, b request) int { return int(a.at - b.at) }) {
			t.Errorf("phase %d is out of order", phase)
		}
		for i, r := range requests {
			if ids[r.id] {
				t.Errorf("%s comes twice", r.id)
			}
			ids[r.id] = true
			switch {
			case r.chat != (phase != phaseBurst):
				t.Errorf("in phase %d there is %+v", phase, r)
			case r.chat && (r.at < 0 || r.at >= c.length || r.prompt > promptMost):
				t.Errorf("%+v", r)
			case !r.chat && i >= c.ranks:
				inAStep += r.prompt
			}
		}
	}
	if inAStep /= c.ranks; inAStep > chunk {
		t.Errorf("a burst of %d tokens on each rank does not end in one step", inAStep)
	}
	if n := len(plan[phaseFirst]); n != 3 {
		t.Errorf("the chat begins with %d requests for 5 ranks", n)
	}
}

func TestIdleness(t *testing.T) {
	status := func(inFlight ...int64) (ranks []load.ConnectorRankStatus) {
		for _, n := range inFlight {
			ranks = append(ranks, load.ConnectorRankStatus{InFlight: n})
		}
		return ranks
	}
	i := newIdleness(3)
	for _, look := range []struct {
		at    time.Duration
		ranks []load.ConnectorRankStatus
	}{
		{0, status(0, 0, 1)},  // nobody has too much
		{1, status(0, 1, 2)},  // from here on rank 0 is shunned
		{3, status(0, 0, 1)},  // also while it does not show
		{6, status(0, 0, 2)},  // rank 1, too
		{9, status(1, 0, 2)},  // rank 0 is not any more, for its eight ticks up to the last look
		{10, status(0, 0, 2)}, // and is again
		{11, status(0, 1, 2)},
	} {
		i.look(look.at, look.ranks)
	}
	if want := []time.Duration{5, 4, 0}; !slices.Equal(i.longest, want) {
		t.Errorf("%v, want %v", i.longest, want)
	}
}

func TestVerdict(t *testing.T) {
	const short, long = time.Second, 6 * time.Second
	rank := func(chat int, idle time.Duration) rankResult {
		return rankResult{chat: chat, idle: idle, status: load.ConnectorRankStatus{Running: load.Known[int64](1)}}
	}
	silent := rankResult{chat: 10}
	for _, tt := range []struct {
		believed bool
		cut      error
		ranks    []rankResult
		want     string
	}{
		{false, nil, []rankResult{rank(10, short), rank(10, short)}, "No rank was left alone for long. The last word of each is that it is busy"},
		{true, nil, []rankResult{rank(20, short), rank(0, long), rank(0, long)}, "Shunned: 2 of 3 ranks (1-2), which got 0 of 20 chat requests."},
		{true, nil, []rankResult{rank(20, short), rank(3, long)}, "Shunned: 1 of 2 ranks (1), which got 3 of 23 chat requests."},
		{true, nil, []rankResult{rank(10, short), rank(10, short)}, "No rank was left alone for long. It takes a burst"},
		{false, nil, []rankResult{rank(20, short), rank(0, long)}, "Left alone for long: 1 of 2 ranks (1), which got 0 of 20 chat requests."},
		{false, nil, []rankResult{rank(9, 0), rank(0, 0)}, "9 chat requests are too few to say anything"},
		{true, nil, []rankResult{silent, silent}, "The batches told no load"},
		{true, errTooSlow, []rankResult{rank(20, short), rank(0, long)}, "Not all was answered"},
	} {
		r := result{traffic: traffic{length: 8 * time.Second}, believed: tt.believed, ranks: tt.ranks, cut: tt.cut}
		for _, k := range tt.ranks {
			r.chat += k.chat
		}
		if got := r.verdict(); !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

func TestRanges(t *testing.T) {
	for _, tt := range []struct {
		numbers []int
		want    string
	}{
		{nil, ""}, {[]int{4}, "4"}, {[]int{0, 2}, "0, 2"}, {[]int{0, 1, 2, 5, 62, 63}, "0-2, 5, 62-63"},
	} {
		if got := ranges(tt.numbers); got != tt.want {
			t.Errorf("%v is %q, want %q", tt.numbers, got, tt.want)
		}
	}
}

func TestRequestThatFailedFailsTheRun(t *testing.T) {
	cause := errors.New("cause")
	r := newResult(traffic{ranks: 1}, []answer{
		{request: request{chat: true}, outcome: outcome{rank: load.NoRank, err: cause}, sent: true},
		{request: request{chat: true}, outcome: outcome{rank: 0, first: time.Second}, sent: true},
	}, load.ConnectorStatus{Ranks: make([]load.ConnectorRankStatus, 1)}, newIdleness(1), nil)
	if err := r.err(); !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
	if r.chat != 1 || r.first50 != time.Second {
		t.Errorf("%+v", r)
	}
	var table strings.Builder
	r.print(&table)
	if !strings.Contains(table.String(), "none") || !strings.Contains(table.String(), "says little") {
		t.Errorf("a rank that never spoke has a last word, or a failed run a meaning:\n%s", &table)
	}
}

func TestFlags(t *testing.T) {
	o, err := parse(strings.Fields("-ranks 8 -zero false -time 3s -burst 7 -rate 2.5 -seed 9"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := options{
		group:   groupConfig{ranks: 8, inProcess: true, handshake: "tcp://127.0.0.1:5570"},
		believe: []bool{true},
		traffic: traffic{ranks: 8, seed: 9, burst: 7, length: 3 * time.Second, rate: 2.5, drain: o.traffic.drain},
	}
	if !reflect.DeepEqual(o, want) {
		t.Errorf("%+v, want %+v", o, want)
	}
	o, err = parse(strings.Fields("-engines 3 -handshake tcp://127.0.0.1:1 -zero=true"), io.Discard)
	if err != nil || o.group.inProcess || o.group.ranks != 3 || o.traffic.ranks != 3 || o.group.handshake != "tcp://127.0.0.1:1" || !slices.Equal(o.believe, []bool{false}) {
		t.Errorf("%+v, %v", o, err)
	}
	for _, args := range []string{"", "-zero both", "-zero=true -zero=both"} {
		if o, err := parse(strings.Fields(args), io.Discard); err != nil || !slices.Equal(o.believe, []bool{true, false}) {
			t.Errorf("%q: %+v, %v", args, o, err)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for args, says := range map[string]string{
		"-ranks 1":             "-ranks 1: want 2 to 64",
		"-ranks 65":            "-ranks 65: want 2 to 64",
		"-engines 1":           "-engines 1: want 2 to 64",
		"-engines 0":           "-engines 0: want 2 to 64",
		"-engines 2 -ranks 2":  "leave out -ranks",
		"-handshake tcp://h:1": "-engines",
		"-rate 0":              "-rate 0: want more than 0, and at most 20",
		"-rate NaN":            "-rate NaN: want more than 0, and at most 20",
		"-burst -1":            "-burst -1: want 0 to 256",
		"-time 0":              "-time 0s: want 1s to 1h0m0s",
		"-time -1s":            "-time -1s: want 1s to 1h0m0s",
		"extra":                `unexpected argument "extra"`,
		"-zero=perhaps":        "want both, true or false",
		"-zero -ranks 3":       "want both, true or false",
	} {
		if o, err := parse(strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s; %+v", args, err, says, o)
		}
	}
}

func TestHelp(t *testing.T) {
	var help strings.Builder
	if _, err := parse([]string{"-h"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("%v", err)
	}
	if !strings.Contains(help.String(), "what becomes of a\nrank") {
		t.Errorf("help does not say what this is for:\n%s", &help)
	}
}
