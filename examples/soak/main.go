// Command soak leaves two gateways under load for minutes while everything goes wrong
// around them, and checks that nothing goes wrong in them.
//
//	go run ./soak                              # 64 engines, 3 minutes
//	go run ./soak -duration 30m -seed 7 -v
//
// Simulated engines (real HTTP, real load sockets) die, restart, hang, fall silent, move
// their ports, change their number of ranks, send garbage and floods. The list of
// workers changes all the while. Two of the example gateways route clients' requests to
// them, each with its own table, subscriber and discovery. What happens is drawn from
// the seed, and -v tells of each event.
//
// An observer knows the truth about every engine and holds the tables against it
// (internal/watch), and every answer is judged by what its engine did (internal/traffic;
// the comments of these two packages say what exactly is checked, and with which
// tolerances). In the end the books must be at 0, and goroutines, descriptors and memory
// where they were.
//
// It exits with 0 only if all checks passed and enough has happened for that to mean
// something.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/soak/internal/watch"
	"github.com/plimsoll-go/plimsoll/load"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process the hard way
	o, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		var r *report
		if r, err = run(ctx, o, os.Stderr); err == nil {
			r.print(os.Stdout)
			err = r.verdict()
		}
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// options are what a soak is made of.
type options struct {
	seed     uint64
	duration time.Duration
	engines  int
	rate     float64       // requests a second, through both gateways
	events   float64       // of engines, a second
	window   time.Duration // of the tables
	verbose  bool

	patience time.Duration // with what takes no time by itself
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{patience: 30 * time.Second}
	f := flag.NewFlagSet("soak", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.DurationVar(&o.duration, "duration", 3*time.Minute, "`time` for which things go wrong")
	f.Uint64Var(&o.seed, "seed", 1, "`number` that the events and the requests are drawn from")
	f.IntVar(&o.engines, "engines", 64, "`number` of engines")
	f.Float64Var(&o.rate, "rate", 200, "requests a second, through both gateways together")
	f.Float64Var(&o.events, "events", 0, "events a second; 0: one per engine in 16 seconds")
	f.DurationVar(&o.window, "window", load.DefaultWindow, "`time` for which a report is trusted")
	f.BoolVar(&o.verbose, "v", false, "tell of every event")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.events == 0 {
		o.events = float64(o.engines) / 16
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.engines < 4 || o.engines > 256:
		return o, fmt.Errorf("%d engines: want 4 to 256", o.engines)
	case o.window < 2*time.Second:
		return o, fmt.Errorf("a window of %v: an engine at rest reports once a second, so want at least 2s", o.window)
	case o.duration < 6*o.window:
		return o, fmt.Errorf("a soak of %v: want at least %v, or some events find no room", o.duration, 6*o.window)
	case o.rate <= 0 || o.events <= 0:
		return o, errors.New("-rate and -events must be above 0")
	}
	return o, nil
}

// silence is after which time the gateways give up an engine that says nothing.
func (o options) silence() time.Duration { return 2 * o.window }

const (
	// listLook is how often discovery.File looks at the list, and probe how often the
	// gateways look at the health of engines.
	listLook = 2 * time.Second
	probe    = time.Second
	// probeTimeout is how long a round of probes takes in which an engine hangs.
	probeTimeout = 5 * time.Second
	// reconnect is the longest pause of the subscriber's between two attempts.
	reconnect = 2 * time.Second
	// scheduling is what things take on a busy machine that take no time by themselves.
	scheduling = 500 * time.Millisecond
	// askAgain is the longest pause after which an engine is asked again that could not
	// be asked, jitter included.
	askAgain = 33 * time.Second
)

func (o options) limits() watch.Limits {
	return watch.Limits{
		Window:    o.window,
		Way:       500 * time.Millisecond,
		Reconnect: reconnect + scheduling,
		List:      listLook + scheduling,
		Trust:     listLook + askAgain + reconnect + scheduling,
		Unhide:    recheck + reconnect + scheduling,
		Settle:    listLook + probe + probeTimeout + 2*scheduling,
	}
}

// bound is how long a request may take at most: each of three engines may fall silent,
// once before its answer and once within it.
func (o options) bound() time.Duration { return 6*o.silence() + 30*time.Second }
