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
// in flight may finish within DrainTimeout. After it, a client that has seen nothing yet is
// told so, and any other one is cut. Load goes on
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

	requests, end := context.WithCancelCause(background)
	defer end(nil)
	ended := make(chan error, 2)
	serve := func(h http.Handler, l net.Listener) *http.Server {
		server := &http.Server{
			Handler:           h,
			ReadHeaderTimeout: 10 * time.Second, // the rest of a request is bounded by the handlers
			IdleTimeout:       2 * time.Minute,
			ErrorLog:          log.New(serverLog{g.logger}, "", 0),
			BaseContext:       func(net.Listener) context.Context { return requests },
		}
		wg.Go(func() { ended <- server.Serve(l) })
		return server
	}
	var handlers sync.RWMutex
	server := serve(counted(&handlers, g.Handler()), clients)
	defer func() {
		server.Close() // which waits for no handler, and they have something to log
		handlers.Lock()
	}()
	if admin != nil {
		h := g.AdminHandler()
		if onlyHere(admin.Addr()) {
			h = byOwnName(h)
		}
		defer serve(h, admin).Close() // streams of the page too, which have no end
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	g.drain(server, end)
	return nil
}

// counted holds handlers for reading as long as a request is handled. Unlike a WaitGroup,
// it does not mind a request that comes while the last ones are waited for.
func counted(handlers *sync.RWMutex, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers.RLock()
		defer handlers.RUnlock()
		h.ServeHTTP(w, r)
	})
}

// errEnds is why requests end that are in flight after DrainTimeout.
var errEnds = errors.New("this gateway ends")

// endsWithin is how long they may take for that.
const endsWithin = 5 * time.Second

func (g *Gateway) drain(server *http.Server, end context.CancelCauseFunc) {
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
		end(errEnds)
		ctx, cancel := context.WithTimeout(context.Background(), endsWithin)
		defer cancel()
		_ = server.Shutdown(ctx) // what takes longer is closed by Serve
	}
}

// serverLog takes what net/http complains of, a line at a time.
type serverLog struct{ logger *slog.Logger }

func (s serverLog) Write(b []byte) (int, error) {
	s.logger.Warn("http server", "error", strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}
