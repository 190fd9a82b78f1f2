package browsertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/load/loadhttp"
	"github.com/plimsoll-go/plimsoll/selector"
)

const window = 3 * time.Second

// world is a fleet that lives: its engines report, and a gateway picks from them. The
// table's time passes with its steps, so that no report grows old because the machine has
// other things to do.
type world struct {
	interval time.Duration // of the page, and of a step
	clock    atomic.Int64  // the table's, in nanoseconds
	table    *load.Table

	page   *loadhttp.Handler
	picker *selector.Selector
	server *httptest.Server
	down   atomic.Bool  // the server answers nothing
	told   atomic.Int64 // picks that were explained

	mu      sync.Mutex
	random  *rand.Rand
	engines []*engine
	held    [][]selector.Pick // that are not done, the oldest first
	stop    func()
}

type engine struct {
	w       *load.Worker
	feed    *load.Feed
	level   float64 // of its depth
	waiting float64 // part of it
	kv      float64
	silent  int // ranks, the last ones, that do not report
	depth   []float64
}

// taught is a policy that knows more than it can have learned in a test.
type taught struct {
	selector.Policy
	speeds []selector.WorkerSpeed
}

func (p *taught) Learned() selector.Learned {
	l := p.Policy.(selector.Learner).Learned()
	l.Speeds = p.speeds
	return l
}

// newWorld makes n engines, of which some are slow, deep or full if there are many. It
// lives from when it has been running for some intervals.
func newWorld(t *testing.T, n, ranks int) *world {
	t.Helper()
	w := &world{interval: 100 * time.Millisecond, random: rand.New(rand.NewPCG(1, 2))}
	if n > 100 {
		w.interval = 500 * time.Millisecond // there is much to do in it, and not for us alone
	}
	w.table = load.NewTable(load.Config{Window: window, Clock: func() time.Time { return time.Unix(0, w.clock.Load()) }})
	policy := &taught{Policy: selector.LeastWork(selector.LeastWorkConfig{})}
	for i := range n {
		e := &engine{
			w:     w.table.Add(fmt.Sprintf("http://10.0.%d.%d:30000", i/200, 11+i%200), ""),
			level: 8 + 8*w.random.Float64(), waiting: 0.05, kv: 0.3 + 0.4*w.random.Float64(),
			depth: make([]float64, ranks),
		}
		e.feed = e.w.Advertise(ranks)
		w.engines = append(w.engines, e)
		policy.speeds = append(policy.speeds, selector.WorkerSpeed{Worker: e.w.ID(), Speed: 0.9 + 0.2*w.random.Float64(), Requests: 300})
	}
	if n >= 20 {
		w.engines[9].level, w.engines[9].waiting = 55, 0.6
		w.engines[12].kv = 0.97
		policy.speeds[15].Speed = 0.41
	}
	w.page = loadhttp.New(w.table, loadhttp.Config{
		Title: "gateway-2 (eu-west)", Interval: w.interval,
		Policy: func() selector.Policy { return policy },
	})
	t.Cleanup(w.page.Close)
	w.picker = selector.New(w.table, selector.Config{Policy: policy, Explain: w.explain, ExplainEvery: 20})
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.down.Load() {
			panic(http.ErrAbortHandler)
		}
		w.page.ServeHTTP(rw, r)
	}))
	t.Cleanup(w.server.Close)
	t.Cleanup(w.page.Close) // before the server, which waits for the streams

	for range 10 {
		w.step()
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(w.interval)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				w.step()
			}
		}
	}()
	w.stop = sync.OnceFunc(func() {
		close(stop)
		<-ended
	})
	t.Cleanup(w.stop)
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if s := w.page.Status(); len(s.Events) > 0 && s.Fleet.Trusted == n {
			return w // and the page has seen it so
		} else if time.Now().After(deadline) {
			t.Fatalf("the world does not come to life: %s", s.Headline)
		}
	}
}

// change changes the world between two steps.
func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// trouble makes engines fail in the ways that there are, until that is known. It needs
// twenty of them.
func (w *world) trouble() {
	w.change(func() {
		e := w.engines
		e[4].silent = 1
		e[6].w.SetNotPublishing("its /server_info has no load port")
		e[7].feed = e[7].w.Advertise(len(e[7].depth))
		e[7].silent = 1
		e[7].feed.Drop(len(e[7].depth)-1, "decode", errors.New("snapshot: <b>running</b> is -3"))
		e[17].w.SetHealthy(false)
	})
	for range 1 + window/w.interval {
		w.step()
	}
}

func (w *world) explain(x *selector.Explanation) {
	w.page.Explain(x)
	w.told.Add(1)
}

// stepUntilTold lets intervals pass until one more pick is explained. Chance says which.
func (w *world) stepUntilTold() {
	for n := w.told.Load(); w.told.Load() == n; {
		w.step()
	}
}

// step lets one interval pass.
func (w *world) step() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock.Add(int64(w.interval))
	for _, e := range w.engines {
		w.report(e)
	}
	var picks []selector.Pick
	for range 2 + len(w.engines)/4 {
		if p, err := w.picker.Pick(selector.Request{PromptTokens: load.Known(int64(200 + w.random.ExpFloat64()*1500))}); err == nil {
			picks = append(picks, p)
		}
	}
	w.held = append(w.held, picks)
	if len(w.held) > 8 {
		for _, p := range w.held[0] {
			p.Done()
		}
		w.held = w.held[1:]
	}
	for _, p := range w.held[max(0, len(w.held)-3)] {
		p.Dispatched()
		p.FirstToken()
	}
}

func (w *world) report(e *engine) {
	for rank := range len(e.depth) - e.silent {
		d := &e.depth[rank]
		*d += (e.level-*d)*0.15 + (w.random.Float64()-0.5)*e.level*0.05 // and so within a sixth of it
		kv := min(e.kv+0.02*w.random.Float64(), 1)
		_ = e.feed.Put(rank, load.Report{ // which is refused where the engine is said not to publish
			Running: int64(*d * (1 - e.waiting)), Waiting: int64(*d * e.waiting),
			WaitingTokens: load.Known(int64(*d * e.waiting * 900)),
			KVUsed:        load.Known(int64(kv * 400000)), KVCapacity: load.Known[int64](400000), KVUsage: load.Known(kv),
			Source: load.SourcePush,
		})
	}
}
