// Command engine runs one simulated inference engine: the HTTP server of an SGLang
// engine, its load sockets and its timing, without a model or a GPU.
//
//	go run ./engine -listen 127.0.0.1:30000 -ranks 2
//	curl -s 127.0.0.1:30000/v1/loads
//
// With -wire tokenspeed it is one of the other kind, which serves nothing and dials
// a frontend instead. Its load rides on its output batches.
//
//	go run ./engine -wire tokenspeed -handshake tcp://127.0.0.1:5570 -engine-index 0 &
//	go run ./engine -wire tokenspeed -handshake tcp://127.0.0.1:5570 -engine-index 1 &
//	go run ./ranks -engines 2 -handshake tcp://127.0.0.1:5570
//	kill %1 %2
//
// It outlives its frontend: when that is gone it says so in its log, forgets what it
// was at, and dials again. A real engine has to be started again. Each rank of a group
// needs an index of its own; a frontend that is called by two of one index ends with
// an error.
//
// SIGTERM ends it in an orderly way, so that it says that it is dead; SIGKILL does
// not. The flags of this kind are -handshake, -engine-index, and, for what older
// engines send, -load=false and -elements; -h marks those of one kind only.
//
// Package simengine describes what it simulates and which faults it has on offer.
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
	"slices"
	"strconv"
	"syscall"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
	"github.com/plimsoll-go/plimsoll/examples/internal/simengine/batch"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "engine:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	config, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	config.Logger = slog.New(slog.NewTextHandler(stderr, nil))
	if config.Wire == simengine.WireTokenSpeed {
		return runTokenSpeed(ctx, config, stdout)
	}
	e, err := simengine.Start(config)
	if err != nil {
		return err
	}
	defer e.Close()
	describe(stdout, e)
	<-ctx.Done()
	logTotals(config.Logger, e.Totals())
	return e.Close()
}

// runTokenSpeed serves one frontend after another.
func runTokenSpeed(ctx context.Context, config simengine.Config, stdout io.Writer) error {
	for {
		e, err := simengine.StartTokenSpeed(ctx, config)
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil // nobody ever came, which is not this side's failure
		}
		if err != nil {
			return err
		}
		for rank := range config.Ranks {
			fmt.Fprintf(stdout, "rank %-2d engine index %d of the frontend at %s\n", rank, config.EngineIndex+rank, config.Handshake)
		}
		select {
		case <-ctx.Done():
			logTotals(config.Logger, e.Totals())
			return e.Close()
		case <-e.Gone():
			config.Logger.Warn("frontend is gone; what was in flight is forgotten", "frontend", config.Handshake)
			logTotals(config.Logger, e.Totals())
			if err := e.Kill(); err != nil {
				return err
			}
		}
	}
}

func logTotals(logger *slog.Logger, t batch.Totals) {
	logger.Info("engine ends", "requests", t.Added, "finished", t.Finished, "aborted", t.Aborted,
		"rejected", t.Rejected, "prompt_tokens", t.PrefillTokens, "output_tokens", t.OutputTokens)
}

// describe says where everything is.
func describe(w io.Writer, e *simengine.Engine) {
	fmt.Fprintf(w, "engine  %s\n", e.URL())
	if admin := e.AdminURL(); admin != "" {
		fmt.Fprintf(w, "admin   %s/sim/ (outlives /sim/die)\n", admin)
	}
	for rank, endpoint := range e.LoadEndpoints() {
		fmt.Fprintf(w, "load %-2d %s\n", rank, endpoint)
	}
}

func parseFlags(args []string, stderr io.Writer) (simengine.Config, error) {
	var c simengine.Config
	flags := flag.NewFlagSet("engine", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.Listen, "listen", "127.0.0.1:0", "sglang: `address` of the HTTP server; port 0 or auto finds a free one")
	flags.StringVar(&c.Admin, "admin", "127.0.0.1:0", "sglang: `address` of a second server for /sim/ that outlives /sim/die; empty for none")
	flags.IntVar(&c.Ranks, "ranks", 1, "data-parallel `ranks`")
	flags.TextVar(&c.Wire, "wire", simengine.WireLoadStat, "`kind` of engine and how it tells its load: load_stat or load_snapshot for SGLang, or tokenspeed")
	flags.StringVar(&c.Handshake, "handshake", "", "tokenspeed: `endpoint` at which a frontend waits, such as tcp://127.0.0.1:5570")
	flags.IntVar(&c.EngineIndex, "engine-index", 0, "tokenspeed: `index` of the first rank, from which the others count on")
	flags.BoolFunc("load", "tokenspeed: with -load=false batches tell no load, as before an engine's first look at it", func(text string) error {
		load, err := strconv.ParseBool(text)
		c.NoLoad = !load
		return err
	})
	flags.IntVar(&c.Elements, "elements", 0, "tokenspeed: `length` of a batch: 9 or 10 as older engines send, 14 as today; 0 for 14")
	flags.BoolVar(&c.NoLoadSocket, "no-load-socket", false, "sglang: publish no load; /v1/loads still answers")
	flags.Var((*port)(&c.KVPortBase), "kv-base-port", "sglang: first `port` of the KV-event range, after which the load range is packed; 0 or auto finds free ones")
	flags.Var((*port)(&c.ReplayPortBase), "replay-base-port", "sglang: first `port` of the replay range to advertise; 0 for none")
	flags.StringVar(&c.Model, "model", "sim-8b", "`name` of the model")
	flags.Float64Var(&c.Speed, "speed", 1, "`factor` of this engine: 0.5 takes twice as long")
	flags.Float64Var(&c.TimeScale, "time-scale", 1, "`factor` of the simulation: 10 computes ten times as fast as real time")
	flags.Int64Var(&c.KVTokens, "kv-tokens", 400_000, "KV capacity per rank, in `tokens`")
	flags.IntVar(&c.MaxRunning, "max-running", 256, "`requests` that may run at once per rank")
	flags.IntVar(&c.MaxQueue, "max-queue", 0, "`requests` that may wait per rank before others are refused, with a 503 or, by TokenSpeed, an abort; 0 for no limit")
	flags.Int64Var(&c.MaxTokens, "max-tokens", 16, "output `tokens` of a request that names no length")
	flags.Int64Var(&c.StreamInterval, "stream-interval", 1, "output `tokens` per streamed event")
	flags.Usage = func() {
		fmt.Fprintf(stderr, `A simulated engine, of SGLang's kind or TokenSpeed's: API and timing without a model.

usage: engine [flags]

Flags marked sglang or tokenspeed are for engines of that kind only; see -wire.

`)
		flags.PrintDefaults()
		fmt.Fprintf(stderr, `
Faults on demand of SGLang's kind, at the engine's own address and at the admin address:

  POST /sim/mute?for=5s&rank=0        no load messages, for a while or until unmuted, of one rank or of all
  POST /sim/unmute
  POST /sim/die?for=5s                connections cut, new ones refused; back after 5s, or dead
  POST /sim/restart?ranks=4&down=1s   same ports, everything forgotten
  POST /sim/garbage?n=100             broken load messages of every kind
  POST /sim/flood?for=1s              good load messages without a pause
  POST /sim/freeze?for=5s             it hangs, for a while or until thawed
  POST /sim/thaw                      at the admin address
  POST /sim/slow?factor=0.5           half the configured speed
  POST /sim/fail?n=3&how=error|cut    the next requests get a 500, or no answer
`)
	}
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return c, errors.Join(checkKind(c, flags), checkZeros(flags))
}

// checkZeros refuses a 0 where the configuration would read it as the default.
func checkZeros(flags *flag.FlagSet) (err error) {
	flags.Visit(func(f *flag.Flag) {
		if f.Value.String() == "0" && f.DefValue != "0" {
			err = fmt.Errorf("-%s 0: want a positive number", f.Name)
		}
	})
	return err
}

// kindFlags are the flags that mean nothing to one kind of engine.
var kindFlags = map[bool][]string{ // whether it is TokenSpeed
	true:  {"listen", "admin", "no-load-socket", "kv-base-port", "replay-base-port"},
	false: {"handshake", "engine-index", "load", "elements"},
}

// checkKind refuses flags that would be ignored: whoever sets one believes that it
// does something.
func checkKind(c simengine.Config, flags *flag.FlagSet) (err error) {
	tokenSpeed := c.Wire == simengine.WireTokenSpeed
	flags.Visit(func(f *flag.Flag) {
		if slices.Contains(kindFlags[tokenSpeed], f.Name) {
			err = fmt.Errorf("-%s has no meaning with -wire %v", f.Name, c.Wire)
		}
	})
	if err == nil && tokenSpeed && c.Handshake == "" {
		err = errors.New("-wire tokenspeed needs a frontend to dial: -handshake")
	}
	return err
}

// port is a flag for a port number, or auto for 0.
type port int

func (p *port) String() string { return strconv.Itoa(int(*p)) }

func (p *port) Set(text string) error {
	if text == "auto" {
		*p = 0
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return errors.New("want a port number or auto")
	}
	*p = port(n)
	return nil
}
