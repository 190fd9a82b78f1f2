package simengine

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

const (
	chatPath = "/v1/chat/completions"
	textPath = "/v1/completions"
)

// answer is a completion object as a client reads it.
type answer struct {
	ID, Object, Model string
	Created           int64
	Choices           []struct {
		Message, Delta struct{ Role, Content string }
		Text           string
		FinishReason   *string `json:"finish_reason"`
	}
	Usage *usage
}

func TestWholeAnswers(t *testing.T) {
	e := fast(t, Config{})
	for _, tt := range []struct {
		name, path, body string
		object, text     string
		reason           string
		prompt, output   int64
	}{
		{"chat", chatPath, `{"model":"m","messages":[{"role":"user","content":"12345678"}],"max_tokens":5}`,
			"chat.completion", "a ship is loaded until", "length", 2, 5},
		{"chat with content in parts, none, and the newer limit", chatPath,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"1234"},{"type":"image_url"},{"type":"text","text":"5"}]},{"role":"assistant","content":null}],"max_completion_tokens":1,"max_tokens":9}`,
			"chat.completion", "a", "length", 2, 1},
		{"characters are not bytes", chatPath, `{"model":"m","messages":[{"role":"user","content":"éèàù"}],"max_tokens":1}`,
			"chat.completion", "a", "length", 1, 1},
		{"text", textPath, `{"model":"m","prompt":"1","max_tokens":2}`, "text_completion", "a ship", "length", 1, 2},
		{"token ids", textPath, `{"model":"m","prompt":[5,6,7],"max_tokens":2}`, "text_completion", "a ship", "length", 3, 2},
		{"a batch of one text", textPath, `{"model":"m","prompt":["12345"],"max_tokens":2}`, "text_completion", "a ship", "length", 2, 2},
		{"a batch of one array of ids", textPath, `{"model":"m","prompt":[[5,6,7]],"max_tokens":2}`, "text_completion", "a ship", "length", 3, 2},
		{"no length given", textPath, `{"model":"m","prompt":""}`, "text_completion", filler(0, 16), "stop", 1, 16},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := post(t, e.URL()+tt.path, tt.body)
			if r.status != http.StatusOK {
				t.Fatalf("status %d: %s", r.status, r.body)
			}
			var a answer
			r.decode(t, &a)
			if a.Object != tt.object || a.Model != "m" || a.ID == "" || a.Created == 0 || len(a.Choices) != 1 {
				t.Fatalf("answer %s", r.body)
			}
			c := a.Choices[0]
			if got := c.Message.Content + c.Text; got != tt.text {
				t.Errorf("text %q, want %q", got, tt.text)
			}
			if c.FinishReason == nil || *c.FinishReason != tt.reason {
				t.Errorf("finish reason in %s, want %s", r.body, tt.reason)
			}
			if want := (usage{tt.prompt, tt.output, tt.prompt + tt.output}); a.Usage == nil || *a.Usage != want {
				t.Errorf("usage %+v, want %+v", a.Usage, want)
			}
		})
	}
}

func TestStreamedAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, path, body string
		interval         int64
		object           string
		pieces           []string
		usage            bool
	}{
		{"chat", chatPath, `{"messages":[{"role":"user","content":"1234"}],"max_tokens":3,"stream":true}`,
			1, "chat.completion.chunk", []string{"", "a", " ship", " is", ""}, false},
		{"text with usage", textPath, `{"prompt":"1234","max_tokens":3,"stream":true,"stream_options":{"include_usage":true}}`,
			1, "text_completion", []string{"a", " ship", " is", ""}, true},
		{"three tokens at a time, the first alone", textPath, `{"prompt":"1234","max_tokens":6,"stream":true}`,
			3, "text_completion", []string{"a", " ship is loaded", " until the", ""}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := fast(t, Config{StreamInterval: tt.interval})
			r := post(t, e.URL()+tt.path, tt.body)
			if got := r.header.Get("Content-Type"); got != "text/event-stream" {
				t.Errorf("content type %q", got)
			}
			data := events(t, r.body)
			if last := data[len(data)-1]; last != "[DONE]" {
				t.Errorf("the last event is %q", last)
			}
			chunks := make([]answer, len(data)-1)
			for i := range chunks {
				if err := json.Unmarshal([]byte(data[i]), &chunks[i]); err != nil {
					t.Fatal(err)
				}
				if chunks[i].Object != tt.object || chunks[i].ID != chunks[0].ID {
					t.Errorf("chunk %s", data[i])
				}
			}
			if tt.usage {
				last := chunks[len(chunks)-1]
				if len(last.Choices) != 0 || last.Usage == nil || *last.Usage != (usage{1, 3, 4}) {
					t.Errorf("usage chunk %s", data[len(chunks)-1])
				}
				chunks = chunks[:len(chunks)-1]
			}
			var pieces []string
			for i, c := range chunks {
				pieces = append(pieces, c.Choices[0].Delta.Content+c.Choices[0].Text)
				if last := i == len(chunks)-1; (c.Choices[0].FinishReason != nil) != last {
					t.Errorf("finish reason in chunk %d: %s", i, data[i])
				}
				if c.Usage != nil {
					t.Errorf("usage in chunk %d", i)
				}
			}
			if got, want := fmt.Sprintf("%q", pieces), fmt.Sprintf("%q", tt.pieces); got != want {
				t.Errorf("pieces %s, want %s", got, want)
			}
			if chat := tt.path == chatPath; chat && chunks[0].Choices[0].Delta.Role != "assistant" {
				t.Errorf("the first chunk names no role: %s", data[0])
			}
		})
	}
}

func TestBadRequestsAreTheClientsFault(t *testing.T) {
	e := fast(t, Config{Ranks: 2, KVTokens: 1000})
	for _, tt := range []struct{ name, path, body, header, code string }{
		{"no JSON", chatPath, `hello`, "", "invalid_request"},
		{"no messages", chatPath, `{}`, "", "invalid_request"},
		{"content of another type", chatPath, `{"messages":[{"content":7}]}`, "", "invalid_request"},
		{"no prompt", textPath, `{}`, "", "invalid_request"},
		{"null prompt", textPath, `{"prompt":null}`, "", "invalid_request"},
		{"no tokens", textPath, `{"prompt":[]}`, "", "invalid_request"},
		{"several prompts", textPath, `{"prompt":["a","b"]}`, "", "invalid_request"},
		{"prompt too deep", textPath, `{"prompt":[[["a"]]]}`, "", "invalid_request"},
		{"several choices", textPath, `{"prompt":"a","n":2}`, "", "invalid_request"},
		{"no output", textPath, `{"prompt":"a","max_tokens":0}`, "", "invalid_request"},
		{"more output than KV", textPath, `{"prompt":"a","max_tokens":9223372036854775807}`, "", "context_length_exceeded"},
		{"a rank that there is not", textPath, `{"prompt":"a","routed_dp_rank":2}`, "", "invalid_request"},
		{"a negative rank", textPath, `{"prompt":"a","data_parallel_rank":-1}`, "", "invalid_request"},
		{"a rank header that is no number", textPath, `{"prompt":"a"}`, "X-Data-Parallel-Rank: one", "invalid_request"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			header := []string{tt.header}
			if tt.header == "" {
				header = nil
			}
			r := post(t, e.URL()+tt.path, tt.body, header...)
			if r.status != http.StatusBadRequest {
				t.Errorf("status %d: %s", r.status, r.body)
			}
			if code := r.errorCode(t); code != tt.code {
				t.Errorf("code %q, want %q", code, tt.code)
			}
		})
	}
}

func TestRanksTakeTurnsUnlessARequestIsPinned(t *testing.T) {
	e := fast(t, Config{Ranks: 3})
	served := func(body string, header ...string) string {
		return post(t, e.URL()+textPath, body, header...).header.Get(servedRankHeader)
	}
	var turns []string
	for range 6 {
		turns = append(turns, served(`{"prompt":"a","max_tokens":1}`))
	}
	if got := strings.Join(turns, ""); got != "012012" {
		t.Errorf("turns %s, want 012012", got)
	}
	if got := served(`{"prompt":"a","max_tokens":1,"routed_dp_rank":2}`); got != "2" {
		t.Errorf("pinned by routed_dp_rank to 2, served by %s", got)
	}
	if got := served(`{"prompt":"a","max_tokens":1,"data_parallel_rank":1}`); got != "1" {
		t.Errorf("pinned by data_parallel_rank to 1, served by %s", got)
	}
	if got := served(`{"prompt":"a","max_tokens":1,"routed_dp_rank":2}`, "x-data-parallel-rank: 1"); got != "1" {
		t.Errorf("pinned by the header to 1, served by %s", got)
	}
}

func TestFullQueueIsA503(t *testing.T) {
	e := start(t, Config{Speed: standstill, MaxRunning: 1, MaxQueue: 1, Wire: WireLoadSnapshot})
	inBackground(t, e, `{"prompt":"a"}`)
	untilLoad(t, e, 1, 0)
	inBackground(t, e, `{"prompt":"a"}`)
	untilLoad(t, e, 1, 1)
	r := post(t, e.URL()+textPath, `{"prompt":"a","stream":true}`)
	if r.status != http.StatusServiceUnavailable || r.errorCode(t) != "queue_full" {
		t.Errorf("status %d: %s", r.status, r.body)
	}
	if got := get(t, e.URL()+"/health_generate").status; got != http.StatusServiceUnavailable {
		t.Errorf("health_generate: status %d", got)
	}
	if n := e.Totals().Rejected; n != 2 {
		t.Errorf("%d rejected, want 2", n)
	}
}

func TestClientThatLeavesFreesItsShare(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			e := start(t, Config{Speed: standstill, MaxRunning: 1, Wire: WireLoadSnapshot})
			body := fmt.Sprintf(`{"prompt":[1,2,3],"stream":%v}`, stream)
			leaveRunning := inBackground(t, e, body)
			untilLoad(t, e, 1, 0)
			leaveWaiting := inBackground(t, e, body)
			untilLoad(t, e, 1, 1)
			leaveWaiting()
			untilLoad(t, e, 1, 0)
			leaveRunning()
			r := untilLoad(t, e, 0, 0)
			if r.Snapshot.NumTotalTokens != 0 {
				t.Errorf("%d tokens are left", r.Snapshot.NumTotalTokens)
			}
			if n := e.Totals().Aborted; n != 2 {
				t.Errorf("%d aborted, want 2", n)
			}
		})
	}
}

func TestSmallEndpoints(t *testing.T) {
	e := fast(t, Config{Model: "tiny"})
	for _, path := range []string{"/health", "/health_generate"} {
		if r := get(t, e.URL()+path); r.status != http.StatusOK {
			t.Errorf("%s: status %d", path, r.status)
		}
	}
	var models struct {
		Object string
		Data   []struct{ ID, Object string }
	}
	get(t, e.URL()+"/v1/models").decode(t, &models)
	if models.Object != "list" || len(models.Data) != 1 || models.Data[0].ID != "tiny" || models.Data[0].Object != "model" {
		t.Errorf("models %+v", models)
	}
	if r := get(t, e.URL()+chatPath); r.status != http.StatusMethodNotAllowed {
		t.Errorf("GET %s: status %d", chatPath, r.status)
	}
	if r := get(t, e.URL()+"/nothing"); r.status != http.StatusNotFound {
		t.Errorf("unknown path: status %d", r.status)
	}
}
