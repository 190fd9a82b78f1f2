package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// call is one request of a client, through all its attempts. One goroutine owns
// it.
type call struct {
	r      *http.Request
	config *Config // throughout, whatever changes meanwhile
	id     string
	trace  trace
	body   []byte
	model  []byte // as it stands in the body
	tokens load.Maybe[int64]
	rank   load.Maybe[int] // that the client asks for
	tried  []*load.Worker

	stream      bool                  // the answer is asked for in pieces
	explanation *selector.Explanation // of the newest pick; nil: not asked for

	pick   selector.Pick // the newest
	picked time.Time     // when that was

	// For the log.
	began      time.Time
	status     int           // sent to the client; 0: none
	firstToken time.Duration // since began; 0: it was not seen
	bytes      int64
	err        error
}

// newCall reads a request. The body is kept whole: an attempt that failed has
// used it up, and the next engine must get the same.
func newCall(w http.ResponseWriter, r *http.Request, config *Config) (*call, error) {
	c := &call{r: r, config: config, id: requestID(r.Header), trace: traceOf(r.Header), began: time.Now()}
	var err error
	if c.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, config.MaxBody)); err != nil {
		return c, err
	}
	// The server goes on reading, to notice a client that leaves. The deadline of
	// the body would look like one.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	c.tokens, c.stream, c.model = look(c.body)
	c.rank = pinnedRank(r.Header, c.body)
	return c, nil
}

// request is what the selector is to know of the call.
func (c *call) request() selector.Request {
	return selector.Request{ID: c.id, PromptTokens: c.tokens, Unstreamed: unstreamed(c.r.URL.Path, c.stream), Exclude: c.tried, Rank: c.rank}
}

// unstreamed says whether the first byte of the answer comes long after the first token.
// Without a stream it comes with the last one, unless there are no tokens to come: an
// embedding is there when its prompt has been computed.
//
// Of a body that cannot be read, such as the form of a transcription, no stream is
// assumed. If there is one after all, nothing is learned from this request. The other
// mistake is worse: its prompt would seem to wait for as long as the answer takes, and
// that would be learned of all prompts.
func unstreamed(path string, stream bool) bool {
	switch path {
	case "/v1/embeddings", "/v1/rerank", "/v1/score", "/v1/classify":
		return false
	}
	return !stream
}

// outgoing is the request to an engine. A client without an Authorization of its
// own goes by the gateway's: the key, or else what the engine's URL holds.
func (c *call) outgoing(ctx context.Context, pick selector.Pick) (*http.Request, error) {
	u, err := url.Parse(pick.Worker.URL())
	if err != nil {
		return nil, err
	}
	user := u.User
	u.User = nil
	u = u.JoinPath(c.r.URL.EscapedPath())
	u.RawQuery = c.r.URL.RawQuery
	var body io.Reader
	if len(c.body) > 0 {
		body = bytes.NewReader(c.body)
	}
	out, err := http.NewRequestWithContext(ctx, c.r.Method, u.String(), body)
	if err != nil {
		return nil, err
	}
	out.Header = requestHeader(c.r, c.id)
	c.trace.set(out.Header)
	if pick.Rank != load.NoRank {
		out.Header.Set(rankHeader, strconv.Itoa(pick.Rank))
	}
	switch {
	case out.Header.Get("Authorization") != "":
	case c.config.APIKey != "":
		out.Header.Set("Authorization", "Bearer "+c.config.APIKey)
	case user != nil:
		password, _ := user.Password()
		out.SetBasicAuth(user.Username(), password)
	}
	return out, nil
}

// badBody says what to answer to a body that could not be read: nil, if nobody is there
// any more.
func badBody(err error) *failure {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return failed(http.StatusRequestEntityTooLarge, fmt.Errorf("the request is longer than %d bytes", tooLarge.Limit))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return failed(http.StatusRequestTimeout, errors.New("the request took too long to arrive"))
	}
	if _, ok := errors.AsType[*net.OpError](err); ok || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return failed(http.StatusBadRequest, fmt.Errorf("the request could not be read: %w", err))
}
