package gateway

import (
	"fmt"
	"net"
	"net/http"
	"strings"
)

// AdminHandler returns what operators ask. It tells everything and asks nobody who they
// are, unless they want to change something, and so has a listener of its own, on an
// address that clients do not reach. That is simpler than keeping two kinds of callers
// apart on one, there is no path that an engine could want too, and it goes on answering
// while the door for clients shuts.
func (g *Gateway) AdminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", http.RedirectHandler("/status/", http.StatusFound))
	mux.Handle("GET /status/", g.page) // status.json and stream are below it
	mux.HandleFunc("GET /gateway.json", g.serveStatus)
	mux.Handle("GET /metrics", g.metrics.handler())
	mux.HandleFunc("GET /healthz", serveHealthz)
	mux.HandleFunc("GET /readyz", g.serveReadyz)
	mux.HandleFunc("POST /drain", g.serveDrain(true))
	mux.HandleFunc("POST /undrain", g.serveDrain(false))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.bound(w, r.ContentLength != 0) // without a body, a deadline for it would end the page's stream
		mux.ServeHTTP(w, r)
	})
}

// onlyHere reports whether nobody but this machine can reach a listener.
func onlyHere(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// byOwnName refuses what asks for this machine by a name that only others have for it.
// Somebody's web page can do that whose name, the second time that a browser looks it up,
// stands for 127.0.0.1: the browser then has it read what is there.
func byOwnName(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		host = strings.ToLower(strings.Trim(host, "[]"))
		if net.ParseIP(host) == nil && host != "localhost" && !strings.HasSuffix(host, ".localhost") {
			http.Error(w, fmt.Sprintf("this address has no name but localhost, and not %q", host), http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}
