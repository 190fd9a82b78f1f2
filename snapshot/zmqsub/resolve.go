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
	// maxLookups bounds what name servers are asked at once.
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
	slots  chan struct{}
	wg     sync.WaitGroup

	mu      sync.Mutex
	waiting map[string][]func([]netip.Addr, error) // guarded by mu
}

func newResolver(lookup lookupFunc) *resolver {
	r := &resolver{
		lookup:  lookup,
		slots:   make(chan struct{}, maxLookups),
		waiting: make(map[string][]func([]netip.Addr, error)),
	}
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
	if asked == nil {
		r.wg.Go(func() { r.ask(host) })
	}
}

func (r *resolver) ask(host string) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-r.ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, lookupTimeout)
	defer cancel()
	addrs, err := r.lookup(ctx, host)
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

// close ends the look-ups in progress and waits for their goroutines.
func (r *resolver) close() {
	r.mu.Lock()
	r.cancel() // under mu, so that none starts once wg is waited for
	r.mu.Unlock()
	r.wg.Wait()
}

// newLookup returns a lookupFunc over Go's own resolver, whose queries can be cut
// short. IPv4 comes first: an engine that binds tcp://*:port listens on IPv4
// alone, unless somebody switched IPv6 on.
func newLookup() lookupFunc {
	r := &net.Resolver{PreferGo: true, Dial: dialNameServer}
	return func(ctx context.Context, host string) ([]netip.Addr, error) {
		addrs, err := r.LookupNetIP(ctx, "ip", host)
		for i := range addrs {
			addrs[i] = addrs[i].Unmap()
		}
		slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
		return addrs, err
	}
}

// dialNameServer returns a connection that ends with its context.
// net.Resolver returns as soon as that is cancelled, but leaves a goroutine
// reading from the connection until the query times out.
func dialNameServer(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	return conn, nil
}
