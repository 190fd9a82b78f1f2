package gateway

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
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
	mux.HandleFunc("GET /healthz", serveHealthz)
	mux.HandleFunc("GET /readyz", g.serveReadyz)
	mux.HandleFunc("GET /health", g.serveReadyz) // what engines are asked, by clients that take this for one
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.bound(w, true)
		mux.ServeHTTP(w, r)
	})
}

// bound gives a client ClientTimeout to send what is to be read of a request, and as long again
// to take an answer, also one that says that it was too slow. A connection has the deadlines
// of the request before.
func (g *Gateway) bound(w http.ResponseWriter, read bool) {
	client, timeout := http.NewResponseController(w), time.Duration(g.config.Load().ClientTimeout)
	now := time.Now()
	if read {
		_ = client.SetReadDeadline(now.Add(timeout)) // an error is middleware that hides it
	}
	_ = client.SetWriteDeadline(now.Add(timeout).Add(timeout))
}

// proxy sends a request to one engine after another until one answers. Usually
// that is the first.
func (g *Gateway) proxy(w http.ResponseWriter, r *http.Request) {
	c, err := newCall(w, r, g.config.Load())
	w.Header().Set(requestIDHeader, c.id)
	defer func() {
		g.metrics.done(c)
		c.log(g.logger)
	}()
	if err != nil {
		if f := badBody(err); f != nil {
			c.fail(w, f)
			return
		}
		c.cut(errors.New("client left before the end of its request"))
	}

	var last *failure
	for faults := 0; len(c.tried) < c.config.Tries && faults < maxFaults; {
		pick, err := g.pick(c)
		if err != nil {
			// There is no engine at all, or none that has not been tried.
			if last == nil {
				last = failed(http.StatusServiceUnavailable, err)
			}
			break
		}
		c.pick, c.tried = pick, append(c.tried, pick.Worker)
		if last = g.attempt(w, c, pick); last == nil {
			return
		}
		g.metrics.failures.Inc()
		if r.Context().Err() != nil {
			break // the gateway ends, and not the patience of the client
		}
		if last.fault {
			faults++
		}
	}
	c.fail(w, last)
}

// pick picks an engine for the next attempt. A client that wants the explanation and
// may have it gets it, and so does the log now and then.
func (g *Gateway) pick(c *call) (pick selector.Pick, err error) {
	s := g.routing.Load()
	told := c.config.ExplainOnRequest && c.r.Header.Get(explainHeader) != ""
	logged := c.config.ExplainEvery > 0 && rand.IntN(c.config.ExplainEvery) == 0
	c.picked = time.Now()
	var x *selector.Explanation
	for {
		if told || logged {
			pick, x, err = s.PickExplained(c.request())
		} else {
			pick, err = s.Pick(c.request())
		}
		if err != nil || !g.health.keepsOut(pick.Worker) {
			break
		}
		pick.Done()
	}
	g.metrics.picked(c, pick, err)
	g.page.Explain(x)
	if told {
		c.explanation = x
	}
	if logged {
		g.logger.Info("pick", "id", c.id, "explanation", x)
	}
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
func (c *call) fail(w http.ResponseWriter, f *failure) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Duration(c.config.ClientTimeout)))
	c.tellPick(w)
	setResponseHeader(w, f.header)
	w.Header().Del("Content-Length") // the body may have been cut to a bound
	c.status, c.err = f.status, f.err
	w.WriteHeader(f.status)
	n, _ := w.Write(f.body) // an error here is a client that has left
	c.bytes = int64(n)
}
