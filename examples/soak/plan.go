package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// kind is a kind of event.
type kind string

// What happens to an engine. Each lasts for a while, and then the engine is well again.
const (
	restart   kind = "restart"         // at once, as it was
	die       kind = "die"             // and come back as it was
	rerank    kind = "other ranks"     // come back with another number of ranks
	move      kind = "other ports"     // come back with its load sockets elsewhere
	unpublish kind = "no load sockets" // come back without, and then with
	mute      kind = "mute"            // nothing on any load socket
	muteRank  kind = "mute one rank"
	babble    kind = "nothing but garbage" // on its load sockets
	garbage   kind = "garbage in between"
	flood     kind = "flood" // of good reports
	hang      kind = "hang"  // for less than the gateway's patience
	hangLong  kind = "hang for too long"
	refuse    kind = "fail requests"
	slow      kind = "slow"
)

// What happens to the list of workers.
const (
	drop     kind = "take off the list" // some engines, which come back
	scribble kind = "spoil the list"    // something that is no list
	rewrite  kind = "write in pieces"   // the same list, in another order and form, not at once
	empty    kind = "empty the list"    // for so long that nobody can be picked
)

// event is something that goes wrong, and is put right again.
type event struct {
	at, length time.Duration
	kind       kind
	engine     int   // -1: the list
	n          int   // ranks, messages, requests
	dropped    []int // engines, of drop
	spoilt     string
}

func (e event) end() time.Duration { return e.at + e.length }

// String says what is going to happen, as in "   12.345s  e07  mute for 3.2s".
func (e event) String() string {
	where, what := "list", ""
	if e.engine >= 0 {
		where = fmt.Sprintf("e%02d", e.engine)
	}
	switch e.kind {
	case rerank:
		what = fmt.Sprintf(" (%d)", e.n)
	case muteRank:
		what = fmt.Sprintf(" (%d)", e.n)
	case garbage, refuse:
		what = fmt.Sprintf(" (%d)", e.n)
	case drop:
		what = fmt.Sprintf(" %v", e.dropped)
	case scribble:
		what = fmt.Sprintf(" %.20q", e.spoilt)
	}
	return fmt.Sprintf("%8.3fs  %-4s  %s%s for %v", e.at.Seconds(), where, e.kind, what, e.length.Round(time.Millisecond))
}

// recheck is how long the gateways may take to notice that an engine that said that it
// does not publish its load does, jitter included.
const recheck = 66 * time.Second

// choice is a kind, how often it is drawn next to others, and how long it lasts, in
// windows of the table, or seconds for the list.
type choice struct {
	kind        kind
	weight      int
	least, most float64
}

var engineChoices = []choice{
	{restart, 8, 0, 0},
	{die, 10, 0.05, 1.6},
	{rerank, 12, 0, 0.7},
	{move, 10, 0, 0.7},
	{unpublish, 2, 1.5, 2.5},
	{mute, 8, 0.1, 2.5},
	{muteRank, 10, 0.5, 2.5},
	{babble, 5, 0.5, 2},
	{garbage, 6, 0.1, 0.5},
	{flood, 5, 0.1, 0.4},
	{hang, 6, 0.1, 0.6},
	{hangLong, 3, 2.4, 2.8},
	{refuse, 5, 0.1, 0.5},
	{slow, 4, 0.5, 1},
}

var listChoices = []choice{
	{drop, 20, 0.5, 8},
	{scribble, 5, 2.2, 5}, // for so long that both gateways look at it
	{rewrite, 5, 0.2, 1},
	{empty, 1, 0, 0},
}

// rest is how long whatever had an event is left alone after it, in windows.
const rest = 0.3

// maxRanks is how many ranks an engine has at most; it has load ports for as many.
const maxRanks = 6

// draw returns the events of a soak in the order in which they happen. The same options
// give the same events. There is one of each kind first, where there is time for it,
// and then what comes.
func draw(o options) []event {
	rng := rand.New(rand.NewPCG(o.seed, 1))
	scribbles := rng.Perm(len(spoilt)) // one after the other
	var plan []event
	free := make([]time.Duration, o.engines) // from when on
	add := func(e event, of choice) bool {
		window := o.window.Seconds()
		if e.engine < 0 {
			window = 1
		}
		e.kind = of.kind
		e.length = time.Duration((of.least + rng.Float64()*(of.most-of.least)) * window * float64(time.Second))
		e.details(o, rng)
		if e.kind == scribble {
			e.spoilt = spoilt[scribbles[0]]
			scribbles = append(scribbles[1:], scribbles[0])
		}
		room := o.duration - e.end()
		if room < 0 || e.kind == unpublish && room < recheck {
			return false
		}
		if e.engine >= 0 {
			free[e.engine] = e.end() + time.Duration(rest*float64(o.window))
		}
		plan = append(plan, e)
		return true
	}

	first := rng.Perm(len(engineChoices))
	for at := time.Duration(0); ; {
		at += time.Duration(rng.ExpFloat64() / o.events * float64(time.Second))
		if at > o.duration {
			break
		}
		var idle []int
		for i, t := range free {
			if t <= at {
				idle = append(idle, i)
			}
		}
		if len(idle) <= o.engines/3 { // some are to be well
			continue
		}
		of := pick(rng, engineChoices)
		if len(first) > 0 {
			of, first = engineChoices[first[0]], first[1:]
		}
		add(event{at: at, engine: idle[rng.IntN(len(idle))]}, of)
	}

	first = rng.Perm(len(listChoices))
	for at := time.Duration(0); at < o.duration; {
		at += time.Duration((0.5 + 1.5*rng.ExpFloat64()) * float64(time.Second))
		of := pick(rng, listChoices)
		if len(first) > 0 {
			of, first = listChoices[first[0]], first[1:]
		}
		if add(event{at: at, engine: -1}, of) {
			at = plan[len(plan)-1].end()
		}
	}
	slices.SortStableFunc(plan, func(a, b event) int { return int(a.at - b.at) })
	return plan
}

func pick(rng *rand.Rand, from []choice) choice {
	sum := 0
	for _, c := range from {
		sum += c.weight
	}
	n := rng.IntN(sum)
	for _, c := range from {
		if n -= c.weight; n < 0 {
			return c
		}
	}
	panic("not reached")
}

// details draws what else there is to know of an event of its kind.
func (e *event) details(o options, rng *rand.Rand) {
	switch e.kind {
	case rerank:
		e.n = 1 + rng.IntN(maxRanks)
	case muteRank:
		e.n = rng.IntN(maxRanks) // of as many as the engine has then
	case garbage:
		e.n = 20 + rng.IntN(400)
	case refuse:
		e.n = 1 + rng.IntN(10)
	case drop:
		e.dropped = rng.Perm(o.engines)[:1+rng.IntN(max(o.engines/8, 1))]
		slices.Sort(e.dropped)
	case empty:
		e.length = o.limits().List + 2*time.Second
	}
}

// spoilt are files that are no list of workers. The last good one has to be kept.
var spoilt = []string{"", " \n", "[", `["http://127.0.0.1:1"`, `{"url": "http://127.0.0.1:1"}`, "\x00\x01\x02", "ftp://127.0.0.1:1\n", "null"}
