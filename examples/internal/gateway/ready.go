package gateway

import (
	"errors"
	"fmt"
	"net/http"
)

// ready returns why no requests should be sent here, and nil if they should.
func (g *Gateway) ready() error {
	if g.draining.Load() {
		return errors.New("draining")
	}
	if v := g.table.View(); v.Len() == 0 {
		return fmt.Errorf("no engine to pick: %d known, %d healthy", v.Known(), v.Healthy())
	}
	return nil
}

// serveReadyz is for whoever sends requests here, such as a load balancer: 503 takes
// this gateway out of rotation until it is worth something again.
func (g *Gateway) serveReadyz(w http.ResponseWriter, _ *http.Request) {
	if err := g.ready(); err != nil {
		http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ready\n"))
}

// serveHealthz is for whoever restarts this process: a gateway without engines, or one
// that drains, is no better after a restart.
func serveHealthz(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("alive\n")) }
