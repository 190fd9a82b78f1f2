package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestStreamingIsNotBuffered(t *testing.T) {
	seen := make(chan struct{})
	g := start(t, Config{Workers: []string{backend(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "data: one\n\n")
		http.NewResponseController(w).Flush()
		select {
		case <-seen: // only a client that has got the first chunk lets the second one go
			io.WriteString(w, "data: two\n\n")
		case <-r.Context().Done():
		}
	})}})
	res := g.post(t, `{"prompt":"hello","stream":true}`)
	first := make([]byte, len("data: one\n\n"))
	if _, err := io.ReadFull(res.Body, first); err != nil {
		t.Fatal(err)
	}
	if own := g.table.View().At(0).Own(); own.InFlight != 1 || own.Unstarted != 0 || own.PendingTokens != 0 {
		t.Errorf("books after the first chunk are %+v, want 1 in flight that has started", own)
	}
	close(seen)
	if rest := text(t, res); rest != "data: two\n\n" {
		t.Errorf("then got %q", rest)
	}
	g.settled(t)
}

func TestClientThatLeavesReleases(t *testing.T) {
	for _, when := range []string{"before the first byte", "in the middle"} {
		t.Run(when, func(t *testing.T) {
			arrived, left := make(chan struct{}), make(chan struct{})
			g := start(t, Config{Workers: []string{backend(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if when == "in the middle" {
					io.WriteString(w, "data: one\n\n")
					http.NewResponseController(w).Flush()
				}
				close(arrived)
				<-r.Context().Done() // the engine is told as well
				close(left)
			})}})
			ctx, leave := context.WithCancel(t.Context())
			answered := make(chan error, 1)
			go func() {
				res, err := g.tryPost(ctx, `{"prompt":"hello, hello"}`)
				if err == nil {
					_, err = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				answered <- err
			}()
			<-arrived
			if n := g.table.View().At(0).Own().InFlight; n != 1 {
				t.Errorf("%d in flight, want 1", n)
			}
			leave()
			if err := <-answered; err == nil {
				t.Error("the client got an answer")
			}
			<-left
			if picked := g.settled(t); picked != 1 {
				t.Errorf("%d picks for a client that has left, want 1", picked)
			}
		})
	}
}

// panicking is a client connection whose handler hits a bug.
type panicking struct{ http.ResponseWriter }

func (panicking) Write([]byte) (int, error) { panic("a bug") }

func TestPanicInTheHandlerReleases(t *testing.T) {
	g := start(t, Config{Workers: []string{backend(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "data: one\n\n")
	})}})
	func() {
		defer func() {
			if p := recover(); p != "a bug" {
				t.Errorf("recovered %v", p)
			}
		}()
		r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"prompt":"x"}`))
		g.Handler().ServeHTTP(panicking{httptest.NewRecorder()}, r)
	}()
	if picked := g.settled(t); picked != 1 {
		t.Errorf("%d picks, want 1", picked)
	}
}

// statusLine answers with one, and a body, whatever net/http thinks of it.
func statusLine(status string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Length: 3\r\n\r\nyes", status)
	}
}

// failures are the ways in which an engine fails before its first byte.
var failures = map[string]http.HandlerFunc{
	"cut without an answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"cut after the header": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	},
	"a status that is none": statusLine("099 What"),
	"a switch of protocols": statusLine("101 Switching Protocols"),
	"500":                   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", 500) },
	"502":                   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", 502) },
	"503":                   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "full", 503) },
	"429":                   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "full", 429) },
}

func TestEngineThatFailsBeforeItsFirstByteIsReplaced(t *testing.T) {
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			var failed atomic.Pointer[string] // the address of the engine that did
			engine := func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if requests.Add(1) == 1 {
					address := "http://" + r.Host
					failed.Store(&address)
					w.Header().Set("X-Failed", "yes")
					fail(w, r)
					return
				}
				fmt.Fprintf(w, "answer to %s", body)
			}
			g := start(t, Config{Workers: []string{backend(t, engine), backend(t, engine), backend(t, engine)}})
			res := g.post(t, `{"prompt":"hello"}`)
			if got := text(t, res); res.StatusCode != 200 || got != `answer to {"prompt":"hello"}` {
				t.Errorf("got %d %q", res.StatusCode, got)
			}
			if res.Header.Get("X-Failed") != "" {
				t.Error("the client sees a header of the engine that failed")
			}
			if res.Header.Get(workerHeader) == *failed.Load() {
				t.Error("the answer names the engine that failed")
			}
			if picked := g.settled(t); picked != 2 {
				t.Errorf("%d picks, want one for each of 2 attempts", picked)
			}
			full := name == "429" || name == "503"
			if aside := g.worker(t, *failed.Load()).Status().Aside; aside != full {
				t.Errorf("after its first failure, the engine is set aside: %v, want %v", aside, full)
			}
		})
	}
}

func TestEngineThatFailsAfterItsFirstByteIsNotReplaced(t *testing.T) {
	var requests atomic.Int32
	engine := func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		io.WriteString(w, "data: one\n\n")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	g := start(t, Config{Workers: []string{backend(t, engine), backend(t, engine)}})
	res := g.post(t, `{"prompt":"hello"}`)
	got, err := io.ReadAll(res.Body)
	if err == nil {
		t.Errorf("%q looks like a whole answer", got)
	}
	if string(got) != "data: one\n\n" {
		t.Errorf("got %q before the cut", got)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d engines got the request, want 1", n)
	}
	g.settled(t)
}

func TestTriesAreBoundedAndNoEngineIsTriedTwice(t *testing.T) {
	for _, test := range []struct{ engines, status, tries int }{
		{5, 503, 3}, {5, 429, 3}, {2, 503, 2}, {1, 503, 1},
		{5, 500, 2}, {5, 502, 2}, {5, 504, 2}, {1, 500, 1}, // may be the request's own fault
	} {
		t.Run(fmt.Sprint(test.engines, " engines say ", test.status), func(t *testing.T) {
			var mu sync.Mutex
			hosts := make(map[string]int)
			engine := func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				hosts[r.Host]++
				mu.Unlock()
				w.Header().Set("Retry-After", "7")
				http.Error(w, "no", test.status)
			}
			var c Config
			for range test.engines {
				c.Workers = append(c.Workers, backend(t, engine))
			}
			g := start(t, c)
			res := g.post(t, `{"prompt":"hello"}`)
			if got := text(t, res); res.StatusCode != test.status || got != "no\n" || res.Header.Get("Retry-After") != "7" {
				t.Errorf("got %d %q with %v, want the engine's own refusal", res.StatusCode, got, res.Header)
			}
			if len(hosts) != test.tries {
				t.Errorf("%d engines were tried, want %d", len(hosts), test.tries)
			}
			for host, n := range hosts {
				if n != 1 {
					t.Errorf("%s was tried %d times", host, n)
				}
			}
			if picked := g.settled(t); picked != uint64(test.tries) {
				t.Errorf("%d picks, want %d", picked, test.tries)
			}
		})
	}
}

func TestConcurrentRequestsSpread(t *testing.T) {
	const clients, engines = 100, 4
	var (
		mu      sync.Mutex
		hosts   = make(map[string]int)
		arrived sync.WaitGroup // all of them are in flight before the first is answered
	)
	arrived.Add(clients)
	engine := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		hosts[r.Host]++
		mu.Unlock()
		arrived.Done()
		arrived.Wait()
		io.WriteString(w, "ok")
	}
	c := Config{Policy: "least_request"}
	for range engines {
		c.Workers = append(c.Workers, backend(t, engine))
	}
	g := start(t, c)
	var done sync.WaitGroup
	for range clients {
		done.Go(func() {
			res, err := g.tryPost(t.Context(), `{"prompt":"hello"}`)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if b, err := io.ReadAll(res.Body); err != nil || string(b) != "ok" {
				t.Errorf("got %q, %v", b, err)
			}
		})
	}
	done.Wait()
	for host, n := range hosts {
		if n < 15 || n > 35 {
			t.Errorf("%s got %d of %d requests, want about %d", host, n, clients, clients/engines)
		}
	}
	if picked := g.settled(t); picked != clients {
		t.Errorf("%d picks, want %d", picked, clients)
	}
}

func TestEngineThatRefusesConnectionsIsTakenOut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := "http://" + l.Addr().String()
	l.Close()
	g := start(t, Config{
		Policy:        "round_robin",
		ProbeInterval: Duration(1 << 40),                // requests alone are to notice
		Freshness:     Duration(100 * time.Millisecond), // that it is set aside for, each time
		Workers:       []string{dead, backend(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })},
	})
	waitFor(t, "the dead engine to be taken out", func() bool {
		res := g.post(t, `{"prompt":"hello"}`)
		if got := text(t, res); got != "ok" {
			t.Errorf("got %d %q", res.StatusCode, got)
		}
		return !g.worker(t, dead).Status().Healthy
	})
	g.settled(t)
	if st := g.worker(t, dead).Status(); st.Healthy || st.Picked != failuresToDown {
		t.Errorf("the dead engine is healthy: %v, and was picked %d times, want %d", st.Healthy, st.Picked, failuresToDown)
	}
}

func TestNoEngineIs503(t *testing.T) {
	g := start(t, Config{Workers: []string{backend(t, nil)}, ProbeInterval: Duration(time.Hour)})
	g.table.View().At(0).Worker().SetHealthy(false)
	res := g.post(t, `{"prompt":"hello"}`)
	if got := text(t, res); res.StatusCode != 503 || !strings.Contains(got, `"code":"no_engine"`) || res.Header.Get("Retry-After") == "" {
		t.Errorf("got %d %q with %v", res.StatusCode, got, res.Header)
	}
}

func TestBodyBeyondTheBoundIs413(t *testing.T) {
	g := start(t, Config{MaxBody: 20, Workers: []string{backend(t, nil)}})
	res := g.post(t, `{"prompt":"more than twenty bytes"}`)
	if got := text(t, res); res.StatusCode != 413 || !strings.Contains(got, "20 bytes") {
		t.Errorf("got %d %q", res.StatusCode, got)
	}
	if picked := g.settled(t); picked != 0 {
		t.Errorf("%d picks for a request that was not taken", picked)
	}
}

func TestOtherPathsPass(t *testing.T) {
	g := start(t, Config{Workers: []string{backend(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Method, " ", r.URL)
	})}})
	for _, test := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/v1/models", 200},
		{"POST", "/v1/embeddings?a=b%20c", 200},
		{"POST", "/v1/chat/completions", 200},
		{"GET", "/v1/completions", 405},
		{"POST", "/generate", 404},
	} {
		req, err := http.NewRequest(test.method, g.url+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got := text(t, res)
		res.Body.Close()
		if res.StatusCode != test.status || test.status == 200 && got != test.method+" "+test.path {
			t.Errorf("%s %s: got %d %q", test.method, test.path, res.StatusCode, got)
		}
	}
	g.settled(t)
}
