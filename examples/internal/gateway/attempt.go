package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/selector"
	"github.com/plimsoll-go/plimsoll/selector/pickhttp"
)

// maxErrorBody bounds what is kept of an engine's refusal.
const maxErrorBody = 64 << 10

// attempt sends the call to the picked engine and its answer to the client. It
// returns a failure as long as the client has seen nothing, and another engine
// may be tried. Where the client has seen something, or has left, there is
// nothing more to do for it: the answer is complete, or attempt panics with
// http.ErrAbortHandler, which cuts the connection.
func (g *Gateway) attempt(w http.ResponseWriter, c *call, pick selector.Pick) *failure {
	// However this ends, the request is no longer on that engine.
	defer pick.Done()

	// Nor shall the engine go on with it: ending ctx closes its connection.
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	out, err := c.outgoing(pickhttp.Trace(ctx, pick), pick.Worker)
	if err != nil {
		return failed(http.StatusBadGateway, err)
	}
	res, err := g.transport.RoundTrip(out)
	if err != nil {
		return g.noAnswer(c, pick, err)
	}
	defer res.Body.Close()
	g.health.answered(pick.Worker)
	if retryable(res.StatusCode) {
		return g.refused(pick, res)
	}

	// An engine's headers are no answer yet: it may die while it computes the
	// prompt. They are held back until there is something to go with them.
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	n, err := readSome(res.Body, *buffer)
	if err != nil && err != io.EOF {
		return g.noAnswer(c, pick, err)
	}
	pick.FirstToken()
	c.first = time.Since(c.began)

	setResponseHeader(w, res.Header)
	w.Header().Set(workerHeader, pick.Worker.ID())
	w.Header().Set(pickHeader, pick.String())
	c.status = res.StatusCode
	w.WriteHeader(res.StatusCode)
	c.relay(w, res.Body, *buffer, n, err)
	return nil
}

var buffers = sync.Pool{New: func() any {
	b := make([]byte, 32<<10)
	return &b
}}

// readSome reads at least one byte, or an error.
func readSome(r io.Reader, b []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = r.Read(b)
	}
	if n > 0 && err != io.EOF {
		err = nil // the next read says it again
	}
	return n, err
}

// relay passes the body on, each piece as it comes. The first n bytes are in the
// buffer, and err is what came with them.
func (c *call) relay(w http.ResponseWriter, body io.Reader, buffer []byte, n int, err error) {
	client := http.NewResponseController(w)
	for {
		if n > 0 {
			m, writeErr := w.Write(buffer[:n])
			c.bytes += int64(m)
			if writeErr == nil {
				writeErr = client.Flush()
			}
			if writeErr != nil {
				c.cut(fmt.Errorf("client: %w", writeErr))
			}
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			c.cut(fmt.Errorf("answer broke off: %w", err))
		}
		n, err = readSome(body, buffer)
	}
}

// cut ends the request without an end. A plain return would complete the answer,
// and the client would take half of it for the whole.
func (c *call) cut(err error) {
	c.err = err
	panic(http.ErrAbortHandler)
}

// noAnswer is for an engine that broke off before the first byte.
func (g *Gateway) noAnswer(c *call, pick selector.Pick, err error) *failure {
	if c.r.Context().Err() != nil {
		c.cut(errors.New("client left before the first byte"))
	}
	pick.Worker.SetAside()
	// Not being able to connect is about the engine. Anything later may be about
	// this one request.
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		g.health.failed(pick.Worker, err)
	}
	return failed(http.StatusBadGateway, fmt.Errorf("%s: %w", pick.Worker.ID(), err))
}

// refused is for an engine that answered, and does not take the request.
func (g *Gateway) refused(pick selector.Pick, res *http.Response) *failure {
	// Whatever the reason, an engine that fails fast has short queues, and would be
	// picked first for every request until it is well again.
	pick.Worker.SetAside()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	if err != nil {
		return failed(http.StatusBadGateway, fmt.Errorf("%s: %w", pick.Worker.ID(), err))
	}
	return &failure{
		status: res.StatusCode,
		header: res.Header,
		body:   body,
		err:    fmt.Errorf("%s: %s", pick.Worker.ID(), res.Status),
	}
}

// retryable says whether another engine may do better. Generating the same
// completion twice harms nobody, so that this needs no more than the status.
func retryable(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
