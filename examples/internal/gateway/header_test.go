package gateway

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestHeaders(t *testing.T) {
	var got http.Header
	engine := backend(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Keep-Alive", "timeout=5")
		h.Set("Connection", "X-Hop")
		h.Set("X-Hop", "engine")
		h.Set("X-Sim-Rank", "1")
		h.Set(workerHeader, "forged")
		h.Set(requestIDHeader, "forged")
	})
	g := start(t, Config{Workers: []string{engine}})

	req := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"prompt":"x"}`))
	req.RequestURI = ""
	req.URL, _ = url.Parse(g.url + "/v1/completions")
	for name, value := range map[string]string{
		"Authorization": "Bearer secret", "X-Request-Id": "r1", "X-Forwarded-For": "10.1.2.3", "Accept-Encoding": "br",
		"Connection": "X-Hop, close", "X-Hop": "client", "Proxy-Authorization": "Basic x", "Te": "trailers", "Upgrade": "h2c",
	} {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)

	for name, want := range map[string]string{
		"Authorization": "Bearer secret", "X-Request-Id": "r1", "X-Forwarded-For": "10.1.2.3, 127.0.0.1", "Accept-Encoding": "br",
		"Connection": "", "X-Hop": "", "Proxy-Authorization": "", "Te": "", "Upgrade": "",
	} {
		if got := got.Get(name); got != want {
			t.Errorf("the engine got %s %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "X-Sim-Rank": "1", workerHeader: engine, requestIDHeader: "r1",
		"Keep-Alive": "", "X-Hop": "",
	} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("the client got %s %q, want %q", name, got, want)
		}
	}
	if pick := res.Header.Get(pickHeader); !strings.Contains(pick, "least_work") {
		t.Errorf("the client got the pick %q", pick)
	}

	res = g.post(t, `{"prompt":"x"}`)
	if id := res.Header.Get(requestIDHeader); id == "" || id != got.Get(requestIDHeader) {
		t.Errorf("made up the request id %q, and sent %q to the engine", id, got.Get(requestIDHeader))
	}
}

func TestCredentialsInTheURLAreForTheEngineAlone(t *testing.T) {
	var user, password string
	engine := backend(t, func(_ http.ResponseWriter, r *http.Request) { user, password, _ = r.BasicAuth() })
	g := start(t, Config{Workers: []string{strings.Replace(engine, "://", "://me:secret@", 1)}})
	res := g.post(t, `{"prompt":"x"}`)
	if user != "me" || password != "secret" {
		t.Errorf("the engine got %q and %q", user, password)
	}
	for name, values := range res.Header {
		if strings.Contains(strings.Join(values, " "), "secret") {
			t.Errorf("the client got %s %q", name, values)
		}
	}
}
