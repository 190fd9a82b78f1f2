package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	zmq "github.com/pebbe/zmq4"
	"go.uber.org/goleak"

	"github.com/plimsoll-go/plimsoll/examples/soak/internal/check"
	"github.com/plimsoll-go/plimsoll/examples/soak/internal/resource"
	"github.com/plimsoll-go/plimsoll/examples/soak/internal/traffic"
	"github.com/plimsoll-go/plimsoll/examples/soak/internal/watch"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tries is how often a soak is made in which something was wrong, and the machine not calm.
const tries = 4

// calm reports whether the machine has stood still for so short a time that what was wrong
// was wrong, and not late: a request has many steps, each of which is late by as much.
func (r *report) calm() bool { return r.stalls <= r.options.window/20 }

// hopeless reports whether it has stood still for so long that anything may be wrong, but
// what is left in the end.
func (r *report) hopeless() bool { return r.stalls > r.options.tooSlow() }

// gentler is half of everything, in twice the time.
func (o options) gentler() options {
	o.window, o.duration = 2*o.window, 2*o.duration
	o.rate, o.events = o.rate/2, o.events/2
	return o
}

// A soak as it is made by hand, of fewer engines and in less time.
func TestSoak(t *testing.T) {
	o := options{seed: 1, duration: 20 * time.Second, engines: 12, rate: 40, events: 1.5, window: 2 * time.Second, verbose: true, patience: time.Minute}
	var events, out bytes.Buffer
	var r *report
	for try := 1; ; try++ {
		events.Reset()
		var err error
		if r, err = run(t.Context(), o, &events); err != nil {
			t.Fatal(err)
		}
		if err = r.verdict(); err == nil || r.calm() || try == tries {
			break
		}
		t.Logf("once more, and more gently, since the machine stood still for %v: %v", r.stalls, err)
		o = o.gentler()
	}
	r.print(&out)
	err := r.verdict()
	if r.hopeless() {
		t.Logf("what is only late cannot be told from what is wrong here: %v", err)
		if err = nil; !r.books.Result().Passed() || !r.left.Result().Passed() {
			err = errors.New("something is left")
		}
	}
	if err != nil {
		t.Errorf("%v\n%s\n%s", err, &events, &out)
	}
	for _, want := range []string{"12 engines with 42 ranks at first", "\nchecks\n", "answered, streamed", fmt.Sprintf("window %v, seed 1", o.window)} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not told of:\n%s", want, &out)
		}
	}
	told := regexp.MustCompile(`(?m)^ +\d+\.\d{3}s  (e\d\d|list) `).FindAllString(events.String(), -1)
	if want := len(draw(o)); len(told) != want {
		t.Errorf("%d events are told of, want %d", len(told), want)
	}
}

// small is a soak of a moment, in which nothing happens but what the test does.
var small = options{seed: 1, duration: time.Second, engines: 4, rate: 40, window: 2 * time.Second, patience: time.Minute}

// lie performs a small soak in which somebody tampers with the gateways, and checks that
// these checks are broken, and no others.
func lie(t *testing.T, tamper func(*performance) (undo func()), checks ...func(*report) *check.Check) *report {
	t.Helper()
	o := small
	for try := 1; ; try++ {
		r := &report{options: o}
		if err := perform(t.Context(), o, r, nil, io.Discard, tamper); err != nil {
			t.Fatal(err)
		}
		wrong := r.wrongly(checks)
		if len(wrong) == 0 || r.calm() || try == tries {
			for _, what := range wrong {
				t.Error(what)
			}
			return r
		}
		t.Logf("once more, and more gently, since the machine stood still for %v: %v", r.stalls, wrong)
		o = o.gentler()
	}
}

// wrongly lists the checks that are broken and not among these, and those that are among
// them and not broken.
func (r *report) wrongly(checks []func(*report) *check.Check) (wrong []string) {
	want := make(map[string]bool)
	for _, c := range checks {
		want[c(r).Name] = true
	}
	for _, c := range r.checks.Results() {
		if c.Name == r.soak.Name {
			continue // in so short a time there may be too little of anything
		}
		if c.Broken > 0 != want[c.Name] && !(c.Broken > 0 && r.hopeless()) {
			wrong = append(wrong, fmt.Sprintf("%q was broken %d times, want it %v:\n%s", c.Name, c.Broken, want[c.Name], strings.Join(c.First, "\n")))
		}
	}
	return wrong
}

func TestNothingIsBrokenWithoutALie(t *testing.T) { lie(t, nil) }

func TestPicksThatFailAreSeen(t *testing.T) {
	lie(t, func(p *performance) func() {
		g := p.gateways[0]
		ctx, cancel := context.WithCancel(t.Context())
		var lying sync.WaitGroup
		lying.Go(func() {
			for ctx.Err() == nil && g.Counts().Requests <= 10 { // some were refused
				for _, w := range g.Table().Workers() {
					w.SetHealthy(false)
				}
				time.Sleep(time.Millisecond)
			}
		})
		return func() { cancel(); lying.Wait() }
	},
		func(r *report) *check.Check { return r.picks },
		func(r *report) *check.Check { return r.traffic.Refused },
		func(r *report) *check.Check { return r.watch.Healthy })
}

func TestBooksThatAreNotAtZeroAreSeen(t *testing.T) {
	r := lie(t, func(p *performance) func() {
		p.options.patience = 100 * time.Millisecond
		held, err := selector.New(p.gateways[1].Table(), selector.Config{}).Pick(selector.Request{})
		if err != nil {
			t.Error(err)
		}
		return held.Done
	}, func(r *report) *check.Check { return r.books })
	if text := strings.Join(r.books.Result().First, "\n"); !strings.Contains(text, "gateway b: http://127.0.0.1:") || !strings.Contains(text, "InFlight:1") {
		t.Error(text)
	}
}

func TestPickThatIsNeverDoneIsSeen(t *testing.T) {
	r := lie(t, func(p *performance) func() {
		if _, err := selector.New(p.gateways[0].Table(), selector.Config{}).Pick(selector.Request{}); err != nil {
			t.Error(err)
		}
		return func() {}
	}, func(r *report) *check.Check { return r.books })
	if text := strings.Join(r.books.Result().First, "\n"); !strings.Contains(text, "1 requests of http://127.0.0.1:") {
		t.Error(text)
	}
}

func TestWhatIsLeftIsSeen(t *testing.T) {
	zctx, err := zmq.NewContext() // what there is once per process
	if err != nil {
		t.Fatal(err)
	}
	zctx.Term()
	var kept []byte
	for name, leave := range map[string]func(t *testing.T) (clean func()){
		"goroutines are left": func(*testing.T) func() {
			stop := make(chan struct{})
			go func() { <-stop }()
			return func() { close(stop) }
		},
		"descriptors are left: 1 ": func(t *testing.T) func() {
			f, err := os.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			return func() { f.Close() }
		},
		"the heap is 4": func(*testing.T) func() {
			kept = make([]byte, 40<<20)
			return func() { kept = nil }
		},
		"threads are left: ": func(t *testing.T) func() {
			c, err := zmq.NewContext()
			if err != nil {
				t.Fatal(err)
			}
			s, err := c.NewSocket(zmq.PUB) // or there is no thread yet
			if err != nil {
				t.Fatal(err)
			}
			return func() { s.Close(); c.Term() }
		},
	} {
		l := check.NewList(time.Now())
		c := l.Add("nothing is left", 1)
		before := takeLedger()
		clean := leave(t)
		before.compare(t.Context(), time.Millisecond, nil, c)
		clean()
		if text := strings.Join(c.Result().First, "\n"); !strings.Contains(text, name) {
			t.Errorf("%q is not seen: %s", name, text)
		}
	}
	runtime.KeepAlive(kept)
	c := check.NewList(time.Now()).Add("nothing is left", 1)
	before := takeLedger()
	before.compare(t.Context(), time.Minute, nil, c)
	if r := c.Result(); !r.Passed() {
		t.Errorf("%v", r.First)
	}
}

func TestGrowthIsSeen(t *testing.T) {
	for _, tt := range []struct {
		name string
		use  func(second int) resource.Use
		want string
	}{
		{"flat", func(int) resource.Use {
			return resource.Use{Goroutines: 100, Descriptors: 100, Heap: 10 << 20, Resident: 100 << 20}
		}, ""},
		{"unknown", func(int) resource.Use { return resource.Use{Descriptors: -1, Threads: -1, CHeap: -1, Resident: -1} }, ""},
		{"up and down", func(s int) resource.Use { return resource.Use{Heap: int64(10+s%2*20) << 20} }, ""},
		{"in the beginning", func(s int) resource.Use { return resource.Use{Heap: int64(min(s, 30)) << 20} }, ""},
		{"heap", func(s int) resource.Use { return resource.Use{Heap: int64(s) << 20 / 5} }, "live heap: 9.0 MiB in the second quarter, 21.0 MiB in the last"},
		{"goroutines", func(s int) resource.Use { return resource.Use{Goroutines: 20 * s} }, "goroutines: 900 in the second quarter, 2100 in the last"},
		{"resident", func(s int) resource.Use { return resource.Use{Resident: int64(s) << 20} }, "resident"},
		{"C", func(s int) resource.Use { return resource.Use{CHeap: int64(s) << 20} }, "heap of C"},
	} {
		r := &report{options: options{duration: growthShows}}
		r.begin(time.Now())
		for s := range 120 {
			r.during = append(r.during, tt.use(s))
		}
		r.checkGrowth()
		result := r.growth.Result()
		if (tt.want == "") != result.Passed() || !strings.Contains(strings.Join(result.First, "\n"), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, result.First, tt.want)
		}
	}
}

// A soak in which too little has happened has shown nothing.
func TestTooLittleIsNotEnough(t *testing.T) {
	o, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	plan := draw(o)
	busy := func() *report {
		r := &report{options: o}
		r.begin(time.Now())
		for _, ev := range plan {
			r.happened(ev, nil)
		}
		r.tally = traffic.Tally{Outcomes: make(map[traffic.Outcome]int), Excused: 1}
		for _, k := range traffic.Outcomes {
			r.tally.Outcomes[k] = 1
		}
		r.seen.Untrusted = map[load.Why]int{load.Stale: 1, load.NeverReported: 1}
		r.seen.Distrust, r.seen.Trust = watch.TimesOf(1), watch.TimesOf(1)
		return r
	}
	for want, starve := range map[string]func(r *report){
		"":                              func(*report) {},
		"events planned":                func(r *report) { r.events[flood]-- },
		"nothing was refused when":      func(r *report) { r.tally.Outcomes[traffic.NoEngine] = 0 },
		"no request: answered, stream":  func(r *report) { delete(r.tally.Outcomes, traffic.Streamed) },
		"no engine died or hung with":   func(r *report) { r.tally.Excused = 0 },
		"no worker was untrusted: stal": func(r *report) { delete(r.seen.Untrusted, load.Stale) },
		"no worker was seen to go":      func(r *report) { r.seen.Distrust = watch.Times{} },
		"no worker was seen to be trus": func(r *report) { r.seen.Trust = watch.Times{} },
		"took too long":                 func(r *report) { r.happened(plan[0], context.DeadlineExceeded); r.events[plan[0].kind]-- },
	} {
		r := busy()
		starve(r)
		r.enough(plan)
		result := r.soak.Result()
		if want == "took too long" {
			want = context.DeadlineExceeded.Error()
		}
		if (want == "") != result.Passed() || !strings.Contains(strings.Join(result.First, "\n"), want) {
			t.Errorf("want %q, got %v", want, result.First)
		}
	}
	r := &report{options: o}
	r.begin(time.Now())
	if err := r.verdict(); err == nil || err.Error() != "16 checks failed" {
		t.Errorf("a soak in which nothing was looked at: %v", err)
	}
}

func TestPlanIsOfTheSeed(t *testing.T) {
	o, err := parse([]string{"-seed", "7"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	plan, again := draw(o), draw(o)
	if !slices.EqualFunc(plan, again, func(a, b event) bool { return a.String() == b.String() }) {
		t.Error("the same seed gives other events")
	}
	kinds := make(map[kind]int)
	busy := map[int]time.Duration{}
	list := time.Duration(0)
	at := time.Duration(0)
	for _, ev := range plan {
		kinds[ev.kind]++
		if ev.at < at || ev.end() > o.duration {
			t.Errorf("%v comes after %v, and ends at %v", ev, at, ev.end())
		}
		at = ev.at
		free := &list
		if ev.engine >= 0 {
			until := busy[ev.engine]
			free = &until
			busy[ev.engine] = ev.end()
		}
		if ev.at < *free {
			t.Errorf("%v begins when another one has not ended, at %v", ev, *free)
		}
		if ev.engine < 0 {
			list = ev.end()
		}
	}
	if len(kinds) != len(engineChoices)+len(listChoices) {
		t.Errorf("kinds: %v", slices.Sorted(maps.Keys(kinds)))
	}
	if n := len(plan); n < 600 || n > 1000 {
		t.Errorf("%d events in %v of %d engines", n, o.duration, o.engines)
	}
	o.seed = 8
	if other := draw(o); slices.EqualFunc(plan, other, func(a, b event) bool { return a.String() == b.String() }) {
		t.Error("another seed gives the same events")
	}
}

func TestOptions(t *testing.T) {
	for args, want := range map[string]string{
		"":                       "",
		"-duration 30s -v":       "",
		"-engines 3":             "want 4 to 256",
		"-window 1s":             "want at least 2s",
		"-duration 29s":          "want at least 30s",
		"-rate 0":                "must be above 0",
		"more":                   `unexpected argument "more"`,
		"-duration soon":         "invalid value",
		"-events -1":             "must be above 0",
		"-engines 16 -events 10": "",
	} {
		_, err := parse(strings.Fields(args), io.Discard)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
