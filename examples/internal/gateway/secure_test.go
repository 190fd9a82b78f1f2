package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEnginesAreReachedOverTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/completions" {
			io.WriteString(w, "answer")
		} else if r.URL.Path != "/health" {
			w.WriteHeader(404)
		}
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certFile := file(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	keyFile := file(t, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	fast := Duration(10 * time.Millisecond)

	trusting := start(t, Config{
		Workers: []string{s.URL}, ProbeInterval: fast,
		TLS: TLS{CAFile: certFile, CertFile: certFile, KeyFile: keyFile, ServerName: "example.com"},
	})
	if got := text(t, trusting.post(t, `{}`)); got != "answer" {
		t.Errorf("got %q", got)
	}
	waitFor(t, "discovery to be answered", func() bool {
		workers := trusting.fleet.Status().Workers
		return len(workers) == 1 && strings.Contains(workers[0].Error+workers[0].Reason, "404")
	})
	if !trusting.worker(t, s.URL).Status().Healthy {
		t.Error("probes fail")
	}

	other := start(t, Config{Workers: []string{s.URL}, ProbeInterval: fast})
	waitFor(t, "the engine to be down", func() bool { return !other.worker(t, s.URL).Status().Healthy })
	if why := other.health.whyOut(s.URL); !strings.Contains(why, "certificate") {
		t.Errorf("it is out: %s", why)
	}
}

func TestLoadSocketsAreEncrypted(t *testing.T) {
	_, urls := engines(t)
	g, err := New(Config{Workers: urls, Curve: &Curve{ServerKey: strings.Repeat("1", 40)}})
	if errors.Is(err, zmqsub.ErrNoCurve) {
		t.Skip("libzmq is built without CURVE here")
	}
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
	r := start(t, Config{Workers: urls, Curve: &Curve{ServerKey: strings.Repeat("1", 40)}})
	waitFor(t, "the sockets", func() bool { return len(r.LoadSockets().Endpoints) == 4 })
	for _, e := range r.LoadSockets().Endpoints {
		if !e.Curve || e.Messages != 0 {
			t.Errorf("%+v", e)
		}
	}
}

func TestKeysThatAreNoneAreRefused(t *testing.T) {
	nothing := file(t, "nothing")
	for want, c := range map[string]Config{
		"tls: open /nonexistent":                     {TLS: TLS{CAFile: "/nonexistent"}},
		"tls: " + nothing + ": no certificate in it": {TLS: TLS{CAFile: nothing}},
		"tls: open : no such file":                   {TLS: TLS{CertFile: nothing}},
		"tls: tls: failed to find any PEM data":      {TLS: TLS{CertFile: nothing, KeyFile: nothing}},
		"curve: want server_key or server_keys":      {Curve: &Curve{PublicKey: "x"}},
		"curve: open /nonexistent":                   {Curve: &Curve{ServerKey: strings.Repeat("1", 40), SecretKeyFile: "/nonexistent"}},
		"zmqsub: bad key":                            {Curve: &Curve{ServerKey: "short"}},
		"zmqsub: bad key ":                           {Curve: &Curve{ServerKey: strings.Repeat("1", 40), PublicKey: strings.Repeat("1", 40), SecretKeyFile: nothing}},
	} {
		c.Workers = []string{"http://engine:30000"}
		_, err := New(c)
		if errors.Is(err, zmqsub.ErrNoCurve) {
			continue // libzmq is built without
		}
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("got %v, want %q", err, want)
		}
		if err != nil && strings.Contains(err.Error(), "nothing") && !strings.Contains(want, nothing) {
			t.Errorf("a key is shown: %v", err)
		}
	}
}
