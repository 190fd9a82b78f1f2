package plimsoll

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/load/loadhttp"
	"github.com/plimsoll-go/plimsoll/selector"
	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

// defaultFleet is the name of a fleet that is given none.
const defaultFleet = "default"

// fleets has every fleet that a configuration names. While Caddy reloads, two
// configurations do.
var fleets = caddy.NewUsagePool()

// fleet is a set of engines and what is known of them.
type fleet struct {
	// immutable
	name   string
	table  *load.Table
	page   *loadhttp.Handler
	ctx    context.Context // ends with the last configuration that names it
	cancel context.CancelFunc

	running sync.WaitGroup
	log     logger

	mu         sync.Mutex
	claims     []*claim // oldest first; the last one says which engines there are
	changed    chan struct{}
	subscriber *zmqsub.Subscriber
	uses       []*use // oldest first; no two of the same policy and configuration
}

// use is a policy with its configuration, as long as some proxy picks by it.
type use struct {
	key      string
	policy   selector.Policy
	selector *selector.Selector
	holders  int
}

// claim is what one upstream source says of the fleet, from its provisioning to its
// cleanup.
type claim struct {
	config  context.Context // of the configuration that the source is part of
	log     slog.Handler    // likewise
	engines Engines
	source  discovery.Source
}

// lease is a module's hold on a fleet, from its provisioning to its cleanup.
type lease struct {
	fleet *fleet
	once  sync.Once
}

// acquire gets the fleet of that name. The policy is provisioned before the source that
// says where the engines are, so a fleet may have none at first.
func (l *lease) acquire(name string) error {
	f, _, err := fleets.LoadOrNew(name, func() (caddy.Destructor, error) { return newFleet(name), nil })
	if err == nil {
		l.fleet = f.(*fleet)
	}
	return err
}

// release ends the lease, after first, once: Caddy cleans the modules of a refused
// configuration up twice.
func (l *lease) release(first func()) (err error) {
	l.once.Do(func() {
		if l.fleet == nil {
			return // its provisioning has failed
		}
		if first != nil {
			first()
		}
		_, err = fleets.Delete(l.fleet.name)
	})
	return err
}

func newFleet(name string) *fleet {
	f := &fleet{
		name:    name,
		table:   load.NewTable(load.Config{}),
		changed: make(chan struct{}),
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.page = loadhttp.New(f.table, loadhttp.Config{Title: "Caddy, fleet " + name, Policy: f.policy})
	return f
}

// Destruct ends the fleet. Caddy calls it with the last release.
func (f *fleet) Destruct() error {
	f.cancel()
	f.running.Wait()
	f.page.Close()
	if f.subscriber == nil {
		return nil
	}
	return f.subscriber.Close()
}

// claim makes the fleet consist of these engines until the claim is withdrawn, or another
// one is made.
func (f *fleet) claim(ctx caddy.Context, engines Engines) (*claim, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := &claim{config: ctx.Context, log: ctx.Slogger().Handler(), engines: engines}
	for _, other := range f.claims {
		if other.config == c.config && !reflect.DeepEqual(other.engines, engines) {
			return nil, fmt.Errorf("fleet %q has other engines elsewhere in this configuration: name one of them differently", f.name)
		}
	}
	if n := len(f.claims); n == 0 {
		f.log.use(c.log)
		if err := f.startLocked(engines); err != nil {
			return nil, err
		}
	} else if last := f.claims[n-1]; last.engines.Token != engines.Token || last.engines.Poll != engines.Poll {
		return nil, fmt.Errorf("fleet %q is in use, and its token and poll stay as they are: name the new one differently", f.name)
	} else if reflect.DeepEqual(last.engines, engines) {
		c.source = last.source // a file need not be read again, nor a name looked up
	}
	if c.source == nil {
		c.source = engines.source(slog.New(&f.log))
	}
	f.claims = append(f.claims, c)
	f.changedLocked()
	return c, nil
}

// withdraw takes a claim back: its configuration has been replaced, or was refused.
func (f *fleet) withdraw(c *claim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.claims) > 1 { // the last one's engines serve what is still in flight
		f.claims = slices.DeleteFunc(f.claims, func(other *claim) bool { return other == c })
		f.changedLocked()
	}
}

func (f *fleet) changedLocked() {
	f.log.use(f.claims[len(f.claims)-1].log)
	close(f.changed)
	f.changed = make(chan struct{})
}

// startLocked begins to listen to the engines.
func (f *fleet) startLocked(engines Engines) error {
	logger := slog.New(&f.log)
	wiring := discovery.Config{
		Table:   f.table,
		Source:  f,
		Client:  &discovery.Client{Token: engines.Token},
		PollAll: engines.Poll,
		Logger:  logger,
	}
	switch subscriber, err := zmqsub.New(zmqsub.Config{Logger: logger}); {
	case err == nil:
		f.subscriber, wiring.Subscriber = subscriber, subscriber
	case errors.Is(err, zmqsub.ErrNoCgo) && engines.Poll:
		logger.Warn("no load sockets in this build, only polling", "error", err)
	default:
		return err
	}
	listener := discovery.NewFleet(wiring)
	f.running.Go(func() {
		if err := listener.Run(f.ctx); err != nil {
			logger.Error("fleet ended", "fleet", f.name, "error", err)
		}
	})
	return nil
}

// Run implements discovery.Source: it runs the source of the newest claim. A worker's ID
// is what Caddy dials, which is all that an upstream can be told by.
func (f *fleet) Run(ctx context.Context, emit func([]discovery.Worker)) error {
	emitNamed := func(set []discovery.Worker) {
		set = slices.Clone(set)
		for i := range set {
			if address, err := dialAddress(set[i].URL); err == nil { // else the URL is refused
				set[i].ID = address
			}
		}
		emit(set)
	}
	for ctx.Err() == nil {
		f.mu.Lock()
		source, changed := f.claims[len(f.claims)-1].source, f.changed
		f.mu.Unlock()

		claimed, cancel := context.WithCancel(ctx)
		var wait sync.WaitGroup
		wait.Go(func() {
			select {
			case <-changed:
				cancel()
			case <-claimed.Done():
			}
		})
		err := source.Run(claimed, emitNamed)
		if err == nil {
			<-claimed.Done() // its last set is final, until there is another source
		}
		replaced := claimed.Err() != nil
		cancel()
		wait.Wait()
		if err != nil && !replaced {
			return err
		}
	}
	return nil
}

// await waits a moment for the first engines. Caddy opens its doors when all is
// provisioned, and the first request should find some.
func (f *fleet) await() {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Second); f.table.View().Known() == 0 && time.Now().Before(deadline); {
		<-tick.C
	}
}

// use returns a policy, which the next configuration gets with what it has learned.
// Whoever has it drops it.
func (f *fleet) use(name string, config []byte) (*use, error) {
	var key bytes.Buffer
	key.WriteString(name + " ")
	if len(config) > 0 {
		if err := json.Compact(&key, config); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range f.uses {
		if u.key == key.String() {
			u.holders++
			return u, nil
		}
	}
	policy, err := selector.NewPolicy(name, config)
	if err != nil {
		return nil, err
	}
	u := &use{
		key: key.String(), policy: policy, holders: 1,
		selector: selector.New(f.table, selector.Config{Policy: policy, Explain: f.page.Explain}),
	}
	f.uses = append(f.uses, u)
	return u, nil
}

// drop forgets a policy that nobody uses any more.
func (f *fleet) drop(u *use) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if u.holders--; u.holders == 0 {
		f.uses = slices.DeleteFunc(f.uses, func(other *use) bool { return other == u })
	}
}

// policy is the newest, for the status page.
func (f *fleet) policy() selector.Policy {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.uses); n > 0 {
		return f.uses[n-1].policy
	}
	return nil
}

// logger is a slog.Handler that can be changed. That of a configuration must not be used
// after it, since its files may be closed, and a fleet lives longer.
type logger struct {
	newest atomic.Pointer[slog.Handler]
}

func (l *logger) use(h slog.Handler) { l.newest.Store(&h) }

func (l *logger) Enabled(ctx context.Context, level slog.Level) bool {
	return (*l.newest.Load()).Enabled(ctx, level)
}

func (l *logger) Handle(ctx context.Context, r slog.Record) error {
	return (*l.newest.Load()).Handle(ctx, r)
}

func (l *logger) WithAttrs(attrs []slog.Attr) slog.Handler {
	return (*l.newest.Load()).WithAttrs(attrs)
}
func (l *logger) WithGroup(name string) slog.Handler { return (*l.newest.Load()).WithGroup(name) }
