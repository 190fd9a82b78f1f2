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

	// Nor shall the engine go on with it: ending ctx closes its connection. An
	// engine that hangs would never end it by itself.
	ctx, cancel := context.WithCancelCause(c.r.Context())
	defer cancel(nil)
	timeout := time.Duration(c.config.EngineTimeout)
	silence := time.AfterFunc(timeout, func() { cancel(errSilent) })
	defer silence.Stop()

	out, err := c.outgoing(pickhttp.Trace(ctx, pick), pick)
	if err != nil {
		return failed(http.StatusBadGateway, err)
	}
	res, err := g.transport.RoundTrip(out)
	if err != nil {
		return g.noAnswer(c, pick, err)
	}
	defer res.Body.Close()
	g.health.reached(pick.Worker)
	if res.StatusCode < http.StatusOK {
		// Nobody asked to switch protocols, and a number below 100, which net/http reads, it
		// would not write.
		return g.noAnswer(c, pick, fmt.Errorf("the status %d is no answer", res.StatusCode))
	}
	body := &timedReader{res.Body, silence, timeout}
	if retryable(res.StatusCode) {
		return g.refused(c, pick, res, body)
	}

	// An engine's headers are no answer yet: it may die while it computes the
	// prompt. They are held back until there is something to go with them.
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	n, err := readSome(body, *buffer)
	if err != nil && err != io.EOF {
		return g.noAnswer(c, pick, err)
	}
	if c.r.Method == http.MethodPost && res.StatusCode < 300 {
		pick.FirstToken()
		if c.stream {
			c.firstToken = time.Since(c.began)
			g.metrics.firstToken.Observe(time.Since(c.picked).Seconds())
		}
	} // else it is a refusal or a list, which comes at once and tells nothing of how long a prompt takes
	g.health.served(pick.Worker)

	setResponseHeader(w, res.Header)
	c.tellPick(w)
	c.status = res.StatusCode
	w.WriteHeader(res.StatusCode)
	if err := c.relay(w, body, *buffer, n, err); err != nil {
		c.cut(err)
	}
	return nil
}

var errSilent = errors.New("the engine said nothing for too long")

// timedReader reads an engine's answer with a bound on each wait for it. What a
// slow client takes in between is not the engine's silence.
type timedReader struct {
	r       io.Reader
	silence *time.Timer
	timeout time.Duration
}

func (t *timedReader) Read(b []byte) (int, error) {
	t.silence.Reset(t.timeout)
	defer t.silence.Stop()
	return t.r.Read(b)
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
func (c *call) relay(w http.ResponseWriter, body io.Reader, buffer []byte, n int, err error) error {
	client := http.NewResponseController(w)
	timeout := time.Duration(c.config.ClientTimeout)
	for {
		if n > 0 {
			// A client that stops reading must not hold on to the engine. The deadline
			// stays for the end of the answer, which net/http writes; Handler lifts it.
			_ = client.SetWriteDeadline(time.Now().Add(timeout))
			m, writeErr := w.Write(buffer[:n])
			c.bytes += int64(m)
			if writeErr == nil {
				writeErr = client.Flush()
			}
			// Middleware may hide that it can flush. That is slow, and no client that left.
			if writeErr != nil && !errors.Is(writeErr, errors.ErrUnsupported) {
				return fmt.Errorf("client: %w", writeErr)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("answer broke off: %w", err)
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
		if context.Cause(c.r.Context()) == errEnds {
			return failed(http.StatusServiceUnavailable, errEnds)
		}
		c.cut(errors.New("client left before the first byte"))
	}
	status := http.StatusBadGateway
	if errors.Is(err, errSilent) {
		status = http.StatusGatewayTimeout
	}
	f := failed(status, fmt.Errorf("%s: %w", pick.Worker.ID(), err))
	op, ok := errors.AsType[*net.OpError](err)
	switch {
	case ours(err): // says nothing about the engine, nor about the request
	case ok && op.Op == "dial":
		pick.Worker.SetAside()
		g.health.failed(pick.Worker, err)
	default:
		g.fault(pick, f)
	}
	return f
}

// refused is for an engine that answered, and does not take the request.
func (g *Gateway) refused(c *call, pick selector.Pick, res *http.Response, body io.Reader) *failure {
	text, err := io.ReadAll(io.LimitReader(body, maxErrorBody))
	if err != nil {
		return g.noAnswer(c, pick, err)
	}
	f := &failure{
		status: res.StatusCode,
		header: res.Header,
		body:   text,
		err:    fmt.Errorf("%s: %s", pick.Worker.ID(), res.Status),
	}
	if full(res.StatusCode) {
		// It has short queues, and would be picked first for every request.
		pick.Worker.SetAside()
	} else {
		g.fault(pick, f)
	}
	return f
}

// fault is for a failure that may be the engine's fault or the request's own. A
// request that no engine survives must not set the whole fleet aside: the engine
// is blamed when it fails another one without having served any in between.
func (g *Gateway) fault(pick selector.Pick, f *failure) {
	f.fault = true
	if g.health.faulted(pick.Worker) {
		pick.Worker.SetAside()
	}
}

// full says whether a status is about the engine's queues, whatever the request.
func full(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// retryable says whether another engine may do better. Generating the same
// completion twice harms nobody, so that this needs no more than the status.
func retryable(status int) bool {
	switch status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	}
	return full(status)
}
