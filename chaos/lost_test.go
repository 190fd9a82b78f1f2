//go:build chaos && linux

package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

// The packets to and from a load socket are dropped: no FIN, no RST, and no answer to
// a SYN. The connection must be given up, by nothing but the means that is tried.
func TestAPeerThatVanishesWithoutAWordIsGivenUpAndHeardWhenItIsBack(t *testing.T) {
	never := time.Hour
	for _, c := range []struct {
		name    string
		window  time.Duration
		sockets zmqsub.Config
		notices time.Duration
	}{
		{"by heartbeat", window, zmqsub.Config{
			HeartbeatInterval: 100 * time.Millisecond, HeartbeatTimeout: 300 * time.Millisecond,
			ConnectTimeout: 300 * time.Millisecond, ReconnectMax: 200 * time.Millisecond, Silence: never,
		}, 400 * time.Millisecond},
		{"by silence", window, zmqsub.Config{
			Silence: window, HeartbeatInterval: never, HeartbeatTimeout: never, ConnectTimeout: never,
		}, window},
		{"with the defaults", load.DefaultWindow, zmqsub.Config{}, 4 * time.Second},
	} {
		vanish := func(t *testing.T, libzmq bool) {
			t.Parallel()
			steady, e := startEngine(t, engineConfig{}), startEngine(t, engineConfig{})
			g := startGateway(t, gatewayConfig{window: c.window, sockets: &c.sockets, libzmq: libzmq}, steady, e)
			g.trusts(steady, e)
			clients := g.startTraffic(2)
			addr := e.loads[1].addr
			before := dialled(t, addr)
			if len(before) != 1 {
				t.Fatalf("%d connections", len(before))
			}
			begun := awake.now()
			e.loads[1].lose()
			within(t, c.notices+slack, "the connection to be given up", func() error {
				for port := range dialled(t, addr) {
					if before[port] {
						return fmt.Errorf("port %d", port)
					}
				}
				return nil
			})
			g.doubts(e, load.Stale, 1)
			awake.sleepUntil(begun.Add(c.window + slack))
			e.say(7)
			e.loads[1].heal()
			g.trusts(steady, e)
			clients.end(steady, e)
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			eachWay(t, vanish)
		})
	}
}

// The engine's machine restarts without a word, at the same address: whoever is
// connected to its load sockets goes on waiting for the old process, and whoever
// connects reaches the new one.
func TestAHalfOpenLinkDoesNotHideARestartedPublisher(t *testing.T) {
	eachWay(t, func(t *testing.T, libzmq bool) {
		leavesNothing(t)
		steady, e := startEngine(t, engineConfig{}), startEngine(t, engineConfig{})
		g := startGateway(t, gatewayConfig{libzmq: libzmq}, steady, e)
		g.trusts(steady, e)
		clients := g.startTraffic(2)
		e.publish.do(func() { e.publish.seq[0], e.publish.seq[1] = 500, 500 })
		seq := func(at int64) func() error {
			return func() error {
				for _, r := range g.status(e).Ranks {
					if r.Report == nil || r.Report.Seq.Or(0) < at || r.Report.Seq.Or(0) > at+200 {
						return fmt.Errorf("rank %d has %+v", r.Rank, r.Report)
					}
				}
				return nil
			}
		}
		eventually(t, "sequence numbers from 500 on", seq(500))

		for _, l := range append(e.loads, e.http) {
			l.loseConnections()
		}
		e.stop()
		e.say(8)
		e.start()
		g.trusts(e) // though nothing has been healed
		eventually(t, "sequence numbers from the beginning", seq(0))
		for _, l := range append(e.loads, e.http) {
			l.heal()
		}
		g.trusts(steady, e)
		clients.end(steady, e)
	})
}

func TestAllLoadSocketsDieAtOnceAndPicksGoOn(t *testing.T) {
	eachWay(t, func(t *testing.T, libzmq bool) {
		leavesNothing(t)
		var engines []*engine
		for range 4 {
			engines = append(engines, startEngine(t, engineConfig{}))
		}
		g := startGateway(t, gatewayConfig{libzmq: libzmq}, engines...)
		g.trusts(engines...)
		clients := g.startTraffic(8)
		begun := awake.now()
		for _, e := range engines {
			for _, l := range e.loads {
				l.lose()
			}
		}
		for _, e := range engines {
			g.doubts(e, load.Stale, 0, 1)
		}
		// All of them go by what is known here, and get their share.
		for _, name := range selector.PolicyNames() {
			policy, err := selector.NewPolicy(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			s := selector.New(g.table, selector.Config{Policy: policy})
			for range 50 {
				p, err := s.Pick(selector.Request{})
				if err != nil {
					t.Fatal(err)
				}
				if p.Basis == selector.Engine {
					t.Errorf("a pick on what engines said before: %v", p)
				}
				p.Done()
			}
		}
		before := make([]counts, len(engines))
		for i, e := range engines {
			before[i] = e.tally()
		}
		for i, e := range engines {
			eventually(t, "requests for "+e.url, func() error {
				if now := e.tally(); now.finished < before[i].finished+10 {
					return fmt.Errorf("%+v", now)
				}
				return nil
			})
		}
		awake.sleepUntil(begun.Add(cutFor))
		for i, e := range engines {
			e.say(int64(2 + i))
			for _, l := range e.loads {
				l.heal()
			}
		}
		g.trusts(engines...)
		clients.end(engines...)
	})
}

// A minute's worth of messages, all at once, when a link that had stalled moves
// again. Only the newest is news.
func TestABacklogOfAMinuteThatArrivesAtOnce(t *testing.T) {
	eachWay(t, func(t *testing.T, libzmq bool) {
		leavesNothing(t)
		const backlog = 3000
		steady, e := startEngine(t, engineConfig{}), startEngine(t, engineConfig{queue: 2 * backlog, beat: time.Hour})
		// The connection is to outlive the stall: what it holds is the backlog.
		never := time.Hour
		g := startGateway(t, gatewayConfig{libzmq: libzmq, sockets: &zmqsub.Config{
			Silence: never, HeartbeatInterval: never, HeartbeatTimeout: never, ConnectTimeout: never,
		}}, steady, e)
		tell := func(digit int64) {
			for r := range e.loads {
				e.publish.send(r, running(digit, r))
			}
		}
		eventually(t, "the first report", func() error { // that comes when it is subscribed
			e.publish.do(func() { tell(1) })
			if st := g.status(e); !st.Trusted {
				return fmt.Errorf("%v: %s", st.Why, st.Reason)
			}
			return nil
		})
		clients := g.startTraffic(2)
		for _, l := range e.loads {
			l.stall()
		}
		begun := awake.now()
		e.publish.do(func() {
			for i := range int64(backlog) {
				tell(1 + i%8)
			}
		})
		e.say(9)
		e.publish.do(func() { tell(9) })
		g.doubts(e, load.Stale, 0, 1)
		awake.sleepUntil(begun.Add(cutFor))
		// What is on its way may arrive in pieces, and then a piece's newest is taken for
		// a moment.
		e.catchingUp.Store(true)
		taken := func() (n uint64) {
			for _, r := range g.status(e).Ranks {
				n += r.Reports
			}
			return n
		}
		heard := func() (n uint64) {
			for _, at := range g.subscriber.Stats().Endpoints {
				if strings.HasPrefix(at.Endpoint, "tcp://"+e.host+":") {
					n += at.Messages
				}
			}
			return n
		}
		before, messages := taken(), heard()
		for _, l := range e.loads {
			l.heal()
		}
		eventually(t, "the whole backlog", func() error {
			if n := heard() - messages; n < 2*backlog {
				return fmt.Errorf("%d messages", n)
			}
			for r, rank := range g.status(e).Ranks {
				if rank.Report.Running != running(9, r) {
					return fmt.Errorf("rank %d is taken to have %d", r, rank.Report.Running)
				}
			}
			return nil
		})
		if n := taken() - before; n > 2*backlog/20 {
			t.Errorf("%d reports were taken of %d messages of either rank", n, backlog)
		} else {
			t.Logf("%d reports were taken of %d messages of either rank", n, backlog)
		}
		e.catchingUp.Store(false)
		eventually(t, "the engine to be trusted again", func() error {
			e.publish.do(func() { tell(9) })
			if st := g.status(e); !st.Trusted || st.Depth != load.Known(e.depth()) {
				return fmt.Errorf("%v: %s", st.Why, st.Reason)
			}
			return nil
		})
		clients.end(steady, e)
	})
}
