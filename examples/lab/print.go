package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// cellColumns are what is told of a policy in a cell: means over the seeds.
var cellColumns = []string{
	"ratio", "±", "ttft p50 ms", "p90 ms", "p99 ms", "tpot p99 ms", "whole p99 s", "retracted", "failed", "max/mean",
}

func (r *result) numbers() []string {
	ms := func(of func(*measure) seconds) string {
		v := 1e3 * r.average(func(m *measure) float64 { return float64(of(m)) })
		if v < 100 {
			return fmt.Sprintf("%.1f", v)
		}
		return fmt.Sprintf("%.0f", v)
	}
	number := func(of func(*measure) int) string {
		return fmt.Sprintf("%.0f", r.average(func(m *measure) float64 { return float64(of(m)) }))
	}
	return []string{
		fmt.Sprintf("%.3f", r.Ratio.Mean),
		fmt.Sprintf("%.3f", r.Ratio.half()),
		ms(func(m *measure) seconds { return m.TTFT.P50 }),
		ms(func(m *measure) seconds { return m.TTFT.P90 }),
		ms(func(m *measure) seconds { return m.TTFT.P99 }),
		ms(func(m *measure) seconds { return m.TPOT.P99 }),
		fmt.Sprintf("%.2f", r.average(func(m *measure) float64 { return float64(m.Response.P99) })),
		number(func(m *measure) int { return m.Retractions }),
		number(func(m *measure) int { return m.Failed }),
		fmt.Sprintf("%.2f", r.average(func(m *measure) float64 { return m.MaxOverMean })),
	}
}

// printCell writes what the contestants made of a cell, the best first.
func printCell(w io.Writer, c *cellResult) {
	fmt.Fprintf(w, "\n%s: %s\n", c.Name, c.about())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "policy\t%s\t\n", strings.Join(cellColumns, "\t"))
	rows := slices.Clone(c.Results)
	slices.SortStableFunc(rows, func(a, b *result) int { return cmp.Compare(a.Ratio.Mean, b.Ratio.Mean) })
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t\n", r.Contestant, strings.Join(r.numbers(), "\t"))
	}
	t.Flush()
}

// average is over the seeds.
func (r *result) average(of func(*measure) float64) float64 {
	var sum float64
	for i := range r.Seeds {
		sum += of(&r.Seeds[i])
	}
	return sum / float64(len(r.Seeds))
}

// printBehind writes how far each policy is behind the known rules where it is
// furthest.
func printBehind(w io.Writer, d *document) {
	fmt.Fprintln(w, "\nworst cell of each policy, in units of the best other known rule there, and in how many cells it is over its limit")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, b := range d.Behind {
		fmt.Fprintf(t, "%s\t%s\t%.3f\t±%.3f\tof %s\tin %s\tover %.2f in %d\n", b.Contestant, b.Measurand,
			b.Factor.Mean, b.Factor.half(), b.Best, b.Cell, b.Limit, b.Over)
	}
	t.Flush()
}

// printGroups writes what each policy comes down to in each group of cells.
func printGroups(w io.Writer, d *document) {
	for _, group := range d.groups() {
		fmt.Fprintf(w, "\n%s, %s, %s: p99 time to first token in units of the better oracle\n",
			group, count(d.cellsOf(group), "cell"), count(d.Seeds, "seed"))
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "policy\tgeomean\t±\tworst\t  in\t")
		for _, c := range d.Closing {
			if c.Group == group {
				fmt.Fprintf(t, "%s\t%.3f\t%.3f\t%.3f\t%s\t\n", c.Contestant, c.Geomean.Mean, c.Geomean.half(), c.Worst, c.WorstCell)
			}
		}
		t.Flush()
	}
}

// printClosing writes the lines that scripts look for: about the grid, or where no
// cell of it was run, about the first group that was.
func printClosing(w io.Writer, d *document) {
	fmt.Fprintln(w)
	for _, c := range d.Closing {
		if c.Group == d.groups()[0] {
			fmt.Fprintf(w, "lab geomean %s %.3f\n", c.Contestant, c.Geomean.Mean)
			fmt.Fprintf(w, "lab worst %s %.3f %s\n", c.Contestant, c.Worst, c.WorstCell)
		}
	}
}

func (d *document) cellsOf(group string) (n int) {
	for _, c := range d.Cells {
		if c.Group == group {
			n++
		}
	}
	return n
}
