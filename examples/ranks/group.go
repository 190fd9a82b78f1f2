package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
	"github.com/plimsoll-go/plimsoll/examples/internal/tswire"
	"github.com/plimsoll-go/plimsoll/load"
)

type groupConfig struct {
	ranks     int
	inProcess bool
	handshake string  // of ranks that are not
	believe   bool    // the last word of a rank that has nothing to do
	speed     float64 // of ranks in this process; 0 = 1
	logger    *slog.Logger
	progress  io.Writer
}

// group is a router and the ranks that it routes to.
type group struct {
	*router
	engine *simengine.TokenSpeed // nil = elsewhere
	served chan error
}

// startGroup returns when all ranks are there.
func startGroup(ctx context.Context, c groupConfig) (_ *group, err error) {
	fc := tswire.FrontendConfig{Ranks: c.ranks, Logger: c.logger}
	if !c.inProcess {
		fc.Endpoint = c.handshake
	}
	frontend, err := tswire.Listen(fc)
	if err != nil {
		return nil, err
	}
	g := &group{router: &router{frontend: frontend, logger: c.logger, calls: map[string]*call{}}}
	g.alive, g.died = context.WithCancelCause(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	if err := g.assemble(ctx, c); err != nil {
		return nil, err
	}
	g.connector, err = newConnector(frontend.Endpoint(), c.ranks, c.believe)
	if err != nil {
		return nil, err
	}
	g.served = make(chan error, 1)
	go func() { g.served <- frontend.Serve(g.receive) }()
	return g, nil
}

// newConnector returns the connector of a group. To believe the last word of a rank
// is to say that others use the ranks too, so that none of our requests left there
// means nothing. Of a rank that really is shared that would be true until its report
// is stale, after five seconds by default; here it is for good, for the flaw to show.
func newConnector(endpoint string, ranks int, believe bool) (*load.Connector, error) {
	table := load.NewTable(load.Config{Window: 24 * time.Hour})
	return load.NewConnector(table.Add("group", endpoint), load.ConnectorConfig{Ranks: ranks, Shared: believe})
}

// assemble brings the ranks and the frontend together.
func (g *group) assemble(ctx context.Context, c groupConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := make(chan error, 1)
	if c.inProcess {
		go func() {
			var err error
			g.engine, err = simengine.StartTokenSpeed(ctx, simengine.Config{
				Wire: simengine.WireTokenSpeed, Handshake: g.frontend.Endpoint(), Ranks: c.ranks, Speed: c.speed, Logger: c.logger,
			})
			if err != nil {
				cancel()
			}
			started <- err
		}()
	} else {
		fmt.Fprintf(c.progress, "waiting for %d ranks at %s\n", c.ranks, g.frontend.Endpoint())
		started <- nil
	}
	said, err := g.frontend.Accept(ctx)
	if err != nil {
		cancel()
		return errors.Join(<-started, err)
	}
	fmt.Fprintf(c.progress, "%d ranks at %s, of %s with %d KV pages each\n", len(said), g.frontend.Endpoint(), said[0].Model, said[0].KVPages)
	return <-started
}

// close ends the engine where it is ours. One that is elsewhere misses its frontend.
func (g *group) close() error {
	var err error
	if g.engine != nil {
		err = g.engine.Kill() // it need not tell us
	}
	err = errors.Join(err, g.frontend.Close())
	if g.served != nil {
		err = errors.Join(err, <-g.served)
	}
	g.died(nil)
	return err
}
