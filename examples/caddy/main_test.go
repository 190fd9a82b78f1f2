package plimsoll

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
	"go.uber.org/goleak"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
	"github.com/plimsoll-go/plimsoll/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, ofCaddy...) }

// ofCaddy are what Caddy itself leaves running: for the life of the process, or, as the
// keeper of a lock file, for some seconds after it has let go of the file.
var ofCaddy = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.keepLockfileFresh"),
	goleak.IgnoreAnyFunction("github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy.(*Upstream).fillDynamicHost.func1.1"),
}

// proxy is a Caddy that serves in this process until the end of the test.
type proxy struct {
	t      *testing.T
	addr   string
	client *http.Client
}

// start runs a Caddy with one site of these directives.
func start(t *testing.T, site string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	p := &proxy{t: t, addr: l.Addr().String(), client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
		fleets.Range(func(name, _ any) bool {
			t.Errorf("fleet %v is left", name)
			return true
		})
	})
	if err := p.load(site); err != nil {
		t.Fatal(err)
	}
	return p
}

// load makes Caddy's configuration one site of these directives.
func (p *proxy) load(site string) error {
	config, err := adapt("http://" + p.addr + " {\n" + site + "\n}\n")
	if err != nil {
		return err
	}
	return caddy.Load(config, true)
}

// adapt makes a configuration of sites, without what a test must not touch.
func adapt(sites string) ([]byte, error) {
	return adaptFile("{\n admin off\n persist_config off\n auto_https off\n log {\n level ERROR\n }\n}\n" + sites)
}

func adaptFile(file string) ([]byte, error) {
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(file), nil)
	return config, err
}

// post asks for a completion. Whoever gets an answer closes its body.
func (p *proxy) post(ctx context.Context, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.addr+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return p.client.Do(req)
}

// complete asks for a completion and returns which engine gave it.
func (p *proxy) complete(body string) (worker string, err error) {
	res, err := p.post(p.t.Context(), body)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return res.Header.Get("X-Worker"), err
}

// stream asks for an answer without an end and returns when it has begun, and how to
// leave it.
func (p *proxy) stream() (worker string, leave func()) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	res, err := p.post(ctx, `{"prompt": "hello", "stream": true, "max_tokens": 100000}`)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := io.ReadFull(res.Body, make([]byte, 1)); err != nil || res.StatusCode != http.StatusOK {
		p.t.Fatal(res.Status, err)
	}
	return res.Header.Get("X-Worker"), func() {
		cancel()
		res.Body.Close()
	}
}

// table is that of the fleet.
func table(t *testing.T) *load.Table {
	t.Helper()
	return theFleet(t).table
}

func theFleet(t *testing.T) (found *fleet) {
	t.Helper()
	fleets.Range(func(name, f any) bool {
		if name == defaultFleet {
			found = f.(*fleet)
		}
		return true
	})
	if found == nil {
		t.Fatal("there is no fleet")
	}
	return found
}

// engines starts simulated engines and returns what Caddy's configuration calls them, and
// Caddy itself.
func engines(t *testing.T, n int) (list []*simengine.Engine, urls string, ids []string) {
	t.Helper()
	for range n {
		e, err := simengine.Start(simengine.Config{Ranks: 2, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		list, urls, ids = append(list, e), urls+" "+e.URL(), append(ids, strings.TrimPrefix(e.URL(), "http://"))
	}
	return list, urls, ids
}

func status(t *testing.T, id string) load.WorkerStatus {
	t.Helper()
	w, ok := table(t).Worker(id)
	if !ok {
		t.Fatalf("there is no worker %s", id)
	}
	return w.Status()
}

// known waits until the engines are in the table, trusted or not.
func known(t *testing.T, ids []string) {
	t.Helper()
	eventually(t, "every engine", func() bool { return table(t).View().Known() == len(ids) })
}

func trusted(t *testing.T, ids []string) {
	t.Helper()
	eventually(t, "every engine to be trusted", func() bool {
		n, _, _ := table(t).View().Trusted()
		return n == len(ids)
	})
}

// idle waits until no request is in the books.
func idle(t *testing.T, ids []string) {
	t.Helper()
	for _, id := range ids {
		eventually(t, "requests on "+id+" to be done", func() bool { return status(t, id).InFlight == 0 })
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
