package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/discovery"
)

// source puts the configured sources of engines, or of replicas, together.
func source(urls []string, file string, d *DNS, logger *slog.Logger) discovery.StatusSource {
	var sources []discovery.Source
	if len(urls) > 0 {
		sources = append(sources, discovery.Static(urls...))
	}
	if file != "" {
		sources = append(sources, &discovery.File{Path: file, Logger: logger})
	}
	if d != nil {
		sources = append(sources, &discovery.DNS{
			Name: d.Name, Port: d.Port, SRV: d.SRV, Scheme: d.Scheme, Network: d.Network,
			Interval: time.Duration(d.Interval), Logger: logger,
		})
	}
	if len(sources) == 1 {
		return sources[0].(discovery.StatusSource) // as all of discovery are
	}
	return discovery.Merge(sources...).(discovery.StatusSource)
}

// replaceable is a source that another one can take the place of while it runs. What
// the one before has named stays until every part of its successor has named something:
// an engine that moves from the list to a file is not gone in between, nor all engines.
type replaceable struct {
	mu       sync.Mutex
	now      discovery.StatusSource
	life     context.Context // ends when there is another one
	end      context.CancelFunc
	replaces bool // one that has named engines
}

func newReplaceable(s discovery.StatusSource) *replaceable {
	r := &replaceable{now: s}
	r.life, r.end = context.WithCancel(context.Background())
	return r
}

// replace puts another source in the place of the present one.
func (r *replaceable) replace(s discovery.StatusSource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
	r.now, r.replaces = s, true
	r.life, r.end = context.WithCancel(context.Background())
}

func (r *replaceable) current() (s discovery.StatusSource, life context.Context, replaces bool) {
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
			if !replaces || spoken(s) {
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

// spoken reports whether every part of a source has named its engines.
func spoken(s discovery.StatusSource) bool {
	for _, part := range s.Status() {
		if part.Emitted.IsZero() {
			return false
		}
	}
	return true
}

// Status implements discovery.StatusSource.
func (r *replaceable) Status() []discovery.SourceStatus {
	s, _, _ := r.current()
	return s.Status()
}
