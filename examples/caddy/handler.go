package plimsoll

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/dustin/go-humanize"

	"github.com/plimsoll-go/plimsoll/load"
)

func init() {
	caddy.RegisterModule(new(Handler))
	httpcaddyfile.RegisterHandlerDirective("plimsoll", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		m := new(Handler)
		return m, m.UnmarshalCaddyfile(h.Dispenser)
	})
	httpcaddyfile.RegisterDirectiveOrder("plimsoll", httpcaddyfile.Before, "invoke")
}

// defaultMaxBody is enough for a prompt of a million tokens, and for some pictures.
const defaultMaxBody = 16 << 20

// Handler sees of a request what the proxy behind it does not: how long its prompt is,
// whether the answer is streamed, its first token, and an engine's failure.
//
//	plimsoll [<matcher>] {
//		max_body <size>
//	}
type Handler struct {
	// MaxBody is how large a body is held in memory and read. What is larger passes unread:
	// its prompt is unknown, and it is sent only once. Default: 16 MiB.
	MaxBody int64 `json:"max_body,omitempty"`
}

// CaddyModule implements caddy.Module.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.plimsoll",
		New: func() caddy.Module { return new(Handler) },
	}
}

// UnmarshalCaddyfile implements caddyfile.Unmarshaler.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // plimsoll
	if d.NextArg() {
		return d.ArgErr()
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if d.Val() != "max_body" {
			return d.Errf("%q is no option of plimsoll: want max_body", d.Val())
		}
		if h.MaxBody != 0 {
			return d.Err("max_body is given twice")
		}
		var size string
		if !d.AllArgs(&size) {
			return d.ArgErr()
		}
		n, err := humanize.ParseBytes(size)
		if err != nil || n == 0 || n > math.MaxInt64 {
			return d.Errf("max_body: %q is no size such as 16MB", size)
		}
		h.MaxBody = int64(n)
	}
	return nil
}

// Provision implements caddy.Provisioner.
func (h *Handler) Provision(caddy.Context) error {
	if h.MaxBody < 0 {
		return fmt.Errorf("max_body: %d is no size", h.MaxBody)
	}
	h.MaxBody = cmp.Or(h.MaxBody, defaultMaxBody)
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	c := callOf(r)
	if err := h.read(c, r); err != nil {
		return caddyhttp.Error(http.StatusBadRequest, err)
	}
	a := &answer{ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w}, call: c, generated: r.Method == http.MethodPost}
	served := false
	// Deferred, for an engine that breaks off within its answer: Caddy panics then.
	defer func() {
		if !served && r.Context().Err() == nil { // it is not the client that left
			c.blame()
		}
	}()
	err := next.ServeHTTP(a, r)
	// An engine that is full has short queues, and would be picked first for every request.
	served = err == nil && a.status != http.StatusTooManyRequests && a.status != http.StatusServiceUnavailable
	return err
}

// read reads the body and puts it back.
func (h *Handler) read(c *call, r *http.Request) error {
	if r.Body == nil || r.ContentLength == 0 || r.ContentLength > h.MaxBody {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, h.MaxBody+1))
	if err != nil {
		return err
	}
	rest := r.Body
	if int64(len(body)) > h.MaxBody {
		r.Body = readCloser{io.MultiReader(bytes.NewReader(body), rest), rest}
		return nil
	}
	r.Body = readCloser{bytes.NewReader(body), rest}
	c.body = body
	var stream bool
	c.request.PromptTokens, stream = look(body)
	c.request.Unstreamed = unstreamed(r.URL.Path, stream)
	return nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// look estimates how many tokens the prompt of a request has, at four bytes each, and
// says whether the answer is to come in pieces. That takes a picture for a long prompt;
// a gateway whose clients send some had better count the text alone.
func look(body []byte) (tokens load.Maybe[int64], stream bool) {
	var request struct {
		Stream                  bool
		Messages, Prompt, Input json.RawMessage
	}
	if json.Unmarshal(body, &request) != nil {
		return tokens, false // the engine's to complain about
	}
	if n := len(request.Messages) + len(request.Prompt) + len(request.Input); n > 0 {
		tokens = load.Known(int64(n+3) / 4)
	}
	return tokens, request.Stream
}

// unstreamed says whether the first byte of the answer comes long after the first token.
// It does in an answer of one piece, unless no tokens are generated at all.
func unstreamed(path string, stream bool) bool {
	for _, end := range []string{"/embeddings", "/rerank", "/score", "/classify"} {
		if strings.HasSuffix(path, end) {
			return false
		}
	}
	return !stream
}

// answer notices the first byte of an answer.
type answer struct {
	caddyhttp.ResponseWriterWrapper
	call      *call
	generated bool // if it is no refusal: what takes no computing tells nothing of how long prompts take
	status    int
	begun     bool
}

func (a *answer) WriteHeader(status int) {
	if status >= 200 { // not a hint that comes before it
		a.status = status
	}
	a.ResponseWriterWrapper.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	if !a.begun && len(b) > 0 {
		a.begun = true
		if a.generated && a.status < 300 {
			a.call.pick.FirstToken()
		}
	}
	return a.ResponseWriterWrapper.Write(b)
}

var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyfile.Unmarshaler       = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
