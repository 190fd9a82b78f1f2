package discovery

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of the tests"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

// issue returns a certificate for a name, good for either end of a connection.
func (a *authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// secureEngine is an engine that publishes nothing, is polled, and wants a token.
type secureEngine struct {
	*httptest.Server

	mu    sync.Mutex
	token string
	seen  map[string]int // what came as Authorization, and how often
	paths map[string]int // that were answered
}

func newSecureEngine(t *testing.T, token string, config *tls.Config) *secureEngine {
	e := &secureEngine{token: token, seen: make(map[string]int), paths: make(map[string]int)}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(e.serve))
	e.Config.ErrorLog = log.New(io.Discard, "", 0)
	if config != nil {
		e.TLS = config
		e.StartTLS()
	} else {
		e.Start()
	}
	t.Cleanup(e.Close)
	return e
}

func (e *secureEngine) serve(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	auth := r.Header.Get("Authorization")
	e.seen[auth]++
	if auth != "Bearer "+e.token {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	e.paths[r.URL.Path]++
	switch r.URL.Path {
	case "/server_info":
		io.WriteString(w, "{}")
	case "/v1/loads":
		io.WriteString(w, `{"loads":[{"dp_rank":0,"num_running_reqs":2,"num_waiting_reqs":1}]}`)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (e *secureEngine) setToken(token string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.token = token
}

// asked returns how often a path was answered, and every Authorization that came.
func (e *secureEngine) asked(path string) (n int, seen []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for auth := range e.seen {
		seen = append(seen, auth)
	}
	return e.paths[path], seen
}

func TestEnginesProveWhoTheyAreAndSoDoWe(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	const name = "engines.internal"
	open := newSecureEngine(t, "key", &tls.Config{Certificates: []tls.Certificate{ours.issue(t, name)}})
	strict := newSecureEngine(t, "key", &tls.Config{
		Certificates: []tls.Certificate{ours.issue(t, name)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.pool(),
	})
	mine := []tls.Certificate{ours.issue(t, "gateway")}
	for _, test := range []struct {
		name   string
		engine *secureEngine
		tls    *tls.Config
		fault  string // empty: it works
	}{
		{"an authority of our own", open, &tls.Config{RootCAs: ours.pool(), ServerName: name}, ""},
		{"a certificate of ours", strict, &tls.Config{RootCAs: ours.pool(), ServerName: name, Certificates: mine}, ""},
		{"only what the system trusts", open, nil, "x509"},
		{"another authority", open, &tls.Config{RootCAs: others.pool(), ServerName: name}, "unknown authority"},
		{"another name", open, &tls.Config{RootCAs: ours.pool(), ServerName: "other.internal"}, "not other.internal"},
		{"the address in place of the name", open, &tls.Config{RootCAs: ours.pool()}, "127.0.0.1"},
		{"no certificate of ours", strict, &tls.Config{RootCAs: ours.pool(), ServerName: name}, "certificate required"},
		{"a certificate of ours from somebody else", strict, &tls.Config{RootCAs: ours.pool(), ServerName: name, Certificates: []tls.Certificate{others.issue(t, "gateway")}}, "certificate"},
		{"an older TLS than they speak", open, &tls.Config{RootCAs: ours.pool(), ServerName: name, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}, "protocol version"},
	} {
		t.Run(test.name, func(t *testing.T) {
			before, _ := test.engine.asked("/server_info")
			c := newClient(t)
			c.TLS, c.Token = test.tls, "key"
			_, failure := getMeasured(t, c, test.engine.URL, func([]byte) error { return nil })
			after, _ := test.engine.asked("/server_info")
			if test.fault == "" {
				if failure != nil || after != before+1 {
					t.Errorf("asked %d times: %v", after-before, failure)
				}
				return
			}
			if failure == nil || failure.Kind != KindNetwork || !strings.Contains(failure.Error(), test.fault) {
				t.Errorf("got %v, want %q", failure, test.fault)
			}
			if after != before {
				t.Error("the engine was asked all the same")
			}
		})
	}
	if _, seen := open.asked(""); len(seen) != 1 {
		t.Errorf("the engine saw %q", seen)
	}
}

func TestACallersClientKeepsItsOwnTLS(t *testing.T) {
	ours := newAuthority(t)
	e := newSecureEngine(t, "key", &tls.Config{Certificates: []tls.Certificate{ours.issue(t, "engines.internal")}})
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ours.pool(), ServerName: "engines.internal"}}
	defer transport.CloseIdleConnections()
	c := &Client{Timeout: patience, HTTP: &http.Client{Transport: transport}, TLS: &tls.Config{ServerName: "other.internal"}, Token: "key"}
	if _, err := c.ServerInfo(t.Context(), e.URL); err != nil {
		t.Error(err)
	}
}

// eventually waits for something that real connections have to bring about.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

func TestEachWorkerGetsItsOwnTokenAndNobodyElses(t *testing.T) {
	ours := newAuthority(t)
	secure := &tls.Config{Certificates: []tls.Certificate{ours.issue(t, "engines.internal")}}
	a := newSecureEngine(t, "token-of-a", secure.Clone())
	b := newSecureEngine(t, "token-of-b", secure.Clone())
	c := newSecureEngine(t, "token-of-all", nil)

	var mu sync.Mutex
	tokens := map[string]string{a.URL: "token-of-a", b.URL: "token-of-b"}
	var out logBuffer
	table := load.NewTable(load.Config{})
	fleet := NewFleet(Config{
		Table:      table,
		Source:     Static(strings.Replace(a.URL, "https://", "https://user:pass@", 1), b.URL, c.URL),
		Subscriber: newFakeSub(),
		Client: &Client{
			Timeout: patience,
			TLS:     &tls.Config{RootCAs: ours.pool(), ServerName: "engines.internal"},
			Token:   "token-of-all",
			TokenOf: func(worker string) string {
				mu.Lock()
				defer mu.Unlock()
				return tokens[worker]
			},
		},
		PollAll:      true,
		PollInterval: 10 * time.Millisecond,
		Logger:       slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- fleet.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	trusted := func() bool {
		n := 0
		for _, w := range table.Status() {
			if w.Trusted && w.Depth == load.Known[int64](3) {
				n++
			}
		}
		return n == 3
	}
	eventually(t, "reports of all three", trusted)

	// A token that has changed is told the next time.
	a.setToken("new-token-of-a")
	eventually(t, "the old token to be refused", func() bool {
		return strings.Contains(out.String(), "401")
	})
	mu.Lock()
	tokens[a.URL] = "new-token-of-a"
	mu.Unlock()
	polled, _ := a.asked("/v1/loads")
	eventually(t, "the new token to be taken", func() bool {
		n, _ := a.asked("/v1/loads")
		return n > polled
	})

	for e, want := range map[*secureEngine]string{a: "token-of-a", b: "token-of-b", c: "token-of-all"} {
		n, seen := e.asked("/server_info")
		if n == 0 {
			t.Errorf("%s was not asked for /server_info", want)
		}
		for _, s := range seen {
			if !strings.HasSuffix(s, want) {
				t.Errorf("%s was told %q", want, s)
			}
		}
	}
	status, err := json.Marshal(fleet.Status())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{out.String(), string(status)} {
		if strings.Contains(text, "token-of") || strings.Contains(text, "pass") {
			t.Errorf("a secret is shown in %s", text)
		}
	}
}

// A redirect takes a token nowhere but where it has been already.
func TestTokensDoNotFollowRedirectsElsewhere(t *testing.T) {
	ours := newAuthority(t)
	secure := &tls.Config{Certificates: []tls.Certificate{ours.issue(t, "engines.internal")}}
	other := newSecureEngine(t, "x", secure.Clone())
	plain := newSecureEngine(t, "x", nil)
	var mu sync.Mutex
	var told []string
	var self string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		told = append(told, r.Header.Get("Authorization"))
		mu.Unlock()
		switch kind, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); kind {
		case "other":
			http.Redirect(w, r, other.URL+"/server_info", http.StatusTemporaryRedirect)
		case "plain":
			http.Redirect(w, r, plain.URL+"/server_info", http.StatusFound)
		case "downgrade":
			http.Redirect(w, r, strings.Replace(self, "https", "http", 1)+"/server_info", http.StatusFound)
		case "name": // of the same machine
			http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
		case "userinfo":
			http.Redirect(w, r, "https://"+strings.TrimPrefix(self, "https://")+"@"+other.Listener.Addr().String(), http.StatusFound)
		case "first":
			http.Redirect(w, r, "/other/", http.StatusPermanentRedirect)
		case "same":
			http.Redirect(w, r, "/moved", http.StatusFound)
		default:
			io.WriteString(w, "{}")
		}
	}))
	s.TLS = secure.Clone()
	s.StartTLS()
	t.Cleanup(s.Close)
	self = s.URL

	c := newClient(t)
	c.TLS = &tls.Config{RootCAs: ours.pool(), ServerName: "engines.internal"}
	c.TokenOf = func(string) string { return "s3cret" }
	for _, kind := range []string{"other", "plain", "downgrade", "name", "userinfo", "first"} {
		_, err := c.ServerInfo(t.Context(), s.URL+"/"+kind)
		var re *RequestError
		if !errors.As(err, &re) || re.Kind != KindRedirect || re.Attempts != 1 {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := c.ServerInfo(t.Context(), s.URL+"/same"); err != nil {
		t.Errorf("same host: %v", err)
	}
	for _, auth := range told {
		if auth != "Bearer s3cret" {
			t.Errorf("the engine itself was told %q", auth)
		}
	}
	for _, e := range []*secureEngine{other, plain} {
		if _, seen := e.asked(""); len(seen) > 0 {
			t.Errorf("another host was told %q", seen)
		}
	}
}

func TestATokenThatCannotBeSentIsNotShown(t *testing.T) {
	s := newServer(t, func(http.ResponseWriter, *http.Request) { t.Error("asked") })
	c := newClient(t)
	c.Token = "s3cret\r\nX-Smuggled: 1"
	_, err := c.ServerInfo(t.Context(), s.URL)
	var re *RequestError
	if !errors.As(err, &re) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got %v", err)
	}
}
