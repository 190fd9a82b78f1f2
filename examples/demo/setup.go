package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/gateway"
	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
	"github.com/plimsoll-go/plimsoll/load"
)

const (
	ranks = 2
	// patience is how long the demo waits for its engines before it gives up.
	patience = 30 * time.Second
)

// setup is the engines and the gateway, all in this process.
type setup struct {
	engines []*simengine.Engine
	slow    string // worker ID of the slow one
	gateway *gateway.Gateway
	url     string
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
	for i := range 4 {
		c := simengine.Config{
			Ranks:          ranks,
			StreamInterval: 8,                     // tokens per event: one processor or two play all the engines and all the clients
			Wire:           simengine.Wire(i % 2), // released engines speak one, newer ones the other
			Logger:         slog.New(slog.DiscardHandler),
		}
		if i == 3 {
			c.Speed = 0.5
		}
		e, err := simengine.Start(c)
		if err != nil {
			return nil, err
		}
		s.engines = append(s.engines, e)
		urls = append(urls, e.URL())
		s.slow = e.URL()
	}
	if s.gateway, err = gateway.New(gateway.Config{Workers: urls}); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, s.gateway.Close())
	}
	s.url = "http://" + l.Addr().String()
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.served = make(chan error, 1)
	go func() { s.served <- s.gateway.Serve(ctx, l) }()
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

// guide says what there is to look at.
func (s *setup) guide(w io.Writer) {
	fmt.Fprintf(w, `
Still up, until Ctrl-C. In another terminal:

  curl -s %[1]s/status                       all that the gateway knows, and why it trusts whom
  curl -s -i %[1]s/v1/completions -d '{"prompt": "hello", "max_tokens": 5}'
                                                              the headers X-Plimsoll-... tell the pick
  curl -s -X POST '%[2]s/sim/mute?for=20s'   an engine falls silent: watch it turn stale, and the picks go on
  curl -s -X POST '%[2]s/sim/die?for=10s'    an engine dies, and comes back

`, s.url, s.engines[0].URL())
	for _, e := range s.engines {
		fmt.Fprintf(w, "  engine %s, load on %v\n", e.URL(), e.LoadEndpoints())
	}
}
