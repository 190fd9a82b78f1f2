package main

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"runtime"
	"sync"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
)

// lab runs cells.
type lab struct {
	traces      *traces
	contestants []contestant
	seeds       int
	earlier     *document // has the results of contestants that do not run; may be nil
	say         *progress
}

// job is one seed of a cell: the contestants one after another, on the same
// requests.
type job struct {
	cell *cellResult
	seed int
}

// run runs the cells, some jobs at a time, and hands each to done when it is
// complete, in their order. When the context is done it ends early.
func (l *lab) run(ctx context.Context, cells []cell, done func(*cellResult)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var jobs []job
	var results []*cellResult
	for _, c := range cells {
		r := l.prepare(c)
		results = append(results, r)
		for seed := range l.seeds {
			jobs = append(jobs, job{r, seed + 1})
		}
		l.say.expect(c.weight() * float64(l.seeds*r.pending()))
	}

	queue := make(chan job)
	go func() {
		defer close(queue)
		for _, j := range jobs {
			select {
			case queue <- j:
			case <-ctx.Done():
				return
			}
		}
	}()
	var wg sync.WaitGroup
	complete := inOrder(results, l.seeds, func(c *cellResult) {
		c.score(l.contestants)
		done(c)
	})
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for j := range queue {
				if err := l.work(ctx, j); err != nil {
					stop(err)
					return
				}
				complete(j.cell)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// inOrder returns what is to be called when one of the jobs of a cell is finished,
// from any goroutine.
func inOrder(cells []*cellResult, jobs int, done func(*cellResult)) func(*cellResult) {
	left := make(map[*cellResult]int)
	for _, c := range cells {
		left[c] = jobs
	}
	var mu sync.Mutex
	return func(c *cellResult) {
		mu.Lock()
		defer mu.Unlock()
		left[c]--
		for len(cells) > 0 && left[cells[0]] == 0 {
			done(cells[0])
			cells = cells[1:]
		}
	}
}

// prepare returns what is to be filled in, with the results that are there already.
func (l *lab) prepare(c cell) *cellResult {
	cr := &cellResult{cell: c}
	earlier := l.earlier.find(&c, l.seeds)
	for _, k := range l.contestants {
		if k.only != nil && !k.only(&c) {
			continue
		}
		r := &result{Contestant: k.Name, Seeds: make([]measure, l.seeds), chooser: k.chooser}
		if earlier != nil && !k.again {
			r = cmp.Or(earlier.find(k.Name), r)
		}
		cr.Results = append(cr.Results, r)
	}
	return cr
}

// pending is the number of contestants that have yet to run.
func (c *cellResult) pending() (n int) {
	for _, r := range c.Results {
		if r.chooser != nil {
			n++
		}
	}
	return n
}

// find returns the results of the same cell, whatever it was called, with as many
// seeds, or nil.
func (d *document) find(c *cell, seeds int) *cellResult {
	if d == nil || d.Seeds != seeds {
		return nil
	}
	for _, have := range d.Cells {
		if reflect.DeepEqual(have.cell.anonymous(), c.anonymous()) {
			return have
		}
	}
	return nil
}

// work does one job.
func (l *lab) work(ctx context.Context, j job) error {
	if j.cell.pending() == 0 {
		return nil
	}
	c := &j.cell.cell
	t, err := l.traces.of(c, j.seed)
	if err != nil {
		return fmt.Errorf("%s, seed %d: %w", c.Name, j.seed, err)
	}
	for _, r := range j.cell.Results {
		if r.chooser == nil {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		l.say.running(c.Name, r.Contestant, j.seed)
		run, err := fleetsim.Run(c.config(j.seed, t, r.chooser))
		if err != nil {
			return fmt.Errorf("%s, seed %d, %s: %w", c.Name, j.seed, r.Contestant, err)
		}
		r.Seeds[j.seed-1] = newMeasure(j.seed, run.Summary())
		if j.seed == 1 {
			r.Curve, r.Heat = curve(run), newHeat(run)
		}
		l.say.ran(c.weight())
	}
	return nil
}
