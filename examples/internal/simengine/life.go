package simengine

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine/batch"
)

// life is an engine from a start to its death. What a real engine would lose with
// its process lives here; what stays with the machine lives in Engine.
type life struct {
	config    Config // defaults filled in
	loadBase  int    // 0 = no load sockets
	started   time.Time
	ctx       context.Context
	cancel    context.CancelFunc
	ranks     []*rank
	publisher *publisher // nil = no load sockets
	server    *http.Server
	running   sync.WaitGroup // ranks and the server's accept loop
	requests  gate
	ice       ice

	nextRank atomic.Uint64
	nextID   atomic.Uint64
	failures failures
}

// startLife binds everything and goes to work. When it fails, nothing is left
// behind; the error wraps errPortInUse where another try on other ports may help.
func startLife(config Config, listen string, speed float64, faults http.Handler) (*life, error) {
	l := &life{config: config, started: time.Now()}
	if !config.NoLoadSocket {
		base, err := config.loadPortBase()
		if err != nil {
			return nil, err
		}
		l.loadBase = base
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = errors.Join(errPortInUse, err)
		}
		return nil, fmt.Errorf("simengine: %w", err)
	}

	l.ctx, l.cancel = context.WithCancel(context.Background())
	if err := l.startRanks(speed); err != nil {
		l.cancel()
		listener.Close()
		return nil, err
	}
	l.server = newServer(l.handler(faults), config.Logger)
	l.server.BaseContext = func(net.Listener) context.Context { return l.ctx }
	l.running.Go(func() { serve(l.server, listener, config.Logger) })
	return l, nil
}

func (l *life) startRanks(speed float64) error {
	host, _, err := splitListen(l.config.Listen)
	if err != nil {
		return err
	}
	pc := publisherConfig{host: host, base: l.loadBase, ranks: l.config.Ranks, wire: l.config.Wire, logger: l.config.Logger, trace: l.config.Trace}
	if l.loadBase != 0 {
		l.publisher = newPublisher(pc)
	}
	for i := range l.config.Ranks {
		marked := func() {}
		if l.publisher != nil {
			marked = func() { l.publisher.mark(i) }
		}
		l.ranks = append(l.ranks, newRank(i, l.config.batch(), speed, marked))
	}
	if l.publisher != nil {
		if err := l.publisher.start(pc, l.ranks); err != nil {
			return err
		}
	}
	for _, r := range l.ranks {
		l.running.Go(func() { r.run(l.ctx) })
	}
	return nil
}

// close cuts every connection, fails what is in the ranks and frees the ports. It
// must not be called by a request of this life, since it waits for them.
func (l *life) close() {
	l.cancel()
	l.server.Close()
	if l.publisher != nil {
		l.publisher.close()
	}
	l.requests.close()
	l.running.Wait()
}

// submit puts a request on the rank that it asks for, or on the next one in turn.
func (l *life) submit(pinned *int, prompt, output int64) (*job, error) {
	var i int
	if pinned != nil {
		i = *pinned
	} else {
		i = int((l.nextRank.Add(1) - 1) % uint64(len(l.ranks)))
	}
	return l.ranks[i].submit(prompt, output)
}

func (l *life) totals() batch.Totals {
	var sum batch.Totals
	for _, r := range l.ranks {
		sum = sum.Plus(r.totals())
	}
	return sum
}

func newServer(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(debugWriter{logger}, "", 0),
	}
}

func serve(s *http.Server, l net.Listener, logger *slog.Logger) {
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		logger.Error("http server ended", "err", err)
	}
}

// debugWriter takes what net/http complains of. In an engine that is told to cut
// connections it is no news.
type debugWriter struct{ logger *slog.Logger }

func (w debugWriter) Write(b []byte) (int, error) {
	w.logger.Debug("http server", "msg", string(b))
	return len(b), nil
}
