// Command loadtop shows the load of inference engines in a terminal, live, with no gateway
// between: it asks each engine what it publishes, listens to its load sockets, and polls
// /v1/loads where there are none.
//
//	go run . http://10.0.0.1:30000 http://10.0.0.2:30000
//	go run . -file engines.txt
//
// A line is an engine: requests running and waiting, prompt tokens that wait, the KV cache
// of its fullest rank, the age of its oldest rank's report, and how deep it was lately. Where
// its load is not known, the line says why: a sum of which a part is missing is not shown.
// The worst come first. Enter shows the ranks of one engine, ? all keys.
//
// For scripts, -once waits until the load of every engine is known, or for -timeout, prints
// one table, or with -json all that is known, and exits with
//
//	0   the load of every engine is known
//	1   that of some is not, or there are none
//	2   it could not even begin: bad flags, a bad URL
//
// Engines started with --api-key want it in LOADTOP_API_KEY, or one of their own in their URL
// (http://:key@host:30000). Built without cgo, it listens to load sockets on Linux alone, and
// polls elsewhere.
//
// It picks no engine and sends none a request, so that own requests in flight are 0 in all it says.
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

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"

	"github.com/plimsoll-go/plimsoll/discovery"
)

// Exit statuses.
const (
	exitKnown   = 0
	exitUnknown = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Getenv("LOADTOP_API_KEY"), os.Stdout, os.Stderr))
}

// options is what a command line says.
type options struct {
	urls []string
	file string
	key  string

	window       time.Duration
	poll         bool
	pollInterval time.Duration

	every time.Duration
	sort  order

	once    bool
	json    bool
	timeout time.Duration
}

func run(ctx context.Context, args []string, key string, stdout, stderr io.Writer) int {
	o, err := parse(args, key, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitKnown
	}
	if err == nil {
		if !o.once {
			err = live(ctx, o, stdout)
		} else {
			var known bool
			if known, err = once(ctx, o, stdout); err == nil && !known {
				return exitUnknown
			}
		}
	}
	if err != nil {
		fmt.Fprintln(stderr, "loadtop:", err)
		return exitUsage
	}
	return exitKnown
}

func parse(args []string, key string, stderr io.Writer) (options, error) {
	o := options{key: key}
	f := flag.NewFlagSet("loadtop", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintln(stderr, "usage: loadtop [flags] URL...")
		f.PrintDefaults()
	}
	f.StringVar(&o.file, "file", "", "`path` of a list of engines, one URL a line or JSON, read again when it changes")
	f.DurationVar(&o.window, "window", 5*time.Second, "how old a report may be")
	f.BoolVar(&o.poll, "poll", true, "poll /v1/loads where no load socket tells")
	f.DurationVar(&o.pollInterval, "poll-interval", time.Second, "time between two polls of an engine")
	f.DurationVar(&o.every, "every", 500*time.Millisecond, "time between two looks")
	f.TextVar(&o.sort, "sort", byTrouble, "`order`: "+orderNames())
	f.BoolVar(&o.once, "once", false, "print a table and exit: 0 if the load of every engine is known, 1 if not")
	f.BoolVar(&o.json, "json", false, "with -once: print JSON")
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "with -once: how long to wait for what is not known")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.urls = f.Args()
	if len(o.urls) == 0 && o.file == "" {
		f.Usage()
		return o, errors.New("no engines: give their URLs, or -file")
	}
	for _, u := range o.urls {
		if err := discovery.CheckURL(u); err != nil {
			return o, err
		}
	}
	switch {
	case o.json && !o.once:
		return o, errors.New("-json goes with -once")
	case o.window <= 0 || o.pollInterval <= 0 || o.every <= 0 || o.timeout <= 0:
		return o, errors.New("a duration is not above 0")
	}
	return o, nil
}

// live shows the engines until the user has seen enough, or ctx ends.
func live(ctx context.Context, o options, stdout io.Writer) error {
	if f, ok := stdout.(*os.File); !ok || !term.IsTerminal(f.Fd()) {
		return errors.New("the output is no terminal: use -once")
	}
	e, err := watch(ctx, o)
	if err != nil {
		return err
	}
	defer e.close()
	_, err = tea.NewProgram(newModel(e.look, o), tea.WithContext(ctx), tea.WithOutput(stdout)).Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil // asked to end
	}
	return err
}
