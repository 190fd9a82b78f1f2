//go:build chaos && linux

package chaos

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// link is the way from the gateway to one port of an engine: a TCP proxy that can
// be told to misbehave.
type link struct {
	t      testing.TB
	addr   string // where the gateway dials
	proxy  *toxiproxy.Proxy
	valves [2]*valve // of either direction

	mu    sync.Mutex
	since time.Time // nothing that is sent gets through any more; zero: it does
	heals []func()  // what undoes the faults, the last one first
}

// newLink forwards addr, which no other process has, to upstream.
func newLink(t testing.TB, addr, upstream string) *link {
	t.Helper()
	silent := zerolog.Nop()
	server := &toxiproxy.ApiServer{Metrics: toxiproxy.NewMetricsContainer(nil), Logger: &silent}
	l := &link{t: t, addr: addr, proxy: toxiproxy.NewProxy(server, addr, addr, upstream)}
	for i, stream := range streams {
		l.valves[i] = l.toxic("valve", stream, nil).Toxic.(*valve)
	}
	l.listen()
	t.Cleanup(l.proxy.Stop)
	return l
}

var streams = [...]string{"upstream", "downstream"}

// lead makes the link lead elsewhere. Its connections are closed.
func (l *link) lead(upstream string) {
	l.t.Helper()
	listening.Lock()
	defer listening.Unlock()
	if err := l.proxy.Update(&toxiproxy.Proxy{Listen: l.addr, Upstream: upstream, Enabled: true}); err != nil {
		l.t.Fatal(err)
	}
}

// fault is one way for a link to fail.
type fault struct {
	name string
	// cuts says that nothing of what the engine sends arrives as long as it lasts.
	cuts   bool
	inject func(*link)
}

// faults are all ways in which a link carries nothing.
var faults = []fault{
	{"its packets are dropped", true, (*link).lose},
	{"it stalls", true, (*link).stall},
	{"it swallows everything", true, (*link).swallow},
	{"it refuses connections", true, (*link).refuse},
	{"it resets connections", true, (*link).reset},
	{"it closes connections", true, (*link).hangUp},
}

// lose drops the packets of all connections of the link, and of all that are tried,
// in both directions, in the kernel: nobody is told, no FIN and no RST gets through,
// a SYN is not answered. It is what a machine that lost its power looks like.
//
// The toxics of a link must not change meanwhile: they wait for what cannot be written.
// Where the kernel does not let us, it is a stall.
func (l *link) lose() {
	l.t.Helper()
	if err := filters(); err != nil {
		l.t.Logf("a stall in place of dropped packets: %v", err)
		l.stall()
		return
	}
	dropPackets(l.t, l.addr)
	l.begun(func() { passPackets(l.t, l.addr) })
}

// loseConnections is lose for the connections that there are. New ones work: the peer
// has been replaced, and those who were connected to it have not been told.
func (l *link) loseConnections() {
	l.t.Helper()
	if err := filters(); err != nil {
		l.t.Logf("a stall in place of dropped packets: %v", err)
		for _, v := range l.valves {
			v.freeze()
		}
		l.onHeal(l.pass)
		return
	}
	dropConnectionPackets(l.t, l.addr)
	l.onHeal(func() { passPackets(l.t, l.addr) })
}

// stall delays everything until it is healed, the end of a connection included, and
// loses nothing: a backlog arrives then. Connections are accepted. It is what TCP
// makes of a network that is gone for less time than TCP gives it.
func (l *link) stall() {
	l.t.Helper()
	l.set(hold)
	l.begun(l.pass)
}

// swallow drops everything but the end of a connection. Connections are accepted,
// and have a hole in them when it is healed: what a broken load balancer does.
func (l *link) swallow() {
	l.t.Helper()
	l.set(func() toxics.Toxic { return new(toxics.TimeoutToxic) })
	l.begun(l.pass)
}

// refuse ends all connections and refuses new ones: no process is listening.
func (l *link) refuse() {
	l.t.Helper()
	l.proxy.Stop()
	l.begun(l.listen)
}

// reset resets all connections, and new ones with their first byte.
func (l *link) reset() {
	l.t.Helper()
	linger(l.t, l.addr, false)
	l.proxy.Stop()
	l.set(func() toxics.Toxic { return new(toxics.ResetToxic) })
	l.listen()
	linger(l.t, l.addr, false) // which those that are accepted inherit
	l.begun(func() {
		linger(l.t, l.addr, true)
		l.pass()
	})
}

// resetAll resets all connections that there are.
func (l *link) resetAll() {
	l.t.Helper()
	linger(l.t, l.addr, false)
	l.proxy.Stop()
	l.listen()
}

func (l *link) listen() {
	l.t.Helper()
	listening.Lock()
	defer listening.Unlock()
	if err := l.proxy.Start(); err != nil {
		l.t.Error(err)
	}
}

// hangUp ends all connections, and new ones with their first byte.
func (l *link) hangUp() {
	l.t.Helper()
	l.set(func() toxics.Toxic { return new(toxics.LimitDataToxic) })
	l.begun(l.pass)
}

// cutOff ends every connection after so many bytes of the engine.
func (l *link) cutOff(bytes int64) {
	l.valves[1].set(func() toxics.Toxic { return &toxics.LimitDataToxic{Bytes: bytes} })
	l.onHeal(l.pass)
}

// slow makes the link slow in every way at once, for good: far away, narrow, and a few
// bytes at a time. There must be no connections yet.
func (l *link) slow(latency time.Duration, kilobytesPerSecond, slice int) {
	l.t.Helper()
	for _, stream := range streams {
		l.toxic("slicer", stream, map[string]any{"average_size": slice, "size_variation": slice / 2, "delay": 10})
		l.toxic("bandwidth", stream, map[string]any{"rate": kilobytesPerSecond})
		l.toxic("latency", stream, map[string]any{"latency": latency.Milliseconds(), "jitter": latency.Milliseconds() / 2})
	}
}

// toxic adds a toxic of toxiproxy's. Connections that there are may make that wait for
// ever: one that fails at that moment waits for the lock that is held meanwhile. This is
// what valves are there for.
func (l *link) toxic(kind, stream string, attributes map[string]any) *toxics.ToxicWrapper {
	l.t.Helper()
	description, err := json.Marshal(map[string]any{"type": kind, "stream": stream, "attributes": attributes})
	if err != nil {
		l.t.Fatal(err)
	}
	wrapper, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(string(description)))
	if err != nil {
		l.t.Fatalf("toxic %s: %v", kind, err)
	}
	return wrapper
}

// set puts a toxic into the valves of both directions.
func (l *link) set(toxic func() toxics.Toxic) {
	for _, v := range l.valves {
		v.set(toxic)
	}
}

func (l *link) pass() { l.set(pass) }

// begun notes that nothing gets through from now on.
func (l *link) begun(heal func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() {
		l.since = awake.now()
	}
	l.heals = append(l.heals, heal)
}

func (l *link) onHeal(heal func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heals = append(l.heals, heal)
}

// heal ends all faults.
func (l *link) heal() {
	l.mu.Lock()
	heals := l.heals
	l.heals, l.since = nil, time.Time{}
	l.mu.Unlock()
	for i := len(heals) - 1; i >= 0; i-- {
		heals[i]()
	}
}

// cutSince is since when nothing has got through without a break; zero if
// something may.
func (l *link) cutSince() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since
}
