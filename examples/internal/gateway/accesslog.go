package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// log writes the one line there is about a request. Without an access log, a smooth one is
// of interest to nobody but a debugger, and costs next to nothing.
func (c *call) log(logger *slog.Logger) {
	level := slog.LevelDebug
	if c.config.AccessLog || c.err != nil || len(c.tried) > 1 || c.status >= http.StatusInternalServerError {
		level = slog.LevelInfo
	}
	if !logger.Enabled(c.r.Context(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, 20)
	add := func(a slog.Attr) { attrs = append(attrs, a) }
	text := func(name, value string) {
		if value != "" {
			add(slog.String(name, value))
		}
	}
	ms := func(name string, d time.Duration) { add(slog.Float64(name, float64(d.Microseconds())/1000)) }

	text("id", c.id)
	text("trace", c.trace.id)
	text("method", c.r.Method)
	text("path", c.r.URL.Path[:min(len(c.r.URL.Path), maxPath)])
	text("model", modelName(c.model))
	add(slog.Int("status", c.status)) // 0: the client left before there was one
	add(slog.Int("attempts", len(c.tried)))
	if len(c.tried) > 0 { // the last of them
		text("worker", c.pick.Worker.ID())
		if c.pick.Rank != load.NoRank {
			add(slog.Int("rank", c.pick.Rank))
		}
		text("policy", c.pick.Policy)
		text("reason", c.pick.Reason.String())
		text("basis", c.pick.Basis.String())
	}
	if n, ok := c.tokens.Get(); ok {
		add(slog.Int64("prompt_tokens", n)) // roughly
	}
	if c.firstToken > 0 {
		ms("first_token_ms", c.firstToken)
	}
	ms("duration_ms", time.Since(c.began))
	add(slog.Int64("bytes", c.bytes))
	if c.err != nil {
		add(slog.Any("error", c.err))
	}
	logger.LogAttrs(context.WithoutCancel(c.r.Context()), level, "request", attrs...)
}

// maxPath is longer than any path of an API, and shorter than what net/http takes for one.
const maxPath = 256

// maxModel is longer than any model's name.
const maxModel = 256

// modelName reads the name of a model as it stands in a request, between its quotes.
func modelName(quoted []byte) (name string) {
	if len(quoted) > maxModel {
		return ""
	}
	_ = json.Unmarshal([]byte(`"`+string(quoted)+`"`), &name) // it is valid, since the request is
	return name
}
