// Command ranks shows what becomes of a data-parallel rank that has nothing to do.
//
// An engine of TokenSpeed's kind tells its load only in its output batches, and
// counts its requests before it ends those of the batch. So the last word of a rank
// that falls idle is that it is busy, and it says nothing more until it is given
// something. A router that believes it does not give it anything.
//
//	go run ./ranks               # the same traffic twice, and the two side by side:
//	go run ./ranks -zero=false   # once with the last word believed,
//	go run ./ranks -zero=true    # once with a connector that knows better
//
// Four ranks of a simulated engine are started in this process, and sent a burst of
// short requests, then a steady stream of longer ones, the chat, of which a rank
// could do twice its share. Everything is real but the model: sockets, batches, and
// a connector (load.Connector) that chooses the ranks. It takes ten seconds each
// way.
//
// # What is compared
//
// With -zero=true, the connector counts a rank as idle once none of its requests is
// left there. With -zero=false it is told that others use the ranks too
// (load.ConnectorConfig.Shared), and so has to believe what a rank says; and its
// table keeps a report for good, where by default one is stale after five seconds
// and the rank is taken for an average one. Nothing else differs.
//
// The traffic is the worst case, made so that every run shows it. All of a rank's
// burst ends in one step, so that its last word counts the whole burst; a burst that
// ends bit by bit has a last word of less, which is sooner forgotten. And the chat
// begins with one request for every second rank, which wakes these; the more ranks
// get a request before the first has answered, the fewer are shunned.
//
// # Flags
//
//	-ranks 8       more of them
//	-engines 2     use ranks that are started elsewhere, by ./engine -wire tokenspeed
//	-handshake     where those dial
//	-time, -burst, -rate, -seed    the traffic; see -h
//
// What to copy is router.go. The tables go to standard output, with what they mean;
// all else to standard error. It exits with 0 only if no request failed.
// One that is interrupted, or whose ranks die or cannot keep up, prints what there is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process the hard way
	o, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = run(ctx, o, os.Stdout, os.Stderr)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "ranks:", err)
		os.Exit(1)
	}
}

type options struct {
	group   groupConfig
	believe []bool // once each
	traffic traffic
}

// What one process should be asked for.
const (
	minRanks = 2 // one has nobody to be shunned for
	maxRanks = 64
	maxRate  = 20 // a rank does about ten
	maxBurst = 256
	minTime  = time.Second
	maxTime  = time.Hour
)

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{believe: []bool{true, false}, traffic: traffic{drain: 10 * time.Second}}
	flags := flag.NewFlagSet("ranks", flag.ContinueOnError)
	flags.SetOutput(stderr)
	// Not a boolean flag, of which "-zero false" would be two arguments.
	flags.Func("zero", "count a rank without requests as idle: true; false, which believes its last word; or `both`, one after the other (default both)", func(text string) error {
		if text == "both" {
			o.believe = []bool{true, false}
			return nil
		}
		zero, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("want both, true or false")
		}
		o.believe = []bool{!zero}
		return nil
	})
	flags.IntVar(&o.group.ranks, "ranks", 4, fmt.Sprintf("start so many `ranks` in this process, %d to %d", minRanks, maxRanks))
	engines := flags.Int("engines", 0, fmt.Sprintf("start none, and wait for so many `ranks` that are started elsewhere, %d to %d, with engine indexes from 0", minRanks, maxRanks))
	flags.StringVar(&o.group.handshake, "handshake", "tcp://127.0.0.1:5570", "with -engines: `endpoint` to bind, which those dial")
	flags.DurationVar(&o.traffic.length, "time", 7*time.Second, fmt.Sprintf("for how long chat requests are sent: a `duration` from %v to %v", minTime, maxTime))
	flags.IntVar(&o.traffic.burst, "burst", 96, fmt.Sprintf("`requests` per rank of the burst at the start, 0 to %d", maxBurst))
	flags.Float64Var(&o.traffic.rate, "rate", 4.5, fmt.Sprintf("chat `requests` per second and rank, up to %d; a rank does about ten", maxRate))
	flags.Uint64Var(&o.traffic.seed, "seed", 1, "`number` that the chat is drawn from: the same requests at the same times")
	flags.Usage = func() {
		fmt.Fprint(stderr, `A router of data-parallel ranks whose load rides on their output: what becomes of a
rank that falls idle, and whose last word is that it is busy. Simulated ranks get a
burst of requests, and then chat, with that word believed and without.

usage: ranks [flags]

`)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	set := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { set[f.Name] = true })
	o.group.inProcess = !set["engines"]
	count := "ranks"
	if !o.group.inProcess {
		count, o.group.ranks = "engines", *engines
	}
	o.traffic.ranks = o.group.ranks
	switch c := &o.traffic; {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case set["engines"] && set["ranks"]:
		return o, errors.New("-engines says how many ranks there are: leave out -ranks")
	case set["handshake"] && !set["engines"]:
		return o, errors.New("-handshake is for ranks that are started elsewhere: say how many, with -engines")
	case c.ranks < minRanks || c.ranks > maxRanks:
		return o, fmt.Errorf("-%s %d: want %d to %d", count, c.ranks, minRanks, maxRanks)
	case !(c.rate > 0 && c.rate <= maxRate):
		return o, fmt.Errorf("-rate %v: want more than 0, and at most %d", c.rate, maxRate)
	case c.burst < 0 || c.burst > maxBurst:
		return o, fmt.Errorf("-burst %d: want 0 to %d", c.burst, maxBurst)
	case c.length < minTime || c.length > maxTime:
		return o, fmt.Errorf("-time %v: want %v to %v", c.length, minTime, maxTime)
	}
	return o, nil
}

// run is the whole of it.
func run(ctx context.Context, o options, stdout, stderr io.Writer) error {
	o.group.logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	o.group.progress = stderr
	t := o.traffic
	fmt.Fprintf(stderr, "a burst of %d requests for each rank, then chat for %v, %.4g requests a second each\n", t.burst, t.length, t.rate)
	var results []*result
	for _, believe := range o.believe {
		o.group.believe = believe
		r, err := runGroup(ctx, o.group, t, stderr)
		if r != nil {
			r.print(stdout)
			results = append(results, r)
			err = errors.Join(err, r.err())
		}
		if err != nil {
			return err
		}
	}
	if len(results) > 1 && results[0].told() {
		fmt.Fprint(stdout, "\n", compared(results[0], results[1]))
	}
	return nil
}

// runGroup has a group of its own. There is a result if the group came up.
func runGroup(ctx context.Context, c groupConfig, t traffic, progress io.Writer) (r *result, err error) {
	g, err := startGroup(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	return measure(ctx, g, t, progress), nil
}
