//go:build conformance

package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setting returns an environment variable that .ci/conformance.sh sets.
func setting(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set; run make conformance", name)
	}
	return v
}

// answerTime bounds one answer of the engine's process. The first one includes
// the loading of its modules.
const answerTime = 60 * time.Second

// engine is one process of Python that runs an engine's code.
type engine struct {
	t       *testing.T
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers chan []byte // closed at the end of the process's output
	stderr  lockedBuffer
	once    sync.Once
}

// startEngine runs the load publisher of an SGLang engine.
func startEngine(t *testing.T) *engine {
	t.Helper()
	return startProcess(t, "publisher.py", "--sglang", setting(t, "PLIMSOLL_SGLANG"))
}

// startProcess runs a script of this folder until the end of the test.
func startProcess(t *testing.T, script string, args ...string) *engine {
	t.Helper()
	e := &engine{t: t, answers: make(chan []byte)}
	e.cmd = exec.Command(setting(t, "PLIMSOLL_PYTHON"), append([]string{script}, args...)...)
	e.cmd.Stderr = &e.stderr
	stdin, err := e.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := e.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	e.stdin = stdin
	go func() {
		defer close(e.answers)
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			e.answers <- bytes.Clone(lines.Bytes())
		}
	}()
	t.Cleanup(func() {
		e.kill()
		if t.Failed() {
			t.Logf("engine wrote:\n%s", e.stderr.String())
		}
	})
	return e
}

// kill ends the process as a crash would. It may be called more than once.
func (e *engine) kill() {
	e.once.Do(func() {
		e.cmd.Process.Kill()
		e.stdin.Close()
		for range e.answers {
		}
		e.cmd.Wait() // says that it was killed
	})
}

// do has the process carry out a command, and decodes its answer into out.
func (e *engine) do(op string, command map[string]any, out any) error {
	e.t.Helper()
	line := map[string]any{"op": op}
	for k, v := range command {
		line[k] = v
	}
	data, err := json.Marshal(line)
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err := e.stdin.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("engine: %s: %w", op, err)
	}
	var answer []byte
	timeout := time.NewTimer(answerTime)
	defer timeout.Stop()
	select {
	case a, ok := <-e.answers:
		if !ok {
			return fmt.Errorf("engine: %s: the process ended", op)
		}
		answer = a
	case <-timeout.C:
		return fmt.Errorf("engine: %s: no answer within %v", op, answerTime)
	}
	var failure struct{ Error string }
	if err := json.Unmarshal(answer, &failure); err != nil {
		return fmt.Errorf("engine: %s: %w in %q", op, err, answer)
	}
	if failure.Error != "" {
		return fmt.Errorf("engine: %s: %s", op, failure.Error)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

func (e *engine) must(op string, command map[string]any, out any) {
	e.t.Helper()
	if err := e.do(op, command, out); err != nil {
		e.t.Fatal(err)
	}
}

// serverArgs are the engine's command line arguments, under its own names.
type serverArgs struct {
	KVEventsConfig *kvEventsConfig `json:"kv_events_config"`
	DPSize         int             `json:"dp_size"`
	AttnDPSize     int             `json:"attn_dp_size"`
	PageSize       int             `json:"page_size"`
	LoadPublish    *string         `json:"load_publish_endpoint"`
}

type kvEventsConfig struct {
	Publisher      string `json:"publisher"`
	Endpoint       string `json:"endpoint"`
	ReplayEndpoint string `json:"replay_endpoint,omitempty"`
}

// withRanks returns the arguments of an engine of so many ranks, which publishes
// its load next to its KV events from a port on. The ranks are those of DP
// attention, or of whole replicas; their publishers find their numbers in
// different places.
func withRanks(ranks int, attention bool, wildcard string, port int) serverArgs {
	auto := "auto"
	a := serverArgs{
		KVEventsConfig: &kvEventsConfig{Publisher: "zmq", Endpoint: "tcp://" + net.JoinHostPort(wildcard, strconv.Itoa(port))},
		DPSize:         1,
		AttnDPSize:     1,
		PageSize:       64,
		LoadPublish:    &auto,
	}
	if attention {
		a.AttnDPSize = ranks
	} else {
		a.DPSize = ranks
	}
	return a
}

// freeBase returns a port from which on so many are free on a host, for the
// moment. They lie below the ports that systems give to outgoing connections.
func freeBase(t *testing.T, host string, n int) int {
	t.Helper()
	for range 100 {
		base := 12000 + rand.IntN(18000)
		if all(n, func(i int) bool {
			l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(base+i)))
			if err != nil {
				return false
			}
			return l.Close() == nil
		}) {
			return base
		}
	}
	t.Fatalf("no %d free ports in a row", n)
	return 0
}

func all(n int, ok func(i int) bool) bool {
	for i := range n {
		if !ok(i) {
			return false
		}
	}
	return true
}

var errNotBound = errors.New("not all sockets were bound")

// open has the process open its sockets.
func (e *engine) open(wire string, args serverArgs) error {
	var answer struct{ Bound []bool }
	if err := e.do("start", map[string]any{"wire": wire, "args": args}, &answer); err != nil {
		return err
	}
	return allBound(answer.Bound)
}

func allBound(bound []bool) error {
	if len(bound) == 0 || !all(len(bound), func(i int) bool { return bound[i] }) {
		return fmt.Errorf("%w: %v", errNotBound, bound)
	}
	return nil
}

// lockedBuffer is a buffer that can be read while a process writes to it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
