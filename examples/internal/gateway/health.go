package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"syscall"
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
//
// When all engines are down, none is picked. Each was found down by its own
// failures, so that a request would only fail more slowly; and the 503 of /readyz
// lets a balancer send it to a gateway that may see more.
type health struct {
	table  *load.Table
	client *http.Client
	config func() *Config // the present one
	logger *slog.Logger

	mu      sync.Mutex
	records map[*load.Worker]record // of engines with anything to remember
	drained map[string]bool         // by id; see drain.go
}

// record is what is remembered of an engine.
type record struct {
	failures int    // in a row: no connection, or a probe
	last     string // the newest of them
	faulty   bool   // it has failed a request since it last served one
}

func newHealth(t *load.Table, rt http.RoundTripper, config func() *Config) *health {
	return &health{
		table: t,
		client: &http.Client{
			Transport: rt,
			Timeout:   probeTimeout,
			// An engine that redirects is up. Where it points to gets no credentials.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		config:  config,
		logger:  config().Logger,
		records: make(map[*load.Worker]record),
		drained: make(map[string]bool),
	}
}

// failed notes that the engine could not be reached.
func (h *health) failed(w *load.Worker, err error) {
	if ours(err) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.records[w]
	r.failures, r.last = r.failures+1, err.Error()
	h.set(w, r)
	if r.failures == failuresToDown {
		w.SetHealthy(false)
		h.logger.Warn("engine is down", "worker", w.ID(), "error", err)
	}
}

// reached notes that the engine answered a request, whatever the answer. A
// request that was on its way when the engine was found to be down does not
// bring it back.
func (h *health) reached(w *load.Worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.records[w]; r.failures < failuresToDown {
		r.failures, r.last = 0, ""
		h.set(w, r)
	}
}

// passed notes that a probe found the engine well.
func (h *health) passed(w *load.Worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.records[w]
	if r.failures >= failuresToDown {
		h.logger.Info("engine is back", "worker", w.ID())
	}
	// In any case: no bookkeeping of failures may keep out an engine that is well.
	w.SetHealthy(!h.drained[w.ID()])
	r.failures, r.last = 0, ""
	h.set(w, r)
}

// faulted notes that the engine failed a request, and reports whether it had
// failed another one since it last served one. A probe is no such service: an
// engine can be well and fail every request.
func (h *health) faulted(w *load.Worker) (again bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.records[w]
	again, r.faulty = r.faulty, true
	h.set(w, r)
	return again
}

// served notes that the engine has begun to answer a request.
func (h *health) served(w *load.Worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.records[w]
	r.faulty = false
	h.set(w, r)
}

// whyOut says why an engine is not healthy.
func (h *health) whyOut(id string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.drained[id] {
		return "drained by an operator"
	}
	w, ok := h.table.Worker(id)
	if r := h.records[w]; ok && r.failures >= failuresToDown {
		return fmt.Sprintf("down: failed %d times in a row, the last with: %s", r.failures, r.last)
	}
	return ""
}

func (h *health) set(w *load.Worker, r record) {
	if r == (record{}) {
		delete(h.records, w)
	} else {
		h.records[w] = r
	}
}

// ours reports whether this process is to blame for an error, though it comes
// from dialling an engine: it has run out of descriptors, ports or memory.
// Without this, that would look as if all engines had died at once.
func ours(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// run probes every engine at every interval until ctx ends.
func (h *health) run(ctx context.Context) {
	for {
		pause := time.NewTimer(time.Duration(h.config().ProbeInterval))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
			h.round(ctx)
		}
	}
}

// round probes every engine once. One that hangs delays the next round by its
// timeout, and no request.
func (h *health) round(ctx context.Context) {
	var wg sync.WaitGroup
	for _, w := range h.table.Workers() { // the unhealthy ones too, that no view has
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

	// Some workers have been removed, or replaced by a new incarnation; and some
	// have joined since the beginning of the round.
	h.mu.Lock()
	defer h.mu.Unlock()
	workers := h.table.Workers()
	maps.DeleteFunc(h.records, func(w *load.Worker, _ record) bool { return !slices.Contains(workers, w) })
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
	if key := h.config().APIKey; key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
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
	_, _ = io.CopyN(io.Discard, res.Body, maxErrorBody) // or the connection could not be used again
	// An engine without such an endpoint answers too.
	if res.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("/health says %s", res.Status)
	}
	return nil
}
