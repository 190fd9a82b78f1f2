package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-go/plimsoll/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a gateway that serves on loopback until the end of the test.
type running struct {
	*Gateway
	url   string
	admin string
	drain context.CancelFunc
	ended chan error
}

func start(t *testing.T, c Config) *running {
	t.Helper()
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	admin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Gateway: g, url: "http://" + l.Addr().String(), admin: "http://" + admin.Addr().String(), drain: cancel, ended: make(chan error, 1)}
	go func() {
		r.ended <- g.Serve(ctx, l, admin)
		close(r.ended)
	}()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
	waitFor(t, "the workers", func() bool { return g.table.View().Len() == len(c.Workers) })
	return r
}

// waitFor waits for what no event tells.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("still waiting for %s", what)
		}
	}
}

// backend is an engine that publishes no load and answers completions with h, nil
// for one that is not to get any.
func backend(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	mux := http.NewServeMux()
	if h != nil {
		mux.HandleFunc("/v1/", h)
	}
	mux.HandleFunc("/health", func(http.ResponseWriter, *http.Request) {})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// patience is for what happens soon or, where there is a bug, never.
const patience = 30 * time.Second

// post sends a completion request and returns the answer, closed at the end of
// the test. An answer without an end fails.
func (r *running) post(t *testing.T, body string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	res, err := r.tryPost(ctx, body)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

func (r *running) tryPost(ctx context.Context, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

func text(t *testing.T, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// settled waits until the books are back at exactly 0 and checks that nothing got
// there but by Done. It returns how many picks there were.
func (r *running) settled(t *testing.T) (picked uint64) {
	t.Helper()
	waitFor(t, "the books to return to 0", func() bool {
		for _, w := range r.table.Status() {
			if w.InFlight != 0 {
				return false
			}
		}
		return true
	})
	for _, w := range r.table.Status() {
		if w.InFlight != 0 || w.Unstarted != 0 || w.PendingTokens != 0 || w.Leaked != 0 {
			t.Errorf("%s: in flight %d, unstarted %d, pending tokens %d, leaked %d", w.ID, w.InFlight, w.Unstarted, w.PendingTokens, w.Leaked)
		}
		picked += w.Picked
	}
	return picked
}

func (r *running) worker(t *testing.T, id string) *load.Worker {
	t.Helper()
	w, ok := r.table.Worker(id)
	if !ok {
		t.Fatalf("no worker %s", id)
	}
	return w
}

// get returns what is answered at a URL.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode, text(t, res)
}

// getJSON decodes what operators are answered.
func (r *running) getJSON(t *testing.T, path string, into any) {
	t.Helper()
	status, body := get(t, r.admin+path)
	if err := json.Unmarshal([]byte(body), into); status != http.StatusOK || err != nil {
		t.Fatalf("%s: %d, %v", path, status, err)
	}
}
