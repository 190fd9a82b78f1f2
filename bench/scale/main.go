//go:build linux && cgo

// Scale measures what it costs to listen to many ranks: from load sockets to a
// view that a pick reads.
//
// Publishers are processes of their own, with a real PUB socket on loopback for
// each rank. A worker has eight ranks and an address of its own (127.1.0.0 and
// up), as it has in a cluster. The ranks report one after another, evenly spread
// over time. What listens is another process, a fresh one for each run. It keeps
// a load.Table, and comes by its messages in one of several ways:
//
//	plimsoll           snapshot/zmqsub
//	plimsoll-libzmq    the same with Config.Libzmq
//	blocking           a goroutine for each socket of libzmq, blocking in Recv
//	poller             one zmq4.Poller over all sockets of libzmq
//	go-zeromq          github.com/go-zeromq/zmq4, a goroutine for each socket
//
// The last three are the references: what somebody would write in an afternoon.
// They decode and put the same, and do nothing about half-open links, backlogs or
// peers that break the protocol.
//
//	go run ./scale                                     # make bench-scale
//	go run ./scale -ranks 1024 -readers plimsoll -runs 5
//	go run ./scale -ranks 1024 -readers plimsoll -profile .
//
// # What the columns say
//
// CPU is user and system time of all threads of the listening process, until the
// publishers stop, over the messages that it received; libzmq's and the garbage
// collector's is included. In
// the kernel, a loopback connection charges the sender with most of the way that
// a packet takes up to the receiver's socket.
//
// The delay is from the timestamp in the payload, which the publisher writes just
// before it sends, to the time of the first view that has the report. A view is
// taken right after each put (of many ranks: each n-th) and looked at as a pick
// would; nothing polls. Both times are of the same host's clock.
//
// Lost is what was sent while the run was measured and never received, of
// whatever shape. A message that a newer one of the same rank overtook in the
// subscriber is not lost.
//
// Threads, resident memory and descriptors are those of the process at the end of
// the run.
//
// Late is the most that a publisher was ever behind its schedule. Where that is
// more than some milliseconds the machine has other things to do, or not enough
// CPU for both sides, and the delays say so too, since they begin with the way out
// of the publisher. CPU per message then looks better than it is: messages that
// wait are read together. Runs with more than 20 ms of it are left out, unless
// there are no others.
//
// Every process wants descriptors: a publisher three for each rank, what is made
// of libzmq two, the others one. The soft limit is raised to the hard one, and
// what does not fit is said before anything is measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if args := os.Args[1:]; len(args) > 0 && modes[args[0]] != nil {
		os.Exit(beChild(modes[args[0]], args[1:], os.Stdin, os.Stdout))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

type options struct {
	ranks   []int
	readers []string
	rate    int
	measure time.Duration
	runs    int
	within  time.Duration
	profile string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.SetOutput(stderr)
	ranks := flags.String("ranks", "64,1024,8192", "numbers of ranks")
	names := flags.String("readers", strings.Join(readerNames(), ","), "ways of listening")
	flags.IntVar(&o.rate, "rate", 10, "reports a second of each rank")
	flags.DurationVar(&o.measure, "for", 4*time.Second, "how long each run is measured")
	flags.IntVar(&o.runs, "runs", 3, "runs of each, as far as there is time for them; the figures are medians")
	flags.DurationVar(&o.within, "within", 4*time.Minute, "begin no further runs when they would take longer than this in all")
	flags.StringVar(&o.profile, "profile", "", "write a CPU profile of each listener into this `folder`")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("what is %q?", flags.Arg(0))
	}
	for field := range strings.SplitSeq(*ranks, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 || n > maxRanks {
			return o, fmt.Errorf("-ranks: %q is not a number from 1 to %d", field, maxRanks)
		}
		o.ranks = append(o.ranks, n)
	}
	for name := range strings.SplitSeq(*names, ",") {
		if readerNamed(name) == nil {
			return o, fmt.Errorf("-readers: no %q among %s", name, strings.Join(readerNames(), ", "))
		}
		o.readers = append(o.readers, name)
	}
	if o.rate < 1 || o.rate > 1000 || o.runs < 1 || o.measure < 100*time.Millisecond {
		return o, errors.New("want -rate from 1 to 1000, -runs of 1 or more, -for 100ms or more")
	}
	return o, nil
}
