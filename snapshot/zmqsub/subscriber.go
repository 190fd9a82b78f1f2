package zmqsub

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// Subscriber listens to load sockets. It must be closed: its owners keep it,
// and every socket, alive.
type Subscriber struct {
	config   Config
	owners   []*owner
	bus      bus
	resolver *resolver
	stopDNS  func()

	running atomic.Int32  // owners that are not done yet
	done    chan struct{} // closed when everything is let go of
	err     error         // of closing; read after done

	mu      sync.Mutex // before owner.mu and subscription.mu
	closed  bool
	open    int                        // subscriptions that count towards MaxSockets
	subs    map[*subscription]struct{} // whose counts are not in retired
	retired Counts
}

// New starts a Subscriber. Its errors are ErrNoCgo, ErrLimit when there are not
// even descriptors for its own few sockets, those of an invalid Config, and
// those of libzmq.
func New(c Config) (*Subscriber, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	b, err := openBus(c)
	if err != nil {
		return nil, err
	}
	lookup, stopDNS := newLookup()
	return start(c, b, lookup, stopDNS)
}

func start(c Config, b bus, lookup lookupFunc, stopDNS func()) (*Subscriber, error) {
	s := &Subscriber{
		config:   c,
		bus:      b,
		resolver: newResolver(lookup),
		stopDNS:  stopDNS,
		done:     make(chan struct{}),
		subs:     make(map[*subscription]struct{}),
	}
	for range c.Owners {
		p, err := b.port()
		if err != nil {
			for _, o := range s.owners {
				o.port.close()
			}
			s.resolver.close()
			return nil, errors.Join(err, b.close())
		}
		s.owners = append(s.owners, newOwner(s, p))
	}
	s.running.Store(int32(len(s.owners)))
	for _, o := range s.owners {
		go o.run()
	}
	return s, nil
}

// Subscribe listens to a load socket, given as tcp://host:port with an IP
// address (IPv6 in brackets) or a DNS name, until stop is called. The peer need
// not be there: nothing that it does or fails to do ends the subscription.
//
// deliver gets the newest reading of each drain, and at most one dropped
// message per drain. See the package comment for what it may do; above all it
// must not block. One endpoint may be subscribed to more than once.
//
// stop ends the subscription and may be called any number of times. Once it has
// returned, deliver is not running and is not called again (from inside a
// deliver function it does not wait for one in progress).
//
// Errors: *EndpointError, ErrLimit, ErrClosed, and those of libzmq.
func (s *Subscriber) Subscribe(endpoint string, deliver func(snapshot.Delivery)) (stop func(), err error) {
	t, err := parseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	if deliver == nil {
		return nil, errors.New("zmqsub: deliver is nil")
	}
	// On an owner goroutine only that owner's own sockets are within reach:
	// waiting for another owner could be waiting for one that waits for us.
	here := s.currentOwner()
	o, err := s.place(here)
	if err != nil {
		return nil, err
	}
	sub := newSubscription(endpoint, t, deliver, o)
	if here != nil {
		err = o.add(sub)
	} else {
		err = o.do(func() error { return o.add(sub) })
	}
	if err != nil {
		s.unplace(o)
		return nil, err
	}
	return func() { s.stop(sub) }, nil
}

// place picks the owner of a new subscription and counts it.
func (s *Subscriber) place(here *owner) (*owner, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, ErrClosed
	case s.open >= s.config.MaxSockets:
		return nil, fmt.Errorf("%w: %d subscriptions are open (Config.MaxSockets)", ErrLimit, s.open)
	}
	o := here
	if o == nil {
		o = s.owners[0]
		for _, other := range s.owners[1:] {
			if other.weight < o.weight {
				o = other
			}
		}
	}
	s.open++
	o.weight++
	return o, nil
}

func (s *Subscriber) unplace(o *owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	o.weight--
}

func (s *Subscriber) stop(sub *subscription) {
	if !sub.stopped.Swap(true) {
		s.unplace(sub.owner)
		sub.owner.post(func() { sub.owner.remove(sub) })
	}
	// Every caller is promised this, not only the first one.
	if s.currentOwner() == nil {
		sub.waitForCall()
	}
}

// Close ends all subscriptions and waits until no goroutine, socket or
// descriptor of the Subscriber is left. It takes as long as the deliver calls
// in progress and some milliseconds, whatever the peers do. It may be called
// more than once and during any other call. From inside a deliver function it
// only starts all this, and does not wait.
func (s *Subscriber) Close() error {
	s.shut()
	if s.currentOwner() != nil {
		return nil
	}
	<-s.done
	return s.err
}

// shut makes the owners end, without waiting for them.
func (s *Subscriber) shut() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return
	}
	for _, o := range s.owners {
		o.close()
	}
}

// ownerGone is the last thing that an owner does.
func (s *Subscriber) ownerGone() {
	if s.running.Add(-1) > 0 {
		return
	}
	s.stopDNS()
	s.resolver.close()
	s.err = s.bus.close()
	close(s.done)
}

// currentOwner returns the owner inside one of whose deliver calls we are, or
// nil.
func (s *Subscriber) currentOwner() *owner {
	var id uint64
	for _, o := range s.owners {
		if !o.delivering.Load() {
			continue
		}
		if id == 0 {
			id = goroutineID()
		}
		if id != 0 && o.id.Load() == id {
			return o
		}
	}
	return nil
}

// enter makes the counts of a subscription part of Stats.
func (s *Subscriber) enter(sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs[sub] = struct{}{}
}

// retire keeps the counts of a subscription that has ended.
func (s *Subscriber) retire(sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.subs, sub)
	s.retired.add(sub.stats().Counts)
}
