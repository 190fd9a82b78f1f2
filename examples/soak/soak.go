package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/soak/internal/resource"
	"github.com/plimsoll-go/plimsoll/examples/soak/internal/traffic"
	"github.com/plimsoll-go/plimsoll/examples/soak/internal/watch"
	"github.com/plimsoll-go/plimsoll/load"
)

// lookEvery is how often an observer compares.
const lookEvery = 20 * time.Millisecond

// run is the whole soak. An error is a fault of the soak's own; what it found is in the
// report.
func run(ctx context.Context, o options, log io.Writer) (*report, error) {
	// What is made once per process, such as the descriptor that the runtime waits for
	// the network with, is made now, by doing all of it once in small.
	if err := rehearse(ctx, o); err != nil {
		return nil, fmt.Errorf("rehearsal: %w", err)
	}
	before := takeLedger()
	r := &report{options: o, before: before.use}
	if err := perform(ctx, o, r, draw(o), log, nil); err != nil {
		return nil, err
	}
	r.after = before.compare(ctx, o.patience, r.during, r.left)
	return r, nil
}

// rehearse is a soak in which nothing happens.
func rehearse(ctx context.Context, o options) error {
	o.engines, o.duration = 4, time.Second
	return perform(ctx, o, &report{options: o}, nil, io.Discard, nil)
}

// perform sets everything up, has the events happen, and closes everything. tamper, if
// it is not nil, may do what it likes to it before it begins: tests have the gateways
// lie.
func perform(ctx context.Context, o options, r *report, plan []event, log io.Writer, tamper func(*performance) (undo func())) (err error) {
	s, err := setUp(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, e := range s.fleet.engines {
		r.ranks += e.ranks
	}
	if what := until(ctx, o.patience, s.untrusted); what != "" {
		return fmt.Errorf("not ready after %v: %s", o.patience, what)
	}
	p := &performance{setup: s, options: o, report: r, log: log, began: time.Now(), stalls: watch.NewStalls()}
	s.fleet.world.Settles()
	r.begin(p.began)
	if tamper != nil {
		defer tamper(p)()
	}
	p.perform(ctx, plan)
	r.checkGrowth()
	return context.Cause(ctx)
}

// performance is a soak under way.
type performance struct {
	*setup
	options options
	report  *report
	log     io.Writer
	began   time.Time
	stalls  *watch.Stalls

	saying sync.Mutex // held while something is written to log
}

// say tells of something while it goes on.
func (p *performance) say(format string, args ...any) {
	p.saying.Lock()
	defer p.saying.Unlock()
	fmt.Fprintf(p.log, format+"\n", args...)
}

func (p *performance) perform(ctx context.Context, plan []event) {
	var clients, observers group // which end in this order: the last request is observed too
	observers.start(ctx, p.stalls.Run)
	seen := make([]watch.Seen, len(p.gateways))
	for i, g := range p.gateways {
		w := watch.NewObserver("gateway "+g.name, g.Table(), p.fleet.world, p.options.limits(), p.stalls, p.report.watch)
		observers.start(ctx, func(ctx context.Context) { seen[i] = w.Run(ctx, lookEvery) })
	}
	observers.start(ctx, p.sample)
	var tallies []*traffic.Traffic
	for i, g := range p.gateways {
		t := traffic.New(p.trafficTo(g, i))
		tallies = append(tallies, t)
		clients.start(ctx, t.Run)
		clients.start(ctx, func(ctx context.Context) { p.pick(ctx, g) })
	}
	clients.start(ctx, func(ctx context.Context) { p.changePolicy(ctx, p.gateways[len(p.gateways)-1]) })
	clients.start(ctx, func(ctx context.Context) { p.tell(ctx, tallies) })

	p.happen(ctx, plan)

	// Now that nothing is wrong any more, all must be well soon, under the same load.
	limit := p.options.limits().Trust
	if what := until(ctx, limit, p.untrusted); ctx.Err() == nil {
		p.report.watch.Trust.That(what == "", "%v after all was put right: %s", limit, what)
	}
	p.report.lasted = time.Since(p.began)
	clients.end()
	observers.end()
	p.report.take(p, seen, tallies, plan)
	p.checkBooks(ctx, seen)
}

// group is goroutines that end together.
type group struct {
	cancels []context.CancelFunc
	wg      sync.WaitGroup
}

func (g *group) start(ctx context.Context, f func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	g.cancels = append(g.cancels, cancel)
	g.wg.Go(func() { f(ctx) })
}

func (g *group) end() {
	for _, cancel := range g.cancels {
		cancel()
	}
	g.wg.Wait()
}

func (p *performance) trafficTo(g *running, i int) traffic.Config {
	return traffic.Config{
		Name: "gateway " + g.name, URL: g.url,
		Rate: p.options.rate / float64(len(p.gateways)), Seed: p.options.seed<<8 + uint64(i),
		World: p.fleet.world, Checks: p.report.traffic,
		Silence: p.options.silence(), Settle: p.options.limits().Settle, List: p.options.limits().List, Bound: p.options.bound(), Birth: p.options.limits().Birth(),
	}
}

// sample takes what the process uses, once a second.
func (p *performance) sample(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.report.during = append(p.report.during, resource.Now())
		}
	}
}

// tellEvery is how often it is told how it goes.
const tellEvery = 15 * time.Second

// tell tells how it goes.
func (p *performance) tell(ctx context.Context, tallies []*traffic.Traffic) {
	ticker := time.NewTicker(tellEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		requests := 0
		for _, t := range tallies {
			requests += t.Tally().Requests()
		}
		broken := int64(0)
		for _, c := range p.report.checks.Results() {
			broken += c.Broken
		}
		p.say("%v of %v: %d events are over, and %d requests; %d violations",
			time.Since(p.began).Round(time.Second), p.options.duration, p.report.over(), requests, broken)
	}
}

// happen has every event of the plan happen at its time, and returns when all is put
// right again.
func (p *performance) happen(ctx context.Context, plan []event) {
	var mu sync.Mutex // of the report, and of what happens to the list
	busy := make([]sync.Mutex, len(p.fleet.engines))
	var wg sync.WaitGroup
	wait := func(d time.Duration) { sleep(ctx, d) }
	for _, ev := range plan {
		if wait(ev.at - time.Since(p.began)); ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			var err error
			if ev.engine >= 0 {
				// The one before takes longer than planned by what it costs.
				busy[ev.engine].Lock()
				defer busy[ev.engine].Unlock()
				err = p.fleet.engines[ev.engine].suffer(ev, wait)
			} else {
				mu.Lock()
				defer mu.Unlock()
				err = p.list.suffer(ev, wait)
			}
			p.report.happened(ev, err)
		})
		if p.options.verbose {
			p.say("%v", ev)
		}
	}
	wait(p.options.duration - time.Since(p.began))
	wg.Wait()
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// checkBooks looks at what the gateways have in flight when there is nothing, in all
// incarnations of all workers that there ever were.
func (p *performance) checkBooks(ctx context.Context, seen []watch.Seen) {
	open := func() string {
		for i, g := range p.gateways {
			for w := range seen[i].Handles {
				if own := w.Own(); own != (load.Own{}) {
					return fmt.Sprintf("gateway %s: %s: %+v", g.name, w.ID(), own)
				}
				for _, rank := range w.Status().Ranks {
					if rank.InFlight != 0 {
						return fmt.Sprintf("gateway %s: %s: %d on rank %d", g.name, w.ID(), rank.InFlight, rank.Rank)
					}
				}
			}
		}
		return ""
	}
	// A client has its answer an instant before its gateway is done with it.
	what := until(ctx, p.options.patience, open)
	p.report.books.That(what == "", "the books are not at 0: %s", what)
	runtime.GC() // finds the requests that nobody holds any more, and that were never done
	for i, g := range p.gateways {
		for w := range seen[i].Handles {
			st := w.Status()
			p.report.books.That(st.Leaked == 0, "gateway %s: %d requests of %s were never done", g.name, st.Leaked, w.ID())
			p.report.books.That(w.Count().PendingTokens() == 0, "gateway %s: %d pending tokens of %s", g.name, w.Count().PendingTokens(), w.ID())
		}
	}
	what = until(ctx, p.options.patience, p.busy)
	p.report.books.That(what == "", "%s", what)
}
