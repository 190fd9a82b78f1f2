package zmqsub

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// maxLookups bounds the goroutines that wait for name servers.
	maxLookups = 16

	lookupTimeout = 5 * time.Second
)

// lookupFunc finds the addresses of a name, best first.
type lookupFunc func(ctx context.Context, host string) ([]netip.Addr, error)

// resolver looks names up in the background. The ranks of one worker share
// their host, so everybody who asks for a name while it is being looked up gets
// the same answer.
type resolver struct {
	lookup lookupFunc
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	waiting map[string][]func([]netip.Addr, error)
	queue   []string
	running int
}

func newResolver(lookup lookupFunc) *resolver {
	r := &resolver{lookup: lookup, waiting: make(map[string][]func([]netip.Addr, error))}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// resolve calls done with the addresses of host, on another goroutine.
func (r *resolver) resolve(host string, done func([]netip.Addr, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return // closing; nobody waits for it
	}
	asked := r.waiting[host]
	r.waiting[host] = append(asked, done)
	if asked != nil {
		return
	}
	r.queue = append(r.queue, host)
	if r.running < maxLookups {
		r.running++
		r.wg.Go(r.work)
	}
}

func (r *resolver) work() {
	for {
		r.mu.Lock()
		if len(r.queue) == 0 || r.ctx.Err() != nil {
			r.running--
			r.mu.Unlock()
			return
		}
		host := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()

		ctx, cancel := context.WithTimeout(r.ctx, lookupTimeout)
		addrs, err := r.lookup(ctx, host)
		cancel()
		if err == nil && len(addrs) == 0 {
			err = fmt.Errorf("zmqsub: %s has no address", host)
		}

		r.mu.Lock()
		asked := r.waiting[host]
		delete(r.waiting, host)
		r.mu.Unlock()
		for _, done := range asked {
			done(addrs, err)
		}
	}
}

// close ends the look-ups in progress and waits for their goroutines.
func (r *resolver) close() {
	r.mu.Lock()
	r.cancel() // under mu, so that no worker starts once wg is waited for
	r.mu.Unlock()
	r.wg.Wait()
}

// newLookup returns a lookupFunc over Go's own resolver, whose queries end when
// stop is called. IPv4 comes first: an engine that binds tcp://*:port listens
// on IPv4 alone, unless somebody switched IPv6 on.
func newLookup() (lookup lookupFunc, stop func()) {
	conns := &dnsConns{open: make(map[net.Conn]struct{})}
	r := &net.Resolver{PreferGo: true, Dial: conns.dial}
	lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
		addrs, err := r.LookupNetIP(ctx, "ip", host)
		for i := range addrs {
			addrs[i] = addrs[i].Unmap()
		}
		slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
		return addrs, err
	}
	return lookup, conns.close
}

// dnsConns are the connections to name servers. net.Resolver returns as soon as
// its context ends but leaves a goroutine reading until the query times out;
// closing its connection is what ends that.
type dnsConns struct {
	dialer net.Dialer

	mu     sync.Mutex
	open   map[net.Conn]struct{} // nil once closed
	closed bool
}

func (c *dnsConns) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	c.open[conn] = struct{}{}
	// The resolver tells datagrams from streams by the type of the connection.
	if udp, ok := conn.(*net.UDPConn); ok {
		return &dnsUDP{UDPConn: udp, conns: c}, nil
	}
	return &dnsTCP{Conn: conn, conns: c}, nil
}

func (c *dnsConns) forget(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, conn)
}

func (c *dnsConns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for conn := range c.open {
		conn.Close()
	}
	clear(c.open)
}

type dnsUDP struct {
	*net.UDPConn
	conns *dnsConns
}

func (c *dnsUDP) Close() error {
	c.conns.forget(c.UDPConn)
	return c.UDPConn.Close()
}

type dnsTCP struct {
	net.Conn
	conns *dnsConns
}

func (c *dnsTCP) Close() error {
	c.conns.forget(c.Conn)
	return c.Conn.Close()
}
