package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// result is what came of the traffic.
type result struct {
	traffic  traffic
	believed bool
	ranks    []rankResult

	chat             int // chat requests that went to a rank
	left, failed     int // requests of any kind
	unsent           int
	firstError       error
	cut              error         // why the traffic was cut short; nil = it was not
	first50, first99 time.Duration // of the chat requests that were answered
}

// rankResult is one row of the table.
type rankResult struct {
	chat, left int
	idle       time.Duration // the longest, while another had several requests
	status     load.ConnectorRankStatus
}

func newResult(t traffic, answers []answer, st load.ConnectorStatus, idle *idleness, cut error) *result {
	r := &result{traffic: t, believed: st.Shared, ranks: make([]rankResult, t.ranks), cut: cut}
	for i := range r.ranks {
		r.ranks[i].idle, r.ranks[i].status = idle.longest[i], st.Ranks[i]
	}
	var first []time.Duration
	for _, a := range answers {
		if a.chat && a.rank != load.NoRank {
			r.chat++
			r.ranks[a.rank].chat++
		}
		switch {
		case !a.sent:
			r.unsent++
		case a.err != nil:
			r.failed++
			if r.firstError == nil {
				r.firstError = a.err
			}
		case a.left:
			r.left++
			r.ranks[a.rank].left++
		case a.chat:
			first = append(first, a.first)
		}
	}
	slices.Sort(first)
	r.first50, r.first99 = percentile(first, 50), percentile(first, 99)
	return r
}

// percentile returns the smallest of the sorted values that p percent of them do
// not exceed, and 0 if there are none.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(p/100*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// err is what the program exits with.
func (r *result) err() error {
	switch {
	case r.cut != nil:
		return fmt.Errorf("cut short: %w", r.cut)
	case r.failed > 0:
		return fmt.Errorf("%d requests failed, the first with: %w", r.failed, r.firstError)
	}
	return nil
}

// share is that of a rank in the chat, in percent.
func (r *result) share(rank int) float64 {
	return 100 * float64(r.ranks[rank].chat) / float64(max(r.chat, 1))
}

// print writes the table and what it means.
func (r *result) print(w io.Writer) {
	fmt.Fprintf(w, `
With %s:

        chat requests      the rank's last word              longest idle while
rank  sent  share  gone  running  waiting  KV cache  score  another had several
`, r.mode())
	for i, k := range r.ranks {
		s := k.status
		fmt.Fprintf(w, "%4d %5d %5.1f%% %5d %8s %8s %9s %6.4g %19.1fs\n", i, k.chat, r.share(i), k.left,
			count(s.Running), count(s.Waiting), percent(s.KVUsage), s.Score, k.idle.Seconds())
	}
	fmt.Fprintf(w, "\nTime to the first token: median %v, 99th percentile %v. Clients gone before the end: %d.\n",
		r.first50.Round(time.Millisecond), r.first99.Round(time.Millisecond), r.left)
	if r.cut != nil {
		fmt.Fprintf(w, "Cut short: %v.\n%d requests were sent and have no answer; the times leave them out. %d were not sent.\n", r.cut, r.failed, r.unsent)
	}
	fmt.Fprint(w, "\n", r.verdict())
}

func (r *result) mode() string {
	if r.believed {
		return "the last word of a rank believed (-zero=false)"
	}
	return "ranks without requests counted as idle (-zero=true)"
}

func count(n load.Maybe[int64]) string {
	if v, ok := n.Get(); ok {
		return fmt.Sprint(v)
	}
	return "none"
}

func percent(f load.Maybe[float64]) string {
	if v, ok := f.Get(); ok {
		return fmt.Sprintf("%.1f%%", 100*v)
	}
	return "none"
}
