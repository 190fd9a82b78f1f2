package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
)

// tracesEnv names the folder of traces where no flag does.
const tracesEnv = "PLIMSOLL_TRACES"

type options struct {
	traces   string
	set      string
	only     *regexp.Regexp // cells; nil means all
	own      bool           // a cell of the user's own, and its variations, instead of the grid
	cell     cell
	trace    string
	gateways []int
	periods  []time.Duration
	loads    []float64

	requests int
	wire     wire
	policies []string
	seeds    int
	with     string
	json     string
	html     string
	terminal bool // progress may overwrite itself
}

// ownFlags are those that describe a cell: with any of them there is no grid.
var ownFlags = []string{
	"trace", "engines", "speeds", "ranks", "lockstep", "kv", "context", "cache", "gateways", "shares", "period", "load",
	"lost", "mute", "frozen", "hidden", "unstreamed",
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{traces: os.Getenv(tracesEnv)}
	o.cell = base(longTail)
	o.gateways, o.periods, o.loads = []int{o.cell.Gateways}, []time.Duration{o.cell.Period.duration()}, []float64{o.cell.Load}
	f := flag.NewFlagSet("lab", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintf(stderr, "usage: lab [flags]\n\nThe grid is run, unless one of -%s describes a cell.\n\n", strings.Join(ownFlags, ", -"))
		f.PrintDefaults()
	}

	f.StringVar(&o.traces, "traces", o.traces, "`folder` of the published traces (default $"+tracesEnv+")")
	f.StringVar(&o.set, "set", "standard", "`name` of the cells: standard, tuning and check are grids of different traces, more is what the grid lacks")
	f.Func("cells", "run only the cells of the set whose names match a regular `expression`", func(text string) (err error) {
		o.only, err = regexp.Compile(text)
		return err
	})
	f.IntVar(&o.requests, "requests", 600, "requests per rank, on average")
	f.TextVar(&o.wire, "wire", wire(0), "`name` of the wire of the reports: "+wireNames())
	f.Func("policies", "`names` of the policies to run, separated by commas (default all); the oracles run in any case", func(text string) error {
		o.policies = strings.Split(text, ",")
		return nil
	})
	f.IntVar(&o.seeds, "seeds", 5, "times that each cell is run")
	f.StringVar(&o.with, "with", "", "`file` of an earlier -json to take results from, of the same cells and as many seeds; the policies that -policies names run again")
	f.StringVar(&o.json, "json", "", "`file` to write all numbers to")
	f.StringVar(&o.html, "html", "", "`file` to write a report to")

	f.StringVar(&o.trace, "trace", longTail, "trace: gen, a `name` that a cell has, or a file as published by Azure (.csv) or Mooncake (.jsonl)")
	f.IntVar(&o.cell.Engines, "engines", o.cell.Engines, "engines")
	listVar(f, &o.cell.Speeds, "speeds", "relative speeds, dealt to the engines in turn", number)
	listVar(f, &o.cell.Ranks, "ranks", "numbers of ranks, dealt to the engines in turn", strconv.Atoi)
	f.BoolVar(&o.cell.Lockstep, "lockstep", false, "ranks step together")
	f.IntVar(&o.cell.KV, "kv", 0, "tokens of KV cache of a rank (default 400,000)")
	f.IntVar(&o.cell.Context, "context", 0, "tokens that a request may need (default all of the KV cache)")
	f.BoolVar(&o.cell.Cache, "cache", false, "engines keep prefixes")
	listVar(f, &o.gateways, "gateways", "gateways, a cell for each number", strconv.Atoi)
	listVar(f, &o.cell.Shares, "shares", "relative shares of the requests, by gateway", number)
	listVar(f, &o.periods, "period", "periods of reports, a cell for each", time.ParseDuration)
	listVar(f, &o.loads, "load", "shares of what the fleet can do, a cell for each", number)
	f.Float64Var(&o.cell.Loss, "lost", 0, "share of the reports that a gateway does not get")
	listVar(f, &o.cell.Mute, "mute", "engines that never report", strconv.Atoi)
	listVar(f, &o.cell.Frozen, "frozen", "engines that repeat their first busy report", strconv.Atoi)
	f.Float64Var(&o.cell.Hidden, "hidden", 0, "share of the requests that no gateway sees")
	f.Float64Var(&o.cell.Unstreamed, "unstreamed", 0, "share of the answers that are not streamed: gateways see nothing of them before their end")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	f.Visit(func(g *flag.Flag) { o.own = o.own || slices.Contains(ownFlags, g.Name) })
	return o, o.check(f)
}

func (o *options) check(f *flag.FlagSet) error {
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	case sets[o.set].cells == nil:
		return fmt.Errorf("no set %q (have standard, tuning, check, more)", o.set)
	case o.own && o.only != nil:
		return errors.New("-cells is for the cells of a set, and other flags describe one")
	case slices.ContainsFunc(o.loads, func(l float64) bool { return !(l > 0) }):
		return errors.New("-load must be above 0")
	case o.cell.Unstreamed > 0 && o.wire == wire(fleetsim.Piggyback):
		return errors.New("-unstreamed is for other wires: there, batches bring the first token of every request")
	case o.seeds < 1 || o.requests < 1 || o.cell.Engines < 1:
		return errors.New("-seeds, -requests and -engines must be at least 1")
	}
	return nil
}

func number(text string) (float64, error) { return strconv.ParseFloat(text, 64) }

// listVar defines a flag for a list with commas.
func listVar[T any](f *flag.FlagSet, list *[]T, name, usage string, parse func(string) (T, error)) {
	if len(*list) > 0 {
		usage += fmt.Sprintf(" (default %v)", (*list)[0])
	}
	f.Func(name, "`list` of "+usage, func(text string) error {
		*list = nil
		for field := range strings.SplitSeq(text, ",") {
			v, err := parse(strings.TrimSpace(field))
			if err != nil {
				return err
			}
			*list = append(*list, v)
		}
		return nil
	})
}

// cells returns what is to be run, and which traces that would have been used are
// not there.
func (o *options) cells(t *traces) (cells []cell, missing []string, err error) {
	if o.own {
		if cells, err = o.ownCells(t); err != nil {
			return nil, nil, err
		}
	} else {
		var have []string
		if have, missing = t.have(sets[o.set].traces); len(have) == 0 {
			return nil, nil, fmt.Errorf("none of the traces %s is there; name their folder with -traces or $%s", strings.Join(missing, ", "), tracesEnv)
		}
		cells = sets[o.set].cells(have)
		if o.only != nil {
			cells = slices.DeleteFunc(cells, func(c cell) bool { return !o.only.MatchString(c.Name) })
		}
		if len(cells) == 0 {
			return nil, nil, errors.New("no cell of the set has a name like that")
		}
	}
	for i := range cells {
		cells[i].Requests = o.requests
		if cells[i].Wire == 0 {
			cells[i].Wire = o.wire
		}
	}
	return cells, missing, nil
}

// ownCells returns the user's cell, once for each combination of what may vary.
func (o *options) ownCells(t *traces) (cells []cell, err error) {
	c := o.cell
	c.Group = groupOwn
	if c.Trace, err = t.named(o.trace); err != nil {
		return nil, err
	}
	for _, c.Gateways = range o.gateways {
		for _, period := range o.periods {
			for _, c.Load = range o.loads {
				c.Period = inSeconds(period)
				c.Name = fmt.Sprintf("%s/gw%d/%gs/load%g", c.Trace, c.Gateways, period.Seconds(), 100*c.Load)
				c.Doc = "from the command line"
				cells = append(cells, c)
			}
		}
	}
	return cells, nil
}
