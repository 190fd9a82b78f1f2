package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-go/plimsoll/examples/internal/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gateway.json")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagsAreStrongerThanTheFile(t *testing.T) {
	path := write(t, `{"listen": ":1", "workers": ["http://a:1"], "policy": "random", "freshness": "2s", "poll": true, "explain_on_request": true, "explain_every": 9}`)
	c, _, err := parse([]string{"-policy", "least_depth", "-workers", "http://b:1,http://c:1", "-config", path, "-dns", "engines:30000", "-explain-every", "100"}, io.Discard, os.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if c.Listen != ":1" || c.Policy != "least_depth" || strings.Join(c.Workers, " ") != "http://b:1 http://c:1" ||
		c.Freshness != gateway.Duration(2*time.Second) || !c.Poll || !c.ExplainOnRequest || c.ExplainEvery != 100 || c.DNS == nil || c.DNS.Port != 30000 {
		t.Errorf("got %+v", c)
	}
}

func TestFlagsOfReplicas(t *testing.T) {
	workers := []string{"-workers", "http://engine:30000"}
	for _, c := range []struct {
		args string
		want gateway.Peers
	}{
		{"-replica 2/3", gateway.Peers{Replica: 2, Replicas: 3}},
		{"-peers http://a:1,http://b:1 -self a", gateway.Peers{List: []string{"http://a:1", "http://b:1"}, Self: "a"}},
		{"-peers-file replicas -peers-dns gateway:8080", gateway.Peers{File: "replicas", DNS: &gateway.DNS{Name: "gateway", Port: 8080}}},
		{"-peers-dns srv:_http._tcp.gateway", gateway.Peers{DNS: &gateway.DNS{Name: "_http._tcp.gateway", SRV: true}}},
	} {
		got, _, err := parse(append(workers, strings.Fields(c.args)...), io.Discard, os.ReadFile)
		if err == nil {
			err = got.Validate()
		}
		if err != nil || !reflect.DeepEqual(got.Peers, c.want) {
			t.Errorf("%s: got %+v, %v", c.args, got.Peers, err)
		}
	}
	path := write(t, `{"peers": {"file": "replicas", "self": "a"}}`)
	got, _, err := parse([]string{"-config", path, "-self", "b"}, io.Discard, os.ReadFile)
	if err != nil || got.Peers.File != "replicas" || got.Peers.Self != "b" {
		t.Errorf("got %+v, %v", got.Peers, err)
	}
}

func TestMistakesEndTheProgram(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"engine:30000"},
		{"-workers", "engine:30000"},
		{"-workers", "http://engine:30000", "-policy", "best"},
		{"-workers", "http://engine:30000", "-policy-config", `{"x":1}`},
		{"-workers", "http://engine:30000", "-signal", "none"},
		{"-workers", "http://engine:30000", "-freshness", "5"},
		{"-workers", "http://engine:30000", "-listen", "nowhere"},
		{"-workers", "http://engine:30000", "-listen", "127.0.0.1:0", "-admin", "nowhere"},
		{"-workers", "http://engine:30000", "-log-format", "xml"},
		{"-dns", "engines"},
		{"-workers", "http://engine:30000", "-replica", "3/3"},
		{"-workers", "http://engine:30000", "-replica", "0/0"},
		{"-workers", "http://engine:30000", "-replica", "1"},
		{"-workers", "http://engine:30000", "-replica", "first/3"},
		{"-workers", "http://engine:30000", "-self", "10.0.0.5"},
		{"-workers", "http://engine:30000", "-peers", "10.0.0.5:8080"},
		{"-workers", "http://engine:30000", "-peers-dns", "gateway"},
		{"-dns", "engines:http"},
		{"-config", "/nonexistent/gateway.json"},
		{"-config", write(t, `{"polices": "random"}`)},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		} else {
			t.Logf("%q: %v", args, err)
		}
	}
}

func TestHelpTellsTheDefaults(t *testing.T) {
	var usage strings.Builder
	if err := run(t.Context(), []string{"-h"}, &usage); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"listen": `"127.0.0.1:8080"`, "policy": `"least_work"`, "signal": "calibrated", "tries": "3",
		"freshness": "5s", "poll-interval": "1s", "probe-interval": "2s",
		"engine-timeout": "10m0s", "client-timeout": "1m0s", "drain-delay": "0s", "drain-timeout": "30s",
	} {
		_, rest, _ := strings.Cut(usage.String(), "  -"+name+" ")
		if help, _, _ := strings.Cut(rest, "\n  -"); !strings.Contains(help, "(default "+want+")") {
			t.Errorf("-%s: %q, want the default %s", name, help, want)
		}
	}
}

// log takes lines, and can be read meanwhile.
type log struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *log) waitFor(t *testing.T, words string) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		l.mu.Lock()
		text := l.b.String()
		l.mu.Unlock()
		if strings.Contains(text, words) {
			return text
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %q in\n%s", words, text)
		}
	}
}

func TestTheFileIsFollowedAndFlagsStayStronger(t *testing.T) {
	const good = `{"workers": ["http://127.0.0.1:1"], "policy": "random", "log_level": "INFO"}`
	path := write(t, good)
	var out log
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- run(ctx, []string{"-config", path, "-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-policy", "least_request"}, &out)
	}()
	out.waitFor(t, "configuration taken")
	admin := regexp.MustCompile(`http://\S+/status/`).FindString(out.waitFor(t, "/status/"))
	change := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change(`{"workers": `)
	out.waitFor(t, "configuration refused")
	change(strings.Replace(good, "INFO", "DEBUG", 1))
	deadline := time.Now().Add(time.Minute)
	for {
		res, err := http.Get(admin + "status.json")
		if err != nil {
			t.Fatal(err)
		}
		var st struct{ Policy, Headline string }
		if err := json.NewDecoder(res.Body).Decode(&st); err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if st.Policy != "least_request" {
			t.Fatalf("the policy is %s", st.Policy)
		}
		if !strings.Contains(st.Headline, "refused") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the good configuration is not taken")
		}
		time.Sleep(10 * time.Millisecond)
	}
	http.DefaultClient.CloseIdleConnections()
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestSignalEndsIt(t *testing.T) {
	ctx, signal := context.WithCancel(t.Context())
	signal()
	if err := run(ctx, []string{"-workers", "http://127.0.0.1:1", "-listen", "127.0.0.1:0", "-admin", "off"}, io.Discard); err != nil {
		t.Error(err)
	}
}
