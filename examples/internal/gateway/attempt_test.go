package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// alone is a gateway that is not served, has no fleet and probes nothing. Its
// engines are what the test adds to its table.
func alone(t *testing.T, c Config) *Gateway {
	t.Helper()
	c.Workers = []string{"http://nobody"}
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// unwired is a gateway without sockets, which can live in the bubble of a synctest and has
// to be closed in it.
func unwired(t *testing.T, c Config) *Gateway {
	t.Helper()
	c.Workers = []string{"http://nobody"}
	g, err := newGateway(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// request returns a completion request for a handler.
func request(ctx context.Context, body string) *http.Request {
	return httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(body)).WithContext(ctx)
}

// serve returns the answer to a request, and what its handler panicked with.
func serve(g *Gateway, r *http.Request) (answer *httptest.ResponseRecorder, panicked any) {
	answer = httptest.NewRecorder()
	defer func() { panicked = recover() }()
	g.Handler().ServeHTTP(answer, r)
	return answer, nil
}

// A report counts a request from when the request was written to the engine. A
// gateway that does not say when that was has the request twice in every pick.
func TestReportCountsWhatWasWritten(t *testing.T) {
	g := alone(t, Config{})
	w := g.table.Add("engine", backend(t, func(http.ResponseWriter, *http.Request) {}))
	sinceReport := func() int64 {
		if err := w.Put(0, load.Report{Running: 1, Received: time.Now()}); err != nil {
			t.Error(err)
		}
		return w.Status().SinceReport
	}
	var before, after atomic.Int64
	before.Store(-1)
	after.Store(-1)
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn:      func(httptrace.GotConnInfo) { before.Store(sinceReport()) },
		WroteRequest: func(httptrace.WroteRequestInfo) { after.Store(sinceReport()) },
	})
	if answer, p := serve(g, request(ctx, `{"prompt":"hello"}`)); answer.Code != 200 || p != nil {
		t.Errorf("got %d, panicked %v", answer.Code, p)
	}
	if before, after := before.Load(), after.Load(); before != 1 || after != 0 {
		t.Errorf("%d requests since a report that came before the request was written, and %d after, want 1 and 0", before, after)
	}
}

// roundTripper is an engine without a network.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// hanging is a body that says first, and then nothing until ctx ends.
type hanging struct {
	first io.Reader
	ctx   context.Context
}

func (h hanging) Read(b []byte) (int, error) {
	if n, err := h.first.Read(b); err == nil {
		return n, nil
	}
	<-h.ctx.Done()
	return 0, context.Cause(h.ctx)
}

func (hanging) Close() error { return nil }

func TestEngineThatHangsIsGivenUp(t *testing.T) {
	hang := func(status int, body string) roundTripper {
		return func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Body: hanging{strings.NewReader(body), r.Context()}}, nil
		}
	}
	for name, engine := range map[string]roundTripper{
		"before the header": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		},
		"after the header": hang(200, ""),
		"in a refusal":     hang(503, "no"),
		"in the middle":    hang(200, "first"),
	} {
		t.Run(name, func(t *testing.T) {
			g := alone(t, Config{EngineTimeout: Duration(time.Hour), Policy: "round_robin"})
			g.transport.RegisterProtocol("hangs", engine)
			g.transport.RegisterProtocol("works", roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("answer"))}, nil
			}))
			w := g.table.Add("hangs", "hangs://engine")
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				answer, panicked := serve(g, request(t.Context(), `{}`))
				if took := time.Since(began); took != time.Hour {
					t.Errorf("given up after %v", took)
				}
				switch {
				case name == "in the middle":
					if panicked != http.ErrAbortHandler || answer.Body.String() != "first" {
						t.Errorf("got %q, panicked %v, want a cut", answer.Body, panicked)
					}
				case answer.Code != http.StatusGatewayTimeout || panicked != nil:
					t.Errorf("got %d %q, panicked %v", answer.Code, answer.Body, panicked)
				}
				if name != "in the middle" && !g.health.faulted(w) {
					t.Error("the engine is not blamed")
				}

				g.table.Add("works", "works://engine")
				for range 2 {
					if answer, panicked := serve(g, request(t.Context(), `{}`)); name != "in the middle" && (answer.Body.String() != "answer" || panicked != nil) {
						t.Errorf("with another engine: got %d %q, panicked %v", answer.Code, answer.Body, panicked)
					}
				}
			})
			if own := w.Own(); own != (load.Own{}) {
				t.Errorf("books are %+v", own)
			}
		})
	}
}

// dial returns a raw connection to the gateway, to be a bad client on.
func (r *running) dial(t *testing.T, request string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(patience))
	return conn
}

func TestClientThatStopsReadingIsCut(t *testing.T) {
	left := make(chan struct{})
	g := start(t, Config{
		ClientTimeout: Duration(50 * time.Millisecond),
		DrainTimeout:  Duration(50 * time.Millisecond), // cuts the client where nothing else does
		Workers: []string{backend(t, func(w http.ResponseWriter, _ *http.Request) {
			defer close(left)
			for piece := make([]byte, 64<<10); ; {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		})},
	})
	g.dial(t, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
	waitFor(t, "the engine to be left", func() bool {
		select {
		case <-left:
			return true
		default:
			return false
		}
	})
	if picked := g.settled(t); picked != 1 {
		t.Errorf("%d picks, want 1", picked)
	}
}

func TestClientThatDoesNotSendItsBodyIsToldSo(t *testing.T) {
	g := start(t, Config{
		ClientTimeout: Duration(250 * time.Millisecond),
		DrainTimeout:  Duration(50 * time.Millisecond),
		Workers:       []string{backend(t, nil)},
	})
	conn := g.dial(t, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got := text(t, res); res.StatusCode != http.StatusRequestTimeout || !strings.Contains(got, "too long") {
		t.Errorf("got %d %q", res.StatusCode, got)
	}
}

// deadlines are what the gateway asks of a client's connection.
type deadlines struct {
	http.ResponseWriter
	read, write time.Time
	lifted      bool // there was no read deadline when the engine got the request
}

func (d *deadlines) SetReadDeadline(t time.Time) error  { d.read = t; return nil }
func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = t; return nil }
func (d *deadlines) Flush()                             { time.Sleep(2 * time.Hour) } // of the bubble

// pieces is a body that comes in pieces, as long as ctx lasts.
type pieces struct {
	ctx  context.Context
	left []string
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.ctx.Err() != nil {
		return 0, context.Cause(p.ctx)
	}
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.left[0])
	p.left = p.left[1:]
	return n, nil
}

func (*pieces) Close() error { return nil }

func TestDeadlinesAreForTheClientAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		d := &deadlines{ResponseWriter: httptest.NewRecorder()}
		g := unwired(t, Config{EngineTimeout: Duration(time.Hour), ClientTimeout: Duration(time.Minute), Policy: "random"})
		defer g.Close()
		g.transport.RegisterProtocol("slow", roundTripper(func(r *http.Request) (*http.Response, error) {
			d.lifted = d.read.IsZero()
			time.Sleep(30 * time.Minute)
			return &http.Response{StatusCode: 200, Body: &pieces{r.Context(), []string{"one", "two"}}}, nil
		}))
		g.table.Add("slow", "slow://engine")
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("the answer is cut: %v", p)
				}
			}()
			g.Handler().ServeHTTP(d, request(t.Context(), `{}`))
		}()
		if !d.lifted {
			t.Error("the client is to send something while the engine works")
		}
		// The client took two hours for the first piece, which is no silence of the engine.
		if want := began.Add(2*time.Hour + 31*time.Minute); !d.write.Equal(want) {
			t.Errorf("the second piece is to be written by %v, want %v", d.write, want)
		}
		g.Handler().ServeHTTP(d, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if want := time.Now().Add(time.Minute); !d.read.Equal(want) || !d.write.Equal(want.Add(time.Minute)) {
			t.Errorf("the next request has the deadlines %v and %v, want %v and a minute later", d.read, d.write, want)
		}
	})
}

// plain hides everything that middleware without thought hides.
type plain struct{ w http.ResponseWriter }

func (p plain) Header() http.Header         { return p.w.Header() }
func (p plain) Write(b []byte) (int, error) { return p.w.Write(b) }
func (p plain) WriteHeader(status int)      { p.w.WriteHeader(status) }

func TestMiddlewareThatHidesFlush(t *testing.T) {
	g := alone(t, Config{})
	g.table.Add("engine", backend(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "one ")
		http.NewResponseController(w).Flush()
		io.WriteString(w, "two")
	}))
	answer := httptest.NewRecorder()
	g.Handler().ServeHTTP(plain{answer}, request(t.Context(), `{}`))
	if got := answer.Body.String(); got != "one two" {
		t.Errorf("got %q", got)
	}
}

// dialError is what comes from net when a connection cannot be had.
func dialError(errno syscall.Errno) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errno)}
}

func TestWhatRunsOutHereIsNoFaultOfTheEngines(t *testing.T) {
	for errno, ours := range map[syscall.Errno]bool{
		syscall.EMFILE: true, syscall.ENFILE: true, syscall.EADDRNOTAVAIL: true, syscall.ENOBUFS: true, syscall.ENOMEM: true,
		syscall.ECONNREFUSED: false, syscall.EHOSTUNREACH: false,
	} {
		t.Run(errno.Error(), func(t *testing.T) {
			g := alone(t, Config{})
			g.transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, dialError(errno) }
			workers := []*load.Worker{g.table.Add("a", "http://a"), g.table.Add("b", "http://b")}
			if answer, _ := serve(g, request(t.Context(), `{}`)); answer.Code != http.StatusBadGateway {
				t.Errorf("got %d", answer.Code)
			}
			for _, w := range workers {
				if st := w.Status(); st.Picked != 1 || st.Aside == ours {
					t.Errorf("%s was picked %d times and is set aside: %v", st.ID, st.Picked, st.Aside)
				}
			}
			for range failuresToDown {
				g.health.round(t.Context())
			}
			for _, w := range workers {
				if healthy := w.Status().Healthy; healthy != ours {
					t.Errorf("%s is healthy: %v", w.ID(), healthy)
				}
			}
		})
	}
}

func TestDialErrorsMayUseAllTries(t *testing.T) {
	g := alone(t, Config{Tries: 4})
	g.transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, dialError(syscall.ECONNREFUSED) }
	for i := range 5 {
		g.table.Add(fmt.Sprint(i), "http://engine")
	}
	answer, _ := serve(g, request(t.Context(), `{}`))
	if failures := g.Counts().Failures; answer.Code != http.StatusBadGateway || failures != 4 {
		t.Errorf("got %d after %d tries", answer.Code, failures)
	}
}

// A request that every engine fails on says nothing about the engines.
func TestRequestThatNoEngineSurvives(t *testing.T) {
	for name, fail := range map[string]func() (*http.Response, error){
		"500": func() (*http.Response, error) {
			return &http.Response{StatusCode: 500, Body: http.NoBody}, nil
		},
		"cut": func() (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
		"cut after the header": func() (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(errReader{})}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := alone(t, Config{Policy: "round_robin"})
			g.transport.RegisterProtocol("engine", roundTripper(func(r *http.Request) (*http.Response, error) {
				if body, _ := io.ReadAll(r.Body); string(body) == `"poison"` {
					return fail()
				}
				return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
			}))
			for i := range 4 {
				g.table.Add(fmt.Sprint(i), "engine://"+fmt.Sprint(i))
			}
			send := func(body string) {
				t.Helper()
				if answer, p := serve(g, request(t.Context(), body)); p != nil || (answer.Code < 500) != (body == `{}`) {
					t.Errorf("%s: got %d, panicked %v", body, answer.Code, p)
				}
			}
			aside := func() (n int) {
				for _, w := range g.table.Status() {
					if w.Aside {
						n++
					}
				}
				return n
			}
			for range 10 {
				send(`"poison"`)
				for range 4 {
					send(`{}`)
				}
			}
			if n, failures := aside(), g.Counts().Failures; n != 0 || failures != 20 {
				t.Errorf("%d engines are set aside after %d failed attempts, want 0 after 20", n, failures)
			}
			// Without anything that an engine served in between, it is the engine.
			for range 4 {
				send(`"poison"`)
			}
			if n := aside(); n == 0 {
				t.Error("engines that fail everything are not set aside")
			}
		})
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("connection reset") }
