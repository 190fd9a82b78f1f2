//go:build linux && cgo

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"
)

// row is one line of the table: all runs of one reader with one number of ranks.
type row struct {
	ranks  int
	reader string
	runs   []figures
	err    error // why there are no more of them
}

// tooLate is how late the publishers of a run may be. Then the machine had other
// things to do, and the run says more about these.
const tooLate = 20 * time.Millisecond

// good are the runs whose publishers were in time, or all if those of none were.
func (r *row) good() []figures {
	late := func(f figures) bool { return f.sent.Late > tooLate }
	if good := slices.DeleteFunc(slices.Clone(r.runs), late); len(good) > 0 {
		return good
	}
	return r.runs
}

// median returns the middle one of what the good runs say, the upper one of two.
func median[T cmp.Ordered](r *row, of func(*figures) T) T {
	var values []T
	for _, f := range r.good() {
		values = append(values, of(&f))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }

func (f *figures) perMessage() float64 {
	return float64(f.CPU) / 1e3 / float64(max(f.received, 1))
}

func (f *figures) cores() float64 { return f.CPU.Seconds() / f.sent.Elapsed.Seconds() }

func (f *figures) lost() int { return f.sent.Messages - f.received }

const format = "%6s  %-16s %5s  %10s %6s  %7s %6s %11s  %7s %7s  %8s %6s %8s\n"

func printHead(w io.Writer) {
	fmt.Fprintf(w, format, "ranks", "reader", "runs", "CPU µs/msg", "cores", "threads", "MiB", "descriptors", "p50 ms", "p99 ms", "msg/s", "lost", "late ms")
}

func (r *row) print(w io.Writer) {
	if len(r.runs) > 0 {
		text := func(format string, v any) string { return fmt.Sprintf(format, v) }
		fmt.Fprintf(w, format, text("%d", r.ranks), r.reader, fmt.Sprintf("%d/%d", len(r.good()), len(r.runs)),
			text("%.1f", median(r, (*figures).perMessage)),
			text("%.2f", median(r, (*figures).cores)),
			text("%d", median(r, func(f *figures) int { return f.Threads })),
			text("%d", median(r, func(f *figures) int64 { return f.Memory })>>20),
			text("%d", median(r, func(f *figures) int { return f.Descriptors })),
			text("%.2f", milliseconds(median(r, func(f *figures) time.Duration { return f.P50 }))),
			text("%.2f", milliseconds(median(r, func(f *figures) time.Duration { return f.P99 }))),
			text("%.0f", median(r, func(f *figures) float64 { return float64(f.sent.Messages) / f.sent.Elapsed.Seconds() })),
			text("%d", median(r, (*figures).lost)),
			text("%.1f", milliseconds(median(r, func(f *figures) time.Duration { return f.sent.Late }))),
		)
	}
	if r.err != nil {
		fmt.Fprintf(w, "%6d  %-16s %v\n", r.ranks, r.reader, r.err)
	}
	for _, f := range r.runs {
		if f.Refused+f.Unseen > 0 {
			fmt.Fprintf(w, "%6d  %-16s %d reports were refused, %d were not in the view after their put\n", r.ranks, r.reader, f.Refused, f.Unseen)
		}
	}
}

// targets are what is wanted of the subscriber.
var targets = []struct {
	ranks int
	what  string
	of    func(*row) float64
	most  float64
	under bool // most itself is too much
}{
	{1024, "CPU µs a message", func(r *row) float64 { return median(r, (*figures).perMessage) }, 12, false},
	{1024, "threads", func(r *row) float64 { return float64(median(r, func(f *figures) int { return f.Threads })) }, 16, false},
	{1024, "p99 ms to a view", func(r *row) float64 { return milliseconds(median(r, func(f *figures) time.Duration { return f.P99 })) }, 5, true},
	{8192, "cores", func(r *row) float64 { return median(r, (*figures).cores) }, 1, true},
	{8192, "MiB resident", func(r *row) float64 {
		return float64(median(r, func(f *figures) int64 { return f.Memory })) / (1 << 20)
	}, 300, true},
}

func printTargets(w io.Writer, rows []row) {
	fmt.Fprintln(w)
	for _, t := range targets {
		for i := range rows {
			r := &rows[i]
			if r.ranks != t.ranks || r.reader != subject || len(r.runs) == 0 {
				continue
			}
			v := t.of(r)
			limit, verdict := "at most", "met"
			if t.under {
				limit = "under"
			}
			if v > t.most || t.under && v == t.most {
				verdict = "missed"
			}
			fmt.Fprintf(w, "target at %d ranks: %s %s %g: %.4g, %s\n", t.ranks, t.what, limit, t.most, v, verdict)
		}
	}
}
