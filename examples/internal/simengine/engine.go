package simengine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine/batch"
	"github.com/plimsoll-go/plimsoll/snapshot"
)

var (
	// ErrClosed is returned by methods of an Engine after Close.
	ErrClosed = errors.New("simengine: engine closed")
	// ErrDead is returned by faults that need a living engine, between Die and
	// Restart.
	ErrDead = errors.New("simengine: engine is dead")
)

// portsPerEngine is how many consecutive ports an engine claims for its KV-event
// and load ranges at least, so that it can come back with more ranks.
const portsPerEngine = 16

// startTries is how often Start looks for other ports when somebody was faster.
const startTries = 10

// Engine is one simulated engine. It keeps its addresses through Die and Restart.
type Engine struct {
	config   Config
	host     string // of the listen address
	httpPort int
	release  func() // gives the automatic ports back

	admin     *http.Server // nil = none
	adminAddr string
	adminDone sync.WaitGroup

	ctx        context.Context // ends with Close
	cancel     context.CancelFunc
	background gate // delayed restarts and the like

	life atomic.Pointer[life] // nil = dead

	// op serialises starting and ending lives. No request handler may take it: a
	// life ends only when its handlers have returned.
	op     sync.Mutex
	closed bool
	last   Config // of the current or last life, with the ports that were found

	// speedMu keeps a new speed from missing a life that is just starting. It is
	// taken after op.
	speedMu sync.Mutex
	speed   float64 // relative to the configured one
	frozen  bool    // the current life is
}

// Start brings an engine up. It returns when its ports are open.
func Start(config Config) (*Engine, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if config.Wire == WireTokenSpeed {
		return nil, errors.New("simengine: an engine of TokenSpeed's wire has nothing to listen on; see StartTokenSpeed")
	}
	host, port, err := splitListen(config.Listen)
	if err != nil {
		return nil, err
	}
	e := &Engine{config: config, host: host, last: config, speed: 1}
	for range startTries {
		err = e.startOn(port)
		if !errors.Is(err, errPortInUse) || port != 0 && config.KVPortBase != 0 {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if err := e.startAdmin(); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// startOn picks what ports are to be picked and starts the first life on them.
func (e *Engine) startOn(httpPort int) (err error) {
	var releases []func()
	e.release = func() {
		for _, f := range releases {
			f()
		}
	}
	defer func() {
		if err != nil {
			e.release()
		}
	}()
	claim := func(n int) (int, error) {
		base, release, err := ClaimPorts(e.host, n)
		if err == nil {
			releases = append(releases, release)
		}
		return base, err
	}
	if e.httpPort = httpPort; httpPort == 0 {
		if e.httpPort, err = claim(1); err != nil {
			return err
		}
	}
	if e.config.KVPortBase == 0 {
		if e.last.KVPortBase, err = claim(max(2*e.config.Ranks, portsPerEngine)); err != nil {
			return err
		}
	}
	return e.startLife()
}

// startLife starts a life as e.last says. The caller holds op, or is Start.
func (e *Engine) startLife() error {
	e.speedMu.Lock()
	defer e.speedMu.Unlock()
	e.frozen = false
	l, err := startLife(e.last, e.listen(), e.coreSpeedLocked(), e.faultHandler())
	if err != nil {
		return err
	}
	e.life.Store(l)
	return nil
}

func (e *Engine) startAdmin() error {
	if e.config.Admin == "" {
		return nil
	}
	listener, err := net.Listen("tcp", e.config.Admin)
	if err != nil {
		return fmt.Errorf("simengine: admin: %w", err)
	}
	e.adminAddr = listener.Addr().String()
	e.admin = newServer(e.faultHandler(), e.config.Logger)
	e.adminDone.Go(func() { serve(e.admin, listener, e.config.Logger) })
	return nil
}

func (e *Engine) listen() string { return net.JoinHostPort(e.host, strconv.Itoa(e.httpPort)) }

// coreSpeedLocked is what the cores run at. speedMu is held.
func (e *Engine) coreSpeedLocked() float64 {
	if e.frozen {
		return frozenSpeed
	}
	return e.config.Speed * e.config.TimeScale * e.speed
}

// URL returns the address that the engine serves on, such as
// "http://127.0.0.1:20571", dead or alive.
func (e *Engine) URL() string {
	return "http://" + net.JoinHostPort(e.dialHost(), strconv.Itoa(e.httpPort))
}

// AdminURL returns the address of the server that outlives Die, "" where none was
// asked for.
func (e *Engine) AdminURL() string {
	if e.adminAddr == "" {
		return ""
	}
	return "http://" + e.adminAddr
}

// LoadEndpoints returns where to subscribe to the load of each rank, such as
// "tcp://127.0.0.1:20001"; none while the engine is dead or publishes no load.
func (e *Engine) LoadEndpoints() []string {
	l := e.life.Load()
	if l == nil || l.loadBase == 0 {
		return nil
	}
	endpoints := make([]string, len(l.ranks))
	for r := range endpoints {
		endpoints[r] = "tcp://" + net.JoinHostPort(e.dialHost(), strconv.Itoa(l.loadBase+r))
	}
	return endpoints
}

// dialHost is the host under which this machine reaches the engine.
func (e *Engine) dialHost() string {
	ip := net.ParseIP(e.host)
	switch {
	case e.host == "", ip != nil && ip.IsUnspecified() && ip.To4() != nil:
		return "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		return "::1"
	default:
		return e.host
	}
}

// Alive reports whether the engine is up, between Start or Restart and Die or Close.
func (e *Engine) Alive() bool { return e.life.Load() != nil }

// Loads returns what the ranks would report now; nothing while the engine is dead.
func (e *Engine) Loads() []snapshot.LoadSnapshot {
	l := e.life.Load()
	if l == nil {
		return nil
	}
	return l.loads(time.Now())
}

// Totals counts over all ranks since the last start; zero while the engine is dead.
func (e *Engine) Totals() batch.Totals {
	l := e.life.Load()
	if l == nil {
		return batch.Totals{}
	}
	return l.totals()
}

// Die ends the engine the way a killed process does: connections are cut, nothing
// is published, new connections are refused. It returns when that is so. A dead
// engine stays dead.
func (e *Engine) Die() {
	e.op.Lock()
	defer e.op.Unlock()
	e.dieLocked()
}

func (e *Engine) dieLocked() {
	if l := e.life.Swap(nil); l != nil {
		l.close()
	}
}

// Restart brings the engine up afresh on the same ports, ending its current life
// first: sequence numbers start at 0 and everything but the speed is forgotten.
// ranks is the new number of ranks, 0 for as many as before; the load ports move
// with it, as the engine packs them. When it fails, the engine is dead.
func (e *Engine) Restart(ranks int) error {
	if ranks < 0 || ranks > maxRanks {
		return fmt.Errorf("simengine: %d ranks: want 1 to %d", ranks, maxRanks)
	}
	return e.RestartWith(func(c *Config) {
		if ranks > 0 {
			c.Ranks = ranks
		}
	})
}

// RestartWith is Restart for an engine that comes back with other flags: change is
// given the configuration of the last life, and makes of it that of the next, which
// stays until it is changed again. The addresses to listen on, the speed and the
// wire are the engine's and do not change. A configuration that makes no sense leaves
// the engine as it is.
func (e *Engine) RestartWith(change func(*Config)) error {
	e.op.Lock()
	defer e.op.Unlock()
	if e.closed {
		return ErrClosed
	}
	next := e.last
	change(&next)
	next, err := next.withDefaults()
	if err != nil {
		return err
	}
	next.Listen, next.Admin, next.Wire = e.config.Listen, e.config.Admin, e.config.Wire
	e.dieLocked()
	e.last = next
	return e.startLife()
}

// Close ends the engine for good and frees its ports. It may be called twice and
// during any other call.
func (e *Engine) Close() error {
	e.op.Lock()
	first := !e.closed
	e.closed = true
	e.dieLocked()
	e.op.Unlock()

	e.cancel()
	if e.admin != nil {
		e.admin.Close()
		e.adminDone.Wait()
	}
	e.background.close()
	if first {
		e.release()
	}
	return nil
}
