package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-go/plimsoll/examples/soak/internal/check"
	"github.com/plimsoll-go/plimsoll/examples/soak/internal/resource"
)

// use is something that the process uses.
type use struct {
	name   string
	of     func(resource.Use) int64
	format func(int64) string
	// slack is by how much it may be more at the end of a soak than in the middle,
	// besides a tenth: what there is of it goes up and down with what happens.
	slack int64
}

var uses = []use{
	{"goroutines", func(u resource.Use) int64 { return int64(u.Goroutines) }, plain, 500},
	{"descriptors", func(u resource.Use) int64 { return int64(u.Descriptors) }, plain, 500},
	{"threads", func(u resource.Use) int64 { return int64(u.Threads) }, plain, 20},
	{"live heap", func(u resource.Use) int64 { return u.Heap }, size, 8 << 20},
	{"heap of C", func(u resource.Use) int64 { return u.CHeap }, size, 16 << 20},
	{"resident", func(u resource.Use) int64 { return u.Resident }, size, 16 << 20},
}

func plain(n int64) string {
	if n < 0 {
		return "unknown"
	}
	return fmt.Sprint(n)
}

func size(n int64) string {
	if n < 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

func (u use) all(samples []resource.Use) (of []int64) {
	for _, s := range samples {
		of = append(of, u.of(s))
	}
	return of
}

// checkGrowth compares the last quarter of the soak with the second one, in which
// everything that was to be filled has been.
func (r *report) checkGrowth() {
	if r.growth == nil {
		return
	}
	median := func(of []int64) int64 {
		slices.Sort(of)
		return of[len(of)/2]
	}
	for _, u := range uses {
		all := u.all(r.during)
		n := len(all)
		early, late := median(all[n/4:n/2]), median(all[n*3/4:])
		r.growth.That(late <= early+early/10+u.slack, "%s: %s in the second quarter, %s in the last", u.name, u.format(early), u.format(late))
	}
}

// heapSlack is by how much the heap may be larger when all is closed, and perGoroutine
// by how much more for each goroutine that there was at once: the runtime keeps them for
// the next time. residentSlack is for what else it keeps.
const (
	heapSlack     = 2 << 20
	perGoroutine  = 1 << 10
	residentSlack = 32 << 20
	cHeapSlack    = 1 << 20
)

// ledger is what is there before there is anything to be looked at.
type ledger struct {
	use         resource.Use
	descriptors resource.Kinds
	threads     resource.Kinds
	goroutines  goleak.Option
}

func takeLedger() ledger {
	return ledger{resource.Settled(), resource.Descriptors(), resource.Threads(), goleak.IgnoreCurrent()}
}

// compare looks at what there is beyond that. What is closed may take a moment to go.
func (l ledger) compare(ctx context.Context, patience time.Duration, during []resource.Use, c *check.Check) resource.Use {
	err := goleak.Find(l.goroutines)
	c.That(err == nil, "goroutines are left: %v", err)
	more := until(ctx, patience, func() string { return resource.Descriptors().Beyond(l.descriptors) })
	c.That(more == "", "descriptors are left: %s", more)
	more = until(ctx, patience, func() string { return resource.Threads().Only("ZMQ").Beyond(l.threads) })
	c.That(more == "", "threads are left: %s", more)
	now := resource.Settled()
	goroutines := 0
	for _, u := range during {
		goroutines = max(goroutines, u.Goroutines)
	}
	for _, m := range []struct {
		name       string
		was, is    int64
		mayBeAbove int64
	}{
		{"heap", l.use.Heap, now.Heap, heapSlack + int64(goroutines)*perGoroutine},
		{"heap of C", l.use.CHeap, now.CHeap, cHeapSlack},
		{"resident memory", l.use.Resident, now.Resident, residentSlack},
	} {
		c.That(m.is <= m.was+m.mayBeAbove, "the %s is %s, and was %s", m.name, size(m.is), size(m.was))
	}
	return now
}
