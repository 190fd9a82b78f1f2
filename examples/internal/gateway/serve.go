package gateway

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Serve serves clients on one listener and operators on another, unless that is nil,
// until ctx ends, then drains and returns nil. It works once.
//
// Draining: /readyz turns 503; after DrainDelay nothing new is accepted; requests
// in flight may finish within DrainTimeout, and are cut after it. Load goes on
// being listened to meanwhile: a retry in the last second is to be a good pick
// too, and whoever looks on sees it through.
func (g *Gateway) Serve(ctx context.Context, clients, admin net.Listener) error {
	defer g.Close()

	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		if err := g.fleet.Run(background); err != nil {
			g.logger.Error("fleet ended", "error", err)
		}
	})
	if g.peers != nil {
		wg.Go(func() {
			if err := g.peers.Run(background); err != nil {
				g.logger.Error("peers ended", "error", err)
			}
		})
	}
	wg.Go(func() { g.health.run(background) })

	ended := make(chan error, 2)
	serve := func(h http.Handler, l net.Listener) *http.Server {
		server := &http.Server{
			Handler:           h,
			ReadHeaderTimeout: 10 * time.Second, // the rest of a request is bounded in Handler
			IdleTimeout:       2 * time.Minute,
			ErrorLog:          log.New(serverLog{g.logger}, "", 0),
		}
		wg.Go(func() { ended <- server.Serve(l) })
		return server
	}
	server := serve(g.Handler(), clients)
	defer server.Close()
	if admin != nil {
		defer serve(g.AdminHandler(), admin).Close() // streams of the page too, which have no end
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	g.drain(server)
	return nil
}

func (g *Gateway) drain(server *http.Server) {
	c := g.config.Load()
	g.logger.Info("draining", "delay", c.DrainDelay.String(), "timeout", c.DrainTimeout.String())
	g.draining.Store(true)
	if d := time.Duration(c.DrainDelay); d > 0 {
		time.Sleep(d)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.DrainTimeout))
	defer cancel()
	if err := server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		g.logger.Warn("requests were still in flight, and are cut")
		server.Close()
	}
}

// serverLog takes what net/http complains of, a line at a time.
type serverLog struct{ logger *slog.Logger }

func (s serverLog) Write(b []byte) (int, error) {
	s.logger.Warn("http server", "error", strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}
