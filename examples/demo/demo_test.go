package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// little has one foreign batch, which is why it is not shorter.
var little = traffic{seed: 1, rate: 30, length: batchFirst + batchLength, batch: 10}

func TestRun(t *testing.T) {
	var stdout, stderr bytes.Buffer
	o := options{policies: []string{"least_request", "least_depth", "least_work"}, traffic: little}
	if err := run(t.Context(), o, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	if begins, _, _ := strings.Cut(stderr.String(), "all engines report"); !strings.Contains(begins, "/status/") {
		t.Errorf("it does not begin with where the page is:\n%s", &stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "policy ") {
		t.Fatalf("the table is\n%s", &stdout)
	}
	for i, policy := range o.policies {
		cells := strings.Fields(lines[i+1])
		if len(cells) != len(columns) || cells[0] != policy || cells[2] != "0" || cells[11] != "10" || cells[12] != "0" {
			t.Errorf("row %d is %q", i, lines[i+1])
		}
	}
	for _, column := range columns[2:] { // policy and requests speak for themselves
		if name, _, _ := strings.Cut(column, "_p"); !strings.Contains(stderr.String(), name) {
			t.Errorf("the column %s is not explained", column)
		}
	}
}

func TestRunThatIsInterruptedEnds(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	err := run(ctx, options{policies: policies, traffic: little}, io.Discard, io.Discard)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// writerFunc is called with all that is written.
type writerFunc func(string)

func (f writerFunc) Write(b []byte) (int, error) {
	f(string(b))
	return len(b), nil
}

func TestKeepStaysUpUntilInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	up := false
	stderr := writerFunc(func(text string) {
		if strings.Contains(text, "X-Plimsoll-Explain") { // the last of what it says
			up = true
			interrupt()
		}
	})
	err := run(ctx, options{policies: []string{"random"}, traffic: little, keep: true}, io.Discard, stderr)
	if err != nil || !up {
		t.Errorf("up: %v, %v", up, err)
	}
}

func TestGuide(t *testing.T) {
	s, err := setUp()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	var guide strings.Builder
	s.guide(&guide)
	for _, want := range []string{
		s.statusPage(), s.admin + "/metrics", "least_work, the default",
		"engine-0          " + s.engines[0].URL(), "engine-3 (slow)   " + s.engines[3].URL(), s.engines[3].AdminURL(),
	} {
		if !strings.Contains(guide.String(), want) {
			t.Errorf("%q is not in the guide:\n%s", want, &guide)
		}
	}
}

func TestFailedRequestsFailTheDemo(t *testing.T) {
	s, err := setUp()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	say := newProgress(io.Discard, false)
	if err := s.waitTrusted(t.Context(), say); err != nil {
		t.Fatal(err)
	}
	for _, e := range s.engines {
		if err := e.FailNext(1000, simengine.FailCut); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.measure(t.Context(), "random", "random", little, say)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(little.own()); r.requests != n || r.errors != n {
		t.Errorf("%d of %d requests failed, want all of %d", r.errors, r.requests, n)
	}
	if r.foreign != 10 || r.foreignErrors != 10 {
		t.Errorf("%d of %d foreign requests failed, want all of 10", r.foreignErrors, r.foreign)
	}
	err = verdict([]row{r})
	if err == nil || !strings.Contains(err.Error(), "502") || !strings.Contains(err.Error(), "10 of 10 foreign requests") {
		t.Errorf("the verdict is %v", err)
	}
}

func TestVerdict(t *testing.T) {
	bases := func(engine, estimated, local int64) map[string]int64 {
		return map[string]int64{"engine": engine, "estimated": estimated, "local": local}
	}
	for _, test := range []struct {
		name string
		row  row
		want string // empty: nothing is wrong
	}{
		{"all on reports", row{policy: "least_depth", requests: 100, bases: bases(100, 0, 0)}, ""},
		{"just enough of them", row{policy: "cache_aware", requests: 100, bases: bases(95, 5, 0)}, ""},
		{"too few", row{policy: "power_of_two", requests: 100, bases: bases(94, 0, 6)}, "only 94 of 100 picks"},
		{"no picks at all", row{policy: "least_depth", requests: 1}, "only 0 of 0"},
		{"local by its nature", row{policy: "least_request", requests: 100, bases: bases(0, 0, 100)}, ""},
		{"by what others have on average", row{policy: "least_work", requests: 100, bases: bases(0, 100, 0)}, "only 0 of 100 picks"},
		{"one failure", row{policy: "random", requests: 100, errors: 1, firstError: errCut}, errCut.Error()},
		{"one foreign failure", row{policy: "random", requests: 100, foreign: 9, foreignErrors: 1, firstForeignError: errCut}, "1 of 9 foreign requests"},
		{"nothing sent", row{policy: "random"}, "no request was sent"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := verdict([]row{{policy: "random", requests: 1}, test.row})
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestARowThatTheMachineWasTooBusyForSaysSo(t *testing.T) {
	if c := (row{policy: "random", late: tooLate - 1}).caveat(); c != "" {
		t.Errorf("in time: %q", c)
	}
	if c := (row{policy: "random", late: 2100 * time.Millisecond}).caveat(); !strings.Contains(c, "random") || !strings.Contains(c, "2.1s late") {
		t.Errorf("late: %q", c)
	}
}

func TestPercentile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for _, test := range []struct {
		sorted []time.Duration
		p      float64
		want   time.Duration
	}{
		{nil, 50, 0},
		{hundred[:1], 50, 1}, {hundred[:1], 99, 1},
		{hundred[:2], 50, 1}, {hundred[:2], 99, 2},
		{hundred, 50, 50}, {hundred, 99, 99}, {hundred, 99.5, 100}, {hundred, 0, 1}, {hundred, 100, 100},
	} {
		if got := percentile(test.sorted, test.p); got != test.want {
			t.Errorf("percentile %v of %d values is %d, want %d", test.p, len(test.sorted), got, test.want)
		}
	}
}

func TestRow(t *testing.T) {
	var plan []request
	for _, to := range []int{toGateway, toGateway, 0, toGateway, 1, toGateway, toGateway} {
		plan = append(plan, request{to: to})
	}
	r := newRow("random", plan, []outcome{
		{first: 10, whole: 100, worker: "a"}, {first: 20, whole: 300, worker: "slow"}, {first: 1000, whole: 1000},
		{err: errCut, worker: "slow"}, {err: io.EOF}, {first: 30, whole: 200, worker: "a"}, {first: 40, whole: 400, worker: "a"},
	}, "slow")
	if r.requests != 5 || r.errors != 1 || r.firstError != errCut || r.ttft50 != 20 || r.ttft99 != 40 || r.e2e99 != 400 || r.slowShare != 0.25 {
		t.Errorf("got %+v", r)
	}
	if r.foreign != 2 || r.foreignErrors != 1 || r.firstForeignError != io.EOF {
		t.Errorf("of the foreign ones %+v", r)
	}
	if head := strings.Join(strings.Fields(header()), " "); !strings.HasPrefix(head, "policy requests errors ttft_p50_ms ttft_p99_ms e2e_p99_ms share_slow_engine engine ") {
		t.Errorf("the header is %q", head)
	}
	if got, head := len(r.String()), len(header()); got != head {
		t.Errorf("the row has %d characters, the header %d", got, head)
	}
}

func TestPlanIsTheSameEveryTime(t *testing.T) {
	plan, again := fullTraffic.plan(), fullTraffic.plan()
	if !slices.Equal(plan, again) {
		t.Fatal("the second plan is another one")
	}
	if !slices.IsSortedFunc(plan, func(a, b request) int { return cmp.Compare(a.at, b.at) }) {
		t.Error("the plan is not in order")
	}
	own, foreign := fullTraffic.own(), fullTraffic.foreign()
	if len(plan) != len(own)+len(foreign) || len(own) < 700 || len(own) > 900 || len(foreign) != 2*fullTraffic.batch {
		t.Errorf("%d requests to the gateway and %d foreign ones make %d", len(own), len(foreign), len(plan))
	}
	var long, inBurst, tokens, foreignTokens int
	for _, r := range plan {
		if r.at < 0 || r.at >= fullTraffic.length {
			t.Errorf("a request comes at %v", r.at)
		}
		if r.prompt >= longLeast {
			long++
		}
		tokens += r.prompt
		if r.to != toGateway {
			foreignTokens += r.prompt
		} else if r.at%cycle < burst {
			inBurst++
		}
	}
	for _, check := range []struct {
		what        string
		n, of       int
		least, most float64
	}{
		{"the requests are long", long, len(plan), 0.1, 0.2},
		{"the gateway's requests come in bursts", inBurst, len(own), 0.5, 0.75},
		{"the work is foreign", foreignTokens, tokens, 1. / 3, 0.5},
		// A token takes 34 microseconds with its share of the steps' base, and 7
		// ranks' worth of engines is there. Decoding comes on top.
		{"the time is for prompts", tokens * 34, int(fullTraffic.length.Microseconds()) * 7, 0.6, 0.8},
	} {
		if s := float64(check.n) / float64(check.of); s < check.least || s > check.most {
			t.Errorf("%.2f of %s, want %.2f to %.2f", s, check.what, check.least, check.most)
		} else {
			t.Logf("%.2f of %s", s, check.what)
		}
	}
}

func TestForeignTrafficComesInBatches(t *testing.T) {
	for i, r := range fullTraffic.foreign() {
		n := i / fullTraffic.batch
		if in := r.at - batchFirst - time.Duration(n)*batchPeriod; in < 0 || in >= batchLength || r.to != n%batchOnto {
			t.Fatalf("request %d comes at %v to engine %d", i, r.at, r.to)
		}
	}
	tooShort := traffic{seed: 1, length: batchFirst + batchLength - 1, rate: 1, batch: 10}
	if foreign := tooShort.foreign(); len(foreign) > 0 {
		t.Errorf("%d requests of a batch that does not fit", len(foreign))
	}
}

func TestReadStream(t *testing.T) {
	const role = `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}` + "\n\n"
	const word = `data: {"choices":[{"delta":{"content":"sea"}}]}` + "\n\n"
	for stream, want := range map[string]string{
		role + word + word + "data: [DONE]\n\n": "",
		role + word:                             errCut.Error(),
		role + "data: [DONE]\n\n":               "no content",
		"":                                      errCut.Error(),
	} {
		firsts := 0
		err := readStream(strings.NewReader(stream), func() { firsts++ })
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", stream, err, want)
		}
		if wantFirsts := min(strings.Count(stream, "sea"), 1); firsts != wantFirsts {
			t.Errorf("%q: told of the first content %d times", stream, firsts)
		}
	}
}

func TestProgress(t *testing.T) {
	say := func(terminal bool) string {
		var b strings.Builder
		synctest.Test(t, func(*testing.T) {
			p := newProgress(&b, terminal)
			p.line("first")
			for i := range 51 {
				if i%10 == 0 || !terminal {
					p.update("%d sent", i)
				}
				time.Sleep(100 * time.Millisecond)
			}
			p.clear()
			p.update("waiting")
			time.Sleep(time.Minute)
			for range 3 {
				p.update("still waiting") // what was missed is not made up for
			}
			p.line("done")
			p.clear()
		})
		return b.String()
	}
	const up = "\r\x1b[K"
	want := "first\n" + up + "0 sent" + up + "10 sent" + up + "20 sent" + up + "30 sent" + up + "40 sent" + up + "50 sent" + up +
		up + "waiting" + strings.Repeat(up+"still waiting", 3) + up + "done\n"
	if got := say(true); got != want {
		t.Errorf("on a terminal: %q, want %q", got, want)
	}
	if got, want := say(false), "first\n20 sent\n40 sent\nstill waiting\ndone\n"; got != want {
		t.Errorf("elsewhere: %q, want %q", got, want)
	}
}

func TestFlags(t *testing.T) {
	o, err := parse([]string{"-short", "-policies", "random,least_depth", "-keep"}, io.Discard)
	if err != nil || o.traffic.length != 2*time.Second || len(o.traffic.foreign()) == 0 || strings.Join(o.policies, " ") != "random least_depth" || !o.keep {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, args := range [][]string{{"-policies", "best"}, {"now"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
	if _, err := parse([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
	t.Setenv("KEEP", "1")
	if o, err := parse(nil, io.Discard); err != nil || !o.keep {
		t.Errorf("KEEP=1: %+v, %v", o, err)
	}
}
