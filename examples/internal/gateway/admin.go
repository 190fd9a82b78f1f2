package gateway

import "net/http"

// AdminHandler returns what operators ask. It tells everything and asks nobody who
// they are, unless they want to change something, and so has a listener of its own, on an address that clients do not
// reach. That is simpler than keeping two kinds of callers apart on one, there is
// no path that an engine could want too, and it goes on answering while the door for
// clients shuts.
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
	return mux
}
