package discovery

import (
	"context"
	"slices"
)

// Static returns a source of a fixed set of workers, given by their URLs. What
// is not a URL of an engine (see CheckURL) the Fleet leaves out, and says so.
func Static(urls ...string) Source {
	workers := make([]Worker, len(urls))
	for i, u := range urls {
		workers[i].URL = u
	}
	return &static{workers: workers}
}

// StaticWorkers is Static for workers that have a name or are to be polled.
func StaticWorkers(workers ...Worker) Source {
	return &static{workers: slices.Clone(workers)}
}

type static struct {
	workers []Worker
	sourceState
}

func (s *static) Run(ctx context.Context, emit func([]Worker)) error {
	s.emitted(len(s.workers), nil)
	emit(slices.Clone(s.workers))
	<-ctx.Done()
	return ctx.Err()
}

func (s *static) Status() []SourceStatus { return s.read("static") }
