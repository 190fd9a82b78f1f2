// Lab simulates fleets of inference engines and compares the rules by which
// gateways choose among them.
//
// All policies of package selector, the known rules of the field and two oracles
// get the same requests, in many cells: fleets, traces, numbers of gateways, periods
// of reports, faults. Engines and network are simulated (internal/fleetsim),
// what the gateways do is not. What a policy is worth in a cell is its 99th
// percentile of the time to the first token, divided by that of the better oracle.
//
//	go run ./lab -traces DIR                          # the standard set of cells
//	go run ./lab                                      # what of it needs no public trace
//	go run ./lab -cells gw16 -seeds 1 -requests 200   # a quick look at some cells
//	go run ./lab -wire load_stat_short                # with less in the reports
//	go run ./lab -set check                           # with traces that nobody tuned on
//	go run ./lab -engines 8 -gateways 1,4 -load 0.9   # cells of one's own
//	go run ./lab -json all.json -html all.html
//	go run ./lab -with all.json -policies least_work  # run one, compare with the others
//
// The standard set is a grid of 25 cells, which the closing lines are about, five
// faults and three lower loads. It takes a quarter of an hour on two processors. The
// folder of traces (-traces or $PLIMSOLL_TRACES) may hold the files of the two Azure
// LLM inference traces of 2023 and of Mooncake's conversation trace, under the names
// that they were published under. Cells whose trace is not there are left out.
//
// Results that -with takes from a file are those of the same cells with as many
// seeds. Nothing tells it that the code has changed since.
//
// The output ends with two lines for each policy, the geometric mean of its ratios
// and the highest:
//
//	lab geomean POLICY RATIO
//	lab worst POLICY RATIO CELL
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
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

// run is the whole lab.
func run(ctx context.Context, o options, stdout, stderr io.Writer) error {
	say := newProgress(stderr, o.terminal)
	traces, err := readTraces(o.traces)
	if err != nil {
		return err
	}
	cells, missing, err := o.cells(traces)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		say.line("left out, since the traces are not there (-traces or $%s): %s", tracesEnv, strings.Join(missing, ", "))
	}
	var earlier *document
	if o.with != "" {
		if earlier, err = readDocument(o.with); err != nil {
			return err
		}
	}
	chosen, err := choose(contestants(), o.policies, earlier)
	if err != nil {
		return err
	}
	chosen = slices.DeleteFunc(chosen, func(c contestant) bool {
		return c.only != nil && !slices.ContainsFunc(cells, func(at cell) bool { return c.only(&at) })
	})

	l := &lab{traces: traces, contestants: chosen, seeds: o.seeds, earlier: earlier, say: say}
	d := &document{Seeds: o.seeds, Contestants: chosen, Missing: missing}
	stopped := l.run(ctx, cells, func(c *cellResult) {
		d.Cells = append(d.Cells, c)
		say.aside(func() { printCell(stdout, c) })
	})
	if len(d.Cells) == 0 {
		return stopped
	}
	// What was done before somebody lost patience is worth keeping, for -with.
	d.conclude()
	d.Took = inSeconds(time.Since(say.started))
	if err := d.save(o); err != nil || stopped != nil {
		return errors.Join(stopped, err)
	}
	say.aside(func() {
		printBehind(stdout, d)
		printGroups(stdout, d)
		printClosing(stdout, d)
	})
	return nil
}

// save writes the files that were asked for.
func (d *document) save(o options) error {
	var errs []error
	if o.json != "" {
		errs = append(errs, d.write(o.json))
	}
	if o.html != "" {
		errs = append(errs, d.writeHTML(o.html))
	}
	return errors.Join(errs...)
}
