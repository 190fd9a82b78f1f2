// Command demo shows what picking by load buys, without a GPU: four simulated
// engines, one of them at half speed, behind the reference gateway, and the same
// requests once for each policy. Most go through the gateway; the others go
// straight to the engines, which is what a gateway cannot know by itself.
//
//	go run ./demo           # a minute and a half
//	go run ./demo -short    # for CI: that it works, not what it buys
//	go run ./demo -keep     # stays up to be looked at
//
// Everything is real but the model: HTTP, streaming, /server_info, ZeroMQ load
// sockets in both of SGLang's formats. Times are the client's. The table goes to
// standard output, all else to standard error.
//
// It exits with 0 only if no request failed, foreign ones included, and if the policies that go by the
// engines' load really did.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plimsoll-go/plimsoll/selector"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process the hard way
	o, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		o.terminal = isTerminal(os.Stderr)
		err = run(ctx, o, os.Stdout, os.Stderr)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// policies in the order of what they know: nothing, the gateway's own requests,
// the engines' load, both and how long prompts are.
var policies = []string{
	selector.RoundRobinName, selector.RandomName,
	selector.LeastRequestName,
	selector.PowerOfTwoName, selector.LeastDepthName, selector.CacheAwareName,
	selector.LeastWorkName,
}

// byEngineLoad are the policies that go by what engines report.
var byEngineLoad = []string{selector.PowerOfTwoName, selector.LeastDepthName, selector.CacheAwareName, selector.LeastWorkName}

// fullTraffic keeps the engines about 85 % busy, nearly half of it with foreign
// requests.
var fullTraffic = traffic{seed: 1, rate: 90, length: 8 * time.Second, batch: 300}

type options struct {
	policies []string
	traffic  traffic
	keep     bool
	terminal bool // progress may overwrite itself
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{policies: policies, traffic: fullTraffic}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	short := flags.Bool("short", false, "send for 2 seconds per policy: enough to see that it works, not what it buys")
	flags.BoolVar(&o.keep, "keep", os.Getenv("KEEP") == "1", "stay up afterwards, until interrupted (also KEEP=1)")
	flags.Func("policies", "`names` of the policies to compare, separated by commas (default all)", func(text string) error {
		o.policies = strings.Split(text, ",")
		for _, name := range o.policies {
			if !slices.Contains(policies, name) {
				return fmt.Errorf("no policy %q here, want some of %s", name, strings.Join(policies, ","))
			}
		}
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *short {
		o.traffic.length, o.traffic.batch = 2*time.Second, 75
	}
	return o, nil
}

// run is the whole demo.
func run(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	say := newProgress(stderr, o.terminal)
	s, err := setUp()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	say.line("%d engines of %d ranks, %s at half speed; gateway at %s", engines, ranks, nameOf(slowEngine), s.url)
	say.line("to watch it: %s", s.statusPage())
	if err := s.waitTrusted(ctx, say); err != nil {
		return err
	}

	say.line("for each policy, over %v: %d requests to the gateway, and %d straight to the engines, in batches of %d",
		o.traffic.length, len(o.traffic.own()), len(o.traffic.foreign()), o.traffic.batch)
	fmt.Fprintln(stdout, header())
	var rows []row
	for i, policy := range o.policies {
		title := fmt.Sprintf("%s (%d of %d)", policy, i+1, len(o.policies))
		r, err := s.measure(ctx, policy, title, o.traffic, say)
		if err != nil {
			return err
		}
		say.clear()
		fmt.Fprintln(stdout, r)
		if caveat := r.caveat(); caveat != "" {
			say.line("%s", caveat)
		}
		rows = append(rows, r)
	}
	explain(stderr)

	err = verdict(rows)
	if o.keep {
		if err != nil {
			say.line("\nFAILED: %v", err)
		}
		return errors.Join(err, s.stayUp(ctx, stderr))
	}
	fmt.Fprintln(stderr, "\nTo look around while it runs: make demo KEEP=1, or go run ./demo -keep.")
	fmt.Fprintln(stderr, "To read on: examples/internal/gateway/doc.go (the gateway), examples/demo/plan.go (the traffic).")
	return err
}

func explain(w io.Writer) {
	fmt.Fprint(w, `
requests, errors         through the gateway; all columns up to the last two are about these
ttft, e2e                time to the first token and to the end of the answer, as clients see them
share_slow_engine        of the requests; the slow engine has 14 % of the capacity, and a quarter of what foreign
                         requests leave of it
picks were based on ...
  engine                 fresh reports of the engines' queues
  estimated              estimates, where the report of an engine is missing
  local                  the gateway's own requests in flight
  none                   nothing: the policy looks at no load
foreign, foreign_errors  requests sent straight to engine-0 or engine-1, which the gateway cannot know of

The baseline is round_robin: each engine in turn. least_request is what a gateway can do by itself, and compares its
own requests in flight. power_of_two, least_depth and cache_aware compare how many requests the engines report.
cache_aware has no prefixes to go by here and equals least_depth, by another draw of luck. least_work, the default,
compares how long the prompt would wait: behind how many prompt tokens of this gateway's, by its own books, and of
others', by the reports, and on how fast an engine. It knows no engine's speed when its row begins, and learns it from
its own waits.

What to look at is ttft_p99_ms of least_request and of the rows below it, of which least_work's should be the lowest. A
foreign batch fills an engine within a second. Own counts tell of it when own requests have got stuck in it, a report
does at once. The median shows nothing of it and is as good by own counts as by any: what keeps away from the full
engine fills the others. Nor would there be much to see if foreign requests came evenly: answers that are slow all the
time show in own counts, too.

One run is one sample: expect the 99th percentiles of two runs, or of two rules that do the same, to differ by a third,
and nothing but noise from -short. And it is a demo: the gateway takes four characters for a token, which is never
quite true elsewhere, and it is the only gateway. make lab measures the policies on fleets, with several gateways.
`)
}
