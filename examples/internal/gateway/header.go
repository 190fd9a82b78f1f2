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
	workerHeader  = "X-Plimsoll-Worker"
	pickHeader    = "X-Plimsoll-Pick"
	explainHeader = "X-Plimsoll-Explain" // also of the request that wants it
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

// explained is how many lines of an explanation an answer has: one for the whole, one for
// the chosen worker, and the best of the others. A large fleet's header would not pass
// every proxy on the way to the client.
const explained = 8

// tellPick says which engine the newest pick is, and why.
func (c *call) tellPick(w http.ResponseWriter) {
	h := w.Header()
	if len(c.tried) > 0 {
		h.Set(workerHeader, c.pick.Worker.ID())
		h.Set(pickHeader, c.pick.String())
	}
	if c.explanation != nil {
		lines := strings.SplitN(c.explanation.String(), "\n", explained+1)
		h[explainHeader] = lines[:min(len(lines), explained)]
	}
}

// setResponseHeader passes an engine's headers on. They do not replace what the
// gateway has to say.
func setResponseHeader(w http.ResponseWriter, h http.Header) {
	out := w.Header()
	for name, values := range endToEnd(h) {
		switch name {
		case workerHeader, pickHeader, explainHeader, requestIDHeader:
		default:
			out[name] = values
		}
	}
}
