//go:build chaos && linux

package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	zmq "github.com/pebbe/zmq4"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

const (
	httpPort    = 30000 // where the gateway finds an engine, and its links begin
	loadPort    = 5600
	serverPort  = 31000 // where they lead
	publishPort = 7000

	// beat is how often a rank reports.
	beat = 40 * time.Millisecond
)

// hosts are addresses on loopback for one engine each, so that no port is anybody
// else's. Another run has others.
var hosts = struct {
	prefix string
	n      atomic.Int64
}{prefix: fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(256))}

func newHost() string { return hosts.prefix + strconv.FormatInt(1+hosts.n.Add(1)%250, 10) }

// engineConfig is what an engine is like; the zero value has two ranks.
type engineConfig struct {
	host       string // its address; empty: one of its own
	shift      int    // added to its ports, for one that shares its host
	advertises string // as its host; empty: a wildcard
	ranks      int
	alive      int           // ranks that have a load socket, the first ones; 0: all
	loadPort   int           // that it advertises
	direct     bool          // its load sockets are at the advertised ports themselves, without links
	beat       time.Duration // how often each rank reports
	queue      int           // messages that a load socket queues for each subscriber; 0: 8, as SGLang does
}

// engine is an SGLang engine as a gateway sees it: real sockets, and nothing behind
// them. It knows the truth, by which what a gateway believes is judged.
//
// Its ranks report so many running requests that the sum over them shows what it is
// made of: rank r a digit at the r-th place.
type engine struct {
	t      testing.TB
	config engineConfig
	host   string
	url    string
	http   *link   // to its server
	loads  []*link // to the load socket of each rank that has one
	links  map[int]*link

	server  *http.Server
	serving sync.WaitGroup
	publish *publisher // nil while it is down
	answers sync.Map   // by path: an http.HandlerFunc in place of its own

	mu      sync.Mutex
	digit   int64
	polled  int64             // digit in the answer to a poll
	periods []period          // what has been true, the newest last
	silent  map[int]time.Time // since when a rank publishes nothing
	down    time.Time         // since when the engine is; zero: it is not
	counts  counts
	skew    atomic.Int64 // of its wall clock, a time.Duration

	catchingUp  atomic.Bool // what it once said may arrive now
	unpublished atomic.Bool // it has no load sockets, and says so
}

// counts are of an engine's requests. Each that it accepted is finished or aborted in
// the end.
type counts struct{ accepted, finished, aborted int }

// period is a time in which a digit was reported, by so many ranks if each has a socket.
type period struct {
	from     time.Time
	digit    int64
	ranks    int
	complete bool
}

func startEngine(t testing.TB, c engineConfig) *engine {
	t.Helper()
	if c.ranks == 0 {
		c.ranks = 2
	}
	if c.alive == 0 {
		c.alive = c.ranks
	}
	switch {
	case c.direct:
		c.loadPort = publishPort
	case c.loadPort == 0:
		c.loadPort = loadPort
	}
	if c.host == "" {
		c.host = newHost()
	}
	if c.advertises == "" {
		c.advertises = "*"
	}
	if c.beat == 0 {
		c.beat = beat
	}
	e := &engine{
		t: t, config: c, host: c.host, links: make(map[int]*link), silent: make(map[int]time.Time),
	}
	e.url = "http://" + e.at(httpPort)
	e.say(1)
	e.http = newLink(e.t, e.at(httpPort), e.at(serverPort))
	e.bindLoads()
	e.start()
	t.Cleanup(e.stop)
	return e
}

// bindLoads makes the links to the engine's load sockets that are not there yet. Where
// it no longer has any, connections are refused.
func (e *engine) bindLoads() {
	e.t.Helper()
	if e.config.direct {
		return
	}
	var loads []*link
	for r := range e.config.alive {
		port := e.config.loadPort + r
		if e.links[port] == nil {
			e.links[port] = newLink(e.t, e.at(port), e.at(publishPort+r))
		}
		loads = append(loads, e.links[port])
	}
	for _, l := range e.links {
		switch {
		case !slices.Contains(loads, l):
			l.heal()
			l.refuse()
		case !slices.Contains(e.loads, l):
			l.heal()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loads = loads
}

func (e *engine) at(port int) string {
	return net.JoinHostPort(e.host, strconv.Itoa(port+e.config.shift))
}

// start brings the engine's process up.
func (e *engine) start() {
	e.t.Helper()
	mux := http.NewServeMux()
	for path, handler := range map[string]http.HandlerFunc{
		"GET /server_info":     e.serverInfo,
		"GET /v1/loads":        e.loadsAnswer,
		"POST /v1/completions": e.complete,
	} {
		name := path[strings.IndexByte(path, '/'):]
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if other, ok := e.answers.Load(name); ok {
				other.(http.HandlerFunc)(w, r)
				return
			}
			handler(w, r)
		})
	}
	var listener net.Listener
	eventually(e.t, "the port of the engine's server", func() (err error) {
		listening.Lock()
		defer listening.Unlock()
		listener, err = net.Listen("tcp", e.at(serverPort))
		return err
	})
	e.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Below /w1/ and so on it is as many workers as one likes.
		if rest, ok := strings.CutPrefix(r.URL.Path, "/w"); ok {
			r.URL.Path = rest[max(0, strings.IndexByte(rest, '/')):]
		}
		mux.ServeHTTP(w, r)
	})}
	e.serving.Go(func() { e.server.Serve(listener) })
	e.publish = startPublisher(e)
	e.locked(func() { e.down = time.Time{} })
}

// stop ends its process, as if it were killed: connections are closed.
func (e *engine) stop() {
	if e.publish == nil {
		return
	}
	e.publish.stop()
	e.publish = nil
	e.server.Close()
	e.serving.Wait()
	e.locked(func() { e.down = awake.now() })
}

// say makes every rank report the digit, 1 to 9, from its next beat on.
func (e *engine) say(digit int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.digit, e.polled = digit, digit
	e.beginLocked(digit)
}

func (e *engine) beginLocked(digit int64) {
	e.periods = append(e.periods, period{awake.now(), digit, e.config.ranks, e.config.alive == e.config.ranks})
}

// sayPolled makes polls be told another digit than subscribers.
func (e *engine) sayPolled(digit int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.polled = digit
	e.beginLocked(digit)
}

// becomes changes how many ranks the engine has when it is started next, and from
// which port on their sockets are.
func (e *engine) becomes(ranks, loadPort int) {
	e.t.Helper()
	e.mu.Lock()
	e.config.ranks, e.config.alive, e.config.loadPort = ranks, ranks, loadPort
	e.beginLocked(e.digit)
	e.mu.Unlock()
	e.bindLoads()
}

// mute stops a rank's messages; its socket stays.
func (e *engine) mute(rank int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.silent[rank] = awake.now()
}

func (e *engine) unmute(rank int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.silent, rank)
}

// answer has a path answered by something else; nil ends it.
func (e *engine) answer(path string, h http.HandlerFunc) {
	if h == nil {
		e.answers.Delete(path)
		return
	}
	e.answers.Store(path, h)
}

// running is what a rank reports while its engine says a digit.
func running(digit int64, rank int) int64 { return digit * int64(math.Pow10(rank)) }

// depth is what the engine's ranks report together.
func (e *engine) depth() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	var sum int64
	for r := range e.config.ranks {
		sum += running(e.digit, r)
	}
	return sum
}

// refutes says why the engine cannot be trusted with this depth of so many ranks by
// a gateway that looked at this time, a moment ago; nil if it may. What it sent longer
// than limit before must not count.
func (e *engine) refutes(depth int64, ranks int, polled bool, at time.Time, limit time.Duration) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	digits := make(map[int64]bool)
	counts := make(map[int]bool)
	for i, p := range e.periods {
		if i+1 < len(e.periods) && at.Sub(e.periods[i+1].from) > limit {
			continue // over for too long
		}
		digits[p.digit] = true
		if p.complete {
			counts[p.ranks] = true
		}
	}
	if !e.down.IsZero() && at.Sub(e.down) > limit {
		return fmt.Errorf("it has been down for %v", at.Sub(e.down))
	}
	if !counts[ranks] {
		return fmt.Errorf("it has not had %d ranks, each with a socket, for %v", ranks, limit)
	}
	for r, rest := 0, depth; r < ranks || rest > 0; r, rest = r+1, rest/10 {
		if digit := rest % 10; r >= ranks || !digits[digit] && (digit == 0 || !e.catchingUp.Load()) {
			return fmt.Errorf("depth %d is not that of %d ranks: rank %d has not said %d for %v", depth, ranks, r, digit, limit)
		}
	}
	for r := range ranks {
		// Since when neither way has carried anything.
		since := e.quietSinceLocked(r)
		if polled && !since.IsZero() {
			asked := e.http.cutSince()
			if asked.IsZero() {
				continue
			}
			since = latest(since, asked)
		}
		if !since.IsZero() && at.Sub(since) > limit {
			return fmt.Errorf("nothing of rank %d has got through for %v", r, at.Sub(since))
		}
	}
	return nil
}

// quietSinceLocked is since when the load socket of a rank has told nothing; zero if it
// may.
func (e *engine) quietSinceLocked(rank int) time.Time {
	if e.unpublished.Load() {
		return e.periods[0].from
	}
	since := e.silent[rank]
	if rank < len(e.loads) {
		if cut := e.loads[rank].cutSince(); since.IsZero() || !cut.IsZero() && cut.Before(since) {
			since = cut
		}
	}
	return since
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// clock is the engine's wall clock, in seconds.
func (e *engine) clock() float64 {
	return float64(time.Now().Add(time.Duration(e.skew.Load())).UnixMicro()) / 1e6
}

func (e *engine) serverInfo(w http.ResponseWriter, _ *http.Request) {
	if e.unpublished.Load() {
		io.WriteString(w, `{"kv_events":null}`)
		return
	}
	e.mu.Lock()
	info := map[string]any{"kv_events": map[string]any{
		"publisher": "zmq", "endpoint_host": e.config.advertises, "endpoint_port_base": 5557, "topic": "", "block_size": 64,
		"dp_size": e.config.ranks, "load_endpoint_port_base": e.config.loadPort + e.config.shift,
	}}
	e.mu.Unlock()
	json.NewEncoder(w).Encode(info)
}

func (e *engine) loadsAnswer(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	var list []map[string]any
	for r := range e.config.ranks {
		list = append(list, map[string]any{
			"dp_rank": r, "timestamp": e.clock(), "num_running_reqs": running(e.polled, r), "num_waiting_reqs": 0,
			"max_total_num_tokens": 100_000, "num_used_tokens": 10,
		})
	}
	e.mu.Unlock()
	json.NewEncoder(w).Encode(map[string]any{"loads": list})
}

// complete answers a request: so many lines, a while apart, the last of which says
// that it is. A client that has not got that one has half an answer.
func (e *engine) complete(w http.ResponseWriter, r *http.Request) {
	var order order
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e.locked(func() { e.counts.accepted++ })
	for i := range order.Lines {
		select {
		case <-r.Context().Done():
			e.locked(func() { e.counts.aborted++ })
			return
		case <-time.After(order.Pause):
		}
		fmt.Fprintf(w, "%s %d\n", order.ID, i)
		w.(http.Flusher).Flush()
	}
	io.WriteString(w, order.end())
	e.locked(func() { e.counts.finished++ })
}

func (e *engine) locked(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

// order is the body of a request.
type order struct {
	ID    string
	Lines int
	Pause time.Duration
}

func (o order) end() string { return "end of " + o.ID + "\n" }

// publisher has the load sockets of an engine's ranks. One goroutine makes, uses and
// closes them, as ZeroMQ wants it.
type publisher struct {
	e     *engine
	tasks chan func()
	over  chan struct{}
	stop  func() // returns when the sockets are closed
	done  chan struct{}

	// owned by the goroutine
	sockets []*zmq.Socket
	seq     []int64
}

func startPublisher(e *engine) *publisher {
	e.t.Helper()
	p := &publisher{e: e, tasks: make(chan func()), over: make(chan struct{}), done: make(chan struct{})}
	p.stop = sync.OnceFunc(func() {
		close(p.over)
		<-p.done
	})
	bound := make(chan error, 1)
	go p.run(bound)
	if err := <-bound; err != nil {
		e.t.Fatal(err)
	}
	return p
}

// do runs f on the goroutine of the sockets.
func (p *publisher) do(f func()) {
	ran := make(chan struct{})
	select {
	case p.tasks <- func() { defer close(ran); f() }:
		<-ran
	case <-p.done:
	}
}

func (p *publisher) run(bound chan<- error) {
	defer close(p.done)
	ctx, err := zmq.NewContext()
	if err != nil {
		bound <- err
		return
	}
	defer ctx.Term()
	for r := range p.e.config.alive {
		soc, err := p.open(ctx, "tcp://"+p.e.at(publishPort+r))
		if err != nil {
			bound <- err
			return
		}
		defer soc.Close()
		p.sockets, p.seq = append(p.sockets, soc), append(p.seq, 0)
	}
	bound <- nil
	ticker := time.NewTicker(p.e.config.beat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			for r := range p.sockets {
				p.report(r)
			}
		case task := <-p.tasks:
			task()
		case <-p.over:
			return
		}
	}
}

func (p *publisher) open(ctx *zmq.Context, endpoint string) (*zmq.Socket, error) {
	soc, err := ctx.NewSocket(zmq.PUB)
	if err != nil {
		return nil, err
	}
	queue := p.e.config.queue
	if queue == 0 {
		queue = 8
	}
	err = errors.Join(soc.SetLinger(0), soc.SetSndhwm(queue), soc.SetIpv6(strings.Contains(endpoint, "[")))
	for deadline := time.Now().Add(patience); err == nil && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		listening.Lock()
		err := soc.Bind(endpoint)
		listening.Unlock()
		if zmq.AsErrno(err) != zmq.Errno(syscall.EADDRINUSE) {
			return soc, err
		}
	}
	soc.Close()
	return nil, fmt.Errorf("binding %s: %w", endpoint, err)
}

// report publishes the load of a rank, unless it is muted.
func (p *publisher) report(rank int) {
	p.e.mu.Lock()
	_, muted := p.e.silent[rank]
	digit := p.e.digit
	p.e.mu.Unlock()
	if !muted {
		p.send(rank, running(digit, rank))
	}
}

// send publishes one message of a rank.
func (p *publisher) send(rank int, running int64) {
	s := snapshot.LoadSnapshot{
		Present: snapshot.FieldsOf(snapshot.FieldTimestamp, snapshot.FieldDPRank, snapshot.FieldNumRunningReqs,
			snapshot.FieldNumUsedTokens, snapshot.FieldMaxTotalNumTokens),
		Timestamp: p.e.clock(), DPRank: int64(rank), NumRunningReqs: running, NumUsedTokens: 10, MaxTotalNumTokens: 100_000,
	}
	p.raw(rank, snapshot.Join(nil, "", p.seq[rank], s.Append(nil)))
	p.seq[rank]++
}

func (p *publisher) raw(rank int, frames [][]byte) {
	if _, err := p.sockets[rank].SendMessage(frames); err != nil {
		p.e.t.Errorf("rank %d: %v", rank, err)
	}
}

// tally returns the counts.
func (e *engine) tally() counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts
}

// settled checks, once all its requests are over, that the engine has none left.
func (e *engine) settled() {
	e.t.Helper()
	eventually(e.t, "the requests of "+e.url+" to end", func() error {
		if c := e.tally(); c.accepted != c.finished+c.aborted {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// urls lists where the engines are.
func urls(engines []*engine) (list []string) {
	for _, e := range engines {
		list = append(list, e.url)
	}
	return slices.Clip(list)
}
