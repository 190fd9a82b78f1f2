package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// logged returns the lines that a gateway logs about requests.
func logged(t *testing.T, log *bytes.Buffer) (lines []map[string]any) {
	t.Helper()
	for dec := json.NewDecoder(log); dec.More(); {
		var line map[string]any
		if err := dec.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line["msg"] == "request" {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestAccessLog(t *testing.T) {
	var log bytes.Buffer
	c := Config{AccessLog: true, LogFormat: "json", Policy: "round_robin", Tries: 1}
	c.Logger = c.NewLogger(&log, slog.LevelInfo)
	g := alone(t, c)
	var upstream http.Header
	w := g.table.Add("engine-0", backend(t, func(w http.ResponseWriter, r *http.Request) {
		upstream = r.Header
		if r.Header.Get("Fail") != "" {
			w.WriteHeader(500)
		}
		io.WriteString(w, "answer")
	}))
	send := func(body string, header ...string) {
		t.Helper()
		r := request(t.Context(), body)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		if answer, p := serve(g, r); p != nil || answer.Header().Get(requestIDHeader) == "" {
			t.Fatalf("panicked %v, with the headers %v", p, answer.Header())
		}
	}
	send(`{"model":"big-\u00e9","prompt":"hello","stream":true}`, requestIDHeader, "r1", traceParentHeader, testParent)
	if upstream.Get(traceParentHeader) != testParent || upstream.Get(requestIDHeader) != "r1" {
		t.Errorf("the engine got %v", upstream)
	}
	send(`{"prompt":"hello"}`, "Fail", "yes")
	w.SetHealthy(false)
	send("hello\n")

	lines := logged(t, &log)
	if len(lines) != 3 {
		t.Fatalf("got %v", lines)
	}
	for i, want := range []map[string]any{
		{
			"id": "r1", "trace": testTrace, "method": "POST", "path": "/v1/completions", "model": "big-é", "status": 200.0, "attempts": 1.0,
			"worker": "engine-0", "policy": "round_robin", "reason": "turn", "basis": "none", "prompt_tokens": 2.0, "bytes": 6.0, "error": nil,
		},
		{"status": 500.0, "attempts": 1.0, "worker": "engine-0", "first_token_ms": nil, "trace": nil, "model": nil, "error": "engine-0: 500 Internal Server Error"},
		{"status": 503.0, "attempts": 0.0, "worker": nil, "policy": nil, "prompt_tokens": nil, "error": "selector: no candidates: none of 1 workers is healthy"},
	} {
		for name, value := range want {
			if lines[i][name] != value {
				t.Errorf("line %d has %s %v, want %v", i, name, lines[i][name], value)
			}
		}
		if lines[i]["id"] == nil || lines[i]["duration_ms"] == nil || (lines[i]["first_token_ms"] != nil) != (i == 0) {
			t.Errorf("line %d is %v", i, lines[i])
		}
	}
}

func TestWithoutAnAccessLogOnlyWhatWentWrongIsLogged(t *testing.T) {
	var log bytes.Buffer
	c := Config{LogFormat: "json"}
	c.Logger = c.NewLogger(&log, slog.LevelInfo)
	g := alone(t, c)
	w := g.table.Add("engine", backend(t, func(http.ResponseWriter, *http.Request) {}))
	serve(g, request(t.Context(), `{}`))
	w.SetHealthy(false)
	serve(g, request(t.Context(), `{}`))
	if lines := logged(t, &log); len(lines) != 1 || lines[0]["status"] != 503.0 {
		t.Errorf("got %v", lines)
	}
	smooth := &call{r: request(t.Context(), `{}`), config: g.config.Load(), status: 200}
	if n := testing.AllocsPerRun(100, func() { smooth.log(c.Logger) }); n != 0 {
		t.Errorf("%v allocations for a line that is not written", n)
	}
}

// A client may send a megabyte of path, and again.
func TestAClientDoesNotFillTheLog(t *testing.T) {
	var log bytes.Buffer
	c := Config{AccessLog: true, LogFormat: "json"}
	c.Logger = c.NewLogger(&log, slog.LevelInfo)
	g := alone(t, c)
	r := request(t.Context(), `{"model":"`+strings.Repeat("m", 1<<16)+`"}`)
	r.URL.Path += strings.Repeat("/p", 1<<16)
	r.Header.Set(requestIDHeader, strings.Repeat("i", 1<<16))
	serve(g, r)
	if n := log.Len(); n == 0 || n > 2000 {
		t.Errorf("one request has %d bytes of log", n)
	}
}

func TestModelNames(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"org/big"}`:                          "org/big",
		`{"model":"a\"b\u0000\n"}`:                     "a\"b\x00\n",
		`{"model":7}`:                                  "",
		`{"messages":[{"model":"x"}]}`:                 "",
		`{"model":"x"`:                                 "",
		`{"model":"` + strings.Repeat("x", 300) + `"}`: "",
	} {
		if _, _, model := look([]byte(body)); modelName(model) != want {
			t.Errorf("%.40s: %q, want %q", body, modelName(model), want)
		}
	}
}
