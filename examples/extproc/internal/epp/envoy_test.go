package epp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// binary returns the path of an Envoy.
func binary(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("envoy"); err == nil {
		return path
	}
	const script = "../../../../.ci/envoy.sh"
	if _, err := os.Stat(script); err != nil {
		t.Skip("no envoy in PATH, and not in the repository")
	}
	out, err := exec.CommandContext(t.Context(), script).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 2 {
		t.Skipf("%s", exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// proxied is a real Envoy before two engines, and a picker.
type proxied struct {
	t       *testing.T
	table   *load.Table
	workers []*load.Worker
	engines []*engine
	picker  *grpc.Server
	url     string
	client  *http.Client
}

// engine answers with the body that it gets. To a request that asks for a stream it first
// sends a piece, and the rest when it is let.
type engine struct {
	*httptest.Server
	finish chan struct{}
}

func newEngine(t *testing.T) *engine {
	e := &engine{finish: make(chan struct{}, 10)}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.Header().Set("X-Engine", e.Listener.Addr().String())
		if bytes.Contains(body, []byte(`"stream": true`)) {
			_, _ = io.WriteString(w, "first")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-e.finish:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	return e
}

// proxy starts all of it. change is made to the configuration of that file.
func proxy(t *testing.T, file string, change ...string) *proxied {
	t.Helper()
	path := binary(t)
	p := &proxied{t: t, table: load.NewTable(load.Config{}), client: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}}
	var addresses []string
	for range 2 {
		e := newEngine(t)
		p.engines = append(p.engines, e)
		p.workers = append(p.workers, p.table.Add(e.Listener.Addr().String(), e.URL))
		addresses = append(addresses, e.Listener.Addr().String())
	}

	service := New(Config{Table: p.table, Selector: selector.New(p.table, selector.Config{})})
	p.picker = grpc.NewServer(service.ServerOptions()...)
	service.Register(p.picker)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- p.picker.Serve(l) }()
	t.Cleanup(func() {
		p.picker.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})

	content, err := os.ReadFile("../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	_, picker, _ := net.SplitHostPort(l.Addr().String())
	socket := func(address string) string {
		host, port, _ := net.SplitHostPort(address)
		return fmt.Sprintf("{ address: %s, port_value: %s }", host, port)
	}
	config := strings.NewReplacer(append(change,
		"port_value: 9901", "port_value: 0",
		"{ address: 0.0.0.0, port_value: 8080 }", "{ address: 127.0.0.1, port_value: 0 }",
		"port_value: 9002", "port_value: "+picker,
		socket("10.0.0.1:30000"), socket(addresses[0]),
		socket("10.0.0.2:30000"), socket(addresses[1]),
	)...).Replace(string(content))

	folder := t.TempDir()
	file, admin, log := filepath.Join(folder, "envoy.yaml"), filepath.Join(folder, "admin"), filepath.Join(folder, "log")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--config-path", file, "--admin-address-path", admin, "--log-path", log,
		"--log-level", "warning", "--concurrency", "1", "--disable-hot-restart")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log)
			t.Logf("Envoy's log:\n%s", text)
		}
	})
	p.eventually("Envoy to be ready, and to see the picker", func() bool {
		address, err := os.ReadFile(admin)
		if err != nil || len(address) == 0 {
			return false
		}
		base := "http://" + string(address)
		if text := p.get(base + "/clusters"); !strings.Contains(text, "picker::127.0.0.1:"+picker+"::health_flags::healthy") {
			return false
		}
		var listeners struct {
			Status []struct {
				Address struct {
					Socket struct {
						Port int `json:"port_value"`
					} `json:"socket_address"`
				} `json:"local_address"`
			} `json:"listener_statuses"`
		}
		if json.Unmarshal([]byte(p.get(base+"/listeners?format=json")), &listeners) != nil || len(listeners.Status) != 1 {
			return false
		}
		p.url = fmt.Sprintf("http://127.0.0.1:%d", listeners.Status[0].Address.Socket.Port)
		return p.get(base+"/ready") == "LIVE\n"
	})
	return p
}

func (p *proxied) eventually(what string, ok func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("waited a minute for %s", what)
		}
	}
}

func (p *proxied) get(url string) string {
	res, err := p.client.Get(url)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return string(text)
}

// post sends a completion. Whoever gets an answer closes its body.
func (p *proxied) post(ctx context.Context, body io.Reader, header ...string) *http.Response {
	p.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/completions", body)
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := p.client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	return res
}

// whole posts and reads all of the answer.
func (p *proxied) whole(body string, header ...string) (res *http.Response, text string) {
	p.t.Helper()
	res = p.post(p.t.Context(), strings.NewReader(body), header...)
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return res, string(all)
}

func (p *proxied) idle() {
	p.t.Helper()
	for _, w := range p.workers {
		p.eventually("requests on "+w.ID()+" to be done", func() bool { return w.InFlight() == 0 })
	}
}

func TestEnvoySendsRequestsWhereThePickerSays(t *testing.T) {
	for _, tt := range []struct {
		name   string
		large  int // a body that Envoy takes
		change []string
	}{
		{"full duplex", 3_000_000, nil},
		{"buffered", 900_000, []string{"request_body_mode: FULL_DUPLEX_STREAMED", "request_body_mode: BUFFERED", "response_body_mode: FULL_DUPLEX_STREAMED", "response_body_mode: STREAMED"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := proxy(t, "envoy.yaml", tt.change...)
			p.wholeRequests(tt.large)
			p.streams()
			p.failures()
		})
	}
}

func (p *proxied) wholeRequests(large int) {
	for i, w := range p.workers {
		p.workers[1-i].SetHealthy(false) // so that it is known which one is picked
		for _, size := range []int{10, large} {
			body := fmt.Sprintf(`{"prompt": %q}`, strings.Repeat("x", size))
			res, text := p.whole(body, DestinationKey, p.workers[1-i].ID()) // as a client may try
			if res.StatusCode != http.StatusOK || text != body || res.Header.Get("X-Engine") != w.ID() {
				p.t.Errorf("a body of %d: %s by %s, %d bytes", len(body), res.Status, res.Header.Get("X-Engine"), len(text))
			}
		}
		// In HTTP/2 a request may end in trailers.
		h2 := new(http.Protocols)
		h2.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: h2}
		req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+"/v1/completions", io.NopCloser(strings.NewReader(body)))
		if err != nil {
			p.t.Fatal(err)
		}
		req.Trailer = http.Header{"X-Checksum": {"1"}}
		res, err := transport.RoundTrip(req)
		if err != nil {
			p.t.Fatal(err)
		}
		p.engines[i].finishNext()
		text, err := io.ReadAll(res.Body)
		if err != nil || string(text) != "first"+body || res.Header.Get("X-Engine") != w.ID() {
			p.t.Errorf("with trailers: %s by %s, %q, %v", res.Status, res.Header.Get("X-Engine"), text, err)
		}
		res.Body.Close()
		transport.CloseIdleConnections()

		if res, _ := p.client.Get(p.url + "/v1/models"); res == nil || res.StatusCode != http.StatusOK || res.Header.Get("X-Engine") != w.ID() {
			p.t.Errorf("without a body: %v", res)
		} else {
			res.Body.Close()
		}
		p.workers[1-i].SetHealthy(true)
	}
	p.idle()
}

// finishNext lets the next stream, or the present one, end.
func (e *engine) finishNext() { e.finish <- struct{}{} }

func (p *proxied) streams() {
	const stream = `{"prompt": "hello", "stream": true}`
	first := func(res *http.Response) *load.Worker {
		p.t.Helper()
		start := make([]byte, len("first"))
		if _, err := io.ReadFull(res.Body, start); err != nil || string(start) != "first" {
			p.t.Fatalf("%s: %q, %v", res.Status, start, err)
		}
		w, ok := p.table.Worker(res.Header.Get("X-Engine"))
		if !ok {
			p.t.Fatalf("an answer from %q", res.Header.Get("X-Engine"))
		}
		if s := w.Status(); s.InFlight != 1 || s.Unstarted != 0 {
			p.t.Errorf("after the first piece: %d in flight, %d of them unstarted", s.InFlight, s.Unstarted)
		}
		return w
	}

	res := p.post(p.t.Context(), strings.NewReader(stream))
	w := first(res)
	for i := range p.workers {
		if p.workers[i] == w {
			p.engines[i].finishNext()
		}
	}
	if rest, err := io.ReadAll(res.Body); err != nil || string(rest) != stream {
		p.t.Errorf("the rest is %q, %v", rest, err)
	}
	res.Body.Close()
	p.idle()

	ctx, leave := context.WithCancel(p.t.Context())
	res = p.post(ctx, strings.NewReader(stream))
	first(res)
	leave()
	res.Body.Close()
	p.idle()
}

func (p *proxied) failures() {
	p.workers[0].SetHealthy(false)
	p.engines[1].CloseClientConnections()
	p.engines[1].Close()
	if res, _ := p.whole(`{"prompt": "hello"}`); res.StatusCode != http.StatusServiceUnavailable {
		p.t.Errorf("an engine that is gone: %s", res.Status)
	}
	p.idle()

	p.workers[1].SetHealthy(false)
	res, text := p.whole(`{"prompt": "hello"}`)
	if res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, `"no_endpoint"`) || res.Header.Get("Content-Type") != "application/json" {
		p.t.Errorf("without engines: %s %v %s", res.Status, res.Header, text)
	}
}

func TestEnvoyGoesOnWithoutWhatFails(t *testing.T) {
	p := proxy(t, "envoy-fail-open.yaml")
	p.workers[1].SetHealthy(false) // the first is picked
	if res, _ := p.whole(`{"prompt": "hello"}`); res.Header.Get("X-Engine") != p.workers[0].ID() {
		t.Errorf("%s by %s", res.Status, res.Header.Get("X-Engine"))
	}

	// Above gRPC's own bound: without the picker it would be the other one's turn at times.
	for range 3 {
		large := fmt.Sprintf(`{"prompt": %q}`, strings.Repeat("x", 5<<20))
		if res, text := p.whole(large); text != large || res.Header.Get("X-Engine") != p.workers[0].ID() {
			t.Errorf("a large body: %s by %s", res.Status, res.Header.Get("X-Engine"))
		}
	}

	// An engine that cannot be reached: Envoy tries another, and tells which.
	p.engines[0].CloseClientConnections()
	p.engines[0].Close()
	p.workers[1].SetHealthy(true)
	p.workers[0].SetHealthy(true)
	for range 2 {
		p.engines[1].finishNext()
		res, text := p.whole(`{"prompt": "hello", "stream": true}`)
		if res.StatusCode != http.StatusOK || res.Header.Get("X-Engine") != p.workers[1].ID() {
			t.Errorf("%s by %q: %s", res.Status, res.Header.Get("X-Engine"), text)
		}
	}
	p.idle()
	if n := p.workers[1].Status().Picked; n != 2 {
		t.Errorf("%d requests in the books of the engine that served 2", n)
	}

	// No picker any more, in the middle of an answer, and none at all.
	const stream = `{"prompt": "hello", "stream": true}`
	res := p.post(t.Context(), strings.NewReader(stream))
	if _, err := io.ReadFull(res.Body, make([]byte, len("first"))); err != nil {
		t.Fatal(err)
	}
	p.picker.Stop()
	p.idle()
	p.engines[1].finishNext()
	if rest, err := io.ReadAll(res.Body); err != nil || string(rest) != stream {
		t.Errorf("the rest is %q, %v", rest, err)
	}
	res.Body.Close()
	if res, text := p.whole(`{"prompt": "hello"}`); res.StatusCode != http.StatusOK || text != `{"prompt": "hello"}` {
		t.Errorf("without a picker: %s %s", res.Status, text)
	}
}
