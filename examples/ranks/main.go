// Command ranks shows what becomes of a data-parallel rank that has nothing to do.
//
// An engine of TokenSpeed's kind tells its load only in its output batches, and
// counts its requests before it ends those of the batch. So the last word of a rank
// that falls idle is that it is busy, and it says nothing more until it is given
// something. A router that believes it does not give it anything.
//
//	go run ./ranks               # idle ranks count as idle: the connector knows better
//	go run ./ranks -zero=false   # their last word is believed
//
// Four ranks of a simulated engine are started in this process, and sent a burst of
// short requests, then a steady stream of longer ones, the chat, of which a rank
// could do twice its share. Everything is real but the model: sockets, batches, and
// a connector (load.Connector) that chooses the ranks. It takes ten seconds.
//
//	-ranks 8       more of them
//	-engines 2     use ranks that are started elsewhere, by ./engine -wire tokenspeed
//	-handshake     where those dial
//	-time, -burst, -rate, -seed    the traffic; see -h
//
// What to copy is router.go. The table goes to standard output, with what it means;
// all else to standard error. It exits with 0 only if no request failed.
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
	traffic traffic
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{traffic: traffic{start: time.Second}}
	flags := flag.NewFlagSet("ranks", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.group.ranks, "ranks", 4, "`ranks` to start in this process")
	engines := flags.Int("engines", 0, "`ranks` that are started elsewhere instead, with engine indexes from 0")
	flags.StringVar(&o.group.handshake, "handshake", "tcp://127.0.0.1:5570", "`endpoint` to bind for those")
	zero := flags.Bool("zero", true, "count a rank without requests as idle; false believes its last word")
	flags.DurationVar(&o.traffic.length, "time", 8*time.Second, "`time` for which chat requests are sent")
	flags.IntVar(&o.traffic.burst, "burst", 32, "`requests` of the burst at the start, per rank")
	flags.Float64Var(&o.traffic.rate, "rate", 3, "chat `requests` per second, per rank")
	flags.Uint64Var(&o.traffic.seed, "seed", 1, "`seed` of the traffic: the same requests at the same times")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.group.believe = !*zero
	if o.group.inProcess = *engines == 0; !o.group.inProcess {
		o.group.ranks = *engines
	}
	o.traffic.ranks = o.group.ranks
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.group.ranks < 2 || o.group.ranks > maxRanks:
		return o, fmt.Errorf("%d ranks: want 2 to %d", o.group.ranks, maxRanks)
	case !(o.traffic.rate > 0 && o.traffic.rate <= maxRate):
		return o, fmt.Errorf("%v requests per second: want more than 0, and at most %d", o.traffic.rate, maxRate)
	case o.traffic.burst < 0 || o.traffic.burst > maxBurst || o.traffic.length < 0 || o.traffic.length > maxTime:
		return o, fmt.Errorf("a burst of %d and a time of %v: want at most %d and %v", o.traffic.burst, o.traffic.length, maxBurst, maxTime)
	}
	return o, nil
}

// What one process should be asked for.
const (
	maxRanks = 64
	maxRate  = 100
	maxBurst = 256
	maxTime  = time.Hour
)

// run is the whole of it.
func run(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	o.group.logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	o.group.progress = stderr
	g, err := startGroup(ctx, o.group)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	t := o.traffic
	fmt.Fprintf(stderr, "they get a burst of %d requests each, then from %v on chat, %.4g requests a second each, for %v\n\n", t.burst, t.start, t.rate, t.length)

	r, err := measure(ctx, g, t, stderr)
	if err != nil {
		return err
	}
	r.believed = o.group.believe
	r.print(stdout)
	return r.err()
}
