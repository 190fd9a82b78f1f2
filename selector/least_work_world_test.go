package selector

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// world is a fleet of engines, each of which computes one prompt after another and
// answers at a pace of its own, on a clock that jumps from event to event. It is as
// simple as can be, so that what is to be learned in it is known; internal/fleetsim has
// engines as they are.
type world struct {
	table    *load.Table
	clock    *clock
	workers  []*load.Worker
	selector *Selector
	rnd      *rand.Rand

	perToken, base time.Duration // on an engine of speed 1
	answer         time.Duration // from the first token on
	speeds         map[*load.Worker]float64
	unstreamed     bool
	unknown        bool // the lengths of prompts, to the gateway
	between        func(p Pick, wait time.Duration) time.Duration

	free   map[*load.Worker]time.Duration // when the engine is through with what it has
	events events
	picked map[*load.Worker]int
}

func newWorld(t testing.TB, n int, c Config) *world {
	t.Helper()
	w := &world{
		rnd:      rand.New(rand.NewPCG(1, 2)),
		perToken: 50 * time.Microsecond, base: 20 * time.Millisecond, answer: time.Second,
		speeds: make(map[*load.Worker]float64),
		free:   make(map[*load.Worker]time.Duration),
		picked: make(map[*load.Worker]int),
	}
	w.table, w.clock = newTestTable()
	for i := range n {
		w.workers = append(w.workers, w.table.Add(name(i), ""))
	}
	if c.Rand == nil {
		c.Rand = seeded(1)
	}
	if c.Peers == nil {
		c.Peers = alone
	}
	w.selector = New(w.table, c)
	return w
}

func (w *world) now() time.Duration { return time.Duration(w.clock.elapsed.Load()) }

func (w *world) learned() Learned { return w.selector.policy.(Learner).Learned() }

// speed is how fast a worker seems to be.
func (w *world) speed(of *load.Worker) float64 {
	for _, s := range w.learned().Speeds {
		if s.Worker == of.ID() {
			return s.Speed
		}
	}
	return 0
}

func (w *world) at(when time.Duration, do func()) {
	heap.Push(&w.events, event{when, len(w.events), do})
}

// until does what happens up to a time.
func (w *world) until(when time.Duration) {
	for len(w.events) > 0 && w.events[0].at <= when {
		e := heap.Pop(&w.events).(event)
		w.clock.elapsed.Store(max(int64(e.at), w.clock.elapsed.Load()))
		e.do()
	}
	w.clock.elapsed.Store(int64(when))
}

// send picks and lets the engine work at it.
func (w *world) send(t testing.TB, r Request, tokens int64) Pick {
	t.Helper()
	r.Unstreamed = w.unstreamed
	if !w.unknown {
		r.PromptTokens = load.Known(tokens)
	}
	p, err := w.selector.Pick(r)
	if err != nil {
		t.Fatal(err)
	}
	p.Dispatched()
	w.picked[p.Worker]++
	speed := w.speeds[p.Worker]
	if speed == 0 {
		speed = 1
	}
	work := time.Duration(float64(w.perToken) * float64(tokens) / speed)
	w.free[p.Worker] = max(w.free[p.Worker], w.now()) + work
	wait := w.free[p.Worker] - w.now() + time.Duration(float64(w.base)/speed)
	if w.between != nil {
		wait = w.between(p, wait)
	}
	if !w.unstreamed {
		w.at(w.now()+wait, p.FirstToken)
	}
	w.at(w.now()+wait+w.answer, p.Done)
	return p
}

// serve sends so many requests at random, of 100 to 4,000 tokens, that the fleet is busy
// for this share of the time.
func (w *world) serve(t testing.TB, n int, busy float64) {
	t.Helper()
	speed := 0.0
	for _, worker := range w.workers {
		if s := w.speeds[worker]; s != 0 {
			speed += s
		} else {
			speed++
		}
	}
	mean := float64(w.perToken) * 2050 / speed / busy
	for range n {
		w.until(w.now() + time.Duration(w.rnd.ExpFloat64()*mean))
		w.send(t, Request{}, 100+w.rnd.Int64N(3901))
	}
}

// drain lets all end that has begun, and makes the policy look at it.
func (w *world) drain(t testing.TB) {
	t.Helper()
	for len(w.events) > 0 {
		w.until(w.events[0].at)
	}
	w.refresh(t)
}

// refresh makes a new model.
func (w *world) refresh(t testing.TB) {
	t.Helper()
	w.until(w.now() + modelFor)
	p, err := w.selector.Pick(Request{})
	if err != nil {
		t.Fatal(err)
	}
	p.Done()
}

type event struct {
	at  time.Duration
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// about checks a number that was learned.
func about[N ~int64 | ~float64](t testing.TB, what string, got, want N, tolerance float64) {
	t.Helper()
	if low, high := float64(want)*(1-tolerance), float64(want)*(1+tolerance); float64(got) < low || float64(got) > high {
		t.Errorf("%s is %v, want about %v", what, got, want)
	}
}
