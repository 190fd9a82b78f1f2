package plimsoll

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"go.uber.org/zap"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// request is one as Caddy's server hands it to a handler.
func request(ctx context.Context, path, body string) *http.Request {
	ctx = context.WithValue(ctx, caddyhttp.VarsCtxKey, make(map[string]any))
	return httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
}

func TestEngineThatFailsIsSetAside(t *testing.T) {
	gone := errors.New("connection refused")
	for _, tt := range []struct {
		name  string
		proxy func(w http.ResponseWriter, leave func()) error
		aside bool
	}{
		{"an answer", func(w http.ResponseWriter, _ func()) error { _, err := io.WriteString(w, "hello"); return err }, false},
		{"a refusal of this request", func(w http.ResponseWriter, _ func()) error { w.WriteHeader(400); return nil }, false},
		{"no connection", func(http.ResponseWriter, func()) error { return gone }, true},
		{"a full queue", func(w http.ResponseWriter, _ func()) error { w.WriteHeader(503); return nil }, true},
		{"half an answer", func(w http.ResponseWriter, _ func()) error {
			_, _ = io.WriteString(w, "hel")
			panic(http.ErrAbortHandler)
		}, true},
		{"a client that left", func(_ http.ResponseWriter, leave func()) error { leave(); return gone }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // in which no time passes, so that it stays aside
				table := load.NewTable(load.Config{})
				worker := table.Add("10.0.0.1:80", "http://10.0.0.1:80")
				p := &Policy{lease: lease{fleet: &fleet{table: table}}, selector: selector.New(table, selector.Config{})}
				ctx, cancel := context.WithCancel(t.Context())
				func() {
					defer cancel() // as net/http does
					defer func() {
						if err := recover(); err != nil && err != http.ErrAbortHandler {
							panic(err)
						}
					}()
					_ = (&Handler{MaxBody: 100}).ServeHTTP(httptest.NewRecorder(), request(ctx, "/v1/completions", "{}"),
						caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
							upstream := p.Select(reverseproxy.UpstreamPool{{Dial: worker.ID()}}, r, w)
							if upstream == nil || worker.InFlight() != 1 {
								t.Errorf("selected %v, %d in flight", upstream, worker.InFlight())
							}
							return tt.proxy(w, cancel)
						}))
				}()
				synctest.Wait()
				if s := worker.Status(); s.Aside != tt.aside || s.InFlight != 0 {
					t.Errorf("aside: %t, want %t; %d in flight", s.Aside, tt.aside, s.InFlight)
				}
			})
		})
	}
}

func TestWhoeverGoesOnTryingComesBackToEnginesThatFailed(t *testing.T) {
	table := load.NewTable(load.Config{})
	pool := reverseproxy.UpstreamPool{{Dial: "10.0.0.1:80"}, {Dial: "10.0.0.2:80"}}
	for _, u := range pool {
		table.Add(u.Dial, "http://"+u.Dial)
	}
	p := &Policy{lease: lease{fleet: &fleet{table: table}}, selector: selector.New(table, selector.Config{})}
	r := request(t.Context(), "/", "{}")
	var tried []string
	for range 4 {
		u := p.Select(pool, r, nil)
		if u == nil {
			t.Fatalf("none after %v", tried)
		}
		tried = append(tried, u.Dial)
	}
	if tried[0] == tried[1] || tried[2] == tried[3] {
		t.Errorf("tried %v, want both in each round", tried)
	}
}

func TestWhatIsLearnedFromABody(t *testing.T) {
	const text = `"0123456789abcdef"` // with its quotes, 5 tokens
	for _, tt := range []struct {
		path, body string
		tokens     int64 // -1: unknown
		unstreamed bool
	}{
		{"/v1/completions", `{"prompt": ` + text + `}`, 5, true},
		{"/v1/completions", `{"prompt": ` + text + `, "stream": true}`, 5, false},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "hello"}], "stream": true}`, 10, false},
		{"/v1/embeddings", `{"input": ` + text + `}`, 5, false},
		{"/v1/completions", `{"prompt": `, -1, true},
		{"/v1/completions", `{"prompt": "` + strings.Repeat("x", 300) + `", "stream": true}`, -1, true}, // above the limit
		{"/v1/completions", ``, -1, true},
	} {
		r := request(t.Context(), tt.path, tt.body)
		var c *call
		err := (&Handler{MaxBody: 200}).ServeHTTP(httptest.NewRecorder(), r,
			caddyhttp.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) error {
				c = callOf(r)
				if body, err := io.ReadAll(r.Body); err != nil || string(body) != tt.body {
					t.Errorf("%s: the next handler reads %q, %v", tt.body, body, err)
				}
				return nil
			}))
		if err != nil {
			t.Errorf("%s: %v", tt.body, err)
		}
		tokens, known := c.request.PromptTokens.Get()
		if !known {
			tokens = -1
		}
		if tokens != tt.tokens || c.request.Unstreamed != tt.unstreamed {
			t.Errorf("%s %.60s: %d tokens, unstreamed %t", tt.path, tt.body, tokens, c.request.Unstreamed)
		}
	}
}

func TestEngineIsBlamedOncePerAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := load.NewTable(load.Config{})
		worker := table.Add("10.0.0.1:80", "http://10.0.0.1:80")
		p := &Policy{lease: lease{fleet: &fleet{table: table}}, selector: selector.New(table, selector.Config{}), logger: zap.NewNop()}
		r := request(t.Context(), "/", "{}")
		if p.Select(reverseproxy.UpstreamPool{{Dial: worker.ID()}}, r, nil) == nil {
			t.Fatal("none")
		}
		p.Select(nil, r, nil) // Caddy keeps away from the engine, and asks again and again
		time.Sleep(time.Minute)
		for range 3 {
			p.Select(nil, r, nil)
		}
		if worker.Status().Aside {
			t.Error("it is set aside again, and has failed nothing more")
		}
		if n := len(callOf(r).request.Exclude); n > 1 {
			t.Errorf("it is excluded %d times", n)
		}
	})
}
