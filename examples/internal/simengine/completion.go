package simengine

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// api is what the two completion APIs differ in.
type api struct {
	chat         bool
	idPrefix     string
	object       string // of a whole answer
	streamObject string // of a streamed one
}

var (
	chatAPI = api{chat: true, idPrefix: "chatcmpl-", object: "chat.completion", streamObject: "chat.completion.chunk"}
	textAPI = api{idPrefix: "cmpl-", object: "text_completion", streamObject: "text_completion"}
)

// servedRankHeader tells which rank took the request.
const servedRankHeader = "X-Sim-Rank"

type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage,omitempty"`
}

// choice has a message, a delta or a text, by API and mode.
type choice struct {
	Index        int      `json:"index"`
	Message      *message `json:"message,omitempty"`
	Delta        *message `json:"delta,omitempty"`
	Text         *string  `json:"text,omitempty"`
	Logprobs     *string  `json:"logprobs"`
	FinishReason *string  `json:"finish_reason"`
}

type message struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content"`
}

type usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
}

func (l *life) completionHandler(a api) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		wk, err := l.parseWork(w, r, a.chat)
		if err != nil {
			writeBadRequest(w, err)
			return
		}
		if how, ok := l.failures.take(); ok {
			if how == FailCut {
				cut()
			}
			writeError(w, http.StatusInternalServerError, "internal_server_error", "simulated_failure", "the engine was told to fail this request")
			return
		}
		j, err := l.submit(wk.rank, wk.prompt, wk.output)
		if err != nil {
			writeSubmitError(w, err)
			return
		}
		// A client that has left must not hold KV until its answer is finished.
		defer j.abort()
		whole := false
		id := r.Header.Get("X-Request-Id")
		l.config.Trace.accepted(id, j.rank.index)
		defer func() { l.config.Trace.ended(id, whole) }()
		w.Header().Set(servedRankHeader, strconv.Itoa(j.rank.index))
		reply := reply{
			api: a, work: wk, job: j,
			head: completion{
				ID:      a.idPrefix + fmt.Sprintf("%x-%d", l.started.UnixNano(), l.nextID.Add(1)),
				Created: time.Now().Unix(),
				Model:   wk.model,
			},
		}
		if wk.stream {
			reply.stream(w, r, l.config.StreamInterval)
		} else {
			reply.whole(w, r)
		}
		whole = true
	}
}

// reply writes the answer to one request.
type reply struct {
	api  api
	work work
	job  *job
	head completion // what all objects of the answer share
}

func (p *reply) finishReason() *string {
	reason := "stop"
	if p.work.capped {
		reason = "length"
	}
	return &reason
}

func (p *reply) usage(produced int64) *usage {
	return &usage{p.work.prompt, produced, p.work.prompt + produced}
}

// whole answers in one object when the last token is there.
func (p *reply) whole(w http.ResponseWriter, r *http.Request) {
	var produced int64
	for done := false; !done; {
		var err error
		if produced, done, err = p.job.wait(r.Context(), produced); err != nil {
			cut()
		}
	}
	c := p.head
	c.Object = p.api.object
	c.Usage = p.usage(produced)
	text := filler(0, produced)
	if p.api.chat {
		c.Choices = []choice{{Message: &message{Role: "assistant", Content: text}, FinishReason: p.finishReason()}}
	} else {
		c.Choices = []choice{{Text: &text, FinishReason: p.finishReason()}}
	}
	writeJSON(w, http.StatusOK, c)
}

// stream answers in server-sent events. Nothing, not even the header, is sent
// before the first token: that is when clients and routers stop their clock.
func (p *reply) stream(w http.ResponseWriter, r *http.Request, interval int64) {
	out := http.NewResponseController(w)
	p.head.Object = p.api.streamObject
	var produced, sent int64
	for done := false; !done; {
		var err error
		if produced, done, err = p.job.wait(r.Context(), produced); err != nil {
			cut()
		}
		if sent == 0 {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Cache-Control", "no-cache")
			if p.api.chat {
				p.event(w, choice{Delta: &message{Role: "assistant"}})
			}
		}
		for sent < produced {
			upTo := min(produced, sent+interval)
			if sent == 0 {
				upTo = 1 // the first token never waits for company
			} else if upTo-sent < interval && !done {
				break
			}
			p.event(w, p.piece(filler(sent, upTo)))
			sent = upTo
		}
		if err := out.Flush(); err != nil {
			cut()
		}
	}
	end := p.piece("")
	end.FinishReason = p.finishReason()
	p.event(w, end)
	if p.work.includeUsage {
		c := p.head
		c.Choices = []choice{}
		c.Usage = p.usage(sent)
		writeEvent(w, c)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func (p *reply) piece(text string) choice {
	if p.api.chat {
		return choice{Delta: &message{Content: text}}
	}
	return choice{Text: &text}
}

func (p *reply) event(w http.ResponseWriter, ch choice) {
	c := p.head
	c.Choices = []choice{ch}
	writeEvent(w, c)
}

func writeEvent(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		cut() // not with these types
	}
	// A failed write shows at the next flush.
	fmt.Fprintf(w, "data: %s\n\n", b)
}
