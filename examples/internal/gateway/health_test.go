package gateway

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// An engine that passes its probes is healthy, whenever it joined and failed.
func TestEngineThatJoinsDuringARound(t *testing.T) {
	g := alone(t, Config{})
	well := backend(t, nil)
	var late *load.Worker
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(http.ResponseWriter, *http.Request) {
		if late != nil {
			return
		}
		late = g.table.Add("late", well)
		for range failuresToDown {
			g.health.failed(late, errors.New("no connection"))
		}
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	old := g.table.Add("old", s.URL)
	g.health.round(t.Context())
	if late.Status().Healthy || g.health.records[late].failures != failuresToDown {
		t.Errorf("healthy: %v, remembered: %+v, after %d failures", late.Status().Healthy, g.health.records[late], failuresToDown)
	}
	g.health.round(t.Context())
	if !late.Status().Healthy {
		t.Error("a passed probe does not bring it back")
	}

	// However it came to be unhealthy.
	late.SetHealthy(false)
	g.health.failed(old, errors.New("no connection"))
	g.health.faulted(late)
	g.table.Remove(late)
	late = g.table.Add("late", well)
	late.SetHealthy(false)
	g.health.round(t.Context())
	if !late.Status().Healthy {
		t.Error("a passed probe does not bring it back")
	}
	if n := len(g.health.records); n != 0 {
		t.Errorf("%d records of engines that are gone or well", n)
	}
}

func TestProbesUseTheirConnectionAgain(t *testing.T) {
	var connections atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(strings.Repeat("well ", 5000)))
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	g := alone(t, Config{})
	g.table.Add("engine", s.URL)
	for range 5 {
		g.health.round(t.Context())
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections for 5 probes", n)
	}
}

// Engines that were started with a key get it with all that the gateway asks, and
// with the requests of clients that have none.
func TestAPIKey(t *testing.T) {
	var mu sync.Mutex
	seen := make(map[string][]string) // what came with which path
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.URL.Path] = append(seen[r.URL.Path], r.Header.Get("Authorization"))
		mu.Unlock()
		if r.URL.Path == "/health" {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
			return
		}
		w.Write([]byte("{}"))
	}))
	t.Cleanup(s.Close)
	g := start(t, Config{
		APIKey: "key", Poll: true, PollInterval: Duration(10 * time.Millisecond), ProbeInterval: Duration(10 * time.Millisecond),
		Workers: []string{strings.Replace(s.URL, "://", "://me:secret@", 1)}, // the key is stronger
	})
	waitFor(t, "the gateway's own requests", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return seen["/server_info"] != nil && seen["/v1/loads"] != nil && seen["/health"] != nil
	})
	for _, own := range []string{"", "Bearer mine"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/v1/completions", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		if own != "" {
			req.Header.Set("Authorization", own)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}

	mu.Lock()
	defer mu.Unlock()
	if got := seen["/v1/completions"]; !slices.Equal(got, []string{"Bearer key", "Bearer mine"}) {
		t.Errorf("requests came with %q", got)
	}
	delete(seen, "/v1/completions")
	for path, got := range seen {
		if path == "/elsewhere" || slices.ContainsFunc(got, func(a string) bool { return a != "Bearer key" }) {
			t.Errorf("%s came with %q", path, got)
		}
	}
}

// Were it not so, an engine could be well to discovery and dead to requests.
func TestRequestsGoTheWayOfDiscovery(t *testing.T) {
	got, want := reflect.ValueOf(newTransport(nil).Proxy).Pointer(), reflect.ValueOf(http.ProxyFromEnvironment).Pointer()
	if got != want {
		t.Error("requests do not go by the proxy of the environment, as discovery does")
	}
}
