package gateway

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/plimsoll-go/plimsoll/selector"
)

// maxFaults is how many engines may fail a request. Those that could not be
// connected to, or are full, do not count. The second to fail it in the same way
// tells whose fault that is, and a request that crashes engines stops there.
const maxFaults = 2

// Handler returns what the gateway serves.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/", g.proxy) // chat/completions, completions, embeddings, what comes next
	mux.HandleFunc("GET /v1/models", g.proxy)
	mux.HandleFunc("GET /health", g.serveHealth)
	mux.HandleFunc("GET /status", g.serveStatus)
	timeout := time.Duration(g.config.ClientTimeout)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A connection has the deadlines of the request before. An error is middleware
		// that hides them.
		client, deadline := http.NewResponseController(w), time.Now().Add(timeout)
		_ = client.SetReadDeadline(deadline)
		_ = client.SetWriteDeadline(deadline)
		mux.ServeHTTP(w, r)
	})
}

// proxy sends a request to one engine after another until one answers. Usually
// that is the first.
func (g *Gateway) proxy(w http.ResponseWriter, r *http.Request) {
	c, err := newCall(w, r, g.config.MaxBody)
	w.Header().Set(requestIDHeader, c.id)
	defer c.log(g.logger)
	if err != nil {
		c.fail(w, badBody(err), time.Duration(g.config.ClientTimeout))
		return
	}
	g.counts.request()

	var last *failure
	for faults := 0; len(c.tried) < g.config.Tries && faults < maxFaults; {
		pick, err := g.pick(c)
		if err != nil {
			// There is no engine at all, or none that has not been tried.
			if last == nil {
				last = failed(http.StatusServiceUnavailable, err)
			}
			break
		}
		c.pick, c.tried = pick, append(c.tried, pick.Worker)
		g.counts.pick(pick)
		if last = g.attempt(w, c, pick); last == nil {
			return
		}
		g.counts.failure(last)
		if last.fault {
			faults++
		}
	}
	c.fail(w, last, time.Duration(g.config.ClientTimeout))
}

// pick picks an engine for the next attempt, and keeps the explanation for a client
// that wants one and may have it.
func (g *Gateway) pick(c *call) (pick selector.Pick, err error) {
	s := g.routing.Load()
	if !g.config.ExplainOnRequest || c.r.Header.Get(explainHeader) == "" {
		return s.Pick(c.request())
	}
	pick, c.explanation, err = s.PickExplained(c.request())
	return pick, err
}

// failure is an attempt, or a whole request, of which the client has seen
// nothing.
type failure struct {
	status int
	header http.Header // of the engine's answer, if there was one
	body   []byte
	err    error
	fault  bool // may be the request's own
}

// failed makes a failure in the form in which OpenAI's API tells it.
func failed(status int, err error) *failure {
	type apiError struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    string `json:"code"`
	}
	kind, code := "server_error", "gateway_error"
	switch {
	case status < http.StatusInternalServerError:
		kind, code = "invalid_request_error", "invalid_request"
	case status == http.StatusServiceUnavailable:
		code = "no_engine"
	}
	body, _ := json.Marshal(map[string]apiError{"error": {Message: err.Error(), Type: kind, Code: code}})
	h := http.Header{"Content-Type": {"application/json"}}
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	return &failure{status: status, header: h, body: body, err: err}
}

// fail answers with the failure of the last attempt. If that was an engine's own
// answer, it is passed on as it was: a 429 and its Retry-After are for the client.
func (c *call) fail(w http.ResponseWriter, f *failure, timeout time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout))
	c.tellPick(w)
	setResponseHeader(w, f.header)
	w.Header().Del("Content-Length") // the body may have been cut to a bound
	c.status, c.err = f.status, f.err
	w.WriteHeader(f.status)
	n, _ := w.Write(f.body) // an error here is a client that has left
	c.bytes = int64(n)
}
