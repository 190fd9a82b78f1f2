package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// result is what came of the traffic.
type result struct {
	traffic  traffic
	believed bool
	ranks    []rankResult

	chat, left, failed int // requests; left and failed of any kind
	firstError         error
	first50, first99   time.Duration // of the chat
}

// rankResult is one row of the table.
type rankResult struct {
	chat, left int
	idle       time.Duration // the longest, while another had several requests
	status     load.ConnectorRankStatus
}

func newResult(t traffic, plan []request, outcomes []outcome, st load.ConnectorStatus, idle *idleness) *result {
	r := &result{traffic: t, ranks: make([]rankResult, t.ranks)}
	for i := range r.ranks {
		r.ranks[i].idle, r.ranks[i].status = idle.longest[i], st.Ranks[i]
	}
	var first []time.Duration
	for i, o := range outcomes {
		if o.rank != load.NoRank && plan[i].chat {
			r.chat++
			r.ranks[o.rank].chat++
		}
		switch {
		case o.err != nil:
			r.failed++
			if r.firstError == nil {
				r.firstError = o.err
			}
		case o.left:
			r.left++
			r.ranks[o.rank].left++
		case plan[i].chat:
			first = append(first, o.first)
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
	if r.failed > 0 {
		return fmt.Errorf("%d requests failed, the first with: %w", r.failed, r.firstError)
	}
	return nil
}

// share is that of a rank in the chat, in percent.
func (r *result) share(rank int) float64 {
	return 100 * float64(r.ranks[rank].chat) / float64(max(r.chat, 1))
}

func (r *result) print(w io.Writer) {
	fmt.Fprint(w, `
       chat requests      now    the rank's last word          taken    longest idle while
rank  sent  share  left  busy  running  waiting  KV cache        for  another had several
`)
	for i, k := range r.ranks {
		s := k.status
		fmt.Fprintf(w, "%4d %5d %5.1f%% %5d %5d %8s %8s %9s %10.4g %20.1fs\n", i, k.chat, r.share(i), k.left, s.InFlight,
			count(s.Running), count(s.Waiting), percent(s.KVUsage), s.Score, k.idle.Seconds())
	}
	fmt.Fprintf(w, "\nTime to the first token: median %v, 99th percentile %v; %d clients left before the end.\n",
		r.first50.Round(time.Millisecond), r.first99.Round(time.Millisecond), r.left)
	fmt.Fprint(w, r.verdict())
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

// shunned returns the ranks that were left alone for most of the chat while there
// was something to do.
func (r *result) shunned() (ranks []string) {
	for i, k := range r.ranks {
		if k.idle > r.traffic.length/2 {
			ranks = append(ranks, fmt.Sprint(i))
		}
	}
	return ranks
}

// verdict says what the table means.
func (r *result) verdict() string {
	shunned := r.shunned()
	switch {
	case r.failed > 0:
		return "\nRequests failed, so this says little.\n"
	case !r.believed && len(shunned) == 0:
		return `
Every rank got its share. The last word of each is that it is busy, for an engine counts its requests before it ends
those of the batch, and says nothing more until it gets something to do. The connector sends all the requests, so it
knows when a rank has none left, and takes it for idle. Try -zero=false, which believes the last word.
`
	case r.believed && len(shunned) > 0:
		ranks := strings.Join(shunned, ", ")
		return fmt.Sprintf(`
Shunned: %s. After the burst all ranks were idle, and the last word of each was that it was busy. Those that got the
first chat requests spoke again, and looked best from then on. The others could not say that they had nothing to do, so
they got nothing, while requests piled up elsewhere. Without -zero=false the connector knows better: compare the times.
`, ranks)
	case r.believed:
		return `
No rank was left alone for long this time. It takes a burst whose requests end together, and a chat that fewer ranks
can cope with; see -burst and -rate.
`
	}
	return fmt.Sprintf(`
Left alone for long: %s. That should not be: or was there too little to do, or the machine too busy?
`, strings.Join(shunned, ", "))
}
