package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/snapshot"
)

// fakeNet is the HTTP side of the engines, by host.
type fakeNet struct {
	mu      sync.Mutex
	engines map[string]func(*http.Request) (*http.Response, error)
	asked   map[string][]time.Time // by host and path
}

func newFakeNet() *fakeNet {
	return &fakeNet{engines: make(map[string]func(*http.Request) (*http.Response, error)), asked: make(map[string][]time.Time)}
}

func (n *fakeNet) RoundTrip(req *http.Request) (*http.Response, error) {
	n.mu.Lock()
	engine := n.engines[req.URL.Host]
	key := req.URL.Hostname() + req.URL.Path
	n.asked[key] = append(n.asked[key], time.Now())
	n.mu.Unlock()
	if engine == nil {
		return nil, errors.New("connection refused")
	}
	return engine(req)
}

func (n *fakeNet) set(host string, engine func(*http.Request) (*http.Response, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.engines[host+":1"] = engine
}

// times returns when an engine was asked for a path, since began.
func (n *fakeNet) times(key string, began time.Time) []time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []time.Duration
	for _, at := range n.asked[key] {
		if !at.Before(began) {
			out = append(out, at.Sub(began))
		}
	}
	return out
}

// answering is an engine that gives one answer, to everything but /v1/loads.
func answering(status int, body string) func(*http.Request) (*http.Response, error) {
	return func(req *http.Request) (*http.Response, error) {
		if req.URL.Path == "/v1/loads" {
			return respond(404, "")
		}
		return respond(status, body)
	}
}

func publishing(ranks, base int) func(*http.Request) (*http.Response, error) {
	return answering(200, fmt.Sprintf(`{"kv_events":{"endpoint_host":"*","dp_size":%d,"load_endpoint_port_base":%d}}`, ranks, base))
}

func hanging(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// fakeSub is a Subscriber whose sockets a test speaks for.
type fakeSub struct {
	onSubscribe func(endpoint string)

	mu    sync.Mutex
	live  map[string][]*fakeSocket
	log   []string
	fails map[string]error
}

type fakeSocket struct {
	deliver func(snapshot.Delivery)
	said    int64 // by says, whose numbers count from 7
}

func newFakeSub() *fakeSub {
	return &fakeSub{live: make(map[string][]*fakeSocket), fails: make(map[string]error)}
}

func (s *fakeSub) Subscribe(endpoint string, deliver func(snapshot.Delivery)) (func(), error) {
	if s.onSubscribe != nil {
		s.onSubscribe(endpoint)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fails[endpoint]; err != nil {
		return nil, err
	}
	socket := &fakeSocket{deliver: deliver}
	s.live[endpoint] = append(s.live[endpoint], socket)
	s.log = append(s.log, "+"+strings.TrimPrefix(endpoint, "tcp://"))
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		i := slices.Index(s.live[endpoint], socket)
		if i < 0 {
			panic("stopped twice")
		}
		s.live[endpoint] = slices.Delete(s.live[endpoint], i, i+1)
		s.log = append(s.log, "-"+strings.TrimPrefix(endpoint, "tcp://"))
	}, nil
}

// socket returns the only live socket of an endpoint.
func (s *fakeSub) socket(t *testing.T, endpoint string) *fakeSocket {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if live := s.live["tcp://"+endpoint]; len(live) == 1 {
		return live[0]
	}
	t.Fatalf("%d sockets at %s, want 1; log %q", len(s.live["tcp://"+endpoint]), endpoint, s.log)
	return nil
}

// alive returns the socket of an endpoint, or nil if nobody listens there.
func (s *fakeSub) alive(endpoint string) *fakeSocket {
	s.mu.Lock()
	defer s.mu.Unlock()
	if live := s.live["tcp://"+endpoint]; len(live) > 0 {
		return live[0]
	}
	return nil
}

func (s *fakeSub) count() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, live := range s.live {
		n += len(live)
	}
	return n
}

func (s *fakeSub) events() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

func (s *fakeSub) fail(endpoint string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails["tcp://"+endpoint] = err
}

// says delivers one LoadSnapshot.
func (s *fakeSocket) says(running, waiting int64) {
	s.report(7+s.said, time.Now(), running, waiting)
	s.said++
}

func (s *fakeSocket) report(seq int64, received time.Time, running, waiting int64) {
	r := snapshot.Reading{Kind: snapshot.KindLoadSnapshot}
	r.Snapshot.NumRunningReqs, r.Snapshot.NumWaitingReqs = running, waiting
	r.Snapshot.Present = snapshot.FieldsOf(snapshot.FieldNumRunningReqs, snapshot.FieldNumWaitingReqs)
	s.deliver(snapshot.Delivery{Received: received, Seq: seq, Reading: &r})
}

// rig is a running fleet.
type rig struct {
	*testing.T
	net    *fakeNet
	sub    *fakeSub
	source *scripted
	table  *load.Table
	fleet  *Fleet
	log    logBuffer
	began  time.Time
	stop   func()
}

// newRig runs a fleet in the test's bubble, until the end of the test.
func newRig(t *testing.T, change func(*Config)) *rig {
	r := &rig{T: t, net: newFakeNet(), sub: newFakeSub(), source: newScripted(), table: load.NewTable(load.Config{}), began: time.Now()}
	c := Config{
		Table:      r.table,
		Source:     r.source,
		Subscriber: r.sub,
		Client:     &Client{HTTP: &http.Client{Transport: r.net}},
		Logger:     slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&c)
	}
	r.fleet = NewFleet(c)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.fleet.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
		if n := r.sub.count(); n != 0 {
			t.Errorf("%d sockets are left after Run", n)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// workers makes the given ones the set.
func (r *rig) workers(list ...Worker) {
	r.source.sets <- list
	synctest.Wait()
}

func (r *rig) urls(list ...string) { r.workers(urls(list...)...) }

func (r *rig) load(id string) load.WorkerStatus {
	r.Helper()
	w, ok := r.table.Worker(id)
	if !ok {
		r.Fatalf("%s is not in the table", id)
	}
	return w.Status()
}

func (r *rig) status(id string) WorkerStatus {
	r.Helper()
	for _, s := range r.fleet.Status().Workers {
		if s.ID == id {
			return s
		}
	}
	r.Fatalf("%s is not in the status", id)
	return WorkerStatus{}
}

func (r *rig) trusted(id string, depth int64) {
	r.Helper()
	if s := r.load(id); !s.Trusted || s.Depth != load.Known(depth) {
		r.Errorf("%s: trusted %v (%s), depth %v, want %d", id, s.Trusted, s.Reason, s.Depth, depth)
	}
}

func (r *rig) untrusted(id string, why load.Why, reason string) {
	r.Helper()
	if s := r.load(id); s.Trusted || s.Why != why || !strings.Contains(s.Reason, reason) {
		r.Errorf("%s: trusted %v, %v: %q, want %v with %q", id, s.Trusted, s.Why, s.Reason, why, reason)
	}
}

// keepTalking has sockets report once a second for so long.
func (r *rig) keepTalking(d time.Duration, endpoints ...string) {
	r.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		for _, e := range endpoints {
			r.socket(e).says(1, 0)
		}
		advance(time.Second)
	}
}

func (r *rig) socket(endpoint string) *fakeSocket {
	r.Helper()
	return r.sub.socket(r.T, endpoint)
}

const idA = "http://a:1"

func TestPublishedLoadReachesTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(2, 5559))
		// All ranks are advertised before the first socket opens, so that no sum
		// over a part of them is ever seen.
		r.sub.onSubscribe = func(endpoint string) {
			if s := r.load(idA); s.Advertised != 2 {
				t.Errorf("%s is subscribed while %d ranks are advertised", endpoint, s.Advertised)
			}
		}
		r.urls(idA)
		r.untrusted(idA, load.NeverReported, "rank 0, 1 of 2")
		advance(time.Second)
		r.socket("a:5559").says(5, 1)
		r.untrusted(idA, load.NeverReported, "rank 1 of 2")
		r.socket("a:5560").says(3, 2)
		r.trusted(idA, 11)

		rank := r.load(idA).Ranks[1]
		if rank.Report.Source != load.SourcePush || rank.Report.Seq != load.Known[int64](7) || !rank.Report.Received.Equal(time.Now()) {
			t.Errorf("report %+v", rank.Report)
		}
		s := r.status(idA)
		want := []EndpointStatus{{Rank: 0, Addr: "tcp://a:5559", Heard: time.Now()}, {Rank: 1, Addr: "tcp://a:5560", Heard: time.Now()}}
		if s.Outcome != OutcomePublishes || s.Asked != 1 || s.Error != "" || !slices.EqualFunc(s.Endpoints, want, func(a, b EndpointStatus) bool {
			return a.Rank == b.Rank && a.Addr == b.Addr && a.Error == b.Error && a.Heard.Equal(b.Heard)
		}) {
			t.Errorf("status %+v", s)
		}
		// Once more soon, since an engine that has just come up may be coming up
		// again and again, and then at the usual pace.
		if next := s.NextAsk.Sub(s.LastAsk); next != r.table.Window() {
			t.Errorf("asked again in %v", next)
		}
		r.keepTalking(7*time.Second, "a:5559", "a:5560")
		s = r.status(idA)
		if next := s.NextAsk.Sub(s.LastAsk); s.Asked != 2 || next < 27*time.Second || next > 33*time.Second {
			t.Errorf("asked %d times, and again in %v", s.Asked, next)
		}
	})
}

func TestDroppedMessagesAreCountedAndChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(1, 5559))
		r.urls(idA)
		socket := r.socket("a:5559")
		socket.says(2, 2)
		bad := &snapshot.DecodeError{Type: "LoadSnapshot", Field: "num_running_reqs", Err: snapshot.ErrNegative}
		socket.deliver(snapshot.Delivery{Received: time.Now(), Err: bad})
		var unknown snapshot.Reading
		unknown.Kind = snapshot.KindLoadSnapshot
		unknown.Snapshot.Nil = snapshot.FieldsOf(snapshot.FieldNumWaitingReqs)
		socket.deliver(snapshot.Delivery{Received: time.Now(), Reading: &unknown})
		socket.deliver(snapshot.Delivery{Received: time.Now()}) // a transport that says nothing
		r.trusted(idA, 4)
		if d := r.load(idA).Ranks[0].Dropped; d["negative"] != 1 || d["bad_report"] != 1 || len(d) != 2 {
			t.Errorf("dropped %v", d)
		}
	})
}

func TestEightRanksAdvertisedFourAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(8, 5559))
		r.urls(idA)
		for rank := range 4 {
			r.socket(fmt.Sprint("a:", 5559+rank)).says(1, 0)
		}
		r.untrusted(idA, load.NeverReported, "rank 4, 5, 6, 7 of 8")
	})
}

func TestRankPastTheLastPortKeepsItsWorkerUntrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(4, 65533))
		r.urls(idA)
		if n := r.sub.count(); n != 3 {
			t.Errorf("%d sockets", n)
		}
		for _, port := range []string{"65533", "65534", "65535"} {
			r.socket("a:"+port).says(1, 0)
		}
		r.untrusted(idA, load.NeverReported, "rank 3 (last message dropped: discovery: rank's port is above 65535) of 4")
		if e := r.status(idA).Endpoints[3]; e.Error == "" || e.Addr != "" {
			t.Errorf("endpoint %+v", e)
		}
	})
}

func TestBadWorkersDelayNobodyAndHaveEachTheirStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("hangs", hanging)
		r.net.set("garbage", answering(200, "<html>"))
		r.net.set("huge", func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, ContentLength: 1 << 30, Body: io.NopCloser(strings.NewReader(""))}, nil
		})
		r.net.set("badport", publishing(1, -1))
		r.net.set("a", publishing(1, 5559))
		r.urls("http://hangs:1", "http://garbage:1", "http://huge:1", "http://badport:1", "http://gone:1", "not a URL", idA, idA)
		r.socket("a:5559").says(1, 2)
		r.trusted(idA, 3)
		if took := time.Since(r.began); took != 0 {
			t.Errorf("ready after %v", took)
		}

		advance(7 * time.Second)
		for id, want := range map[string]struct {
			why    load.Why
			reason string
		}{
			"http://hangs:1":   {load.NoAnswer, "no answer within 2s (3 tries)"},
			"http://garbage:1": {load.NoAnswer, "unexpected shape: not JSON"},
			"http://huge:1":    {load.NoAnswer, "body of 1073741824 bytes is above the bound"},
			"http://badport:1": {load.NotPublishing, "load_endpoint_port_base: -1 is outside 1..65535"},
			"http://gone:1":    {load.NoAnswer, "connection refused (3 tries)"},
		} {
			r.untrusted(id, want.why, want.reason)
			s := r.status(id)
			if broken := want.why == load.NotPublishing; s.Broken != broken || (s.Outcome == OutcomeDoesNotPublish) != broken || !strings.Contains(s.Error+s.Reason, want.reason) {
				t.Errorf("%s: status %+v", id, s)
			}
		}
		refused := r.fleet.Status().Refused
		if len(refused) != 2 || refused[0].Worker != "not a URL" || refused[1].Worker != idA {
			t.Errorf("refused %+v", refused)
		}
		if log := r.log.String(); !strings.Contains(log, "advertisement is broken") || !strings.Contains(log, "worker refused") {
			t.Errorf("log:\n%s", log)
		}
	})
}

func TestHangingWorkersDoNotTakeTheSlotsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Concurrency = 2 })
		list := []string{}
		for i := range 20 {
			host := fmt.Sprint("h", i)
			r.net.set(host, hanging)
			list = append(list, "http://"+host+":1")
		}
		r.urls(list...)
		advance(2 * time.Minute) // each of them has failed by now
		r.net.set("a", publishing(1, 5559))
		r.urls(append(list, idA)...)
		r.socket("a:5559").says(1, 0)
		r.trusted(idA, 1)
	})
}

func TestEngineThatDoesNotPublishIsAskedAgainSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", answering(200, `{"kv_events":null}`))
		r.urls(idA)
		r.untrusted(idA, load.NotPublishing, "no kv_events block")
		advance(50 * time.Second)
		if n := len(r.net.times("a/server_info", r.began)); n != 1 {
			t.Errorf("asked %d times in 50 s", n)
		}
		r.net.set("a", publishing(1, 5559)) // restarted with other flags
		advance(17 * time.Second)
		r.socket("a:5559").says(1, 1)
		r.trusted(idA, 2)
		if s := r.status(idA); s.Reason != "" || s.Outcome != OutcomePublishes {
			t.Errorf("status %+v", s)
		}
	})
}

func TestEngineThatCannotBeAskedIsAskedAgainWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", answering(404, ""))
		r.urls(idA)
		r.untrusted(idA, load.NoAnswer, "status 404 Not Found")
		advance(3 * time.Minute)
		at := r.net.times("a/server_info", r.began)
		want := time.Second
		for i := 1; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap < want*9/10 || gap > want*11/10 {
				t.Errorf("gap %d is %v, want about %v", i, gap, want)
			}
			want = min(2*want, 30*time.Second)
		}
		if len(at) < 8 {
			t.Errorf("asked %d times", len(at))
		}
		if s := r.status(idA); s.Failures != len(at) || s.NextAsk.Before(time.Now()) {
			t.Errorf("status %+v", s)
		}
		r.net.set("a", publishing(1, 5559))
		advance(34 * time.Second)
		r.socket("a:5559").says(0, 0)
		r.trusted(idA, 0)
		if s := r.status(idA); s.Failures != 0 || s.Error != "" {
			t.Errorf("status %+v", s)
		}
	})
}

func TestSameAdvertisementChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(2, 5559))
		r.urls(idA)
		r.keepTalking(10*time.Minute, "a:5559", "a:5560")
		r.trusted(idA, 2)
		if e := r.sub.events(); !slices.Equal(e, []string{"+a:5559", "+a:5560"}) {
			t.Errorf("sockets %q", e)
		}
		if n := len(r.net.times("a/server_info", r.began)); n < 18 || n > 23 {
			t.Errorf("asked %d times in 10 minutes", n)
		}
		if n := strings.Count(r.log.String(), "engine publishes load"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

func TestOtherPortsOrRanksAreSubscribedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(1, 5559))
		r.urls(idA)
		old := r.socket("a:5559")
		old.says(9, 9)
		w, _ := r.table.Worker(idA)
		defer w.Reserve(load.NoRank, 0).Done()

		r.net.set("a", publishing(2, 7000))
		advance(34 * time.Second)
		if e := r.sub.events(); !slices.Equal(e, []string{"+a:5559", "-a:5559", "+a:7000", "+a:7001"}) {
			t.Errorf("sockets %q", e)
		}
		r.untrusted(idA, load.NeverReported, "rank 0, 1 of 2")
		old.says(9, 9) // late
		r.untrusted(idA, load.NeverReported, "rank 0, 1 of 2")
		r.socket("a:7000").says(1, 0)
		r.socket("a:7001").says(1, 0)
		r.trusted(idA, 2)
		if n := r.load(idA).InFlight; n != 1 {
			t.Errorf("%d in flight: the books are the worker's, whatever its ports", n)
		}
	})
}

func TestEngineThatStopsPublishingLosesItsReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(1, 5559))
		r.urls(idA)
		r.keepTalking(5*time.Second, "a:5559")
		r.net.set("a", answering(200, `{}`))
		advance(34 * time.Second)
		r.untrusted(idA, load.NotPublishing, "no kv_events block")
		if n := r.sub.count(); n != 0 {
			t.Errorf("%d sockets", n)
		}
		if s := r.status(idA); len(s.Endpoints) != 0 {
			t.Errorf("status %+v", s)
		}
	})
}

func TestErrorOnAskingAgainLeavesALiveFeedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(1, 5559))
		r.urls(idA)
		for _, broken := range []func(*http.Request) (*http.Response, error){answering(503, ""), answering(404, ""), answering(200, "[]"), hanging} {
			r.net.set("a", broken)
			r.keepTalking(time.Minute, "a:5559")
			r.trusted(idA, 1)
			s := r.status(idA)
			if s.Outcome != OutcomeCouldNotTell || s.Error == "" || s.Failures == 0 || len(s.Endpoints) != 1 {
				t.Errorf("status %+v", s)
			}
		}
		if e := r.sub.events(); !slices.Equal(e, []string{"+a:5559"}) {
			t.Errorf("sockets %q", e)
		}
	})
}

func TestSilentRankHasItsWorkerAskedSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(2, 5559))
		r.urls(idA)
		r.keepTalking(10*time.Second, "a:5559", "a:5560")
		silent := time.Now()
		r.keepTalking(6*time.Second, "a:5559") // rank 1 was last heard a second ago
		at := r.net.times("a/server_info", silent)
		if len(at) == 0 || at[0] != 4*time.Second+1 {
			t.Errorf("asked at %v", at)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(2, 5559))
		r.urls(idA)
		r.socket("a:5559").says(1, 0)
		r.socket("a:5560").says(1, 0)
		// Back at other ports, long before it would have been asked anyway.
		r.net.set("a", publishing(2, 7000))
		advance(6 * time.Second)
		r.socket("a:7000").says(1, 0)
		r.socket("a:7001").says(1, 0)
		r.trusted(idA, 2)
	})
}

func TestEngineThatStaysSilentIsAskedEverMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(1, 5559)) // and bound nothing
		r.urls(idA)
		advance(10 * time.Minute)
		if n := len(r.net.times("a/server_info", r.began)); n < 20 || n > 26 {
			t.Errorf("asked %d times in 10 minutes: %v", n, r.net.times("a/server_info", r.began))
		}
		if e := r.sub.events(); !slices.Equal(e, []string{"+a:5559"}) {
			t.Errorf("sockets %q", e)
		}

		// Once it has spoken, the next silence is a new one.
		r.keepTalking(10*time.Second, "a:5559")
		silent := time.Now()
		advance(5 * time.Second)
		if n := len(r.net.times("a/server_info", silent)); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestReportIsAsOldAsItsReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(1, 5559))
		r.urls(idA)
		advance(10 * time.Second)
		r.socket("a:5559").report(0, time.Now().Add(-2*time.Second), 1, 0)
		if age := r.load(idA).Age; age != 2*time.Second {
			t.Errorf("age %v", age)
		}
	})
}

// An engine that restarts with more ranks publishes the first of them where the
// old ones were: their sum looks complete, and is a part.
func TestEngineThatComesBackWithMoreRanksAtTheSamePorts(t *testing.T) {
	resubscribed := []string{"+a:5559", "+a:5560", "-a:5559", "-a:5560", "+a:5559", "+a:5560", "+a:5561", "+a:5562"}
	for _, c := range []struct {
		name  string
		away  time.Duration
		seq   int64         // of the first message of the new engine
		boots time.Duration // before it answers
		takes time.Duration // then to be asked: a window, give or take a tenth
	}{
		{name: "at once, counting anew", seq: 0},
		{name: "at once, with the number that the old one had come to", seq: 9, takes: time.Second},
		{name: "after a short silence, counting further", away: 3 * time.Second, seq: 1000, takes: time.Second},
		{name: "after a silence, counting as far", away: 25 * time.Second, seq: 1000, takes: 6 * time.Second},
		{name: "publishing before it answers", away: 25 * time.Second, seq: 0, boots: 50 * time.Second, takes: 6 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				r.net.set("a", publishing(2, 5559))
				r.urls(idA)
				old := []*fakeSocket{r.socket("a:5559"), r.socket("a:5560")}
				var seq int64
				talk := func(d time.Duration) { // also when nobody listens any more
					for end := time.Now().Add(d); time.Now().Before(end); advance(time.Second) {
						for _, s := range old {
							s.report(seq, time.Now(), 4, 0)
						}
						seq++
					}
				}
				talk(10 * time.Second)
				r.trusted(idA, 8)

				r.net.set("a", answering(503, ""))
				advance(c.away)
				if c.boots == 0 {
					r.net.set("a", publishing(4, 5559))
				}
				seq = c.seq
				old[0].report(seq, time.Now(), 1, 0)
				if c.boots > 0 {
					talk(c.boots)
					r.trusted(idA, 8) // a lower sequence number is no less true
					r.net.set("a", publishing(4, 5559))
				}
				talk(c.takes)
				synctest.Wait()
				if e := r.sub.events(); !slices.Equal(e, resubscribed) {
					t.Fatalf("sockets %q", e)
				}
				old[0].report(seq, time.Now(), 1, 0) // late
				r.untrusted(idA, load.NeverReported, "rank 0, 1, 2, 3 of 4")
				for _, e := range []string{"a:5559", "a:5560", "a:5561", "a:5562"} {
					r.socket(e).report(0, time.Now(), 1, 0)
				}
				r.trusted(idA, 4)
			})
		})
	}
}

func TestPublisherThatStartsAgainAndAgainIsNotAskedEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(1, 5559))
		r.urls(idA)
		for i := range 600 {
			r.socket("a:5559").report(int64(600-i), time.Now(), 3, 0)
			advance(100 * time.Millisecond)
		}
		r.trusted(idA, 3)
		if n := len(r.net.times("a/server_info", r.began)); n < 30 || n > 68 {
			t.Errorf("asked %d times in a minute", n)
		}
		settled := time.Now()
		r.socket("a:5559").report(0, time.Now(), 3, 0)
		r.keepTalking(20*time.Second, "a:5559")
		if n := len(r.net.times("a/server_info", settled)); n > 1 {
			t.Errorf("asked %d times since", n)
		}
	})
}

func TestRankThatSaysNothingOfUseIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(1, 5559))
		r.urls(idA)
		for range 7 {
			r.socket("a:5559").deliver(snapshot.Delivery{Received: time.Now(), Err: snapshot.ErrTag})
			advance(time.Second)
		}
		if n := len(r.net.times("a/server_info", r.began)); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestRemovedWorkerIsGoneAndItsLateReportsTouchNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(1, 5559))
		r.net.set("b", publishing(1, 5559))
		r.urls(idA, "http://b:1")
		old := r.socket("a:5559")
		old.says(50, 0)
		r.trusted(idA, 50)

		r.urls("http://b:1")
		if _, ok := r.table.Worker(idA); ok || r.sub.count() != 1 {
			t.Errorf("still there; sockets %q", r.sub.events())
		}
		if n := len(r.fleet.Status().Workers); n != 1 {
			t.Errorf("%d workers in the status", n)
		}
		r.urls(idA, "http://b:1")
		old.says(50, 0)
		old.deliver(snapshot.Delivery{Received: time.Now(), Err: snapshot.ErrTag})
		r.untrusted(idA, load.NeverReported, "rank 0 of 1")
		if s := r.load(idA).Ranks[0]; s.Reports != 0 || len(s.Dropped) != 0 {
			t.Errorf("the new worker has %+v", s)
		}
		r.socket("a:5559").says(1, 0)
		r.trusted(idA, 1)
	})
}

func TestWorkerIsRemovedWhileItIsBeingAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		// The old one's answer comes after the new one was added.
		late := make(chan struct{})
		r.net.set("a", func(*http.Request) (*http.Response, error) {
			<-late
			return respond(200, `{"kv_events":{"load_endpoint_port_base":7000}}`)
		})
		r.urls(idA)
		r.urls()
		if _, ok := r.table.Worker(idA); ok {
			t.Error("still there")
		}
		r.net.set("a", publishing(1, 5559))
		r.urls(idA)
		close(late)
		synctest.Wait()
		if e := r.sub.events(); !slices.Equal(e, []string{"+a:5559"}) {
			t.Errorf("sockets %q", e)
		}
		r.untrusted(idA, load.NeverReported, "rank 0 of 1")
	})
}

func TestIDAtAnotherURLIsAnotherWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(1, 5559))
		r.net.set("b", publishing(1, 5559))
		r.workers(Worker{ID: "x", URL: idA})
		r.socket("a:5559").says(5, 0)
		first, _ := r.table.Worker("x")
		r.workers(Worker{ID: "x", URL: "http://b:1"})
		second, _ := r.table.Worker("x")
		if first == second {
			t.Error("the same incarnation")
		}
		r.untrusted("x", load.NeverReported, "rank 0 of 1")
		if s := r.status("x"); s.URL != "http://b:1" {
			t.Errorf("status %+v", s)
		}

		// Another spelling of it and polling are not another URL.
		r.workers(Worker{ID: "x", URL: "HTTP://B:1/", Poll: true})
		if third, _ := r.table.Worker("x"); third != second {
			t.Error("another incarnation")
		}

		// Other credentials are: whoever sends the requests needs them.
		r.workers(Worker{ID: "x", URL: "http://user:s3cret@b:1"})
		fourth, _ := r.table.Worker("x")
		if fourth == second || fourth.URL() != "http://user:s3cret@b:1" {
			t.Errorf("its URL is %q", fourth.URL())
		}
		status, err := json.Marshal(r.fleet.Status())
		if err != nil || strings.Contains(r.log.String(), "s3cret") || strings.Contains(string(status), "s3cret") {
			t.Errorf("the password is shown, or %v", err)
		}
		if !strings.Contains(string(status), `"outcome":"publishes"`) {
			t.Errorf("status %s", status)
		}
	})
}

func TestForeignHostIsNotSubscribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", answering(200, `{"kv_events":{"endpoint_host":"203.0.113.66","dp_size":2,"load_endpoint_port_base":5559,"publishers":[{"dp_rank":1,"endpoint":"tcp://203.0.113.67:5558"}]}}`))
		r.urls(idA)
		if e := r.sub.events(); !slices.Equal(e, []string{"+a:5559", "+a:5560"}) {
			t.Errorf("sockets %q", e)
		}
		if s := r.status(idA); len(s.Notes) != 2 {
			t.Errorf("notes %q", s.Notes)
		}
	})
}

func TestRefusedSubscriptionIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(2, 5559))
		r.sub.fail("a:5560", errors.New("too many sockets"))
		r.urls(idA)
		r.socket("a:5559").says(1, 0)
		r.untrusted(idA, load.NeverReported, "rank 1 (last message dropped: too many sockets) of 2")
		if e := r.status(idA).Endpoints[1]; e.Error != "too many sockets" {
			t.Errorf("endpoint %+v", e)
		}
		r.sub.fail("a:5560", nil)
		r.keepTalking(34*time.Second, "a:5559")
		if e := r.sub.events(); !slices.Equal(e, []string{"+a:5559", "+a:5560"}) {
			t.Errorf("sockets %q", e)
		}
		if e := r.status(idA).Endpoints[1]; e.Error != "" {
			t.Errorf("endpoint %+v", e)
		}
	})
}

func TestWithoutSubscriberNobodyIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Subscriber = nil })
		r.net.set("a", publishing(1, 5559))
		r.urls(idA)
		advance(10 * time.Minute)
		r.untrusted(idA, load.NotPublishing, "no subscriber")
		if n := len(r.net.times("a/server_info", r.began)); n != 0 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestRunLeavesTheWorkersAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(8, 5559))
		r.net.set("b", hanging)
		r.net.set("c", answering(200, "{}"))
		r.workers(Worker{URL: idA}, Worker{URL: "http://b:1"}, Worker{URL: "http://c:1", Poll: true})
		began := time.Now()
		r.stop() // and the bubble would not end if a goroutine were left
		if took := time.Since(began); took != 0 {
			t.Errorf("Run took %v to return", took)
		}
		if n := len(r.table.Status()); n != 3 {
			t.Errorf("%d workers in the table", n)
		}
	})
}

func TestFleetThatCannotRun(t *testing.T) {
	for _, c := range []Config{{}, {Table: load.NewTable(load.Config{})}, {Source: Static()}} {
		if err := NewFleet(c).Run(t.Context()); !errors.Is(err, ErrConfig) {
			t.Errorf("got %v", err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		synctest.Wait()
		if err := r.fleet.Run(t.Context()); !errors.Is(err, ErrRan) {
			t.Errorf("got %v", err)
		}
	})
}

// A log handler that shows the fleet's status next to each record.
type curious struct {
	slog.Handler
	fleet atomic.Pointer[Fleet]
	seen  atomic.Int64
}

func (c *curious) Handle(context.Context, slog.Record) error {
	f := c.fleet.Load()
	if !f.mu.TryLock() {
		return nil // fail the test, do not hang it
	}
	f.mu.Unlock()
	f.Status()
	c.seen.Add(1)
	return nil
}

func TestLogHandlerMayAskForTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &curious{Handler: slog.NewTextHandler(io.Discard, nil)}
		r := newRig(t, func(c *Config) { c.Logger = slog.New(h) })
		h.fleet.Store(r.fleet)
		r.net.set("a", publishing(1, 5559))
		r.sub.fail("a:5559", errors.New("too many sockets"))
		for _, list := range [][]string{{idA, "refused"}, {}, {idA}} {
			r.urls(list...)
		}
		r.source.errs <- errors.New("lost")
		synctest.Wait()
		// Refused, thrice added or removed, twice not subscribed and publishing,
		// and the source's failure.
		if n := h.seen.Load(); n != 9 {
			t.Errorf("%d records", n)
		}
	})
}

// The bubbles of the other tests have no real connections to leave behind.
func TestRunLeavesNoConnectionOfItsOwnClient(t *testing.T) {
	engine := newServer(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, onePublishing) })
	before := goleak.IgnoreCurrent()
	subscribed := make(chan struct{}, 1)
	sub := newFakeSub()
	sub.onSubscribe = func(string) { subscribed <- struct{}{} }
	f := NewFleet(Config{Table: load.NewTable(load.Config{}), Source: Static(engine.URL), Subscriber: sub})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	<-subscribed
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, before)
}

func TestSourceThatFailsKeepsItsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(1, 5559))
		r.urls(idA)
		r.source.errs <- errors.New("lost")
		advance(time.Minute)
		if st := r.fleet.Status(); len(st.Sources) != 1 || st.Sources[0].Problem != "lost" || len(st.Workers) != 1 {
			t.Errorf("status %+v", st)
		}
		r.urls() // it was run again
		if st := r.fleet.Status(); st.Sources[0].Problem != "" || len(st.Workers) != 0 || len(r.table.Status()) != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestNewestSetWinsHoweverFastTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := load.NewTable(load.Config{})
		f := NewFleet(Config{Table: table, Source: sourceFunc(func(ctx context.Context, emit func([]Worker)) error {
			for i := range 1000 {
				set := urls(fmt.Sprintf("http://w%d:1", i), "http://stays:1")
				emit(set)
				set[0].URL = "http://reused:1" // the slice is the source's
			}
			<-ctx.Done()
			return ctx.Err()
		})})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.Run(ctx)
		}()
		synctest.Wait()
		var ids []string
		for _, s := range table.Status() {
			ids = append(ids, s.ID)
		}
		if !slices.Equal(ids, []string{"http://stays:1", "http://w999:1"}) {
			t.Errorf("workers %q", ids)
		}
		cancel()
		<-done
	})
}
