package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
	"github.com/plimsoll-go/plimsoll/examples/soak/internal/truth"
	"github.com/plimsoll-go/plimsoll/snapshot"
)

const (
	// timeScale makes the engines ten times as fast as an 8B model on an H100. What a
	// request costs this machine is the same.
	timeScale = 10
	// slowness is what a slow engine is slower by.
	slowness = 0.4
	// homes is how many places the load sockets of an engine move between. They are its
	// own for good: at a port that it left, nobody else is ever heard.
	homes = 3
	// portsPerHome is for a KV-event range and a load range.
	portsPerHome = 2 * maxRanks
)

// engine is a simulated engine, and what is known of it.
type engine struct {
	*simengine.Engine
	truth *truth.Engine
	homes [homes]int // first ports
	home  int
	// Half of the engines have been given a place for their load ports, which stays as
	// it is with more ranks or fewer; those of the others are packed after a range that
	// has as many ports as there are ranks.
	fixed bool
	ranks int
}

// fleet is all engines.
type fleet struct {
	engines []*engine
	release []func()
	world   *truth.World
}

const host = "127.0.0.1"

// startFleet brings engines up that are well, and of which no list says anything.
func startFleet(n int) (f *fleet, err error) {
	f = &fleet{}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	claim := func(n int) (base int) {
		if err != nil {
			return 0
		}
		var release func()
		if base, release, err = simengine.ClaimPorts(host, n); err == nil {
			f.release = append(f.release, release)
		}
		return base
	}
	var ids, listens []string
	for range n {
		listens = append(listens, fmt.Sprintf("%s:%d", host, claim(1)))
		ids = append(ids, "http://"+listens[len(listens)-1])
	}
	f.world = truth.NewWorld(ids...)
	for i, t := range f.world.Engines {
		e := &engine{truth: t, fixed: i%2 == 1, ranks: 1 + i%maxRanks}
		for h := range e.homes {
			e.homes[h] = claim(portsPerHome)
		}
		if err != nil {
			return f, err
		}
		c := simengine.Config{
			Listen: listens[i], Wire: simengine.Wire(i / 2 % 2), TimeScale: timeScale,
			StreamInterval: 8, Logger: slog.New(slog.DiscardHandler), Trace: f.trace(t),
		}
		e.configure(&c)
		t.Lives(e.ranks)
		if e.Engine, err = simengine.Start(c); err != nil {
			return f, err
		}
		f.engines = append(f.engines, e)
	}
	return f, nil
}

// trace has the truth told of what an engine does.
func (f *fleet) trace(t *truth.Engine) *simengine.Trace {
	return &simengine.Trace{
		Report: func(rank int, seq int64, l *snapshot.LoadSnapshot) {
			t.Sends(truth.Report{Rank: rank, Seq: seq, Running: l.NumRunningReqs, Waiting: l.NumWaitingReqs, KVs: l.NumUsedTokens})
		},
		Accepted: func(id string, rank int) { f.world.Requests.Accepted(t, id) },
		Ended:    func(id string, whole bool) { f.world.Requests.Ended(t, id, whole) },
	}
}

// configure gives the engine its ranks and ports.
func (e *engine) configure(c *simengine.Config) {
	c.Ranks, c.NoLoadSocket = e.ranks, false
	c.KVPortBase, c.LoadPortBase = e.homes[e.home], 0
	if e.fixed {
		c.LoadPortBase = e.homes[e.home] + maxRanks
	}
}

func (f *fleet) close() (err error) {
	for _, e := range f.engines {
		err = errors.Join(err, e.Close())
	}
	for _, release := range f.release {
		release()
	}
	return err
}

// die ends the life of the engine.
func (e *engine) die() {
	died := e.truth.Dies()
	e.Die()
	died()
}

// live begins another one.
func (e *engine) live(change func(*simengine.Config)) error {
	e.truth.Lives(e.ranks)
	return e.RestartWith(change)
}

// idle reports whether there is nothing left to do for the engine.
func (e *engine) idle() bool {
	for _, l := range e.Loads() {
		if l.NumRunningReqs+l.NumWaitingReqs > 0 {
			return false
		}
	}
	return true
}

// suffer has an event happen to the engine. wait is the length of it, and may be
// shorter if all is to end.
func (e *engine) suffer(ev event, wait func(time.Duration)) error {
	during := func(faults truth.Fault, begin, end func() error) error {
		e.truth.Begins(faults)
		if err := begin(); err != nil {
			return err
		}
		wait(ev.length)
		err := end()
		e.truth.Ends(faults)
		return err
	}
	switch ev.kind {
	case restart, die:
		e.die()
		wait(ev.length)
		return e.live(e.configure)
	case rerank:
		e.die()
		wait(ev.length)
		e.ranks = ev.n
		return e.live(e.configure)
	case move:
		e.die()
		wait(ev.length)
		e.home = (e.home + 1) % homes
		return e.live(e.configure)
	case unpublish:
		e.die()
		e.truth.Lives(e.ranks)
		e.truth.Begins(truth.Hidden)
		if err := e.RestartWith(func(c *simengine.Config) { c.NoLoadSocket = true }); err != nil {
			return err
		}
		wait(ev.length)
		e.die()
		return e.live(e.configure)
	case mute:
		return during(truth.Mute, func() error { return e.Mute(0) }, e.Unmute)
	case muteRank:
		return during(truth.Mute, func() error { return e.MuteRank(ev.n%e.ranks, 0) }, e.Unmute)
	case babble:
		return during(truth.Mute,
			func() error { return errors.Join(e.Mute(0), e.Garbage(1<<30)) },
			func() error { return errors.Join(e.Garbage(0), e.Unmute()) })
	case garbage:
		return during(0, func() error { return e.Garbage(ev.n) }, func() error { return e.Garbage(0) })
	case flood:
		return during(0, func() error { return e.Flood(time.Hour) }, func() error { return e.Flood(0) })
	case hang, hangLong:
		return during(truth.Frozen, e.Freeze, e.Thaw)
	case refuse:
		how := simengine.Failure(ev.n % 2)
		return during(truth.Failing, func() error { return e.FailNext(ev.n, how) }, func() error { return e.FailNext(0, how) })
	case slow:
		return during(0, func() error { return e.SetSpeed(slowness) }, func() error { return e.SetSpeed(1) })
	}
	return fmt.Errorf("no event of an engine: %s", ev.kind)
}
