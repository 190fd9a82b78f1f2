package epp

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	mode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	proc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/plimsoll-go/plimsoll/selector"
)

// exchange is one request of a client and its answer.
type exchange struct {
	picker *Picker
	began  time.Time

	// What Envoy does with bodies, as its first message says.
	first        bool // it has come
	requestMode  mode.ProcessingMode_BodySendMode
	responseMode mode.ProcessingMode_BodySendMode

	// The request.
	method, path string
	id           string
	subset       subset
	headers      bool   // have come
	body         []byte // until the pick, in as far as it is held
	ended        bool   // all of it has come
	model        string

	picked bool          // or it was tried to
	pick   selector.Pick // inert: none

	// The answer.
	status int
	begun  bool
}

var (
	errObserved   = errors.New("observability_mode is on: nothing can be picked in it")
	errNoHeaders  = errors.New("a part of a request without headers: request_header_mode must not be SKIP")
	errTwoHeaders = errors.New("a request with headers twice")
	errTooLate    = errors.New("a request without a body in a mode that waits for one")
)

// handle takes one message of Envoy's and returns what is to be answered: nothing, as long
// as more is needed.
func (x *exchange) handle(m *proc.ProcessingRequest) ([]*proc.ProcessingResponse, error) {
	if m.ObservabilityMode {
		return nil, errObserved
	}
	if !x.first {
		x.first, x.requestMode, x.responseMode = true, x.picker.config.BodyMode, x.picker.config.BodyMode
		if c := m.ProtocolConfig; c != nil {
			x.requestMode, x.responseMode = c.RequestBodyMode, c.ResponseBodyMode
		}
	}
	switch part := m.Request.(type) {
	case *proc.ProcessingRequest_RequestHeaders:
		return x.requestHeaders(part.RequestHeaders, m.MetadataContext)
	case *proc.ProcessingRequest_RequestBody:
		return x.requestBody(part.RequestBody)
	case *proc.ProcessingRequest_RequestTrailers:
		return x.requestTrailers()
	case *proc.ProcessingRequest_ResponseHeaders:
		return x.responseHeaders(part.ResponseHeaders, m.MetadataContext), nil
	case *proc.ProcessingRequest_ResponseBody:
		return x.responseBody(part.ResponseBody), nil
	case *proc.ProcessingRequest_ResponseTrailers:
		x.pick.Done()
		return one(trailersDone(false)), nil
	default:
		return nil, fmt.Errorf("a message of the kind %T", part)
	}
}

// requestHeaders picks at once if no body is to come from which more could be learned, or
// if Envoy would no longer take headers when it is here.
func (x *exchange) requestHeaders(h *proc.HttpHeaders, metadata *core.Metadata) ([]*proc.ProcessingResponse, error) {
	if x.headers {
		return nil, errTwoHeaders
	}
	x.headers = true
	x.method, x.path, x.id = header(h, ":method"), header(h, ":path"), header(h, "x-request-id")
	x.subset = subsetOf(metadata)
	switch {
	case h.EndOfStream:
		x.ended = true
	case x.requestMode == mode.ProcessingMode_FULL_DUPLEX_STREAMED:
		return nil, nil
	case x.requestMode == mode.ProcessingMode_BUFFERED, x.requestMode == mode.ProcessingMode_BUFFERED_PARTIAL:
		return one(headersDone(true)), nil
	}
	pick, refusal := x.choose(nil)
	if refusal != nil {
		return one(refusal), nil
	}
	return one(withDestination(headersDone(true), pick)), nil
}

func (x *exchange) requestBody(b *proc.HttpBody) ([]*proc.ProcessingResponse, error) {
	if !x.headers {
		return nil, errNoHeaders
	}
	duplex := x.requestMode == mode.ProcessingMode_FULL_DUPLEX_STREAMED
	if x.ended && duplex {
		return nil, nil // see package comment
	}
	x.ended = b.EndOfStream
	switch {
	case x.picked && duplex:
		return chunks(nil, true, b.Body, b.EndOfStream), nil
	case x.picked:
		return one(bodyDone(true)), nil
	case !duplex: // all of it, or all that there will be
		pick, refusal := x.choose(b.Body)
		if refusal != nil {
			return one(refusal), nil
		}
		return one(withDestination(bodyDone(true), pick)), nil
	}
	x.body = append(x.body, b.Body...)
	if !x.ended && len(x.body) <= x.picker.config.MaxBody {
		return nil, nil
	}
	return x.release(x.ended), nil
}

func (x *exchange) requestTrailers() ([]*proc.ProcessingResponse, error) {
	switch {
	case !x.headers:
		return nil, errNoHeaders
	case x.picked:
		x.ended = true
		return one(trailersDone(true)), nil
	case x.requestMode != mode.ProcessingMode_FULL_DUPLEX_STREAMED:
		return nil, errTooLate
	}
	x.ended = true
	answers := x.release(false) // the end of the body is not the end of the stream
	if x.pick.Worker == nil {
		return answers, nil
	}
	return append(answers, trailersDone(true)), nil
}

// release picks for a request that was held, and lets it go: headers first. end says that
// the body is the last of it.
func (x *exchange) release(end bool) []*proc.ProcessingResponse {
	body := x.body
	x.body = nil
	var known []byte
	if x.ended { // else it is too large
		known = body
	}
	pick, refusal := x.choose(known)
	if refusal != nil {
		return one(refusal)
	}
	return chunks(one(withDestination(headersDone(true), pick)), true, body, end)
}

// choose picks a worker. refusal is for the client if there is none.
func (x *exchange) choose(body []byte) (pick selector.Pick, refusal *proc.ProcessingResponse) {
	x.picked = true
	c := &x.picker.config
	request := selector.Request{ID: x.id}
	var stream bool
	request.PromptTokens, stream, x.model = look(body)
	request.Unstreamed = unstreamed(x.path, stream)
	if x.responseMode != mode.ProcessingMode_STREAMED && x.responseMode != mode.ProcessingMode_FULL_DUPLEX_STREAMED {
		request.Unstreamed = true // nobody here will see the first token
	}
	if x.subset.given {
		request.Candidates = x.subset.workers(c.Table)
	}
	pick, err := c.Selector.Pick(request)
	if err != nil {
		c.Logger.Warn("no endpoint", "id", x.id, "model", x.model, "error", err)
		return pick, refuse(http.StatusServiceUnavailable, err.Error())
	}
	if c.MaxWait > 0 && pick.Wait > c.MaxWait {
		pick.Done()
		c.Logger.Info("dropped", "id", x.id, "model", x.model, "pick", pick)
		return pick, refuse(http.StatusTooManyRequests, fmt.Sprintf("the shortest queue is %v long", pick.Wait.Round(time.Millisecond)))
	}
	x.pick = pick
	return pick, nil
}

// sent is called when the answers to a message have been handed to gRPC. Envoy sends the
// request on as soon as it has them, and no message says that it has.
func (x *exchange) sent() {
	more := !x.ended && (x.requestMode == mode.ProcessingMode_STREAMED || x.requestMode == mode.ProcessingMode_FULL_DUPLEX_STREAMED)
	if !more {
		x.pick.Dispatched()
	}
}

func (x *exchange) responseHeaders(h *proc.HttpHeaders, metadata *core.Metadata) []*proc.ProcessingResponse {
	x.status, _ = strconv.Atoi(header(h, ":status"))
	if x.pick.Worker != nil { // else a filter before this one has answered
		x.served(servedBy(metadata))
		switch x.status {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable:
			// Full; or Envoy says it of an engine that it could not reach. Either has a short
			// queue and would draw every request.
			x.pick.Worker.SetAside()
		}
	}
	if h.EndOfStream {
		x.pick.Done()
	}
	return one(headersDone(false))
}

// served moves the request to the worker that has really got it. Envoy could not reach the
// one that was picked, or does not know it: either has a short queue and would be picked
// again, for nothing.
func (x *exchange) served(endpoint string) {
	if endpoint == "" || endpoint == x.pick.Worker.ID() {
		return
	}
	x.pick.Done()
	x.pick.Worker.SetAside()
	worker, ok := x.picker.config.Table.Worker(endpoint)
	if !ok {
		return // nobody whose books we keep
	}
	if pick, err := x.picker.config.Selector.Pick(selector.Request{ID: x.id, Worker: worker, Unstreamed: true}); err == nil {
		x.pick = pick
		x.pick.Dispatched()
	}
}

func (x *exchange) responseBody(b *proc.HttpBody) []*proc.ProcessingResponse {
	if len(b.Body) > 0 && !x.begun {
		x.begun = true
		// A refusal, or a list, comes at once and tells nothing of how long a prompt takes.
		if x.method == http.MethodPost && x.status < 300 {
			x.pick.FirstToken()
		}
	}
	if b.EndOfStream {
		x.pick.Done()
	}
	if x.responseMode == mode.ProcessingMode_FULL_DUPLEX_STREAMED {
		return chunks(nil, false, b.Body, b.EndOfStream)
	}
	return one(bodyDone(false))
}

// end is called when the stream has ended.
func (x *exchange) end() {
	x.pick.Done()
	if x.pick.Worker != nil {
		x.picker.config.Logger.Debug("request",
			"id", x.id, "model", x.model, "status", x.status, "took", time.Since(x.began), "pick", x.pick)
	}
}
