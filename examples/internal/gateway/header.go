package gateway

import (
	"net"
	"net/http"
	"net/textproto"
	"strings"
)

// Headers of an answer that tell how it was routed. They name engines; a gateway
// that faces the public may want to drop them.
const (
	workerHeader    = "X-Plimsoll-Worker"
	pickHeader      = "X-Plimsoll-Pick"
	requestIDHeader = "X-Request-Id"
)

// hopByHop headers are about one connection (RFC 9110, section 7.6.1), and there
// are two here.
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Proxy-Authenticate", "Proxy-Authorization",
}

// endToEnd returns a copy of h without what belongs to the connection.
func endToEnd(h http.Header) http.Header {
	out := h.Clone()
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			out.Del(textproto.TrimString(name))
		}
	}
	for _, name := range hopByHop {
		out.Del(name)
	}
	return out
}

// requestHeader returns what an engine gets to see: the client's own headers,
// Authorization among them, and where it came from.
func requestHeader(r *http.Request, id string) http.Header {
	h := endToEnd(r.Header)
	h.Del("Expect") // answered here, when the body was read
	h.Set(requestIDHeader, id)
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		if prior := h["X-Forwarded-For"]; len(prior) > 0 {
			host = strings.Join(prior, ", ") + ", " + host
		}
		h.Set("X-Forwarded-For", host)
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // or net/http would put in its own
	}
	return h
}

// setResponseHeader passes an engine's headers on. They do not replace what the
// gateway has to say.
func setResponseHeader(w http.ResponseWriter, h http.Header) {
	out := w.Header()
	for name, values := range endToEnd(h) {
		switch name {
		case workerHeader, pickHeader, requestIDHeader:
		default:
			out[name] = values
		}
	}
}
