package plimsoll

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
	"github.com/plimsoll-go/plimsoll/selector/pickhttp"
)

// callVar is where the variables of a request have its call.
const callVar = "plimsoll"

// call is one request of a client, through all its attempts. The goroutine that serves it
// owns it.
type call struct {
	request selector.Request
	body    []byte // nil: not known

	by   *Policy         // that picked last
	ctx  context.Context // of the request that it was asked about
	pick selector.Pick   // the newest; zero: none yet
}

// callOf returns what is known of a request. Where no handler has looked at it, nobody
// will see its first token, which is how it is with an answer in one piece.
func callOf(r *http.Request) *call {
	if c, ok := caddyhttp.GetVar(r.Context(), callVar).(*call); ok {
		return c
	}
	c := &call{request: selector.Request{Unstreamed: true}}
	caddyhttp.SetVar(r.Context(), callVar, c)
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Map(c.placeholder)
	}
	return c
}

// begin is called before an attempt. If it is not the proxy's first, the one before has
// failed.
func (c *call) begin(p *Policy, r *http.Request) {
	c.pick.Done()
	if c.by != p { // another proxy, such as one that handles the errors of the first
		c.by, c.ctx, c.request.Exclude = p, r.Context(), nil
		return
	}
	c.blame()
	if c.pick.Worker != nil {
		c.request.Exclude = append(c.request.Exclude, c.pick.Worker)
	}
	if c.body != nil && r.Body != nil {
		// The engine that failed may have got some of it. If it has answered early it is
		// still being sent the rest, at the end of which Caddy writes to the map of trailers.
		r.Body, r.Trailer = io.NopCloser(bytes.NewReader(c.body)), nil
	}
}

// attempt takes the request to be on its way to the picked engine. net/http ends the
// context of the client's request with its handler, or when the client leaves.
func (c *call) attempt(r *http.Request, pick selector.Pick) {
	c.pick = pick
	context.AfterFunc(c.ctx, pick.Done)
	// The proxy goes on with this very request. Not by its context, which has the trace of
	// the attempt before.
	*r = *r.WithContext(pickhttp.Trace(c.ctx, pick))
}

// blame sets the engine of the newest attempt aside. One that fails fast has a short queue
// and would draw every request.
func (c *call) blame() {
	if c.pick.Worker != nil {
		c.pick.Worker.SetAside()
	}
}

// placeholder tells which engine the request is on, and why, to logs and headers.
func (c *call) placeholder(key string) (any, bool) {
	switch key {
	case "plimsoll.worker":
		if c.pick.Worker == nil {
			return "", true
		}
		return c.pick.Worker.ID(), true
	case "plimsoll.pick":
		if c.pick.Worker == nil {
			return "", true
		}
		return c.pick.String(), true
	case "plimsoll.rank":
		if c.pick.Worker == nil || c.pick.Rank == load.NoRank {
			return "", true
		}
		return strconv.Itoa(c.pick.Rank), true
	}
	return nil, false
}
