package discovery

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// DefaultTimeout bounds one try of one request, its body included.
	DefaultTimeout = 2 * time.Second
	// maxBody bounds what is read of an answer. A real one takes some tens of
	// kilobytes, most of it the engine's command line.
	maxBody   = 1 << 20
	usualBody = 64 << 10
	// maxHeader bounds the header of one, in a transport of our own.
	maxHeader = 64 << 10
	// maxRedirects is as many as a proxy that adds a prefix or a slash needs.
	maxRedirects = 3
)

// pauses are the waits between the tries of one ServerInfo, one fewer than
// there are tries.
var pauses = [...]time.Duration{100 * time.Millisecond, 200 * time.Millisecond}

// Client asks engines over HTTP. The zero value is ready to use. Its fields must
// not change once it is in use; it must not be copied then either.
type Client struct {
	// HTTP sends the requests; nil means a client with a transport of its own.
	// Its CheckRedirect, if any, is asked after the rule that a redirect stays
	// on the host and port that it came from.
	HTTP *http.Client
	// TLS says how to speak to engines with an https URL: whose certificates to
	// trust (RootCAs), which to show (Certificates), and whose name to expect in
	// theirs where that is not the host of the URL (ServerName). nil means what
	// the system trusts. It is not used with HTTP, which has a transport with
	// settings of its own.
	TLS *tls.Config
	// Header is added to every request. It goes to every worker.
	Header http.Header
	// Token, unless empty, is sent to every worker as a bearer token (SGLang's
	// --api-key), and goes before user information in a worker's URL.
	Token string
	// TokenOf, unless nil, gives the token of one worker by its URL, as
	// WorkerStatus.URL has it; "" stands for Token. It is asked for every request,
	// and must not block.
	TokenOf func(worker string) string
	// Timeout bounds one try, the body included; 0 means DefaultTimeout.
	Timeout time.Duration
	// AllowHost says whether load sockets may be dialled at a host that an
	// engine advertises and that is not its URL's own; nil allows none. The host
	// comes without brackets, in lower case, an address in its shortest form.
	// See AllowHosts.
	AllowHost func(host string) bool
	// MaxRanks bounds the ranks of one engine; 0 means DefaultMaxRanks.
	MaxRanks int

	once  sync.Once
	owned *http.Transport // used where HTTP is nil
}

// ServerInfo asks the engine at workerURL for its /server_info and returns what
// it says about its load sockets.
//
// It tries three times, pausing for 100 ms and then 200 ms, as long as the
// network, the engine (5xx) or a body that ends in the middle is at fault.
//
// A nil error means that the engine answered: it publishes, or it does not and
// Advertisement.Reason says why. An error means that it could not be told. It
// is a [*RequestError], or wraps [ErrURL] if workerURL cannot be used at all.
func (c *Client) ServerInfo(ctx context.Context, workerURL string) (Advertisement, error) {
	u, err := parseWorkerURL(workerURL)
	if err != nil {
		return Advertisement{}, err
	}
	return c.serverInfo(ctx, u)
}

func (c *Client) serverInfo(ctx context.Context, u *url.URL) (Advertisement, error) {
	rules := serverInfoRules{host: u.Hostname(), allow: c.AllowHost, maxRanks: c.maxRanks()}
	for attempt := 1; ; attempt++ {
		var ad Advertisement
		failure := c.get(ctx, u, "server_info", "", func(body []byte) (err error) {
			ad, err = parseServerInfo(body, rules)
			return err
		})
		if failure == nil {
			return ad, nil
		}
		failure.Attempts = attempt
		if !failure.Retryable() || attempt > len(pauses) || !sleep(ctx, pauses[attempt-1]) {
			return Advertisement{}, failure
		}
	}
}

func (c *Client) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return DefaultTimeout
}

func (c *Client) maxRanks() int {
	if c.MaxRanks > 0 {
		return c.MaxRanks
	}
	return DefaultMaxRanks
}

// get is one try of one request. read is given the whole body of a 200.
func (c *Client) get(ctx context.Context, worker *url.URL, path, query string, read func(body []byte) error) *RequestError {
	u := worker.JoinPath(path)
	u.RawQuery = query
	fail := func(kind ErrorKind, err error) *RequestError {
		return &RequestError{URL: urlKey(u), Kind: kind, Attempts: 1, Err: err}
	}

	parent := ctx
	timeout := c.timeout()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout(timeout))
	defer cancel()
	// network tells the caller giving up from the engine being slow, which only
	// the contexts know, and keeps a user name out of the text.
	network := func(kind ErrorKind, err error) *RequestError {
		if parent.Err() != nil {
			return fail(KindCanceled, context.Cause(parent))
		}
		if ctx.Err() != nil {
			return fail(KindNetwork, context.Cause(ctx))
		}
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err
		}
		return fail(kind, err)
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fail(KindURL, ErrURL)
	}
	for k, v := range c.Header {
		req.Header[k] = v
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json")
	}
	token := c.Token
	if c.TokenOf != nil {
		token = cmp.Or(c.TokenOf(urlKey(worker)), token)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.client().Do(req)
	if errors.Is(err, errRedirect) {
		return fail(KindRedirect, errRedirect)
	}
	if err != nil {
		return network(KindNetwork, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		failure := fail(KindStatus, fmt.Errorf("status %s", clip(resp.Status)))
		failure.Status = resp.StatusCode
		return failure
	}
	if resp.ContentLength > maxBody {
		// Refused before a byte of it is read: a gigabyte takes seconds even
		// from the next rack.
		return fail(KindTooLarge, fmt.Errorf("body of %d bytes is above the bound of %d", resp.ContentLength, maxBody))
	}
	body, err := readBody(resp)
	if err != nil {
		return network(KindCutOff, err)
	}
	if len(body) > maxBody {
		return fail(KindTooLarge, fmt.Errorf("body is above the bound of %d bytes", maxBody))
	}
	switch err := read(body); {
	case err == nil:
		return nil
	case errors.Is(err, errCutOff):
		return fail(KindCutOff, err)
	default:
		return fail(KindShape, err)
	}
}

// readBody reads a body, up to a byte more than is allowed. Its buffer grows once,
// since one that doubles costs several times what ends up in it.
func readBody(resp *http.Response) ([]byte, error) {
	size := int64(usualBody)
	if n := resp.ContentLength; n >= 0 {
		size = min(n, maxBody) + 1 // and room to see the end
	}
	buf := make([]byte, 0, size)
	for {
		if len(buf) == cap(buf) {
			if len(buf) > maxBody {
				return buf, nil
			}
			buf = append(make([]byte, 0, maxBody+1), buf...)
		}
		n, err := resp.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// client returns the caller's client with our rule on redirects.
func (c *Client) client() *http.Client {
	var hc http.Client
	if c.HTTP != nil {
		hc = *c.HTTP
	} else {
		c.once.Do(func() {
			// A transport goes on dialling for a request that has been given up.
			// Without bounds of its own, a dead engine that is asked again and
			// again would collect such dials.
			c.owned = &http.Transport{
				Proxy:                  http.ProxyFromEnvironment,
				DialContext:            (&net.Dialer{Timeout: c.timeout()}).DialContext,
				TLSClientConfig:        c.TLS.Clone(),
				TLSHandshakeTimeout:    c.timeout(),
				ForceAttemptHTTP2:      true,
				MaxIdleConnsPerHost:    2,
				IdleConnTimeout:        90 * time.Second,
				MaxResponseHeaderBytes: maxHeader,
				// What an engine may send before it is read: by default, 4 MiB.
				HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: maxHeader, MaxReceiveBufferPerConnection: maxHeader},
			}
		})
		hc.Transport = c.owned
	}
	theirs := hc.CheckRedirect
	hc.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		from := via[0].URL
		if len(via) > maxRedirects || req.URL.Host != from.Host || (from.Scheme == "https" && req.URL.Scheme != "https") {
			return errRedirect
		}
		if theirs != nil {
			return theirs(req, via)
		}
		return nil
	}
	return &hc
}

// closeIdle lets go of the connections that are kept for the next request, and
// of the goroutines that keep them. A transport of the caller's is the caller's.
func (c *Client) closeIdle() {
	if c.HTTP != nil {
		return
	}
	c.client()
	c.owned.CloseIdleConnections()
}

var errRedirect = errors.New("redirect to another host, or too many")

type errTimeout time.Duration

func (e errTimeout) Error() string { return fmt.Sprintf("no answer within %v", time.Duration(e)) }

// sleep waits for d and reports whether it did to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ErrorKind says at what a request to an engine failed.
type ErrorKind uint8

const (
	KindURL      ErrorKind = iota + 1 // the request could not even be made
	KindNetwork                       // no connection, or no answer in time
	KindStatus                        // a status other than 200; see RequestError.Status
	KindRedirect                      // a redirect to another host, or too many
	KindTooLarge                      // an answer above 1 MiB
	KindCutOff                        // a body that ends in the middle
	KindShape                         // a complete body that is not what was asked for
	KindCanceled                      // the caller's context ended
)

func (k ErrorKind) String() string {
	switch k {
	case KindURL:
		return "url"
	case KindNetwork:
		return "network"
	case KindStatus:
		return "status"
	case KindRedirect:
		return "redirect"
	case KindTooLarge:
		return "too_large"
	case KindCutOff:
		return "cut_off"
	case KindShape:
		return "shape"
	case KindCanceled:
		return "canceled"
	}
	return "unknown"
}

// RequestError is why an engine could not be asked, or its answer not be used.
type RequestError struct {
	URL      string // what was asked, without user information
	Kind     ErrorKind
	Status   int // HTTP status where Kind is KindStatus
	Attempts int // tries made, the last one included
	Err      error
}

func (e *RequestError) Error() string {
	if e.Attempts > 1 {
		return fmt.Sprintf("discovery: GET %s: %v (%d tries)", e.URL, e.Err, e.Attempts)
	}
	return fmt.Sprintf("discovery: GET %s: %v", e.URL, e.Err)
}

func (e *RequestError) Unwrap() error { return e.Err }

// Retryable reports whether the same request may well succeed a moment later:
// the network, the engine (5xx) or a cut-off body was at fault. What a complete
// answer says, it will say again.
func (e *RequestError) Retryable() bool {
	switch e.Kind {
	case KindNetwork, KindCutOff:
		return true
	case KindStatus:
		return e.Status >= 500
	}
	return false
}

// noEndpoint reports whether the engine said that it has no such endpoint.
func (e *RequestError) noEndpoint() bool {
	return e.Kind == KindStatus && (e.Status == http.StatusNotFound || e.Status == http.StatusMethodNotAllowed || e.Status == http.StatusNotImplemented)
}
