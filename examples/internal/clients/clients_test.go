//go:build clients

package clients

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/gateway"
	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
)

// patience is for a client that hangs.
const patience = 3 * time.Minute

// start runs a gateway in front of two engines. At the end it looks at the books: of
// whatever became of the requests, nothing may be left.
func start(t *testing.T) (g *gateway.Gateway, url string) {
	t.Helper()
	var workers []string
	for _, wire := range []simengine.Wire{simengine.WireLoadStat, simengine.WireLoadSnapshot} {
		e, err := simengine.Start(simengine.Config{Ranks: 2, Wire: wire, TimeScale: 4, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		workers = append(workers, e.URL())
	}
	g, err := gateway.New(gateway.Config{Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	admin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(ctx, l, admin) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, w := range g.Table().Status() {
			if w.InFlight != 0 || w.Leaked != 0 || w.Picked == 0 {
				t.Errorf("of %d requests that went to %s, %d are in flight in the end and %d leaked", w.Picked, w.ID, w.InFlight, w.Leaked)
			}
		}
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if trusted, _, _ := g.Table().View().Trusted(); trusted == len(workers) {
			return g, "http://" + l.Addr().String()
		}
		if time.Now().After(deadline) {
			t.Fatalf("the engines are not trusted: %+v", g.Table().Status())
		}
	}
}

// run runs a client and returns what it printed.
func run(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", filepath.Base(name), err, out, &stderr)
	}
	return out
}

func variable(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Skipf("%s is not set: see make clients", name)
	}
	return value
}

func TestTheOpenAIClient(t *testing.T) {
	python := filepath.Join(variable(t, "PLIMSOLL_OPENAI"), "bin", "python")
	_, url := start(t)
	out := run(t, python, "openai_client.py", url)
	t.Logf("%s", out)
	const words = 12
	var said struct {
		Model            string `json:"model"`
		Chat             string `json:"chat"`
		ChatTokens       int    `json:"chat_tokens"`
		ChatStream       string `json:"chat_stream"`
		ChatStreamTokens int    `json:"chat_stream_tokens"`
		Completion       string `json:"completion"`
		CompletionTokens int    `json:"completion_tokens"`
		CompletionStream string `json:"completion_stream"`
		Worker           string `json:"worker"`
		Refused          int    `json:"refused"`
		AtOnce           []int  `json:"at_once"`
	}
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"chat": said.Chat, "streamed chat": said.ChatStream, "completion": said.Completion, "streamed completion": said.CompletionStream,
	} {
		if n := len(strings.Fields(text)); n != words {
			t.Errorf("%s: %d words, want %d: %q", name, n, words, text)
		}
	}
	for name, n := range map[string]int{"chat": said.ChatTokens, "streamed chat": said.ChatStreamTokens, "completion": said.CompletionTokens} {
		if n != words {
			t.Errorf("%s: %d tokens by its usage, want %d", name, n, words)
		}
	}
	if said.Model == "" || said.Worker == "" || said.Refused != 400 {
		t.Errorf("model %q, worker %q, and nonsense was answered with %d", said.Model, said.Worker, said.Refused)
	}
	if len(said.AtOnce) != 64 {
		t.Errorf("%d answers to 64 requests at once", len(said.AtOnce))
	}
	for i, n := range said.AtOnce {
		if n != words {
			t.Errorf("request %d of those at once has %d tokens, want %d", i, n, words)
		}
	}
}

func TestALoadGenerator(t *testing.T) {
	bin := filepath.Join(variable(t, "PLIMSOLL_AIPERF"), "bin")
	tokenizer := t.TempDir()
	run(t, filepath.Join(bin, "python"), "tokenizer.py", tokenizer)
	for name, flags := range map[string][]string{"streamed": {"--streaming"}, "whole": nil} {
		t.Run(name, func(t *testing.T) {
			_, url := start(t)
			const requests = 300
			dir := t.TempDir()
			run(t, filepath.Join(bin, "aiperf"), append([]string{
				"profile", "--model", "sim-8b", "--url", url, "--endpoint-type", "chat", "--ui", "none",
				"--tokenizer", tokenizer, "--use-server-token-count",
				"--synthetic-input-tokens-mean", "300", "--output-tokens-mean", "32",
				"--concurrency", "16", "--request-count", strconv.Itoa(requests), "--artifact-dir", dir,
			}, flags...)...)
			content, err := os.ReadFile(filepath.Join(dir, "profile_export_aiperf.json"))
			if err != nil {
				t.Fatal(err)
			}
			type metric struct {
				Avg float64 `json:"avg"`
				P99 float64 `json:"p99"`
			}
			var said struct {
				Requests   metric            `json:"request_count"`
				Errors     []json.RawMessage `json:"error_summary"`
				FirstToken metric            `json:"time_to_first_token"`
				Latency    metric            `json:"request_latency"`
			}
			if err := json.Unmarshal(content, &said); err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", said)
			if said.Requests.Avg != requests || len(said.Errors) > 0 {
				t.Errorf("%v of %d requests succeeded; errors: %s", said.Requests.Avg, requests, said.Errors)
			}
		})
	}
}
