package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/soak/internal/check"
	"github.com/plimsoll-go/plimsoll/examples/soak/internal/resource"
	"github.com/plimsoll-go/plimsoll/examples/soak/internal/traffic"
	"github.com/plimsoll-go/plimsoll/examples/soak/internal/watch"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

// report is what a soak did and saw.
type report struct {
	options options
	ranks   int
	lasted  time.Duration

	checks  *check.List
	watch   watch.Checks
	traffic traffic.Checks
	picks   *check.Check
	books   *check.Check
	growth  *check.Check // nil: too short to tell
	left    *check.Check
	soak    *check.Check

	mu     sync.Mutex
	events map[kind]int

	tally    traffic.Tally
	late     int // requests that an engine took when its client had left
	seen     watch.Seen
	stalls   time.Duration
	messages zmqsub.Counts
	bases    map[string]map[string]int64 // picks for requests, by policy and basis

	before, after resource.Use
	during        []resource.Use // one a second
}

// growthShows is how long it takes until growth shows that is none of the beginning.
const growthShows = 2 * time.Minute

// begin makes the checks.
func (r *report) begin(at time.Time) {
	seconds := r.options.duration.Seconds()
	many := func(perSecond, share float64) int { return int(perSecond * seconds * share) }
	workers := float64(gateways * r.options.engines)
	r.events = make(map[kind]int)
	r.checks = check.NewList(at)
	r.traffic = traffic.NewChecks(r.checks, many(r.options.rate, 0.7))
	r.picks = r.checks.Add("no pick failed while there was a healthy engine, by any policy", many(gateways/pickEvery.Seconds(), 0.2))
	r.watch = watch.NewChecks(r.checks, many(workers/lookEvery.Seconds(), 0.2), many(workers, 0.5))
	r.books = r.checks.Add("nothing is in flight in the end, nothing leaked, and no engine computes for nobody", 1)
	if r.options.duration >= growthShows {
		r.growth = r.checks.Add("what the process uses does not grow while it goes on", 1)
	}
	r.left = r.checks.Add("nothing is left when all is closed", 1)
	r.soak = r.checks.Add("the soak did what it set out to do", 1)
}

// happened takes note of an event.
func (r *report) happened(ev event, err error) {
	r.mu.Lock()
	r.events[ev.kind]++
	r.mu.Unlock()
	r.soak.That(err == nil, "%v: %v", ev, err)
}

// over returns how many events are.
func (r *report) over() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.events {
		n += k
	}
	return n
}

// take takes what there is to know of a performance, and looks at whether enough has
// happened in it.
func (r *report) take(p *performance, seen []watch.Seen, tallies []*traffic.Traffic, plan []event) {
	r.stalls = p.stalls.Worst()
	r.late = p.fleet.world.Requests.Late()
	r.seen.Untrusted = make(map[load.Why]int)
	r.bases = make(map[string]map[string]int64)
	r.messages.Dropped = make(map[string]uint64)
	for i, g := range p.gateways {
		r.seen = r.seen.Plus(seen[i])
		r.tally = r.tally.Plus(tallies[i].Tally())
		for policy, bases := range g.Counts().Picks {
			if r.bases[policy] == nil {
				r.bases[policy] = make(map[string]int64)
			}
			for basis, n := range bases {
				r.bases[policy][basis] += n
			}
		}
		m := g.LoadSockets()
		r.messages.Messages += m.Messages
		r.messages.Delivered += m.Delivered
		r.messages.Superseded += m.Superseded
		r.messages.Reconnects += m.Reconnects
		for reason, n := range m.Dropped {
			r.messages.Dropped[reason] += n
		}
	}
	r.enough(plan)
}

// allShows is how many windows it takes until there is some of everything.
const allShows = 12

// tooSlow is for how long the machine may stand still. Of a slower one it cannot be told
// what is wrong and what only late: the gateways' patience with engines is two windows.
func (o options) tooSlow() time.Duration { return o.window / 4 }

// enough looks at whether so much has happened that the other checks mean something, on
// a machine on which they do.
func (r *report) enough(plan []event) {
	r.soak.That(r.stalls <= r.options.tooSlow(), "the machine stood still for %v, which is too long to tell anything", ms(r.stalls))
	planned := make(map[kind]int)
	for _, ev := range plan {
		planned[ev.kind]++
	}
	r.soak.That(maps.Equal(planned, r.events), "events planned: %v; that happened: %v", planned, r.events)
	r.soak.That(r.tally.Outcomes[traffic.NoEngine] > 0 || planned[empty] == 0, "nothing was refused when the list was empty")
	for _, o := range []traffic.Outcome{traffic.Streamed, traffic.InOne, traffic.LeftEarly, traffic.LeftLater} {
		r.soak.That(r.tally.Outcomes[o] > 0, "no request: %s", o)
	}
	if r.options.duration < allShows*r.options.window {
		return
	}
	for _, c := range slices.Concat(engineChoices, listChoices) {
		fits := c.kind != unpublish || r.options.duration > 2*recheck
		r.soak.That(!fits || planned[c.kind] > 0, "no event: %s", c.kind)
	}
	r.soak.That(r.tally.Excused > 0, "no engine died or hung with a request")
	for _, why := range []load.Why{load.Stale, load.NeverReported} {
		r.soak.That(r.seen.Untrusted[why] > 0, "no worker was untrusted: %v", why)
	}
	r.soak.That(r.seen.Distrust.Len() > 0, "no worker was seen to go stale")
	r.soak.That(r.seen.Trust.Len() > 0, "no worker was seen to be trusted anew")
}

// verdict is an error unless everything passed.
func (r *report) verdict() error {
	failed := 0
	for _, c := range r.checks.Results() {
		if !c.Passed() {
			failed++
		}
	}
	if failed > 0 {
		return errors.New(plural(failed, "check") + " failed")
	}
	return nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// print tells all of it.
func (r *report) print(w io.Writer) {
	o := r.options
	fmt.Fprintf(w, "%d engines with %d ranks at first, %d gateways; %v of trouble, and %v more until all was well; window %v, seed %d\n",
		o.engines, r.ranks, gateways, o.duration, ms(max(r.lasted-o.duration, 0)), o.window, o.seed)
	r.printEvents(w)
	r.printRequests(w)
	r.printSeen(w)
	r.printUse(w)
	r.printChecks(w)
}

func section(w io.Writer, format string, args ...any) { fmt.Fprintf(w, "\n"+format+"\n", args...) }

// row prints a number, and what of.
func row[N int | int64 | uint64](w io.Writer, n N, format string, args ...any) {
	fmt.Fprintf(w, "  %9d  %s\n", n, fmt.Sprintf(format, args...))
}

func (r *report) printEvents(w io.Writer) {
	section(w, "%d events", r.over())
	const columns = 3
	all := slices.Concat(engineChoices, listChoices)
	for line := range slices.Chunk(all, columns) {
		for _, c := range line {
			fmt.Fprintf(w, "  %9d  %-22s", r.events[c.kind], c.kind)
		}
		fmt.Fprintln(w)
	}
}

func (r *report) printRequests(w io.Writer) {
	n := r.tally.Requests()
	section(w, "%d requests, %.0f a second", n, float64(n)/r.lasted.Seconds())
	for _, k := range traffic.Outcomes {
		row(w, r.tally.Outcomes[k], "%s", k)
	}
	row(w, r.tally.Attempts, "times accepted by an engine, of which %d ended with the engine's death or given up for its silence", r.tally.Excused)
	row(w, r.tally.Retried, "accepted by another engine after that")
	row(w, r.late, "accepted after their clients had left")

	section(w, "picks for them, by policy")
	for _, policy := range slices.Sorted(maps.Keys(r.bases)) {
		bases := r.bases[policy]
		sum := int64(0)
		for _, n := range bases {
			sum += n
		}
		row(w, sum, "%s: %s", policy, counts(bases))
	}
}

func (r *report) printSeen(w io.Writer) {
	m := r.messages
	section(w, "load messages")
	row(w, m.Messages, "received, and %d times a fresh connection to a silent rank", m.Reconnects)
	row(w, m.Delivered, "delivered")
	row(w, m.Superseded, "superseded by a newer one that was there")
	row(w, m.TotalDropped(), "dropped: %s", counts(m.Dropped))

	s := r.seen
	section(w, "what the observers saw, in %d looks", s.Looks)
	row(w, s.Trusted, "pictures of workers that were trusted")
	for _, why := range slices.Sorted(maps.Keys(s.Untrusted)) {
		row(w, s.Untrusted[why], "that were not: %v", why)
	}
	row(w, s.Reports, "reports found among those that were sent; on their way for %v at most", ms(s.Longest))
	row(w, s.Distrust.Len(), "times distrusted for a stale report, %v after it was sent (median), %v at worst", ms(s.Distrust.At(0.5)), ms(s.Distrust.At(1)))
	row(w, s.Partial.Len(), "times trusted without all ranks of a new life, until %v after its birth (median), %v at worst", ms(s.Partial.At(0.5)), ms(s.Partial.At(1)))
	row(w, s.Trust.Len(), "times trusted anew, %v after nothing was wrong any more (median), %v (90 %%), %v at worst", ms(s.Trust.At(0.5)), ms(s.Trust.At(0.9)), ms(s.Trust.At(1)))
	fmt.Fprintf(w, "  the machine stood still for %v at most\n", ms(r.stalls))
}

func (r *report) printUse(w io.Writer) {
	section(w, "%-18s %10s %10s %10s %10s %10s %10s", "what was used", "before", "least", "median", "most", "last", "after")
	for _, k := range uses {
		during := k.all(r.during)
		last := during[len(during)-1]
		slices.Sort(during)
		fmt.Fprintf(w, "  %-16s", k.name)
		for _, n := range []int64{k.of(r.before), during[0], during[len(during)/2], during[len(during)-1], last, k.of(r.after)} {
			fmt.Fprintf(w, " %10s", k.format(n))
		}
		fmt.Fprintln(w)
	}
}

func (r *report) printChecks(w io.Writer) {
	section(w, "checks")
	for _, c := range r.checks.Results() {
		state := "ok  "
		if !c.Passed() {
			state = "FAIL"
		}
		fmt.Fprintf(w, "  %s  %9d  %s\n", state, c.Looked, c.Name)
	}
	for _, c := range r.checks.Results() {
		if c.Passed() {
			continue
		}
		section(w, "FAIL: %s", c.Name)
		if c.Looked < c.Enough {
			fmt.Fprintf(w, "  looked at %d times; it takes %d to mean anything\n", c.Looked, c.Enough)
		}
		if c.Broken > 0 {
			fmt.Fprintf(w, "  %d of %d times; the first:\n", c.Broken, c.Looked)
		}
		for _, text := range c.First {
			fmt.Fprintln(w, "  "+text)
		}
	}
}

func counts[N int64 | uint64](m map[string]N) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, m[k]))
	}
	return strings.Join(parts, ", ")
}

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
