package fleetsim

import (
	"math/rand/v2"
	"strconv"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// Gateway tells a policy which gateway it is for.
type Gateway struct {
	Index int // from 0
	Count int
}

// A gateway is one replica of the gateway: a table, its selector, and the handles
// of the engines.
type gateway struct {
	sim      *sim
	index    int
	policy   Policy
	restarts uint64
	random   *rand.Rand

	table    *load.Table
	selector *selector.Selector
	targets  []target // by engine
	engines  map[*load.Worker]*engine
	memory   *prefixMemory // nil: no engine keeps prefixes
	exclude  [1]*load.Worker
}

// target is an engine as a gateway knows it.
type target struct {
	worker      *load.Worker // nil: not there
	feed        *load.Feed
	connector   *load.Connector
	incarnation int32
}

func newGateway(s *sim, index int, p Policy) *gateway {
	g := &gateway{sim: s, index: index, policy: p}
	g.boot()
	return g
}

// boot starts the gateway's process with nothing but the list of engines.
func (g *gateway) boot() {
	s := g.sim
	g.random = s.random(streamPolicy + uint64(g.index) + g.restarts*streamRestarts)
	g.table = load.NewTable(load.Config{Window: s.config.Window, Clock: s.clock})
	g.selector = selector.New(g.table, selector.Config{
		Policy: g.policy(Gateway{Index: g.index, Count: s.config.Gateways}),
		Signal: s.config.Signal,
		Peers:  func() (replica, replicas int) { return g.index, s.config.Gateways },
		Rand:   g.random.Uint64,
	})
	g.targets = make([]target, len(s.engines))
	g.engines = make(map[*load.Worker]*engine)
	g.memory = nil
	for _, e := range s.engines {
		if e.config.PrefixCache && g.memory == nil {
			g.memory = newPrefixMemory(s.engines)
		}
		if e.up {
			g.add(e)
		}
	}
}

// restart ends the process and starts another. Its requests go on, as they would
// where another process streams their answers: those tickets are of a table that
// nobody reads any more.
func (g *gateway) restart() {
	g.restarts++
	g.boot()
}

func (g *gateway) add(e *engine) {
	g.drop(e)
	t := target{worker: g.table.Add(e.name(), ""), incarnation: e.incarnation}
	if g.sim.config.Reports.Wire == Piggyback {
		var err error
		t.connector, err = load.NewConnector(t.worker, load.ConnectorConfig{Ranks: len(e.ranks), Shared: g.sim.shared(), Rand: g.random.Uint64})
		if err != nil {
			panic(err) // a Config has at most as many ranks as a connector can have
		}
	} else {
		t.feed = t.worker.Advertise(len(e.ranks))
	}
	g.targets[e.index] = t
	g.engines[t.worker] = e
}

func (g *gateway) remove(e *engine, incarnation int32) {
	if g.targets[e.index].incarnation == incarnation {
		g.drop(e)
	}
}

// drop forgets an engine, if the gateway knows it.
func (g *gateway) drop(e *engine) {
	t := &g.targets[e.index]
	if t.worker == nil {
		return
	}
	if t.connector != nil {
		t.connector.Fail(errCrashed)
	}
	g.table.Remove(t.worker)
	delete(g.engines, t.worker)
	*t = target{}
	if g.memory != nil {
		g.memory.forget(e.index)
	}
}

// Policy makes the policy of a gateway. It is called for each gateway of each run,
// and again when a gateway restarts, so that no two of them share anything.
type Policy func(Gateway) selector.Policy

func (p Policy) choose(s *sim, f *flight, req int32) (*engine, int) {
	return s.gateways[f.gateway].send(f, req)
}

// send picks the worker of a request, and marks it as written: to write it takes
// no time.
func (g *gateway) send(f *flight, req int32) (*engine, int) {
	r := selector.Request{ID: strconv.Itoa(int(req)), Unstreamed: f.unstreamed}
	if !g.sim.config.PromptUnknown {
		r.PromptTokens = load.Known(int64(f.prompt))
	}
	if g.memory != nil {
		r.Prefix = g.prefixes(f.blocks)
	}
	if f.attempts > 1 {
		g.exclude[0] = f.pick.Worker
		r.Exclude = g.exclude[:]
	}
	pick, err := g.selector.Pick(r)
	if err != nil {
		f.pick = selector.Pick{}
		return nil, 0
	}
	e := g.engines[pick.Worker]
	if t := &g.targets[e.index]; t.connector != nil {
		reservation, err := t.connector.Register(r.ID, pick.Ticket)
		if err != nil {
			panic("fleetsim: own request: " + err.Error())
		}
		pick.Rank = reservation.Rank()
	}
	f.pick = pick
	pick.Dispatched()
	if g.memory != nil {
		g.memory.sent(e.index, f.blocks)
	}
	return e, pick.Rank
}
