package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-go/plimsoll/load"
)

// An engine that is drained gets no new requests, and finishes those that it has. It is
// drained by its name and not as a worker: it stays so if its list is read anew, lacks it
// for a while, or another configuration is taken, until an operator says otherwise or the
// gateway ends.

// drain takes an engine out for an operator, or puts it back. It returns nil for a known
// one that is not in the table right now, and false for an unknown one.
func (h *health) drain(id string, out bool) (w *load.Worker, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w, known = h.table.Worker(id)
	if !known && !h.drained[id] {
		return nil, false
	}
	if out {
		h.drained[id] = true
	} else {
		delete(h.drained, id)
	}
	if w != nil {
		w.SetHealthy(!out && h.records[w].failures < failuresToDown)
	}
	return w, true
}

// keepsOut reports whether an engine that was picked is drained. Discovery may have
// added it anew, and a new worker is healthy until somebody says otherwise.
func (h *health) keepsOut(w *load.Worker) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.drained[w.ID()] {
		return false
	}
	w.SetHealthy(false)
	return true
}

// drainedIDs returns the engines that are drained, in order.
func (h *health) drainedIDs() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.drained))
}

// serveDrain takes out the engine that ?worker= names, or puts it back. Whoever waits for
// it to be free asks again until in_flight is 0.
func (g *Gateway) serveDrain(out bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if status, err := g.config.Load().authorize(r); err != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, err.Error(), status)
			return
		}
		id := r.URL.Query().Get("worker")
		worker, known := g.health.drain(id, out)
		if !known {
			http.Error(w, fmt.Sprintf("no worker %q; the status page has their names", id), http.StatusNotFound)
			return
		}
		g.logger.Info("an operator drains an engine", "worker", id, "drained", out, "from", r.RemoteAddr)
		answer := struct {
			Worker   string `json:"worker"`
			Drained  bool   `json:"drained"`
			InFlight int64  `json:"in_flight"`
		}{Worker: id, Drained: out}
		if worker != nil {
			answer.InFlight = worker.InFlight()
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // an error here is a client that has left
	}
}

// authorize returns how a request is to be refused that wants to change something.
func (c *Config) authorize(r *http.Request) (status int, err error) {
	want, err := c.adminToken()
	switch {
	case err != nil:
		return http.StatusForbidden, err
	case want == "":
		return http.StatusForbidden, errors.New("nobody may: there is no admin_token_file")
	}
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	// Of the sums, since how long a comparison takes tells the length of what it compares.
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	if !ok || subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
		return http.StatusUnauthorized, errors.New("wrong token")
	}
	return 0, nil
}

// adminToken returns what an operator has to know. The file is read each time, which is
// not often, so that a token can be replaced.
func (c *Config) adminToken() (string, error) {
	if c.AdminTokenFile == "" {
		return c.AdminToken, nil
	}
	content, err := os.ReadFile(c.AdminTokenFile)
	if err != nil {
		return "", fmt.Errorf("admin_token_file: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// drainedMetric tells of the drained engines, and of no others.
type drainedMetric struct{ health *health }

var drainedDesc = prometheus.NewDesc("plimsoll_gateway_worker_drained", "1 for a worker that an operator has drained.", []string{"worker"}, nil)

func (m drainedMetric) Describe(to chan<- *prometheus.Desc) { to <- drainedDesc }

func (m drainedMetric) Collect(to chan<- prometheus.Metric) {
	for _, id := range m.health.drainedIDs() {
		to <- prometheus.MustNewConstMetric(drainedDesc, prometheus.GaugeValue, 1, strings.ToValidUTF8(id, "?"))
	}
}
