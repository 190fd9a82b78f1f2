//go:build linux && cgo

package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"

	gozmq "github.com/go-zeromq/zmq4"
	zmq "github.com/pebbe/zmq4"

	"github.com/plimsoll-go/plimsoll/snapshot"
	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

// reader is a way of listening: it subscribes to all endpoints, puts what comes
// into the ranks of the fleet, and returns what counts the messages that came. It
// listens until the process ends.
type reader func(f *fleet, endpoints []string) (received func() int, err error)

// subject is the reader that the targets are about.
const subject = "plimsoll"

// readers are in the order of the table.
var readers = []struct {
	name        string
	listen      reader
	descriptors int // for each rank
}{
	{subject, plimsoll(zmqsub.Config{}), 1},
	{subject + "-libzmq", plimsoll(zmqsub.Config{Libzmq: true}), 2},
	{"blocking", blocking, 2},
	{"poller", poller, 2},
	{"go-zeromq", goZeroMQ, 1},
}

func readerNames() (names []string) {
	for _, r := range readers {
		names = append(names, r.name)
	}
	return names
}

// readerNamed returns nil if there is none of that name.
func readerNamed(name string) reader {
	for _, r := range readers {
		if r.name == name {
			return r.listen
		}
	}
	return nil
}

// descriptorsOf is how many descriptors a reader takes for each rank.
func descriptorsOf(name string) int {
	for _, r := range readers {
		if r.name == name {
			return r.descriptors
		}
	}
	return 0
}

func plimsoll(config zmqsub.Config) reader {
	return func(f *fleet, endpoints []string) (func() int, error) {
		config.MaxSockets = len(endpoints)
		sub, err := zmqsub.New(config)
		if err != nil {
			return nil, err
		}
		for i, endpoint := range endpoints {
			r := f.ranks[i]
			_, err := sub.Subscribe(endpoint, func(d snapshot.Delivery) {
				if d.Err == nil {
					r.put(d.Reading, d.Seq, d.Received)
				}
			})
			if err != nil {
				return nil, err
			}
		}
		return func() int { return int(sub.Stats().Messages) }, nil
	}
}

// subSocket is a plain SUB socket, connected, with every default of libzmq.
func subSocket(ctx *zmq.Context, endpoint string) (*zmq.Socket, error) {
	soc, err := ctx.NewSocket(zmq.SUB)
	if err != nil {
		return nil, err
	}
	if err := soc.SetSubscribe(""); err != nil {
		return nil, err
	}
	return soc, soc.Connect(endpoint)
}

func newContext(sockets int) (*zmq.Context, error) {
	ctx, err := zmq.NewContext()
	if err != nil {
		return nil, err
	}
	return ctx, ctx.SetMaxSockets(sockets + 16)
}

// fail ends the process: a reference that breaks is no reference.
func fail(err error) {
	fmt.Fprintln(os.Stderr, "scale:", err)
	os.Exit(1)
}

func blocking(f *fleet, endpoints []string) (func() int, error) {
	debug.SetMaxThreads(len(endpoints) + 1000) // each of them holds one
	ctx, err := newContext(len(endpoints))
	if err != nil {
		return nil, err
	}
	var received atomic.Int64
	for i, endpoint := range endpoints {
		soc, err := subSocket(ctx, endpoint)
		if err != nil {
			return nil, err
		}
		go func() {
			var reading snapshot.Reading
			for {
				frames, err := soc.RecvMessageBytes(0)
				if err != nil {
					fail(err)
				}
				received.Add(1)
				if err := f.ranks[i].frames(frames, &reading); err != nil {
					fail(err)
				}
			}
		}()
	}
	return func() int { return int(received.Load()) }, nil
}

func poller(f *fleet, endpoints []string) (func() int, error) {
	ctx, err := newContext(len(endpoints))
	if err != nil {
		return nil, err
	}
	p := zmq.NewPoller()
	ranks := make(map[*zmq.Socket]*rank)
	for i, endpoint := range endpoints {
		soc, err := subSocket(ctx, endpoint)
		if err != nil {
			return nil, err
		}
		p.Add(soc, zmq.POLLIN)
		ranks[soc] = f.ranks[i]
	}
	var received atomic.Int64
	go func() {
		var reading snapshot.Reading
		for {
			polled, err := p.Poll(-1)
			if err != nil {
				fail(err)
			}
			for _, ready := range polled {
				frames, err := ready.Socket.RecvMessageBytes(zmq.DONTWAIT)
				if err != nil {
					fail(err)
				}
				received.Add(1)
				if err := ranks[ready.Socket].frames(frames, &reading); err != nil {
					fail(err)
				}
			}
		}
	}()
	return func() int { return int(received.Load()) }, nil
}

func goZeroMQ(f *fleet, endpoints []string) (func() int, error) {
	var received atomic.Int64
	var dialling sync.WaitGroup
	errs := make(chan error, len(endpoints))
	slots := make(chan struct{}, 16)
	for i, endpoint := range endpoints {
		soc := gozmq.NewSub(context.Background())
		slots <- struct{}{}
		dialling.Go(func() {
			defer func() { <-slots }()
			err := soc.Dial(endpoint)
			if err == nil {
				err = soc.SetOption(gozmq.OptionSubscribe, "")
			}
			if err != nil {
				errs <- err
				return
			}
			go func() {
				var reading snapshot.Reading
				for {
					m, err := soc.Recv()
					if err != nil {
						fail(err)
					}
					received.Add(1)
					if err := f.ranks[i].frames(m.Frames, &reading); err != nil {
						fail(err)
					}
				}
			}()
		})
	}
	dialling.Wait()
	close(errs)
	return func() int { return int(received.Load()) }, <-errs
}
