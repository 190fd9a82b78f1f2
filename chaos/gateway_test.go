//go:build chaos && linux

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
	"github.com/plimsoll-go/plimsoll/selector/pickhttp"
	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

const (
	// window is how long a report is trusted. Everything else that a gateway waits
	// for is shortened with it.
	window = 500 * time.Millisecond

	// slack is what a starved machine may take for what takes no time: a message on
	// its way from one goroutine to the next, a timer that has fired.
	slack = 2 * time.Second

	// cutFor is how long a fault lasts at least, so that whoever still trusts what
	// was sent before it is wrong, and not merely late.
	cutFor = window + slack + 500*time.Millisecond

	// engineSilence is how long an engine may take to answer.
	engineSilence = 2 * time.Second
)

// gatewayConfig is what a gateway is like. The zero value is a static list of its
// engines, load sockets, and the default policy.
type gatewayConfig struct {
	source   discovery.Source
	window   time.Duration
	sockets  *zmqsub.Config
	libzmq   bool // does the work of the subscriber
	selector selector.Config
	poll     bool
	change   func(*discovery.Config)
}

// gateway is what README makes of the library's parts, with retries. An auditor
// looks over its shoulder all the time.
type gateway struct {
	t          testing.TB
	table      *load.Table
	subscriber *zmqsub.Subscriber
	fleet      *discovery.Fleet
	picker     *selector.Selector
	transport  *http.Transport
	server     *httptest.Server
	window     time.Duration
	polls      bool
	close      func()

	mu      sync.Mutex
	engines map[string]*engine // by id of the worker

	attempts, noPick atomic.Int64
}

func startGateway(t testing.TB, c gatewayConfig, engines ...*engine) *gateway {
	t.Helper()
	if c.window == 0 {
		c.window = window
	}
	known := c.source == nil
	if known {
		c.source = discovery.Static(urls(engines)...)
	}
	if c.sockets == nil {
		c.sockets = quick()
	}
	sockets := *c.sockets
	sockets.Libzmq = c.libzmq
	g := &gateway{
		t: t, window: c.window, polls: c.poll, engines: make(map[string]*engine),
		table: load.NewTable(load.Config{Window: c.window}),
		transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: engineSilence / 2}).DialContext,
			MaxIdleConnsPerHost: 64,
		},
	}
	g.knows(engines...)
	g.picker = selector.New(g.table, c.selector)
	var err error
	if g.subscriber, err = zmqsub.New(sockets); err != nil {
		t.Fatal(err)
	}
	wiring := discovery.Config{
		Table: g.table, Source: c.source, Subscriber: g.subscriber,
		Client:            &discovery.Client{Timeout: window},
		Logger:            slog.New(slog.DiscardHandler),
		RecheckPublishing: time.Second, RecheckNotPublishing: time.Second,
		RetryMin: 100 * time.Millisecond, RetryMax: time.Second,
		PollAll: c.poll, PollInterval: window / 5,
	}
	if c.change != nil {
		c.change(&wiring)
	}
	g.fleet = discovery.NewFleet(wiring)
	g.server = httptest.NewServer(http.HandlerFunc(g.serve))

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := g.fleet.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() { g.audit(ctx) })
	g.close = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := g.subscriber.Close(); err != nil {
			t.Error(err)
		}
		g.server.Close()
		g.transport.CloseIdleConnections()
	})
	t.Cleanup(g.close)
	if known {
		eventually(t, "the workers to be known", func() error {
			if n := g.table.View().Len(); n < len(engines) {
				return fmt.Errorf("%d of %d", n, len(engines))
			}
			return nil
		})
	}
	return g
}

// quick is a subscriber that waits for everything as much shorter as the window is.
func quick() *zmqsub.Config {
	return &zmqsub.Config{
		Silence:           window,
		HeartbeatInterval: 100 * time.Millisecond,
		HeartbeatTimeout:  300 * time.Millisecond,
		ConnectTimeout:    300 * time.Millisecond,
		ReconnectMax:      200 * time.Millisecond,
	}
}

// eachWay runs a test with either of the two ways in which the subscriber speaks
// ZeroMQ.
func eachWay(t *testing.T, test func(t *testing.T, libzmq bool)) {
	t.Run("by itself", func(t *testing.T) { test(t, false) })
	t.Run("by libzmq", func(t *testing.T) { test(t, true) })
}

// knows tells the auditor what is true of the workers of these engines.
func (g *gateway) knows(engines ...*engine) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range engines {
		g.engines[e.url] = e
	}
}

// audit looks at everything that the gateway believes, until ctx ends, and compares
// it with what is true.
func (g *gateway) audit(ctx context.Context) {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for ctx.Err() == nil {
		at := awake.now()
		v := g.table.View()
		for i := range v.Healthy() {
			if e := v.At(i); e.Trusted() {
				if err := g.wrong(v, e, at); err != nil {
					g.t.Errorf("%s is trusted: %v", e.Worker().ID(), err)
					return
				}
			}
		}
		<-ticker.C
	}
}

func (g *gateway) wrong(v load.View, entry load.Entry, at time.Time) error {
	if age := v.Age(entry); age < 0 || age > g.window {
		return fmt.Errorf("its oldest report is %v old", age)
	}
	for r := range entry.Ranks() {
		if _, ok := entry.Report(r); !ok {
			return fmt.Errorf("rank %d has never reported", r)
		}
	}
	g.mu.Lock()
	e := g.engines[entry.Worker().ID()]
	g.mu.Unlock()
	if e == nil {
		return nil
	}
	return e.refutes(entry.Depth(), entry.Ranks(), g.polls, at, g.window+slack)
}

// serve sends a request to one engine after another until one answers.
func (g *gateway) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has left
	}
	failed := errors.New("no engine")
	var tried []*load.Worker
	for rounds := 0; rounds < 3 && r.Context().Err() == nil; {
		pick, err := g.picker.Pick(selector.Request{
			PromptTokens: load.Known(int64(len(body))), Unstreamed: r.Header.Get("Stream") == "", Exclude: tried,
		})
		if err != nil && len(tried) > 0 { // each has been tried: once more
			tried, rounds = nil, rounds+1
			continue
		}
		if err != nil {
			g.noPick.Add(1)
			failed = err
			break
		}
		g.attempts.Add(1)
		tried = append(tried, pick.Worker)
		if failed = g.attempt(w, r, pick, body); failed == nil {
			return
		}
		if r.Context().Err() == nil {
			pick.Worker.SetAside()
		}
	}
	http.Error(w, failed.Error(), http.StatusBadGateway)
}

// attempt passes an engine's answer on: as it comes if the client wants a stream,
// or else whole. An error says that the client has got nothing yet.
func (g *gateway) attempt(w http.ResponseWriter, r *http.Request, pick selector.Pick, body []byte) error {
	defer pick.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	silence := time.AfterFunc(engineSilence, cancel)
	defer silence.Stop()
	out, err := http.NewRequestWithContext(pickhttp.Trace(ctx, pick), r.Method, pick.Worker.URL()+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := g.transport.RoundTrip(out)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	if r.Header.Get("Stream") == "" {
		whole, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}
		_, _ = w.Write(whole) // an error is a client that has left
		return nil
	}
	piece := make([]byte, 4096)
	for begun := false; ; begun = true {
		n, err := answer.Body.Read(piece)
		if n > 0 {
			silence.Reset(engineSilence)
			pick.FirstToken()
			if _, err := w.Write(piece[:n]); err != nil {
				return nil
			}
			w.(http.Flusher).Flush()
			begun = true
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil && begun:
			panic(http.ErrAbortHandler) // half an answer must not look like a whole one
		case err != nil:
			return err
		}
	}
}

// status is what the table says of an engine.
func (g *gateway) status(e *engine) load.WorkerStatus {
	w, ok := g.table.Worker(e.url)
	if !ok {
		return load.WorkerStatus{ID: e.url, Why: load.NoFeed, Reason: "there is no such worker"}
	}
	return w.Status()
}

// asked is what the fleet says of an engine.
func (g *gateway) asked(e *engine) discovery.WorkerStatus {
	for _, w := range g.fleet.Status().Workers {
		if w.ID == e.url {
			return w
		}
	}
	return discovery.WorkerStatus{}
}

// trusts waits until the engines are trusted, with the depths that they have.
func (g *gateway) trusts(engines ...*engine) {
	g.t.Helper()
	for _, e := range engines {
		eventually(g.t, e.url+" to be trusted", func() error {
			if st := g.status(e); !st.Trusted || st.Depth != load.Known(e.depth()) {
				return fmt.Errorf("%v: %s; depth %v, want %d; asked: %+v", st.Why, st.Reason, st.Depth, e.depth(), g.asked(e))
			}
			return nil
		})
	}
}

// doubts waits until the engine is not trusted, for this reason, which is about
// these ranks. The gateway has a window to notice, and the slack. Others may be stale as
// well, on a machine that is starved.
func (g *gateway) doubts(e *engine, why load.Why, ranks ...int) {
	g.t.Helper()
	within(g.t, g.window+slack, fmt.Sprintf("%s not to be trusted, because %v ranks %v", e.url, why, ranks), func() error {
		st := g.status(e)
		got := named(st.Reason)
		if why == load.Stale {
			got = slices.DeleteFunc(got, func(r int) bool { return !slices.Contains(ranks, r) })
		}
		if st.Trusted || st.Why != why || !slices.Equal(got, ranks) {
			return fmt.Errorf("%v: %s", st.Why, st.Reason)
		}
		return nil
	})
}

// named lists the ranks that a reason such as "stale: rank 0 (5.1s old), 2 (6s old) of
// 4" is about.
func named(reason string) (ranks []int) {
	_, list, ok := strings.Cut(parenthesised.ReplaceAllString(reason, ""), "rank ")
	list, _, _ = strings.Cut(list, " of ")
	if !ok {
		return nil
	}
	for _, word := range strings.Split(list, ", ") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil {
			return nil
		}
		ranks = append(ranks, n)
	}
	return ranks
}

var parenthesised = regexp.MustCompile(`\([^()]*\)`)

// settled waits until the books are back at 0, and checks that every release was by
// Done and that no pick failed.
func (g *gateway) settled() {
	g.t.Helper()
	eventually(g.t, "the books to return to 0", func() error {
		for _, w := range g.table.Workers() {
			if own := w.Own(); own != (load.Own{}) {
				return fmt.Errorf("%s has %+v", w.ID(), own)
			}
		}
		return nil
	})
	for _, st := range g.table.Status() {
		if st.InFlight != 0 || st.Unstarted != 0 || st.PendingTokens != 0 || st.Leaked != 0 {
			g.t.Errorf("%s ends with %+v", st.ID, st)
		}
	}
	if n := g.noPick.Load(); n > 0 {
		g.t.Errorf("%d picks failed", n)
	}
}

// traffic is clients that send one request after another.
type traffic struct {
	g      *gateway
	client *http.Client
	all    sync.WaitGroup
	halt   func()

	mu   sync.Mutex
	sent int
	lost []string // why, of those that got no answer
}

// startTraffic has clients send requests until end.
func (g *gateway) startTraffic(clients int) *traffic {
	tr := &traffic{g: g, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}, Timeout: patience}}
	stop := make(chan struct{})
	tr.halt = sync.OnceFunc(func() {
		close(stop)
		tr.all.Wait()
		tr.client.CloseIdleConnections()
	})
	g.t.Cleanup(tr.halt)
	for c := range clients {
		tr.all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					tr.request(fmt.Sprintf("request %d of client %d", i, c))
				}
			}
		})
	}
	return tr
}

func (tr *traffic) request(id string) {
	got, err := tr.g.post(tr.client, order{ID: id, Lines: 1, Pause: 5 * time.Millisecond}, false)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.sent++
	switch {
	case err != nil:
		tr.lost = append(tr.lost, fmt.Sprintf("%s: %v", id, err))
	case !strings.HasSuffix(got, order{ID: id}.end()):
		tr.lost = append(tr.lost, fmt.Sprintf("%s: the answer is %q", id, got))
	}
}

// end stops the clients, when each has the answer that it is waiting for, and
// checks that every request got one.
func (tr *traffic) end(engines ...*engine) {
	t := tr.g.t
	t.Helper()
	eventually(t, "some requests", func() error {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		if tr.sent < 20 {
			return fmt.Errorf("%d", tr.sent)
		}
		return nil
	})
	tr.halt()
	for i, why := range tr.lost {
		if i == 5 {
			t.Errorf("and %d more", len(tr.lost)-i)
			break
		}
		t.Errorf("lost: %s", why)
	}
	tr.g.settled()
	for _, e := range engines {
		e.settled()
	}
	t.Logf("%d requests in %d attempts", tr.sent, tr.g.attempts.Load())
}

// post sends a request and returns the whole answer.
func (g *gateway) post(client *http.Client, o order, stream bool) (string, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	r, err := http.NewRequest(http.MethodPost, g.server.URL+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	if stream {
		r.Header.Set("Stream", "yes")
	}
	res, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return string(text), err
}
