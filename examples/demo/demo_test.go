package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var little = traffic{seed: 1, rate: 60, length: 300 * time.Millisecond}

func TestRun(t *testing.T) {
	var stdout, stderr bytes.Buffer
	o := options{policies: []string{"least_request", "least_depth"}, traffic: little}
	if err := run(t.Context(), o, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "policy ") {
		t.Fatalf("the table is\n%s", &stdout)
	}
	for i, policy := range o.policies {
		if cells := strings.Fields(lines[i+1]); len(cells) != len(columns) || cells[0] != policy || cells[2] != "0" {
			t.Errorf("row %d is %q", i, lines[i+1])
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

func TestFailedRequestsFailTheDemo(t *testing.T) {
	s, err := setUp()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	say := &progress{w: io.Discard}
	if err := s.waitTrusted(t.Context(), say); err != nil {
		t.Fatal(err)
	}
	for _, e := range s.engines {
		if err := e.FailNext(1000, simengine.FailCut); err != nil {
			t.Fatal(err)
		}
	}
	plan := little.plan()
	r, err := s.measure(t.Context(), "random", plan, say)
	if err != nil {
		t.Fatal(err)
	}
	if r.requests != len(plan) || r.errors != len(plan) {
		t.Errorf("%d of %d requests failed, want all of %d", r.errors, r.requests, len(plan))
	}
	if err := verdict([]row{r}); err == nil || !strings.Contains(err.Error(), "502") {
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
		{"one failure", row{policy: "random", requests: 100, errors: 1, firstError: errCut}, errCut.Error()},
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
	r := newRow("random", []outcome{
		{first: 10, whole: 100, worker: "a"}, {first: 20, whole: 300, worker: "slow"},
		{err: errCut, worker: "slow"}, {first: 30, whole: 200, worker: "a"}, {first: 40, whole: 400, worker: "a"},
	}, "slow")
	if r.requests != 5 || r.errors != 1 || r.firstError != errCut || r.ttft50 != 20 || r.ttft99 != 40 || r.e2e99 != 400 || r.slowShare != 0.25 {
		t.Errorf("got %+v", r)
	}
	if got, head := len(r.String()), len(header()); got != head {
		t.Errorf("the row has %d characters, the header %d", got, head)
	}
}

func TestPlanIsTheSameEveryTime(t *testing.T) {
	whole := traffic{seed: 1, rate: 150, length: 8 * time.Second}
	plan, again := whole.plan(), whole.plan()
	if len(plan) != len(again) || len(plan) < 1000 || len(plan) > 1400 {
		t.Fatalf("plans of %d and %d requests", len(plan), len(again))
	}
	long, inBurst := 0, 0
	for i, r := range plan {
		if r != again[i] {
			t.Fatalf("request %d is %+v, and then %+v", i, r, again[i])
		}
		if r.at < 0 || r.at >= whole.length || i > 0 && r.at < plan[i-1].at {
			t.Fatalf("request %d comes at %v", i, r.at)
		}
		if r.prompt >= longLeast {
			long++
		}
		if r.at%cycle < burst {
			inBurst++
		}
	}
	share := func(n int) float64 { return float64(n) / float64(len(plan)) }
	if s := share(long); s < 0.1 || s > 0.2 {
		t.Errorf("%.2f of the requests are long", s)
	}
	if s := share(inBurst); s < 0.5 || s > 0.7 {
		t.Errorf("%.2f of the requests come in bursts, want about 0.6", s)
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
		p := &progress{w: &b, terminal: terminal}
		p.update("%d sent", 1)
		p.update("%d sent", 2)
		p.line("done")
		p.clear()
		return b.String()
	}
	if got, want := say(true), "\r\x1b[K1 sent\r\x1b[K2 sent\r\x1b[Kdone\n"; got != want {
		t.Errorf("on a terminal: %q, want %q", got, want)
	}
	if got, want := say(false), "1 sent\ndone\n"; got != want {
		t.Errorf("elsewhere: %q, want %q", got, want)
	}
}

func TestFlags(t *testing.T) {
	o, err := parse([]string{"-short", "-policies", "random,least_depth", "-keep"}, io.Discard)
	if err != nil || o.traffic.length != 2*time.Second || strings.Join(o.policies, " ") != "random least_depth" || !o.keep {
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
