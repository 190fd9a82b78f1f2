package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/gateway"
)

// gateways is how many there are, each with all that belongs to one.
const gateways = 2

// setup is engines, the list of them, and two gateways.
type setup struct {
	fleet    *fleet
	list     *list
	gateways []*running
	dir      string
}

// running is a gateway that serves.
type running struct {
	*gateway.Gateway
	name, url string
	stop      context.CancelFunc
	served    chan error
}

func setUp(o options) (s *setup, err error) {
	s = &setup{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "soak"); err != nil {
		return s, err
	}
	if s.fleet, err = startFleet(o.engines); err != nil {
		return s, err
	}
	s.list = newList(s.dir, s.fleet.world, o.seed)
	if err = s.list.write(); err != nil {
		return s, err
	}
	for i := range gateways {
		g, err := startGateway(o, string(rune('a'+i)), s.list.path)
		if err != nil {
			return s, err
		}
		s.gateways = append(s.gateways, g)
	}
	return s, nil
}

func startGateway(o options, name, workers string) (*running, error) {
	g, err := gateway.New(gateway.Config{
		WorkersFile:   workers,
		Freshness:     gateway.Duration(o.window),
		ProbeInterval: gateway.Duration(probe),
		EngineTimeout: gateway.Duration(o.silence()),
	})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &running{Gateway: g, name: name, url: "http://" + l.Addr().String(), stop: stop, served: make(chan error, 1)}
	go func() { r.served <- g.Serve(ctx, l, nil) }()
	return r, nil
}

// close ends everything, the gateways first: engines that are gone would be news to
// them.
func (s *setup) close() (err error) {
	for _, g := range s.gateways {
		g.stop()
	}
	for _, g := range s.gateways {
		err = errors.Join(err, <-g.served)
	}
	if s.fleet != nil {
		err = errors.Join(err, s.fleet.close())
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// untrusted names a worker that a gateway does not trust, or cannot pick; "" if there
// is none.
func (s *setup) untrusted() string {
	for _, g := range s.gateways {
		statuses := g.Table().Status()
		if len(statuses) != len(s.fleet.engines) {
			return fmt.Sprintf("gateway %s has %d workers of %d", g.name, len(statuses), len(s.fleet.engines))
		}
		for _, w := range statuses {
			switch {
			case !w.Trusted:
				return fmt.Sprintf("gateway %s: %s is not trusted: %s", g.name, w.ID, w.Reason)
			case !w.Healthy:
				return fmt.Sprintf("gateway %s: %s is not healthy", g.name, w.ID)
			}
		}
	}
	return ""
}

// busy names an engine that still has something to do; "" if there is none.
func (s *setup) busy() string {
	for _, e := range s.fleet.engines {
		if !e.idle() {
			return e.truth.Name + " still computes something for nobody"
		}
	}
	return ""
}

// until waits until nothing is pending any more, and returns what still is if that
// takes too long, or ctx ends.
func until(ctx context.Context, most time.Duration, pending func() string) string {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(most); ; {
		what := pending()
		if what == "" || ctx.Err() != nil || time.Now().After(deadline) {
			return what
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}
