package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

const (
	// failuresToDown is how many failures in a row, of requests or of probes, make
	// an engine unhealthy. One may be a restart that is over by the next request.
	failuresToDown = 3
	// probeTimeout is generous: a busy engine is not a dead one.
	probeTimeout = 5 * time.Second
)

// health decides which engines may be picked. An engine that cannot be connected
// to is taken out by the requests that notice, or by probes where there are
// none; only a probe brings it back. What an engine says of its load is no part
// of it: a mute engine still works.
type health struct {
	table    *load.Table
	client   *http.Client
	interval time.Duration
	logger   *slog.Logger

	mu       sync.Mutex
	failures map[*load.Worker]int // in a row
}

func newHealth(t *load.Table, rt http.RoundTripper, interval time.Duration, logger *slog.Logger) *health {
	return &health{
		table:    t,
		client:   &http.Client{Transport: rt, Timeout: probeTimeout},
		interval: interval,
		logger:   logger,
		failures: make(map[*load.Worker]int),
	}
}

// failed notes that the engine could not be reached.
func (h *health) failed(w *load.Worker, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures[w]++
	if h.failures[w] == failuresToDown {
		w.SetHealthy(false)
		h.logger.Warn("engine is down", "worker", w.ID(), "error", err)
	}
}

// answered notes that the engine answered a request. A request that was on its
// way when the engine was found to be down does not bring it back.
func (h *health) answered(w *load.Worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.failures[w]; n > 0 && n < failuresToDown {
		delete(h.failures, w)
	}
}

// passed notes that a probe found the engine well.
func (h *health) passed(w *load.Worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures[w] >= failuresToDown {
		w.SetHealthy(true)
		h.logger.Info("engine is back", "worker", w.ID())
	}
	delete(h.failures, w)
}

// run probes every engine at every interval until ctx ends.
func (h *health) run(ctx context.Context) {
	ticker := time.NewTicker(h.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			h.round(ctx)
		}
	}
}

// round probes every engine once. One that hangs delays the next round by its
// timeout, and no request.
func (h *health) round(ctx context.Context) {
	workers := h.workers()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			err := h.probe(ctx, w)
			switch {
			case ctx.Err() != nil:
			case err != nil:
				h.failed(w, err)
			default:
				h.passed(w)
			}
		})
	}
	wg.Wait()

	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.failures {
		if !workers[w] {
			delete(h.failures, w) // removed, or replaced by a new incarnation
		}
	}
}

// workers are all engines in the table, those included that no view has because
// they are down.
func (h *health) workers() map[*load.Worker]bool {
	set := make(map[*load.Worker]bool)
	for _, w := range h.table.Workers() {
		set[w] = true
	}
	return set
}

func (h *health) probe(ctx context.Context, w *load.Worker) error {
	u, err := url.Parse(w.URL())
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("health").String(), nil)
	if err != nil {
		return err
	}
	res, err := h.client.Do(req)
	if err != nil {
		var wrapped *url.Error // it repeats the URL, which may hold credentials
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return err
	}
	defer res.Body.Close()
	// An engine without such an endpoint answers too.
	if res.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("/health says %s", res.Status)
	}
	return nil
}
