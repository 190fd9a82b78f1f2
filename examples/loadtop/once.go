package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// again is how long once waits between two looks.
const again = 20 * time.Millisecond

// once waits until there is nothing more to wait for, prints what is known, and reports
// whether that is everything.
func once(ctx context.Context, o options, stdout io.Writer) (known bool, err error) {
	e, err := watch(ctx, o)
	if err != nil {
		return false, err
	}
	defer e.close()
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	for {
		p := e.look()
		if !p.settled(o.poll) && ctx.Err() == nil {
			select {
			case <-time.After(again):
			case <-ctx.Done():
			}
			continue
		}
		if o.json {
			enc := json.NewEncoder(stdout)
			enc.SetIndent("", "  ")
			return p.Known, enc.Encode(p)
		}
		return p.Known, printTable(stdout, &p, o.sort)
	}
}

func printTable(to io.Writer, p *picture, o order) error {
	rows := engineRows(p)
	sorted(rows, o, false)
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ENGINE\tRUN\tWAIT\tTOKENS\tKV\tAGE\tTROUBLE")
	for i := range rows {
		r := &rows[i]
		run, wait, tokens, kv := count(r.running), count(r.waiting), maybeCount(r.tokens), maybeShare(r.kv)
		if r.trouble != "" { // what there is is not all
			run, wait, tokens, kv = unknown, unknown, unknown, unknown
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.name, run, wait, tokens, kv, maybeAge(r.age), r.trouble)
	}
	for _, refused := range p.Fleet.Refused {
		fmt.Fprintf(w, "%s\t\t\t\t\t\trefused: %s\n", clean(refused.Worker), clean(refused.Reason))
	}
	for _, source := range p.Fleet.Sources {
		if source.Problem != "" {
			fmt.Fprintf(w, "%s\t\t\t\t\t\t%s\n", clean(source.Source), clean(source.Problem))
		}
	}
	return w.Flush()
}
