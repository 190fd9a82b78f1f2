// Command demo shows what picking by load buys, without a GPU: four simulated
// engines, one of them at half speed, behind the reference gateway, and the same
// requests sent through it once for each policy.
//
//	go run ./demo           # about a minute
//	go run ./demo -short    # for CI: that it works, not what it buys
//	go run ./demo -keep     # stays up to be looked at
//
// Everything is real but the model: HTTP, streaming, /server_info, ZeroMQ load
// sockets in both of SGLang's formats. Times are the client's. The table goes to
// standard output, all else to standard error.
//
// It exits with 0 only if no request failed, and if the policies that go by the
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
// the engines' load.
var policies = []string{
	selector.RoundRobinName, selector.RandomName,
	selector.LeastRequestName,
	selector.PowerOfTwoName, selector.LeastDepthName, selector.CacheAwareName,
}

// byEngineLoad are the policies that compare what engines report.
var byEngineLoad = []string{selector.PowerOfTwoName, selector.LeastDepthName, selector.CacheAwareName}

type options struct {
	policies []string
	traffic  traffic
	keep     bool
	terminal bool // progress may overwrite itself
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{policies: policies, traffic: traffic{seed: 1, rate: 150, length: 8 * time.Second}}
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
		o.traffic.length = 2 * time.Second
	}
	return o, nil
}

// run is the whole demo.
func run(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	say := &progress{w: stderr, terminal: o.terminal}
	s, err := setUp()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	say.line("%d engines of %d ranks, the last one at half speed; gateway at %s", len(s.engines), ranks, s.url)
	if err := s.waitTrusted(ctx, say); err != nil {
		return err
	}

	plan := o.traffic.plan()
	say.line("%d requests for each policy, in bursts, over %v", len(plan), o.traffic.length)
	fmt.Fprintln(stdout, header())
	var rows []row
	for _, policy := range o.policies {
		r, err := s.measure(ctx, policy, plan, say)
		if err != nil {
			return err
		}
		say.clear()
		fmt.Fprintln(stdout, r)
		rows = append(rows, r)
	}
	explain(stderr)

	err = verdict(rows)
	if o.keep {
		if err != nil {
			say.line("FAILED: %v", err)
		}
		s.guide(stderr)
		<-ctx.Done()
		return err
	}
	fmt.Fprintln(stderr, "\nTo look around while it runs: make demo KEEP=1, or go run ./demo -keep.")
	fmt.Fprintln(stderr, "To read on: examples/internal/gateway/doc.go (the gateway), examples/demo/plan.go (the traffic).")
	return err
}

func explain(w io.Writer) {
	fmt.Fprint(w, `
ttft, e2e           time to first token and to the end of the answer, as clients see them
share_slow_engine   of the requests; the slow engine has 14 % of the capacity
engine to local     what picks were based on: fresh engine reports, estimates where those are missing, own counts

round_robin and random look at no load. least_request goes by the gateway's own requests, and since all requests here
come through one gateway, that is most of what there is to know; engines also tell of what others send them.
cache_aware has no prefixes to go by here and picks the least loaded. One run is one sample: expect the 99th
percentiles of two runs, or of two rules that do the same, to differ by a third.
`)
}
