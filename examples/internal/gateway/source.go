package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/discovery"
)

// source puts the configured sources of engines, or of replicas, together.
func source(urls []string, file string, d *DNS, logger *slog.Logger) *together {
	var sources []discovery.StatusSource
	if len(urls) > 0 {
		sources = append(sources, discovery.Static(urls...).(discovery.StatusSource)) // as all of discovery are
	}
	if file != "" {
		sources = append(sources, &discovery.File{Path: file, Logger: logger})
	}
	if d != nil {
		sources = append(sources, d.source(logger))
	}
	return merge(sources)
}

func (d *DNS) source(logger *slog.Logger) *discovery.DNS {
	return &discovery.DNS{
		Name: d.Name, Port: d.Port, SRV: d.SRV, Scheme: d.Scheme, Network: d.Network,
		Interval: time.Duration(d.Interval), Logger: logger,
	}
}

// together is a source of several, which knows whether all of them have named something.
type together struct {
	discovery.StatusSource // all of them, merged

	// Held while one of them names what there is, all the way down: whoever is told has
	// the names of those that are not silent, and of no others.
	mu     sync.Mutex
	silent int // have named nothing yet
}

func merge(sources []discovery.StatusSource) *together {
	t := &together{silent: len(sources)}
	parts := make([]discovery.Source, len(sources))
	for i, s := range sources {
		parts[i] = &part{StatusSource: s, of: t}
	}
	t.StatusSource = discovery.Merge(parts...).(discovery.StatusSource)
	return t
}

type part struct {
	discovery.StatusSource
	of     *together
	spoken bool // guarded by of.mu
}

// Run implements discovery.Source.
func (p *part) Run(ctx context.Context, emit func([]discovery.Worker)) error {
	return p.StatusSource.Run(ctx, func(set []discovery.Worker) {
		p.of.mu.Lock()
		defer p.of.mu.Unlock()
		if !p.spoken {
			p.spoken = true
			p.of.silent--
		}
		emit(set)
	})
}

// replaceable is a source that another one can take the place of while it runs. What
// the one before has named stays until every part of its successor has named something:
// an engine that moves from the list to a file is not gone in between, nor all engines.
type replaceable struct {
	mu       sync.Mutex
	now      *together
	life     context.Context // ends when there is another one
	end      context.CancelFunc
	replaces bool // one that has named engines
}

func newReplaceable(s *together) *replaceable {
	r := &replaceable{now: s}
	r.life, r.end = context.WithCancel(context.Background())
	return r
}

// replace puts another source in the place of the present one.
func (r *replaceable) replace(s *together) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
	r.now, r.replaces = s, true
	r.life, r.end = context.WithCancel(context.Background())
}

func (r *replaceable) current() (s *together, life context.Context, replaces bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now, r.life, r.replaces
}

// Run implements discovery.Source.
func (r *replaceable) Run(ctx context.Context, emit func([]discovery.Worker)) error {
	for {
		s, life, replaces := r.current()
		run, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(life, cancel)
		err := s.Run(run, func(set []discovery.Worker) {
			if !replaces || s.silent == 0 { // called with s.mu held
				emit(set)
			}
		})
		stop()
		cancel()
		if ctx.Err() == nil && life.Err() == nil {
			if err != nil {
				return err // to be run again
			}
			select { // what it has named is final
			case <-life.Done():
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// Status implements discovery.StatusSource.
func (r *replaceable) Status() []discovery.SourceStatus {
	s, _, _ := r.current()
	return s.Status()
}
