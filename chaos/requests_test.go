//go:build chaos && linux

package chaos

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/selector"
)

// ask sends a request as a client would, and leaves the connection as it is then.
func ask(t *testing.T, addr string, o order, stream bool, padding int) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	body = append(body, strings.Repeat(" ", padding)...)
	var header string
	if stream {
		header = "Stream: yes\r\n"
	}
	if _, err := fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: gateway\r\n%sContent-Length: %d\r\n\r\n%s", header, len(body), body); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestClientsThatGoAwayInEveryWayLeaveNothingInFlight(t *testing.T) {
	leavesNothing(t)
	engines := []*engine{startEngine(t, engineConfig{}), startEngine(t, engineConfig{})}
	g := startGateway(t, gatewayConfig{}, engines...)
	g.trusts(engines...)
	inFlight := func() (n int64) {
		for _, w := range g.table.Workers() {
			n += w.InFlight()
		}
		return n
	}
	front := strings.TrimPrefix(g.server.URL, "http://")
	for _, c := range []struct {
		name   string
		stream bool
		leave  func(*link, net.Conn)
		lasts  bool // nobody can notice
	}{
		{"it hangs up before the first header", false, func(_ *link, c net.Conn) { c.Close() }, false},
		{"it resets before the first header", false, func(_ *link, c net.Conn) {
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}, false},
		{"it hangs up in the middle", true, func(_ *link, c net.Conn) { c.Close() }, false},
		{"it resets in the middle", true, func(l *link, c net.Conn) { l.resetAll() }, false},
		{"it vanishes before the first header", false, func(l *link, c net.Conn) { l.lose() }, true},
		{"it vanishes in the middle", true, func(l *link, c net.Conn) { l.lose() }, true},
		{"it stops reading", true, func(l *link, c net.Conn) { l.stall() }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLink(t, net.JoinHostPort(newHost(), "30000"), front)
			o := order{ID: "x", Lines: 10_000, Pause: time.Millisecond} // ten seconds and more
			if !c.stream {
				o = order{ID: "x", Lines: 1, Pause: engineSilence / 2}
			}
			if c.lasts {
				o.Lines = min(o.Lines, 500)
			}
			var before counts
			for _, e := range engines {
				before = before.plus(e.tally())
			}
			client := ask(t, l.addr, o, c.stream, 0)
			defer client.Close()
			eventually(t, "the engine to have the request", func() error {
				var now counts
				for _, e := range engines {
					now = now.plus(e.tally())
				}
				if n := inFlight(); n != 1 || now.accepted != before.accepted+1 {
					return fmt.Errorf("%d in flight, %+v", n, now)
				}
				return nil
			})
			if c.stream {
				if _, err := client.Read(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
			}
			c.leave(l, client)
			g.settled()
			for _, e := range engines {
				e.settled()
			}
			var now counts
			for _, e := range engines {
				now = now.plus(e.tally())
			}
			if aborted := now.aborted - before.aborted; !c.lasts && aborted != 1 {
				t.Errorf("the engine was not told: %+v", now)
			}
		})
	}
}

func (c counts) plus(d counts) counts {
	return counts{c.accepted + d.accepted, c.finished + d.finished, c.aborted + d.aborted}
}

// The client leaves while its request is being written to an engine whose link has
// stalled.
func TestAContextCancelledWhileSendingReleasesTheReservation(t *testing.T) {
	leavesNothing(t)
	e := startEngine(t, engineConfig{})
	g := startGateway(t, gatewayConfig{}, e)
	g.trusts(e)
	worker, _ := g.table.Worker(e.url)
	e.http.stall()
	client := ask(t, strings.TrimPrefix(g.server.URL, "http://"), order{ID: "x"}, false, 32<<20)
	eventually(t, "the pick", func() error {
		if worker.InFlight() == 0 {
			return fmt.Errorf("none")
		}
		return nil
	})
	if st := worker.Status(); st.SinceReport == 0 {
		t.Errorf("the request is taken to have been sent: %+v", st)
	}
	client.Close()
	g.settled()
	if c := e.tally(); c.accepted != 0 {
		t.Errorf("the engine has got it: %+v", c)
	}
	e.http.heal()
	e.settled()
}

// The two that look best fail each in its way.
func TestARequestThatIsPickedThreeTimesIsThreePicks(t *testing.T) {
	leavesNothing(t)
	var engines []*engine
	for i := range 3 {
		e := startEngine(t, engineConfig{})
		e.say(int64(1 + 4*i))
		engines = append(engines, e)
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			g := startGateway(t, gatewayConfig{selector: selector.Config{Policy: selector.LeastDepth(selector.LeastDepthConfig{})}}, engines...)
			g.trusts(engines...)
			engines[0].http.reset()
			f.inject(engines[1].http)
			o := order{ID: f.name, Lines: 1}
			if got, err := g.post(http.DefaultClient, o, false); err != nil || !strings.HasSuffix(got, o.end()) {
				t.Errorf("got %q, %v", got, err)
			}
			http.DefaultClient.CloseIdleConnections()
			var picks uint64
			for _, e := range engines {
				st := g.status(e)
				if st.Picked == 0 {
					t.Errorf("%s has not been picked", e.url)
				}
				picks += st.Picked
				e.http.heal()
			}
			// The one that is well may have been given up too, by a starved machine.
			if attempts := g.attempts.Load(); picks != uint64(attempts) || attempts < 3 {
				t.Errorf("%d picks in %d attempts", picks, attempts)
			}
			g.settled()
		})
	}
	for _, e := range engines {
		e.settled()
	}
}

// An answer that has begun cannot be begun again elsewhere.
func TestAnAnswerThatBreaksOffInTheMiddleIsNeverTakenForAWholeOne(t *testing.T) {
	leavesNothing(t)
	e := startEngine(t, engineConfig{})
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			g := startGateway(t, gatewayConfig{}, e)
			g.trusts(e)
			over := make(chan error, 1)
			go func() {
				got, err := g.post(http.DefaultClient, order{ID: "x", Lines: 100_000, Pause: time.Millisecond}, true)
				if err == nil {
					err = fmt.Errorf("the answer ends with %q", got[max(0, len(got)-20):])
				} else {
					err = nil
				}
				over <- err
			}()
			before := e.tally()
			eventually(t, "the answer to begin", func() error {
				worker, _ := g.table.Worker(e.url)
				if own := worker.Own(); own.InFlight != 1 || own.Unstarted != 0 {
					return fmt.Errorf("%+v, %+v", own, before)
				}
				return nil
			})
			f.inject(e.http)
			if err := <-over; err != nil {
				t.Error(err)
			}
			http.DefaultClient.CloseIdleConnections()
			g.settled()
			e.http.heal()
			e.settled() // it is not at it for ever either
		})
	}
}
