package gateway

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestReadyIsWhoCanPickAndDoesNotDrain(t *testing.T) {
	g := alone(t, Config{})
	ask := func(path string, want int, words string) {
		t.Helper()
		for name, h := range map[string]http.Handler{"clients": g.Handler(), "operators": g.AdminHandler()} {
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
			if answer.Code != want || !strings.Contains(answer.Body.String(), words) {
				t.Errorf("%s of %s: got %d %q, want %d with %q", path, name, answer.Code, answer.Body, want, words)
			}
		}
	}
	ask("/readyz", 503, "no engine to pick: 0 known, 0 healthy")
	w := g.table.Add("engine", "http://engine")
	ask("/readyz", 200, "ready")
	w.SetHealthy(false)
	ask("/readyz", 503, "no engine to pick: 1 known, 0 healthy")
	w.SetHealthy(true)
	g.draining.Store(true)
	ask("/readyz", 503, "draining")
	ask("/healthz", 200, "alive")
}
