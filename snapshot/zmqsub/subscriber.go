package zmqsub

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// ownerFill is how many sockets one owner gets before the next gets any. The
// fewer owners are at work, the more messages each wake-up serves; so many keep
// one busy for a quarter of the time.
const ownerFill = 2048

// Subscriber listens to load sockets. It must be closed: its owners keep it,
// and every socket, alive.
type Subscriber struct {
	config   Config
	owners   []*owner
	bus      bus
	resolver *resolver

	running atomic.Int32  // owners that are not done yet
	gone    chan struct{} // closed when they are
	watched chan struct{} // closed when watch is
	done    chan struct{} // closed when everything is let go of
	err     error         // of closing; read after done

	mu      sync.Mutex // before owner.mu and subscription.mu
	closed  bool
	subs    map[*subscription]struct{} // whose counts are not in retired
	retired Counts
}

// New starts a Subscriber. Its errors are ErrNoCgo, ErrNoCurve, ErrLimit when
// there are no descriptors for Config.MaxSockets or not even for its own few, those
// of an invalid Config, among which *KeyError, and those of libzmq.
func New(c Config) (*Subscriber, error) {
	if err := c.checkDescriptors(); err != nil {
		return nil, err
	}
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	b, err := openBus(c)
	if err != nil {
		return nil, err
	}
	return start(c, b, newLookup())
}

func start(c Config, b bus, lookup lookupFunc) (*Subscriber, error) {
	s := &Subscriber{
		config:   c,
		bus:      b,
		resolver: newResolver(lookup),
		gone:     make(chan struct{}),
		watched:  make(chan struct{}),
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
	if g := b.gauge(); g != nil {
		go s.watch(g)
	} else {
		close(s.watched)
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
// returned, deliver is not running and is not called again. Like Subscribe it
// waits for the owner of the socket, and so for a deliver call that the owner is
// in: a deliver function must call neither of them, nor Close.
//
// Errors: *EndpointError, *KeyError, ErrLimit, ErrClosed, and those of libzmq.
func (s *Subscriber) Subscribe(endpoint string, deliver func(snapshot.Delivery)) (stop func(), err error) {
	t, err := parseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	if deliver == nil {
		return nil, errors.New("zmqsub: deliver is nil")
	}
	key, err := s.config.Curve.serverKey(endpoint)
	if err != nil {
		return nil, err
	}
	o, err := s.place()
	if err != nil {
		return nil, err
	}
	sub := &subscription{endpoint: endpoint, target: t, deliver: deliver, owner: o, link: link{serverKey: key}}
	if err := o.do(func() error { return o.add(sub) }); err != nil {
		s.unplace(o)
		return nil, err
	}
	return func() {
		_ = o.do(func() error { o.remove(sub); return nil }) // ErrClosed is as good
	}, nil
}

// place picks the owner of a new subscription and counts it.
func (s *Subscriber) place() (*owner, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	open := 0
	var o *owner
	for _, other := range s.owners {
		open += other.placed
		if o == nil || o.placed >= ownerFill && other.placed < o.placed {
			o = other
		}
	}
	if open >= s.config.MaxSockets {
		return nil, fmt.Errorf("%w: %d subscriptions are open (Config.MaxSockets)", ErrLimit, open)
	}
	o.placed++
	return o, nil
}

func (s *Subscriber) unplace(o *owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.placed--
}

// Close ends all subscriptions and waits until no goroutine, socket or
// descriptor of the Subscriber is left. It takes as long as the deliver calls
// in progress and some milliseconds, whatever the peers do. It may be called
// more than once and during any other call, but not by a deliver function.
func (s *Subscriber) Close() error {
	s.shut()
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
	close(s.gone)
	<-s.watched
	s.resolver.close()
	s.err = s.bus.close()
	close(s.done)
}

// enter makes the counts of a subscription part of Stats.
func (s *Subscriber) enter(sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs[sub] = struct{}{}
}

// retire makes room for another subscription in place of one that has ended,
// and keeps its counts.
func (s *Subscriber) retire(sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub.owner.placed--
	delete(s.subs, sub)
	s.retired.add(sub.stats().Counts)
}
