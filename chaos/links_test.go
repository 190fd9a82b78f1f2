//go:build chaos && linux

package chaos

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

// Each of these has one engine for every way in which a link can fail, and all links
// fail at the same time, under traffic. One engine is well throughout.

// brokenFleet is that fleet: the engine that is well first, then one for each fault.
func brokenFleet(t *testing.T) []*engine {
	t.Helper()
	leavesNothing(t)
	list := []*engine{startEngine(t, engineConfig{})}
	for i := range faults {
		list = append(list, startEngine(t, engineConfig{}))
		list[1+i].say(int64(2 + i))
	}
	return list
}

func TestLoadSocketsThatFailInEveryWay(t *testing.T) {
	eachWay(t, func(t *testing.T, libzmq bool) {
		engines := brokenFleet(t)
		g := startGateway(t, gatewayConfig{libzmq: libzmq}, engines...)
		g.trusts(engines...)
		clients := g.startTraffic(4)
		for i, f := range faults {
			f.inject(engines[1+i].loads[1])
		}
		begun := awake.now()
		for i := range faults {
			g.doubts(engines[1+i], load.Stale, 1)
		}
		awake.sleepUntil(begun.Add(cutFor)) // watched by the auditor
		for i, e := range engines {
			if i > 0 {
				e.loads[1].heal()
			}
			e.say(int64(9 - i))
		}
		g.trusts(engines...)
		clients.end(engines...)
	})
}

func TestRequestsOnLinksThatFailInEveryWay(t *testing.T) {
	engines := brokenFleet(t)
	g := startGateway(t, gatewayConfig{}, engines...)
	g.trusts(engines...)
	clients := g.startTraffic(8)
	for i, f := range faults {
		e := engines[1+i]
		f.inject(e.http)
		eventually(t, "the gateway to fail to ask "+e.url, func() error {
			if st := g.asked(e); st.Error == "" {
				return fmt.Errorf("%+v", st)
			}
			return nil
		})
	}
	// What it cannot be asked it goes on saying on its load sockets.
	g.trusts(engines...)
	for i, e := range engines {
		if i > 0 {
			e.http.heal()
		}
	}
	for _, e := range engines {
		before := e.tally()
		eventually(t, "requests for "+e.url, func() error {
			if now := e.tally(); now.finished <= before.finished {
				return fmt.Errorf("%+v", now)
			}
			return nil
		})
	}
	g.trusts(engines...)
	clients.end(engines...)
}

// Engines without load sockets, which are asked for their load.
func TestPollsOnLinksThatFailInEveryWay(t *testing.T) {
	engines := brokenFleet(t)
	for _, e := range engines {
		e.unpublished.Store(true)
	}
	g := startGateway(t, gatewayConfig{poll: true}, engines...)
	g.trusts(engines...)
	clients := g.startTraffic(4)
	for i, f := range faults {
		f.inject(engines[1+i].http)
	}
	begun := awake.now()
	for i := range faults {
		g.doubts(engines[1+i], load.Stale, 0, 1)
	}
	awake.sleepUntil(begun.Add(cutFor))
	for _, e := range engines {
		e.say(5)
	}
	for i := range faults {
		engines[1+i].http.heal()
	}
	g.trusts(engines...)
	clients.end(engines...)
}

func TestServerInfoThatHangsOrIsGarbageOrAGibibyteDelaysNobody(t *testing.T) {
	engines := brokenFleet(t)
	steady := engines[0]
	for i, f := range faults {
		f.inject(engines[1+i].http)
	}
	var sent atomic.Int64 // of the gibibytes
	endless := func(header bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if header {
				w.Header().Set("Content-Length", fmt.Sprint(1<<30))
			}
			piece := make([]byte, 64<<10)
			for range 1 << 30 / len(piece) {
				n, err := w.Write(piece)
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		}
	}
	answers := []struct {
		handler http.HandlerFunc
		reason  string
	}{
		{func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no answer within"},
		{func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, "unexpected shape"},
		{endless(true), "above the bound"},
		{endless(false), "above the bound"},
		{func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }, "status 418"},
		{func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, `{"kv_events":`)
		}, ""}, // cut off
	}
	for _, a := range answers {
		e := startEngine(t, engineConfig{})
		e.answer("/server_info", a.handler)
		engines = append(engines, e)
	}

	// A gateway that would wait for ever is ready with the one that is well, and ends
	// while it waits.
	patient := startGateway(t, gatewayConfig{change: func(c *discovery.Config) { c.Client = &discovery.Client{Timeout: time.Hour} }}, engines...)
	patient.trusts(steady)
	patient.close()

	g := startGateway(t, gatewayConfig{}, engines...)
	clients := g.startTraffic(4)
	g.trusts(steady)
	for i, e := range engines[1:] {
		want := e.host
		if i -= len(faults); i >= 0 {
			want = answers[i].reason
		}
		eventually(t, "the status of "+e.url+" to say why", func() error {
			st := g.status(e)
			if st.Trusted || st.Why != load.NoAnswer || !contains(st.Reason, want) {
				return fmt.Errorf("%v: %s, want %q", st.Why, st.Reason, want)
			}
			return nil
		})
	}
	for _, e := range engines {
		e.http.heal()
		e.answer("/server_info", nil)
	}
	g.trusts(engines...)
	// What the kernel has room for, at every try.
	if asked := int64(g.asked(engines[len(faults)+3]).Asked + g.asked(engines[len(faults)+4]).Asked); sent.Load() > 3*asked*(16<<20) {
		t.Errorf("%d MiB were read in %d times of asking", sent.Load()>>20, asked)
	}
	clients.end(engines...)
}

// The engine's answers end in the middle, at a different place each time.
func TestAnswersThatAreCutOffAreNoAnswers(t *testing.T) {
	leavesNothing(t)
	steady, e := startEngine(t, engineConfig{}), startEngine(t, engineConfig{})
	g := startGateway(t, gatewayConfig{}, steady, e)
	g.trusts(steady, e)
	clients := g.startTraffic(4)
	for bytes := int64(10); bytes < 250; bytes += 30 {
		e.http.cutOff(bytes)
		before := g.attempts.Load()
		eventually(t, "attempts", func() error {
			if n := g.attempts.Load() - before; n < 20 {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		e.http.heal()
	}
	clients.end(steady, e)
}

func TestALinkThatIsSlowInEveryWayCarriesLoadAndRequestsAllTheSame(t *testing.T) {
	eachWay(t, func(t *testing.T, libzmq bool) {
		leavesNothing(t)
		steady, far := startEngine(t, engineConfig{}), startEngine(t, engineConfig{})
		far.http.slow(60*time.Millisecond, 50, 40)
		for _, l := range far.loads {
			l.slow(60*time.Millisecond, 50, 10)
		}
		// Heartbeats and handshakes take their time too.
		g := startGateway(t, gatewayConfig{libzmq: libzmq, window: 4 * window, sockets: new(zmqsub.Config), change: func(c *discovery.Config) {
			c.Client.Timeout = patience
		}}, steady, far)
		g.trusts(steady, far)
		clients := g.startTraffic(4)
		for digit := range int64(9) {
			far.say(1 + digit)
			g.trusts(far)
		}
		eventually(t, "requests over the slow link", func() error {
			if c := far.tally(); c.finished == 0 {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
		clients.end(steady, far)
	})
}

func TestALinkThatComesAndGoesAllTheTime(t *testing.T) {
	leavesNothing(t)
	steady, e := startEngine(t, engineConfig{}), startEngine(t, engineConfig{})
	g := startGateway(t, gatewayConfig{}, steady, e)
	g.trusts(steady, e)
	clients := g.startTraffic(4)
	for round := range 3 {
		for _, f := range faults {
			// Shorter than the window and longer than it.
			pause := window * time.Duration(1+2*round) / 4
			f.inject(e.loads[0])
			f.inject(e.http)
			time.Sleep(pause)
			e.loads[0].heal()
			e.http.heal()
			if round == 2 {
				break
			}
			time.Sleep(pause / 2)
		}
	}
	g.trusts(steady, e)
	before := e.tally()
	eventually(t, "requests for the engine that is back", func() error {
		if now := e.tally(); now.finished == before.finished {
			return fmt.Errorf("%+v", now)
		}
		return nil
	})
	clients.end(steady, e)
}
