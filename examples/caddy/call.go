package plimsoll

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"

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
	body    []byte  // nil: not known
	upload  *upload // of a body that is not known; nil: none

	by    *Policy         // that picked last
	ctx   context.Context // of the request that it was asked about
	pick  selector.Pick   // the newest; zero: none yet
	tried bool            // and nobody has said yet what came of it
}

// upload is the body of a request that passes unread, once.
type upload struct {
	io.ReadCloser
	begun, failed, closed atomic.Bool // read by the transport's goroutine
}

func (u *upload) Read(b []byte) (int, error) {
	u.begun.Store(true)
	n, err := u.ReadCloser.Read(b)
	if err != nil && err != io.EOF && !u.closed.Load() {
		u.failed.Store(true)
	}
	return n, err
}

// Close is called by a transport that has no more use for the body, such as one whose
// connection broke.
func (u *upload) Close() error {
	u.closed.Store(true)
	return u.ReadCloser.Close()
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
// failed. It reports whether there is still a body to send: what an engine makes of a
// request without one is not its fault.
func (c *call) begin(p *Policy, r *http.Request) bool {
	c.pick.Done()
	again := c.by != nil
	if c.by != p { // another proxy, such as one that handles the errors of the first
		c.by, c.ctx, c.request.Exclude, c.tried = p, r.Context(), nil, false
	} else if c.tried {
		c.blame()
		c.request.Exclude = append(c.request.Exclude, c.pick.Worker)
	}
	switch {
	case r.Body == nil || r.Body == http.NoBody:
	case c.body == nil:
		// Caddy puts a new one here for each attempt if it has buffered the request.
		if r.Body != io.ReadCloser(c.upload) {
			c.upload = &upload{ReadCloser: r.Body}
			r.Body = c.upload
		}
		return !c.upload.begun.Load()
	case again:
		// The engine that failed may have got some of it. If it has answered early it is
		// still being sent the rest, at the end of which Caddy writes to the map of trailers.
		r.Body, r.Trailer = io.NopCloser(bytes.NewReader(c.body)), nil
	}
	return true
}

// attempt takes the request to be on its way to the picked engine. net/http ends the
// context of the client's request with its handler, or when the client leaves.
func (c *call) attempt(r *http.Request, pick selector.Pick) {
	c.pick, c.tried = pick, true
	context.AfterFunc(c.ctx, pick.Done)
	// The proxy goes on with this very request. Not by its context, which has the trace of
	// the attempt before.
	*r = *r.WithContext(pickhttp.Trace(c.ctx, pick))
}

// blame sets the engine of the newest attempt aside. One that fails fast has a short queue
// and would draw every request. A client that sends no proper request can blame nobody.
func (c *call) blame() {
	if c.tried && (c.upload == nil || !c.upload.failed.Load()) {
		c.pick.Worker.SetAside()
	}
	c.tried = false
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
