package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// roundTripper stands for the network where time is not real.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func respond(status int, body string) (*http.Response, error) {
	return &http.Response{
		StatusCode:    status,
		Status:        fmt.Sprintf("%d %s", status, http.StatusText(status)),
		ContentLength: int64(len(body)),
		Body:          io.NopCloser(strings.NewReader(body)),
	}, nil
}

// cutOff is a body whose connection breaks.
func cutOff(body string) (*http.Response, error) {
	resp, _ := respond(200, body)
	resp.ContentLength = int64(len(body)) + 100
	resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(body), errReader{io.ErrUnexpectedEOF}))
	return resp, nil
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

const onePublishing = `{"kv_events":{"dp_size":1,"load_endpoint_port_base":5559}}`

func TestServerInfoRetriesWhatMayPass(t *testing.T) {
	refused := errors.New("connection refused")
	type answer = func(*http.Request) (*http.Response, error)
	good := func(*http.Request) (*http.Response, error) { return respond(200, onePublishing) }
	status := func(code int) answer {
		return func(*http.Request) (*http.Response, error) { return respond(code, "sorry") }
	}
	fails := func(*http.Request) (*http.Response, error) { return nil, refused }
	cut := func(*http.Request) (*http.Response, error) { return cutOff(onePublishing[:20]) }
	// The same without a length, where only the JSON shows it.
	ended := func(*http.Request) (*http.Response, error) {
		resp, _ := respond(200, onePublishing[:20])
		resp.ContentLength = -1
		return resp, nil
	}
	hangs := func(req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	body := func(s string) answer {
		return func(*http.Request) (*http.Response, error) { return respond(200, s) }
	}
	hangsInBody := func(req *http.Request) (*http.Response, error) {
		resp, _ := respond(200, "")
		resp.ContentLength = -1
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(onePublishing[:9]), ctxReader{req.Context()}))
		return resp, nil
	}
	const ms = time.Millisecond

	for _, c := range []struct {
		name      string
		answers   []answer // the last one repeats
		tries     int
		took      time.Duration
		kind      ErrorKind // 0: it worked
		retryable bool
	}{
		{"at once", []answer{good}, 1, 0, 0, false},
		{"network, then good", []answer{fails, good}, 2, 100 * ms, 0, false},
		{"5xx twice, then good", []answer{status(503), status(500), good}, 3, 300 * ms, 0, false},
		{"cut off, then good", []answer{cut, good}, 2, 100 * ms, 0, false},
		{"ends early, then good", []answer{ended, good}, 2, 100 * ms, 0, false},
		{"empty, then good", []answer{body(""), good}, 2, 100 * ms, 0, false},
		{"hangs, then good", []answer{hangs, good}, 2, 2100 * ms, 0, false},

		{"network", []answer{fails}, 3, 300 * ms, KindNetwork, true},
		{"502", []answer{status(502)}, 3, 300 * ms, KindStatus, true},
		{"cut off", []answer{cut}, 3, 300 * ms, KindCutOff, true},
		{"hangs", []answer{hangs}, 3, 6300 * ms, KindNetwork, true},
		{"hangs in the body", []answer{hangsInBody}, 3, 6300 * ms, KindNetwork, true},

		{"404", []answer{status(404), good}, 1, 0, KindStatus, false},
		{"401", []answer{status(401), good}, 1, 0, KindStatus, false},
		{"429", []answer{status(429), good}, 1, 0, KindStatus, false},
		{"204", []answer{status(204), good}, 1, 0, KindStatus, false},
		{"wrong shape", []answer{body("[]"), good}, 1, 0, KindShape, false},
		{"HTML", []answer{body("<html>"), good}, 1, 0, KindShape, false},
		{"5xx, then wrong shape", []answer{status(500), body("[]")}, 2, 100 * ms, KindShape, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				client := &Client{HTTP: &http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
					a := c.answers[min(tries, len(c.answers)-1)]
					tries++
					return a(req)
				})}}
				began := time.Now()
				ad, err := client.ServerInfo(t.Context(), "http://engine:30000")
				if took := time.Since(began); tries != c.tries || took != c.took {
					t.Errorf("%d tries in %v, want %d in %v", tries, took, c.tries, c.took)
				}
				if c.kind == 0 {
					if err != nil || !ad.Publishes {
						t.Errorf("got %+v, %v", ad, err)
					}
					return
				}
				var re *RequestError
				if !errors.As(err, &re) || re.Kind != c.kind || re.Retryable() != c.retryable || re.Attempts != c.tries || ad.Publishes {
					t.Errorf("got %+v, error %v (%+v)", ad, err, re)
				}
			})
		})
	}
}

type ctxReader struct{ ctx context.Context }

func (r ctxReader) Read([]byte) (int, error) {
	<-r.ctx.Done()
	return 0, r.ctx.Err()
}

func TestServerInfoEndsWithItsContext(t *testing.T) {
	for _, during := range []string{"a try", "a pause"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			client := &Client{HTTP: &http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
				if during == "a pause" {
					return respond(500, "")
				}
				<-req.Context().Done()
				return nil, req.Context().Err()
			})}}
			time.AfterFunc(50*time.Millisecond, cancel)
			began := time.Now()
			_, err := client.ServerInfo(ctx, "http://engine:30000")
			var re *RequestError
			if !errors.As(err, &re) || re.Attempts != 1 || time.Since(began) != 50*time.Millisecond {
				t.Errorf("during %s: %v after %v", during, err, time.Since(began))
			}
			if during == "a try" && (re.Kind != KindCanceled || !errors.Is(err, context.Canceled) || re.Retryable()) {
				t.Errorf("during %s: %+v", during, re)
			}
		})
	}
}

func newServer(t *testing.T, h http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// patience is a timeout for what real connections bring about, on a machine that has
// other things to do. Looking for what the system trusts alone has taken seconds.
const patience = time.Minute

// newClient returns a client whose connections end with the test.
func newClient(t *testing.T) *Client {
	c := &Client{Timeout: patience}
	t.Cleanup(c.closeIdle)
	return c
}

func TestServerInfoOverHTTP(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/models/a/server_info" || r.Header.Get("Authorization") != "Bearer key" || r.Header.Get("X-Team") != "a" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		io.WriteString(w, onePublishing)
	})
	c := newClient(t)
	c.Token, c.Header = "key", http.Header{"X-Team": {"a"}}
	ad, err := c.ServerInfo(t.Context(), s.URL+"/models/a/")
	if err != nil || addrs(ad)[0] != "tcp://127.0.0.1:5559" {
		t.Errorf("got %+v, %v", ad, err)
	}
	c.Token = "other"
	_, err = c.ServerInfo(t.Context(), s.URL+"/models/a")
	var re *RequestError
	if !errors.As(err, &re) || re.Status != http.StatusUnauthorized {
		t.Errorf("wrong token: %v", err)
	}
}

func TestUserInformationIsSentAndNotShown(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "gateway" || password != "s3cret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.URL.Path == "/bad/server_info" {
			io.WriteString(w, "[]")
			return
		}
		io.WriteString(w, onePublishing)
	})
	c := newClient(t)
	u := strings.Replace(s.URL, "://", "://gateway:s3cret@", 1)
	if ad, err := c.ServerInfo(t.Context(), u); err != nil || !ad.Publishes {
		t.Errorf("got %+v, %v", ad, err)
	}
	_, bad := c.ServerInfo(t.Context(), u+"/bad")
	s.Close()
	_, gone := c.ServerInfo(t.Context(), u)
	for _, err := range []error{bad, gone} {
		if err == nil || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "gateway") {
			t.Errorf("error is missing or shows user information: %v", err)
		}
	}
}

func TestServerInfoThatIsOneGibibyteIsRefusedEarly(t *testing.T) {
	for _, declared := range []bool{true, false} {
		written := make(chan int64, 1)
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			const size = 1 << 30
			if declared {
				w.Header().Set("Content-Length", fmt.Sprint(size))
			}
			var n int64
			chunk := []byte(strings.Repeat(" ", 64<<10))
			for n < size {
				m, err := w.Write(chunk)
				n += int64(m)
				if err != nil {
					break
				}
			}
			written <- n
		})
		c := newClient(t)
		_, err := c.ServerInfo(t.Context(), s.URL)
		var re *RequestError
		if !errors.As(err, &re) || re.Kind != KindTooLarge || re.Attempts != 1 || re.Retryable() {
			t.Errorf("declared %v: %v", declared, err)
		}
		// What the kernel buffers on loopback is a few megabytes.
		if n := <-written; n > 64<<20 {
			t.Errorf("declared %v: %d bytes were taken", declared, n)
		}
	}
}

func TestServerInfoCutOffOnTheWire(t *testing.T) {
	var tries atomic.Int32
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		n := tries.Add(1)
		if n == 3 {
			io.WriteString(w, onePublishing)
			return
		}
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if n == 1 {
			buf.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + onePublishing)
		} else {
			buf.WriteString("HTTP/1.0 200 OK\r\n\r\n" + onePublishing[:10])
		}
		buf.Flush()
	})
	ad, err := newClient(t).ServerInfo(t.Context(), s.URL)
	if err != nil || !ad.Publishes || tries.Load() != 3 {
		t.Errorf("got %+v, %v after %d tries", ad, err, tries.Load())
	}
}

func TestRedirectsStayOnTheirHost(t *testing.T) {
	var asked []string
	other := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		io.WriteString(w, onePublishing)
	})
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/same/server_info":
			http.Redirect(w, r, "/moved", http.StatusTemporaryRedirect)
		case "/moved":
			io.WriteString(w, onePublishing)
		case "/loop/server_info":
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		default:
			http.Redirect(w, r, other.URL+"/secret", http.StatusFound)
		}
	})
	c := newClient(t)
	if ad, err := c.ServerInfo(t.Context(), s.URL+"/same"); err != nil || !ad.Publishes {
		t.Errorf("same host: %+v, %v", ad, err)
	}
	for _, path := range []string{"/away", "/loop"} {
		_, err := c.ServerInfo(t.Context(), s.URL+path)
		var re *RequestError
		if !errors.As(err, &re) || re.Kind != KindRedirect || re.Retryable() || re.Attempts != 1 {
			t.Errorf("%s: %v", path, err)
		}
	}
	if len(asked) != 0 {
		t.Errorf("the other host was asked for %q", asked)
	}

	// A caller's client keeps its own rule on top of ours.
	c = &Client{Timeout: patience, HTTP: &http.Client{Transport: s.Client().Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	_, err := c.ServerInfo(t.Context(), s.URL+"/same")
	var re *RequestError
	if !errors.As(err, &re) || re.Kind != KindStatus || re.Status != http.StatusTemporaryRedirect {
		t.Errorf("caller's rule: %v", err)
	}
}

func TestServerInfoOverTLSAndIPv6(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"kv_events":{"endpoint_host":"[::]","load_endpoint_port_base":5559}}`)
	})
	s := httptest.NewUnstartedServer(h)
	want := "tcp://127.0.0.1:5559"
	if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
		s.Listener.Close()
		s.Listener = l
		want = "tcp://[::1]:5559"
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	ad, err := (&Client{HTTP: s.Client(), Timeout: patience}).ServerInfo(t.Context(), s.URL)
	if err != nil || ad.Endpoints[0].Addr != want {
		t.Errorf("got %+v, %v, want %s", ad, err, want)
	}
}

func TestServerInfoOfABadURL(t *testing.T) {
	if _, err := new(Client).ServerInfo(t.Context(), "engine:30000"); !errors.Is(err, ErrURL) {
		t.Errorf("got %v", err)
	}
}
