package gateway

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/load/loadhttp"
	"github.com/plimsoll-go/plimsoll/selector"
	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

// Gateway routes requests to a fleet of engines. Make one with [New], and end it
// with [Gateway.Serve] or [Gateway.Close].
type Gateway struct {
	// immutable
	logger     *slog.Logger
	table      *load.Table
	subscriber *zmqsub.Subscriber // nil: no load sockets
	engines    *replaceable       // where the fleet gets them from
	fleet      *discovery.Fleet
	peers      *discovery.Peers // nil: the configuration says it all
	replica    func() (replica, replicas int)
	transport  *http.Transport
	health     *health
	page       *loadhttp.Handler
	metrics    *metrics
	began      time.Time

	config   atomic.Pointer[Config] // that it points to does not change
	routing  atomic.Pointer[routing]
	draining atomic.Bool
	reloads  reloads
}

// routing is a selector and its policy, which change together.
type routing struct {
	*selector.Selector
	policy selector.Policy
}

// New wires a gateway. Nothing is asked of any engine before Serve.
func New(c Config) (*Gateway, error) {
	g, err := newGateway(c)
	if err != nil {
		return nil, err
	}
	if err := g.wireFleet(); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// newGateway makes all that picks and proxies. Its table is empty as long as
// there is no fleet.
func newGateway(c Config) (*Gateway, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	secured, err := c.TLS.load()
	if err != nil {
		return nil, err
	}
	g := &Gateway{
		logger:    c.Logger,
		table:     load.NewTable(load.Config{Window: time.Duration(c.Freshness)}),
		transport: newTransport(secured),
		began:     time.Now(),
	}
	g.config.Store(&c)
	g.reloads.count = newReloads()
	g.engines = newReplaceable(source(c.Workers, c.WorkersFile, c.DNS, c.Logger))
	g.replica, g.peers = c.Peers.replica(c.Logger)
	g.health = newHealth(g.table, g.transport, g.config.Load)
	g.metrics = newMetrics(g)
	g.page = g.newPage()
	if err := g.SetPolicy(c.Policy, c.PolicyConfig); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// wireFleet makes what fills the table: who is asked which engines there are, and
// who listens to them.
func (g *Gateway) wireFleet() error {
	c := g.config.Load()
	curve, err := c.Curve.load()
	if err != nil {
		return err
	}
	wiring := discovery.Config{
		Table:  g.table,
		Source: g.engines,
		Client: &discovery.Client{
			TLS:     g.transport.TLSClientConfig,
			TokenOf: func(string) string { return g.config.Load().APIKey },
		},
		Logger:       c.Logger,
		PollAll:      c.Poll,
		PollInterval: time.Duration(c.PollInterval),
	}
	switch subscriber, err := zmqsub.New(zmqsub.Config{Silence: time.Duration(c.Freshness), Curve: curve, Logger: c.Logger}); {
	case err == nil:
		g.subscriber, wiring.Subscriber = subscriber, subscriber
	case errors.Is(err, zmqsub.ErrNoCgo) && c.Poll:
		// Polling still works. Without it, every pick would go by this gateway's
		// own counts, and nobody would know why.
		c.Logger.Warn("no load sockets in this build, only polling", "error", err)
	default:
		return err
	}
	g.fleet = discovery.NewFleet(wiring)
	return nil
}

// SetPolicy changes the policy for the requests to come. A selector holds no
// load and no books, the table does, so this can be done under traffic. A policy that
// learns begins anew.
func (g *Gateway) SetPolicy(name string, config json.RawMessage) error {
	policy, err := selector.NewPolicy(name, config)
	if err != nil {
		return err
	}
	g.route(policy)
	return nil
}

// route has a policy pick, which goes on from what it has learned elsewhere.
func (g *Gateway) route(policy selector.Policy) {
	g.routing.Store(&routing{
		selector.New(g.table, selector.Config{
			Policy: policy, Signal: g.config.Load().Signal, Peers: g.replica,
			Explain: g.page.Explain, // of one pick in a thousand
		}),
		policy,
	})
}

// Policy returns the name of the policy that picks now.
func (g *Gateway) Policy() string { return g.policy().Name() }

func (g *Gateway) policy() selector.Policy { return g.routing.Load().policy }

// Table returns what is known of the engines' load.
func (g *Gateway) Table() *load.Table { return g.table }

// LoadSockets counts what came in on the engines' load sockets. It is all zero where
// there are none.
func (g *Gateway) LoadSockets() zmqsub.Stats {
	if g.subscriber == nil {
		return zmqsub.Stats{}
	}
	return g.subscriber.Stats()
}

// Close frees what New has opened. Serve does it too.
func (g *Gateway) Close() error {
	g.page.Close()
	g.transport.CloseIdleConnections()
	if g.subscriber == nil {
		return nil
	}
	return g.subscriber.Close()
}

// newTransport returns the connections to all engines. It is used without a
// Client: redirects, cookies and content decoding are between client and engine.
func newTransport(secured *tls.Config) *http.Transport {
	dialer := net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment, // as discovery does
		DialContext:         dialer.DialContext,
		TLSClientConfig:     secured,
		TLSHandshakeTimeout: 5 * time.Second,
		// The default keeps two idle connections per host, and a burst would dial
		// nearly every request anew. As many as run at once on an engine are kept.
		MaxIdleConnsPerHost: 512,
		// Uvicorn, which SGLang serves with, closes a connection that was idle for
		// 5 seconds. Whoever writes a request to it at that moment has lost it.
		IdleConnTimeout:    4 * time.Second,
		DisableCompression: true, // a body is passed on as it is
		WriteBufferSize:    64 << 10,
	}
}
