//go:build chaos && linux

package chaos

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// What a gateway believes of engines that tell it half of the truth, or none.

func TestEightRanksAdvertisedFourAlive(t *testing.T) {
	leavesNothing(t)
	steady, e := startEngine(t, engineConfig{}), startEngine(t, engineConfig{ranks: 8, alive: 4})
	g := startGateway(t, gatewayConfig{}, steady, e)
	g.trusts(steady)
	g.doubts(e, load.NeverReported, 4, 5, 6, 7)
	clients := g.startTraffic(2)
	awake.sleepUntil(awake.now().Add(cutFor)) // watched by the auditor
	g.doubts(e, load.NeverReported, 4, 5, 6, 7)

	e.stop()
	e.becomes(8, loadPort)
	e.start()
	g.trusts(steady, e)
	clients.end(steady, e)
}

func TestARankPastTheLastPortKeepsItsWorkerFromBeingTrusted(t *testing.T) {
	leavesNothing(t)
	steady, e := startEngine(t, engineConfig{}), startEngine(t, engineConfig{ranks: 4, alive: 3, loadPort: 65533})
	g := startGateway(t, gatewayConfig{}, steady, e)
	g.trusts(steady)
	clients := g.startTraffic(2)
	g.doubts(e, load.NeverReported, 3)
	if at := g.asked(e).Endpoints[3]; at.Addr != "" || at.Error != discovery.ErrPort.Error() {
		t.Errorf("rank 3 is at %+v", at)
	}
	// The other three are heard.
	eventually(t, "the ranks that there are", func() error {
		for _, r := range g.status(e).Ranks[:3] {
			if r.Report == nil || !r.Fresh {
				return fmt.Errorf("%+v", r)
			}
		}
		return nil
	})
	clients.end(steady, e)
}

// An engine says once that it is idle and never again, while its sockets answer
// every heartbeat.
func TestOneReportAndThenSilenceForeverIsGoneFromEveryDecision(t *testing.T) {
	leavesNothing(t)
	a, b, c := startEngine(t, engineConfig{}), startEngine(t, engineConfig{}), startEngine(t, engineConfig{})
	b.say(9)
	c.say(9)
	g := startGateway(t, gatewayConfig{}, a, b, c)
	g.trusts(a, b, c)
	a.mute(0)
	a.mute(1)
	muted := awake.now()
	g.doubts(a, load.Stale, 0, 1)
	awake.sleepUntil(muted.Add(cutFor))
	for _, name := range selector.PolicyNames() {
		policy, err := selector.NewPolicy(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := selector.New(g.table, selector.Config{Policy: policy})
		var picks []selector.Pick
		to := make(map[string]int)
		for range 6 {
			p, err := s.Pick(selector.Request{})
			if err != nil {
				t.Fatal(err)
			}
			if p.Worker.ID() == a.url && p.Basis == selector.Engine {
				t.Errorf("%v", p)
			}
			to[p.Worker.ID()]++
			picks = append(picks, p)
		}
		// Its last word was a ninth of the others'.
		if to[a.url] == len(picks) && name != selector.RandomName {
			t.Errorf("%s: the silent engine takes all: %v", name, to)
		}
		for _, p := range picks {
			p.Done()
		}
	}
	if st := g.status(a); st.Depth.IsKnown() || st.Ranks[0].Fresh || st.Ranks[0].Age < muted.Sub(muted)+cutFor-slack {
		t.Errorf("its status is %+v", st)
	}
	a.say(2)
	a.unmute(0)
	a.unmute(1)
	g.trusts(a, b, c)
	g.settled()
}

// The engine is polled besides, and its polls tell other numbers than its sockets.
func TestTwoFeedsOfOneRankAreNeverMixed(t *testing.T) {
	leavesNothing(t)
	steady, e := startEngine(t, engineConfig{}), startEngine(t, engineConfig{})
	e.sayPolled(5)
	g := startGateway(t, gatewayConfig{poll: true}, steady, e)
	sources := func(want ...load.Source) func() error {
		return func() (err error) {
			st := g.status(e)
			if !st.Trusted || len(st.Ranks) != len(want) {
				return fmt.Errorf("%v: %s", st.Why, st.Reason)
			}
			for r, source := range want {
				got := st.Ranks[r].Report
				digit := map[load.Source]int64{load.SourcePush: 1, load.SourcePoll: 5}[got.Source]
				if got.Running != running(digit, r) {
					t.Fatalf("rank %d has %d from %v", r, got.Running, got.Source)
				}
				if got.Source != source {
					err = fmt.Errorf("rank %d is reported by %v", r, got.Source)
				}
			}
			return err
		}
	}
	g.trusts(steady)
	eventually(t, "both ranks to be those of the sockets", sources(load.SourcePush, load.SourcePush))
	clients := g.startTraffic(2)
	e.loads[1].lose()
	eventually(t, "polls to fill in for one rank", sources(load.SourcePush, load.SourcePoll))
	e.loads[1].heal()
	eventually(t, "both ranks to be those of the sockets again", sources(load.SourcePush, load.SourcePush))
	eventually(t, "the polls to end", func() error {
		if st := g.asked(e).Poll; st.Active {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	clients.end(steady, e)
}

func TestAnswersThatAreNoLoadAreNeverLeastLoaded(t *testing.T) {
	leavesNothing(t)
	good := startEngine(t, engineConfig{})
	good.say(9)
	engines := []*engine{good}
	for _, answer := range []http.HandlerFunc{
		func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"loads":[]}`) },
		func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"aggregate":{"total_running_reqs":0,"total_waiting_reqs":0}}`)
		},
		func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"loads":[{"dp_rank":0},{"dp_rank":1}]}`)
		},
		func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"loads":[{"dp_rank":0,"num_running_reqs":-1,"num_waiting_reqs":-1}]}`)
		},
		http.NotFound,
	} {
		e := startEngine(t, engineConfig{})
		e.unpublished.Store(true)
		e.answer("/v1/loads", answer)
		engines = append(engines, e)
	}
	g := startGateway(t, gatewayConfig{poll: true, selector: selector.Config{Policy: selector.LeastDepth(selector.LeastDepthConfig{})}}, engines...)
	g.trusts(good)
	for _, e := range engines[1:] {
		eventually(t, e.url+" to have been polled", func() error {
			if st := g.asked(e).Poll; st.Polls < 2 || st.Error == "" && len(g.status(e).Ranks) == 0 {
				return fmt.Errorf("%+v", st)
			}
			return nil
		})
		if st := g.status(e); st.Trusted || st.Depth.IsKnown() {
			t.Errorf("%s has depth %v: %s", e.url, st.Depth, st.Reason)
		}
	}
	to := make(map[string]int)
	for range 4 * len(engines) {
		p, err := g.picker.Pick(selector.Request{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Done()
		if p.Worker.ID() != good.url && p.Basis == selector.Engine {
			t.Errorf("%v", p)
		}
		to[p.Worker.ID()]++
	}
	if to[good.url] == 0 {
		t.Errorf("all requests went to those that say nothing: %v", to)
	}
}

func TestAPublisherThatRestartsInTheSamePodIsBelievedAtOnce(t *testing.T) {
	eachWay(t, func(t *testing.T, libzmq bool) {
		leavesNothing(t)
		steady, e := startEngine(t, engineConfig{}), startEngine(t, engineConfig{})
		g := startGateway(t, gatewayConfig{libzmq: libzmq}, steady, e)
		g.trusts(steady, e)
		clients := g.startTraffic(2)
		e.publish.do(func() { e.publish.seq[0], e.publish.seq[1] = 500, 500 })
		worker, _ := g.table.Worker(e.url)
		for digit := range int64(3) {
			e.stop()
			e.say(5 + digit)
			e.start()
			g.trusts(e)
		}
		if again, _ := g.table.Worker(e.url); again != worker {
			t.Error("its books have been dropped")
		}
		clients.end(steady, e)
	})
}

func TestAnEngineThatMovesItsLoadPortsAndChangesItsRanksIsFollowed(t *testing.T) {
	leavesNothing(t)
	steady, e := startEngine(t, engineConfig{}), startEngine(t, engineConfig{})
	// It is not asked again for nothing.
	g := startGateway(t, gatewayConfig{change: func(c *discovery.Config) { c.RecheckPublishing = time.Hour }}, steady, e)
	g.trusts(steady, e)
	clients := g.startTraffic(2)
	for i, ranks := range []int{2, 4, 1, 4} {
		port := loadPort + 10*(i+1)
		e.stop()
		e.becomes(ranks, port)
		e.start()
		g.trusts(e)
		if i == 0 {
			// An engine that has just been subscribed is asked once more soon.
			time.Sleep(2 * window)
		}
		// Where there are more ranks at the same ports, the first ones are not all.
		e.stop()
		e.becomes(ranks+1, port)
		e.start()
		g.trusts(e)
	}
	clients.end(steady, e)
}

// What is behind the load ports' address is another machine from one moment to the
// next, as behind a balancer.
func TestALoadPortThatLeadsToAnotherMachineFromNowOn(t *testing.T) {
	leavesNothing(t)
	steady, e, other := startEngine(t, engineConfig{}), startEngine(t, engineConfig{}), startEngine(t, engineConfig{})
	g := startGateway(t, gatewayConfig{}, steady, e)
	g.trusts(steady, e)
	clients := g.startTraffic(2)
	other.say(7)
	e.say(7) // is the truth, whoever tells it
	e.mute(0)
	e.mute(1)
	for r, l := range e.loads {
		l.lead(other.at(publishPort + r))
	}
	e.unmute(0) // for the auditor: the other machine speaks
	e.unmute(1)
	e.publish.do(func() { e.publish.sockets = nil })
	g.trusts(steady, e)
	clients.end(steady, e)
}

func TestAnEnginesClockThatJumpsAnHourTurnsNothingStaleOrFresh(t *testing.T) {
	leavesNothing(t)
	engines := []*engine{startEngine(t, engineConfig{}), startEngine(t, engineConfig{}), startEngine(t, engineConfig{})}
	g := startGateway(t, gatewayConfig{}, engines...)
	g.trusts(engines...)
	for i, skew := range []time.Duration{time.Hour, -time.Hour} {
		e := engines[1+i]
		e.skew.Store(int64(skew))
		eventually(t, "the jumped clock", func() error {
			r := g.status(e).Ranks[0].Report
			if r == nil || time.Duration(r.EngineTime.Or(0)*1e9-float64(time.Now().UnixNano())).Abs() < time.Minute {
				return fmt.Errorf("%+v", r)
			}
			return nil
		})
		g.trusts(e)
		e.mute(1)
		g.doubts(e, load.Stale, 1)
	}
	g.settled()
}

func TestHostsThatEnginesAdvertise(t *testing.T) {
	leavesNothing(t)
	hosts := map[string]int{"*": 0, "0.0.0.0": 0, "::": 0, "[::]": 0, "[2001:db8::5]": 1, "203.0.113.9": 1, "engine.invalid": 1, "a;b": 1}
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Logf("this machine has no IPv6 loopback: %v", err)
	} else {
		l.Close()
		hosts["[::1]"] = 0 // stands for an engine at ::1 that says so
	}
	notes := make(map[*engine]int)
	for host, n := range hosts {
		c := engineConfig{advertises: host}
		if host == "::" || host == "[::1]" {
			if _, there := hosts["[::1]"]; there {
				// Other runs have that host too.
				c.host, c.shift = "::1", 10*len(notes)+200*rand.IntN(10)
			}
		}
		notes[startEngine(t, c)] = n
	}
	engines := slices.Collect(maps.Keys(notes))
	g := startGateway(t, gatewayConfig{}, engines...)
	g.trusts(engines...)
	clients := g.startTraffic(2)
	for e, n := range notes {
		if st := g.asked(e); len(st.Notes) != n {
			t.Errorf("%s advertises %s: notes %q", e.url, e.config.advertises, st.Notes)
		}
	}
	clients.end(engines...)
}

// The machine that an engine names is another engine's, and has the same ports.
func TestAForeignHostIsDialledOnlyWhereThatIsAllowed(t *testing.T) {
	leavesNothing(t)
	foreign := startEngine(t, engineConfig{})
	foreign.say(7)
	e := startEngine(t, engineConfig{advertises: foreign.host})
	connections := func() (n int) {
		for _, l := range foreign.loads {
			n += len(dialled(t, l.addr))
		}
		return n
	}
	g := startGateway(t, gatewayConfig{}, e)
	g.trusts(e)
	if n := connections(); n != 0 {
		t.Errorf("%d connections to the foreign host", n)
	}
	g.close()

	allow, err := discovery.AllowHosts(foreign.host)
	if err != nil {
		t.Fatal(err)
	}
	e.say(7)
	g = startGateway(t, gatewayConfig{change: func(c *discovery.Config) { c.Client.AllowHost = allow }}, e)
	g.trusts(e)
	if n := connections(); n != 2 {
		t.Errorf("%d connections to the allowed host, want 2", n)
	}
}
