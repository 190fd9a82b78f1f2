package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/gateway"
	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
	"github.com/plimsoll-go/plimsoll/load"
)

const (
	engines    = 4
	ranks      = 2
	slowEngine = engines - 1
	// patience is how long the demo waits for its engines before it gives up.
	patience = 30 * time.Second
)

// setup is the engines and the gateway, all in this process.
type setup struct {
	engines []*simengine.Engine
	slow    string // worker ID of slowEngine
	gateway *gateway.Gateway
	url     string
	admin   string // where the status page is
	stop    context.CancelFunc
	served  chan error
}

func setUp() (s *setup, err error) {
	s = &setup{stop: func() {}}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	var urls []string
	for i := range engines {
		c := simengine.Config{
			Admin:          "127.0.0.1:0", // where it can be called back to life
			Ranks:          ranks,
			StreamInterval: 8,                     // tokens per event: one processor or two play all the engines and all the clients
			Wire:           simengine.Wire(i % 2), // released engines speak one, newer ones the other
			Logger:         slog.New(slog.DiscardHandler),
		}
		if i == slowEngine {
			c.Speed = 0.5
		}
		e, err := simengine.Start(c)
		if err != nil {
			return nil, err
		}
		s.engines = append(s.engines, e)
		urls = append(urls, e.URL())
	}
	s.slow = urls[slowEngine]
	if s.gateway, err = gateway.New(gateway.Config{Workers: urls, ExplainOnRequest: true, ExplainEvery: 20}); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, s.gateway.Close())
	}
	admin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.Close()
		return nil, errors.Join(err, s.gateway.Close())
	}
	s.url, s.admin = "http://"+l.Addr().String(), "http://"+admin.Addr().String()
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.served = make(chan error, 1)
	go func() { s.served <- s.gateway.Serve(ctx, l, admin) }()
	return s, nil
}

// close ends everything, the gateway first: engines that are gone would be news
// to it.
func (s *setup) close() (err error) {
	s.stop()
	if s.served != nil {
		err = <-s.served
	}
	for _, e := range s.engines {
		err = errors.Join(err, e.Close())
	}
	return err
}

// waitTrusted waits until every rank of every engine has reported.
func (s *setup) waitTrusted(ctx context.Context, say *progress) error {
	return s.wait(ctx, func(workers []load.WorkerStatus) (waitingFor string) {
		trusted, reason := 0, "no engine is known yet"
		for _, w := range workers {
			if w.Trusted {
				trusted++
			} else {
				reason = w.ID + ": " + w.Reason
			}
		}
		if trusted == len(s.engines) {
			say.line("all engines report their load")
			return ""
		}
		return say.update("%d of %d engines report their load; %s", trusted, len(s.engines), reason)
	})
}

// waitIdle waits until nothing is left of what was sent, by the engines' own
// word.
func (s *setup) waitIdle(ctx context.Context, say *progress) error {
	return s.wait(ctx, func(workers []load.WorkerStatus) (waitingFor string) {
		var left int64
		for _, w := range workers {
			// One that is not trusted may have anything left.
			left += w.InFlight + w.Depth.Or(1)
		}
		if left == 0 {
			return ""
		}
		return say.update("waiting until the engines are idle, %d requests to go", left)
	})
}

// wait looks at the table until pending has nothing to wait for any more.
func (s *setup) wait(ctx context.Context, pending func([]load.WorkerStatus) string) error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		waitingFor := pending(s.gateway.Table().Status())
		if waitingFor == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			return fmt.Errorf("gave up after %v: %s", patience, waitingFor)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// statusPage is where a person sees all of it.
func (s *setup) statusPage() string { return s.admin + "/status/" }

// nameOf is what an engine is called in what the demo says.
func nameOf(engine int) string {
	if engine == slowEngine {
		return fmt.Sprintf("engine-%d (slow)", engine)
	}
	return fmt.Sprintf("engine-%d", engine)
}
