package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine starts a simulated one.
func engine(t *testing.T, c simengine.Config) *simengine.Engine {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	e, err := simengine.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// nobody is a URL at which nobody listens, and nobody will.
const nobody = "http://127.0.0.1:1"

// runOnce runs the program with -once and returns its exit status and its output. Where all
// gets known it ends by itself, and the timeout never passes.
func runOnce(t *testing.T, args ...string) (status int, stdout string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(t.Context(), append([]string{"-once", "-timeout=1m"}, args...), "", &out, &errs)
	if errs.Len() > 0 {
		t.Logf("stderr: %s", &errs)
	}
	return status, out.String()
}

// unknownSays runs the program where not all gets known, and checks that it says so, and
// why. It is given as much time as the machine takes for that.
func unknownSays(t *testing.T, timeout time.Duration, args []string, want ...string) {
	t.Helper()
	for {
		status, out := runOnce(t, append([]string{"-timeout=" + timeout.String()}, args...)...)
		lacks := slices.DeleteFunc(slices.Clone(want), func(w string) bool { return strings.Contains(out, w) })
		if status == exitUnknown && len(lacks) == 0 {
			return
		}
		if status != exitUnknown || timeout > time.Minute {
			t.Errorf("exit status %d, and %q is not said in %v:\n%s", status, lacks, timeout, out)
			return
		}
		timeout *= 4
	}
}

func needSockets(t *testing.T) {
	t.Helper()
	s, err := zmqsub.New(zmqsub.Config{})
	if errors.Is(err, zmqsub.ErrNoCgo) {
		t.Skip("nobody listens to load sockets here without cgo")
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}

func TestOnceWithAllKnown(t *testing.T) {
	needSockets(t)
	a, b := engine(t, simengine.Config{}), engine(t, simengine.Config{Ranks: 3, Wire: simengine.WireLoadSnapshot})
	status, out := runOnce(t, "-json", "-poll=false", a.URL(), b.URL())
	if status != exitKnown {
		t.Errorf("exit status %d", status)
	}
	var p struct {
		Known   bool
		Workers []struct {
			ID      string
			Trusted bool
			Depth   *int64
			Ranks   []struct {
				Report *struct {
					Running *int64
					Source  string
				}
			}
		}
		Fleet struct{ Workers []struct{ Outcome string } }
	}
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	if !p.Known || len(p.Workers) != 2 || len(p.Fleet.Workers) != 2 {
		t.Fatalf("it says\n%s", out)
	}
	for _, w := range p.Workers {
		want := map[string]int{a.URL(): 1, b.URL(): 3}[w.ID]
		if !w.Trusted || w.Depth == nil || *w.Depth != 0 || len(w.Ranks) != want {
			t.Errorf("%+v, want %d idle ranks", w, want)
		}
		for _, r := range w.Ranks {
			if r.Report == nil || r.Report.Running == nil || r.Report.Source != "push" {
				t.Errorf("%s has a rank with %+v", w.ID, r.Report)
			}
		}
	}

	status, out = runOnce(t, a.URL(), b.URL(), "-poll=false") // flags end at the first URL
	if status != exitUsage || out != "" {
		t.Errorf("with a flag for a URL: exit status %d, %q", status, out)
	}
	status, out = runOnce(t, "-poll=false", "-sort=name", a.URL(), b.URL())
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if status != exitKnown || len(lines) != 3 || !strings.HasPrefix(lines[0], "ENGINE") || !strings.Contains(out, a.URL()+"  0") {
		t.Errorf("exit status %d, and\n%s", status, out)
	}
}

// Without load sockets it polls; without either it does not wait for what will not come.
func TestOnceWithAnEngineThatPublishesNothing(t *testing.T) {
	e := engine(t, simengine.Config{NoLoadSocket: true, Ranks: 2})
	status, out := runOnce(t, "-json", "-poll-interval=50ms", e.URL())
	if status != exitKnown || strings.Count(out, `"source": "poll"`) != 2 {
		t.Errorf("exit status %d, and\n%s", status, out)
	}

	needSockets(t)
	status, out = runOnce(t, "-poll=false", e.URL())
	if status != exitUnknown || !strings.Contains(out, "load_endpoint_port_base") {
		t.Errorf("exit status %d, and\n%s", status, out)
	}
}

func TestOnceWithWhatIsNotKnown(t *testing.T) {
	needSockets(t)
	e := engine(t, simengine.Config{Ranks: 2})
	if err := e.MuteRank(1, 0); err != nil { // for good
		t.Fatal(err)
	}
	unknownSays(t, time.Second, []string{"-poll=false", e.URL(), nobody}, "connection refused", "never reported: rank ", " of 2")
}

func TestOnceIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	if status := run(ctx, []string{"-once", "-timeout=1m", nobody}, "", &out, &errs); status != exitUnknown {
		t.Errorf("exit status %d, %s", status, &errs)
	}
}

func TestOnceWithAFile(t *testing.T) {
	e := engine(t, simengine.Config{})
	path := filepath.Join(t.TempDir(), "engines")
	if err := os.WriteFile(path, []byte("# of this test\n"+e.URL()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out := runOnce(t, "-poll-interval=50ms", "-file", path)
	if status != exitKnown || !strings.Contains(out, e.URL()) {
		t.Errorf("exit status %d, and\n%s", status, out)
	}
	unknownSays(t, 50*time.Millisecond, []string{"-file", path + ".missing"}, "no such file")
	unknownSays(t, 50*time.Millisecond, []string{e.URL(), e.URL()}, "refused: ")
}

func TestTheKeyGoesToTheEngines(t *testing.T) {
	var mu sync.Mutex
	without, asked := 0, make(map[string]bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked[r.URL.Path] = true
		if r.Header.Get("Authorization") != "Bearer secret" {
			without++
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	var out, errs bytes.Buffer
	status := run(t.Context(), []string{"-once", "-timeout=1m", server.URL}, "secret", &out, &errs)
	if status != exitUnknown || without > 0 || !asked["/v1/loads"] {
		t.Errorf("exit status %d, asked %v, %d times without the key\n%s%s", status, asked, without, &out, &errs)
	}
}

func TestCommandLines(t *testing.T) {
	for _, c := range []struct {
		args string
		want int
		says string
	}{
		{"-h", exitKnown, "usage: loadtop"},
		{"", exitUsage, "no engines"},
		{"engine:30000", exitUsage, "not a worker URL"},
		{"-sort=size http://a:1", exitUsage, "want one of worst"},
		{"-json http://a:1", exitUsage, "-json goes with -once"},
		{"-once -timeout=0s http://a:1", exitUsage, "not above 0"},
		{"-nonsense http://a:1", exitUsage, "nonsense"},
		{"http://a:1", exitUsage, "no terminal"},
	} {
		var out, errs bytes.Buffer
		if got := run(t.Context(), strings.Fields(c.args), "", &out, &errs); got != c.want || !strings.Contains(errs.String(), c.says) || out.Len() > 0 {
			t.Errorf("%q: exit status %d, want %d; it says %s%s", c.args, got, c.want, &errs, &out)
		}
	}
}

func TestSettled(t *testing.T) {
	worker := func(why load.Why) load.WorkerStatus {
		return load.WorkerStatus{ID: "a", Trusted: why == load.Trusted, Why: why}
	}
	for _, c := range []struct {
		what  string
		p     picture
		poll  bool
		polls uint64
		fails string
		want  bool
	}{
		{what: "no engines yet"},
		{what: "known", p: picture{Workers: []load.WorkerStatus{worker(load.Trusted)}}, poll: true, want: true},
		{what: "silent", p: picture{Workers: []load.WorkerStatus{worker(load.NeverReported)}}},
		{what: "one of two known", p: picture{Workers: []load.WorkerStatus{worker(load.Trusted), worker(load.NoAnswer)}}},
		{what: "does not publish, and nobody polls", p: picture{Workers: []load.WorkerStatus{worker(load.NotPublishing)}}, want: true},
		{what: "does not publish, and no poll has come back", p: picture{Workers: []load.WorkerStatus{worker(load.NotPublishing)}}, poll: true},
		{what: "does not publish, and a poll has just come back", p: picture{Workers: []load.WorkerStatus{worker(load.NotPublishing)}}, poll: true, polls: 1},
		{what: "does not publish, and is not to be polled", p: picture{Workers: []load.WorkerStatus{worker(load.NotPublishing)}}, poll: true, polls: 1, fails: "404", want: true},
	} {
		c.p.Fleet.Workers = append(c.p.Fleet.Workers, askedOf("a", c.polls, c.fails))
		if got := c.p.settled(c.poll); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
