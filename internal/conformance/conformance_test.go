//go:build conformance

package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/snapshot"
	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

// arrivalTime bounds the wait for something to arrive. It is there for what
// never does.
const arrivalTime = time.Minute

// gateway is what a gateway makes of one engine: a fleet with one worker.
type gateway struct {
	t     *testing.T
	table *load.Table
	fleet *discovery.Fleet
	id    string
	news  chan struct{} // something was delivered, or a member's state has changed

	// guarded by mu
	mu      sync.Mutex
	stopped bool
	allowed map[string][]value   // by endpoint: what may be delivered, newest last
	newest  map[string]delivered // by endpoint
	wrong   error                // the first delivery that is none of the allowed
	wire    snapshot.Kind
	base    int // port of rank 0
}

// delivered is what the subscriber handed on, kept beyond the call.
type delivered struct {
	seq     int64
	reading snapshot.Reading
}

// startGateway runs a fleet with one worker until the end of the test.
func startGateway(t *testing.T, wire snapshot.Kind, worker discovery.Worker, base int) *gateway {
	t.Helper()
	sub, err := zmqsub.New(zmqsub.Config{})
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{
		t:       t,
		table:   load.NewTable(load.Config{Window: time.Hour}), // how long anything takes is not asked here
		id:      worker.URL,
		news:    make(chan struct{}, 1),
		allowed: make(map[string][]value),
		newest:  make(map[string]delivered),
		wire:    wire,
		base:    base,
	}
	g.fleet = discovery.NewFleet(discovery.Config{
		Table:        g.table,
		Source:       discovery.StaticWorkers(worker),
		Subscriber:   &witness{g, sub},
		Logger:       slog.New(newsHandler{g}),
		PollInterval: 50 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.fleet.Run(ctx) }()
	t.Cleanup(func() {
		g.mu.Lock()
		g.stopped = true
		g.mu.Unlock()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func (g *gateway) nudge() {
	select {
	case g.news <- struct{}{}:
	default:
	}
}

// newsHandler nudges for what the fleet logs, which is all that changes in what
// it knows.
type newsHandler struct{ g *gateway }

func (h newsHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h newsHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h newsHandler) WithGroup(string) slog.Handler            { return h }
func (h newsHandler) Handle(_ context.Context, r slog.Record) error {
	h.g.mu.Lock()
	defer h.g.mu.Unlock()
	if !h.g.stopped {
		h.g.t.Logf("%v", r.Message)
	}
	h.g.nudge()
	return nil
}

// witness is the subscriber that the fleet uses, with somebody who looks at all
// that it delivers.
type witness struct {
	g   *gateway
	sub *zmqsub.Subscriber
}

func (w *witness) Subscribe(endpoint string, deliver func(snapshot.Delivery)) (func(), error) {
	return w.sub.Subscribe(endpoint, func(d snapshot.Delivery) {
		w.g.see(endpoint, d)
		deliver(d)
		w.g.nudge()
	})
}

func (g *gateway) see(endpoint string, d snapshot.Delivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fail := func(format string, args ...any) {
		if g.wrong == nil {
			g.wrong = fmt.Errorf("%s: "+format, append([]any{endpoint}, args...)...)
		}
	}
	if d.Err != nil {
		fail("dropped: %w", d.Err)
		return
	}
	if d.Reading.Kind != g.wire {
		fail("delivered a %v", d.Reading.Kind)
		return
	}
	rank := g.rank(endpoint)
	if !slices.ContainsFunc(g.allowed[endpoint], func(v value) bool { return v.same(d.Reading, rank) }) {
		fail("delivered %+v\nwhich is none of %v", *d.Reading, g.allowed[endpoint])
	}
	kept := delivered{d.Seq, *d.Reading}
	kept.reading.Snapshot.DecodeMoments = slices.Clone(kept.reading.Snapshot.DecodeMoments)
	g.newest[endpoint] = kept
}

func (g *gateway) rank(endpoint string) int {
	port, err := strconv.Atoi(endpoint[strings.LastIndexByte(endpoint, ':')+1:])
	if err != nil {
		panic(err)
	}
	return port - g.base
}

// until waits until ok returns true. ok is asked after everything that arrives.
func (g *gateway) until(what string, ok func() bool) {
	g.t.Helper()
	timeout := time.NewTimer(arrivalTime)
	defer timeout.Stop()
	for {
		g.mu.Lock()
		wrong := g.wrong
		g.mu.Unlock()
		if wrong != nil {
			g.t.Fatal(wrong)
		}
		if ok() {
			return
		}
		select {
		case <-g.news:
		case <-timeout.C:
			g.t.Fatalf("no %s within %v\n%+v\n%+v", what, arrivalTime, g.table.Status(), g.fleet.Status())
		}
	}
}

// expect says what is published next, beside what was before. That may still
// arrive, and an engine that has nothing new repeats it.
func (g *gateway) expect(endpoints []string, next []value) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, e := range endpoints {
		a := append(g.allowed[e], next[i])
		g.allowed[e] = a[max(0, len(a)-2):]
	}
}

// arrived reports whether the newest that was delivered for each rank is what it
// published.
func (g *gateway) arrived(endpoints []string, published []value) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return all(len(published), func(rank int) bool {
		d, ok := g.newest[endpoints[rank]]
		return ok && published[rank].same(&d.reading, rank)
	})
}

// check waits until everything was delivered and a view shows it, and then
// compares all that the view says about it. before is what was published before
// since.
func (g *gateway) check(endpoints []string, before, published []value, since time.Time) {
	g.t.Helper()
	var e load.Entry
	g.until("view of what was published", func() bool {
		w, ok := g.table.Worker(g.id)
		if !ok || !g.arrived(endpoints, published) {
			return false
		}
		if e, ok = g.table.View().Find(w); !ok || e.Ranks() != len(published) {
			return false
		}
		return all(len(published), func(rank int) bool {
			r, ok := e.Report(rank)
			if !ok {
				return false
			}
			got := *r
			got.Received, got.Seq = time.Time{}, load.Maybe[int64]{}
			return got == published[rank].report(g.wire)
		})
	})
	depth, booting := int64(0), false
	for rank, v := range published {
		r, _ := e.Report(rank)
		// The same to the table as before is as good as what came before.
		news := before == nil || v.report(g.wire) != before[rank].report(g.wire)
		if _, ok := r.Seq.Get(); !ok || (news && r.Received.Before(since)) || r.Received.After(time.Now()) {
			g.t.Fatalf("rank %d: sequence number %v, received at %v, asked to publish at %v", rank, r.Seq, r.Received, since)
		}
		for _, n := range []int64{r.Running, r.Waiting} {
			if depth += n; depth < 0 {
				depth = math.MaxInt64
			}
		}
		if c, ok := v.report(g.wire).KVCapacity.Get(); ok && c == 0 {
			booting = true
		}
	}
	if e.Depth() != depth {
		g.t.Fatalf("depth %d, want %d of %v", e.Depth(), depth, published)
	}
	if e.Trusted() == booting {
		g.t.Fatalf("trusted %v with %v", e.Trusted(), published)
	}
}

const rounds = 60 // of values, per life of a publisher

func TestValuesSurviveTheWayFromTheEngineToTheView(t *testing.T) {
	for _, wire := range []snapshot.Kind{snapshot.KindLoadStat, snapshot.KindLoadSnapshot} {
		for _, ranks := range []int{1, 2, 8} {
			for _, host := range []string{"127.0.0.1", "::1"} {
				if host == "::1" && ranks != 2 {
					continue
				}
				t.Run(fmt.Sprintf("%v/%d ranks/%s", wire, ranks, host), func(t *testing.T) {
					testValues(t, wire, ranks, host)
				})
			}
		}
	}
}

func testValues(t *testing.T, wire snapshot.Kind, ranks int, host string) {
	wildcard := "*"
	if host == "::1" {
		wildcard = "::"
		l, err := net.Listen("tcp", "[::1]:0")
		if err != nil {
			t.Skip("this machine has no IPv6 loopback")
		}
		l.Close()
	}
	e := startEngine(t)
	var args serverArgs
	for try := 1; ; try++ { // somebody else may take the ports first
		// Whole replicas and DP attention come to the same ports on different ways.
		args = withRanks(ranks, ranks == 8, wildcard, freeBase(t, host, 2*ranks))
		err := e.open(wire.String(), args)
		if err == nil {
			break
		}
		if try == 5 || !errors.Is(err, errNotBound) {
			t.Fatal(err)
		}
	}
	var served struct{ Port int }
	serve := func() {
		e.must("serve", map[string]any{"host": host, "port": served.Port, "args": args}, &served)
	}
	serve()
	var resolved struct{ Range []any }
	e.must("resolve", map[string]any{"args": args}, &resolved)
	base := int(resolved.Range[1].(float64))
	endpoints := make([]string, ranks)
	for i := range endpoints {
		endpoints[i] = "tcp://" + net.JoinHostPort(host, strconv.Itoa(base+i))
	}

	g := startGateway(t, wire, discovery.Worker{URL: "http://" + net.JoinHostPort(host, strconv.Itoa(served.Port))}, base)

	random := rand.New(rand.NewPCG(uint64(wire), uint64(ranks)))
	var last []value
	news := make([]int64, ranks) // values that differ from the one before; the publisher may keep the others to itself
	publish := func() {
		series := make([][]value, ranks)
		for rank := range series {
			series[rank] = values(random, rounds)
		}
		for i := range rounds {
			next := make([]value, ranks)
			for rank := range next {
				// Another value on each rank, so that none can pass for another's.
				next[rank] = series[rank][(i+rank)%rounds]
			}
			g.expect(endpoints, next)
			since := time.Now()
			e.must("publish", map[string]any{"loads": next}, nil)
			g.check(endpoints, last, next, since)
			for rank, v := range next {
				if last == nil || v.report(wire) != last[rank].report(wire) {
					news[rank]++
				}
			}
			last = next
		}
	}
	newest := func() []int64 {
		g.mu.Lock()
		defer g.mu.Unlock()
		var seqs []int64
		for _, endpoint := range endpoints {
			seqs = append(seqs, g.newest[endpoint].seq)
		}
		return seqs
	}
	restarted := func(before []int64) {
		t.Helper()
		g.until("lower sequence numbers", func() bool {
			now := newest()
			return all(ranks, func(i int) bool { return now[i] < before[i] })
		})
	}

	publish()
	for i, seq := range newest() {
		if seq < news[i]-1 {
			t.Errorf("rank %d: sequence number %d after %d messages", i, seq, news[i])
		}
	}

	// The sockets close and open again: what happens when an engine's scheduler
	// is restarted in place.
	before := newest()
	var reopened struct{ Bound []bool }
	e.must("restart", nil, &reopened)
	if err := allBound(reopened.Bound); err != nil {
		t.Fatal(err)
	}
	restarted(before)
	publish()

	// The whole engine dies and comes back.
	before = newest()
	e.kill()
	e = startEngine(t)
	if err := e.open(wire.String(), args); err != nil {
		t.Fatal(err)
	}
	serve()
	idle := make([]value, ranks)
	g.expect(endpoints, idle)
	e.must("publish", map[string]any{"loads": idle}, nil)
	restarted(before)
	last = idle
	publish()
}

// An engine whose socket could not be bound goes on advertising it. That must
// not pass for a rank with nothing to do.
func TestAnEngineThatCouldNotBindOneSocketIsNotTrusted(t *testing.T) {
	e := startEngine(t)
	base := freeBase(t, "127.0.0.1", 4)
	occupied, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(base+3)))
	if err != nil {
		t.Fatal(err)
	}
	defer occupied.Close()
	args := withRanks(2, false, "*", base)
	if err := e.open("LoadStat", args); !errors.Is(err, errNotBound) {
		t.Fatalf("opened: %v", err)
	}
	var served struct{ Port int }
	e.must("serve", map[string]any{"host": "127.0.0.1", "port": 0, "args": args}, &served)
	g := startGateway(t, snapshot.KindLoadStat, discovery.Worker{URL: fmt.Sprintf("http://127.0.0.1:%d", served.Port)}, base+2)
	loads := []value{{NumRunningReqs: new(int64(7)), MaxTotalNumTokens: new(int64(100))}, {}}
	g.expect([]string{fmt.Sprintf("tcp://127.0.0.1:%d", base+2)}, loads)
	e.must("publish", map[string]any{"loads": loads}, nil)
	g.until("report of rank 0", func() bool {
		w, ok := g.table.Worker(g.id)
		return ok && len(w.Status().Ranks) == 2 && w.Status().Ranks[0].Report != nil
	})
	w, _ := g.table.Worker(g.id)
	if s := w.Status(); s.Trusted || s.Why != load.NeverReported || s.Ranks[1].Report != nil {
		t.Errorf("status %+v", s)
	}
}

// The block that the engine's own function makes of its arguments, read by ours.
func TestOurReadingOfTheAdvertisementIsTheEngines(t *testing.T) {
	zmq := func(endpoint, replay string) *kvEventsConfig {
		return &kvEventsConfig{Publisher: "zmq", Endpoint: endpoint, ReplayEndpoint: replay}
	}
	e := startEngine(t)
	served := struct{ Port int }{}
	client := &discovery.Client{}
	for _, c := range []struct {
		name   string
		config *kvEventsConfig
		ranks  int
		load   string
		page   int
		base   int // first load port; 0: does not publish
	}{
		{"one rank", zmq("tcp://*:5557", ""), 1, "auto", 64, 5558},
		{"two ranks", zmq("tcp://*:5557", ""), 2, "auto", 64, 5559},
		{"replay in the way", zmq("tcp://*:5557", "tcp://*:5558"), 1, "auto", 64, 5559},
		{"replay in the way of four", zmq("tcp://*:5557", "tcp://*:5558"), 4, "auto", 64, 5562},
		{"replay elsewhere", zmq("tcp://*:5557", "tcp://*:6000"), 2, "auto", 64, 5559},
		{"replay on one host", zmq("tcp://*:5557", "tcp://10.0.0.9:5558"), 1, "auto", 64, 5559},
		{"all IPv4", zmq("tcp://0.0.0.0:5557", ""), 2, "auto", 1, 5559},
		{"all IPv6", zmq("tcp://[::]:5557", ""), 2, "auto", 64, 5559},
		{"address of its own", zmq("tcp://*:5557", ""), 8, "tcp://*:7000", 64, 7000},
		{"KV events on one host, load on all", zmq("tcp://10.0.0.9:5557", ""), 2, "tcp://*:7000", 64, 7000},
		{"KV events on one IPv6 host, load on all", zmq("tcp://[fd00::9]:5557", ""), 2, "tcp://[::]:7000", 64, 7000},
		{"up to the last port", zmq("tcp://*:65530", ""), 3, "auto", 64, 65533},
		{"past the last port", zmq("tcp://*:65530", ""), 4, "auto", 64, 0},
		{"load switched off", zmq("tcp://*:5557", ""), 2, "off", 64, 0},
		{"load never switched on", zmq("tcp://*:5557", ""), 2, "", 64, 0},
		{"automatic with a host that cannot be bound", zmq("tcp://10.0.0.9:5557", ""), 2, "auto", 64, 0},
		{"load over the KV events", zmq("tcp://*:5557", ""), 2, "tcp://*:5558", 64, 0},
		{"KV events within the machine", zmq("ipc:///tmp/kv", ""), 2, "auto", 64, 0},
		{"publisher null", &kvEventsConfig{Publisher: "null", Endpoint: "tcp://*:5557"}, 2, "auto", 64, 0},
		{"no KV events", nil, 2, "auto", 64, 0},
		{"no page size", zmq("tcp://*:5557", ""), 2, "auto", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := serverArgs{KVEventsConfig: c.config, DPSize: 1, AttnDPSize: c.ranks, PageSize: c.page}
			if c.load != "" {
				args.LoadPublish = &c.load
			}
			e.must("serve", map[string]any{"host": "127.0.0.1", "port": served.Port, "args": args}, &served)
			ad, err := client.ServerInfo(t.Context(), fmt.Sprintf("http://127.0.0.1:%d", served.Port))
			if err != nil {
				t.Fatal(err)
			}
			if ad.Publishes != (c.base != 0) || ad.Broken {
				t.Fatalf("advertisement %+v", ad)
			}
			if c.base == 0 {
				return
			}
			if len(ad.Endpoints) != c.ranks {
				t.Fatalf("%d endpoints of %d ranks", len(ad.Endpoints), c.ranks)
			}
			for i, got := range ad.Endpoints {
				if want := fmt.Sprintf("tcp://127.0.0.1:%d", c.base+i); got.Err != nil || got.Rank != i || got.Addr != want {
					t.Errorf("endpoint %+v, want %s", got, want)
				}
			}
			var resolved struct{ Range []any }
			e.must("resolve", map[string]any{"args": args}, &resolved)
			if got := resolved.Range[1].(float64); int(got) != c.base {
				t.Errorf("the engine would bind %v", resolved.Range)
			}
		})
	}
}

// The engine's JSON form of the same type, where it offers no load socket.
func TestValuesSurvivePolling(t *testing.T) {
	const ranks = 2
	e := startEngine(t)
	args := withRanks(ranks, false, "*", 5557)
	args.LoadPublish = nil
	var served struct{ Port int }
	e.must("serve", map[string]any{"host": "127.0.0.1", "port": 0, "args": args}, &served)
	random := rand.New(rand.NewPCG(3, ranks))
	var series [ranks][]value
	for rank := range series {
		series[rank] = values(random, rounds)[3:] // an idle rank is told apart from an unknown one below
	}
	url := fmt.Sprintf("http://127.0.0.1:%d", served.Port)
	for i := range 5 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			e.t = t
			var loads []value
			for rank := range ranks {
				v := series[rank][(i*11+rank)%len(series[rank])]
				v.DPRank = new(int64(rank)) // here it is the only thing that says whose load it is
				loads = append(loads, v)
			}
			e.must("publish", map[string]any{"loads": loads}, nil)
			g := startGateway(t, snapshot.KindLoadSnapshot, discovery.Worker{URL: url, Poll: true}, 0)
			g.untilPolled(func() bool {
				w, ok := g.table.Worker(g.id)
				return ok && len(w.Status().Ranks) == ranks && w.Status().Ranks[ranks-1].Report != nil
			})
			w, _ := g.table.Worker(g.id)
			for rank, s := range w.Status().Ranks {
				r, v := s.Report, loads[rank]
				got := [...]int64{r.Running, r.Waiting, r.WaitingTokens.Or(0), r.KVUsed.Or(0), r.KVCapacity.Or(0), r.MaxRunning.Or(0), r.PrefillTokens.Or(0), r.PrefillBusyUS.Or(0)}
				want := [...]int64{or0(v.NumRunningReqs), or0(v.NumWaitingReqs), or0(v.NumWaitingUncachedTokens), or0(v.NumUsedTokens), or0(v.MaxTotalNumTokens), or0(v.MaxRunningRequests), or0(v.TotalPrefillUncachedTokens), or0(v.TotalPrefillBusyUS)}
				if got != want || r.Source != load.SourcePoll {
					t.Errorf("rank %d: %+v\nwant %v", rank, r, v)
				}
			}
		})
	}
	e.t = t
}

// untilPolled is until for what no subscriber delivers and nobody logs.
func (g *gateway) untilPolled(ok func() bool) {
	g.t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				g.nudge()
			case <-done:
				return
			}
		}
	})
	defer wg.Wait()
	defer close(done)
	g.until("poll", ok)
}
