package load

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// DefaultWindow is how long a report is trusted where the configuration does
// not say. An idle engine repeats its report every second; a busy one reports
// between steps, so that a long step is silence. The window forgives that, a few
// lost reports and a garbage collection, and not much more.
const DefaultWindow = 5 * time.Second

// Config configures a Table. The zero Config is ready to use.
type Config struct {
	// Window is how long a report counts as fresh, its last nanosecond included.
	// 0 means DefaultWindow.
	Window time.Duration

	// Clock is read for every report and every view. It must be monotonic. nil
	// means the monotonic clock of the process, which an adjustment of the wall
	// clock does not move. A simulation brings its own.
	Clock func() time.Time
}

// Table keeps the newest report of every rank of every worker.
type Table struct {
	// immutable
	window int64
	clock  func() time.Time
	epoch  time.Time

	// view is what readers see. A writer stores it with mu held; a reader may swap
	// in a renewed copy.
	view atomic.Pointer[viewState]

	// mu serialises writers. A reader never waits for it. No callback and no
	// other lock is taken with it held.
	mu      sync.Mutex
	workers map[string]*Worker
	nextAdd uint64
}

// NewTable returns an empty table.
func NewTable(c Config) *Table {
	if c.Window <= 0 {
		c.Window = DefaultWindow
	}
	// A window without end must not overflow a time.
	t := &Table{window: min(int64(c.Window), math.MaxInt64/4), clock: c.Clock, workers: make(map[string]*Worker)}
	if t.clock != nil {
		t.epoch = t.clock()
	} else {
		t.epoch = time.Now()
	}
	t.view.Store(&viewState{freshUntil: math.MaxInt64})
	return t
}

// Window returns how long a report counts as fresh.
func (t *Table) Window() time.Duration { return time.Duration(t.window) }

// now is the time since the table was made, in nanoseconds, on its clock.
func (t *Table) now() int64 {
	if t.clock != nil {
		return int64(t.clock().Sub(t.epoch))
	}
	return int64(time.Since(t.epoch)) // cheaper than time.Now: it reads one clock of the two
}

// Add makes a new worker, which starts from nothing. If there is one of that id
// it is removed first: the new one shares neither reports nor books with it. url
// is for whoever sends requests to the worker; the table does not read it.
func (t *Table) Add(id, url string) *Worker {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.workers[id]
	if old != nil {
		old.gone = true
		old.position.Store(notInView)
	}
	t.nextAdd++
	w := &Worker{id: id, url: url, table: t, order: t.nextAdd, healthy: true}
	w.self = weak.Make(w)
	w.state = &state{worker: w, noFeed: NoFeed}
	w.state.judge(now, t.window)
	t.workers[id] = w
	if v := t.view.Load(); old == nil && v.noneAside(now) {
		// The newest comes last, so the rest stays as it is: a fleet of thousands
		// is added one by one.
		w.position.Store(int64(v.all))
		t.view.Store(v.plus(w.state))
		return w
	}
	t.rebuildLocked(now)
	return w
}

// Remove takes a worker out, with its reports and its books. Whatever still
// holds the handle can go on using it and changes nothing that anybody reads.
// Removing a worker that is not there is a no-op.
func (t *Table) Remove(w *Worker) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if w == nil || w.table != t || w.gone {
		return
	}
	w.gone = true
	w.position.Store(notInView)
	delete(t.workers, w.id)
	t.rebuildLocked(now)
}

// Worker returns the current incarnation of the worker with the given id.
func (t *Table) Worker(id string) (*Worker, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w, ok := t.workers[id]
	return w, ok
}

// Workers returns the workers in the table, healthy or not, oldest first.
func (t *Table) Workers() []*Worker {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.workers), byOrder)
}

func byOrder(a, b *Worker) int { return cmp.Compare(a.order, b.order) }

// rebuildLocked publishes a view made from nothing. It is for what changes the
// set of workers, or the order that they stand in: rare, and linear.
func (t *Table) rebuildLocked(now int64) {
	states := make([]*state, 0, len(t.workers))
	for _, w := range t.workers {
		if w.healthy {
			states = append(states, w.state)
		} else {
			w.position.Store(notInView)
		}
	}
	v := newViewState(states, len(t.workers), now)
	for i := range v.all {
		v.at(i).worker.position.Store(int64(i))
	}
	t.view.Store(v)
}

// setLocked makes s the state of its worker and publishes it. This is the
// common case, one report of one worker, and costs two small copies whatever the
// size of the fleet.
func (t *Table) setLocked(s *state) {
	w := s.worker
	w.state = s
	v := t.view.Load()
	i, ok := w.placeIn(v)
	if !ok {
		w.position.Store(notInView)
		return
	}
	w.position.Store(int64(i))
	t.view.Store(v.with(i, s))
}

// renew returns a view in which nothing that has gone stale by now counts. It is
// what the first reader does after that, and it waits for nobody. If somebody
// else has published meanwhile, that view serves, unless it is no fresher: then
// this reader uses a copy of its own.
func (t *Table) renew(v *viewState, now int64) *viewState {
	next := v.renewed(now)
	if !t.view.CompareAndSwap(v, next) {
		if v = t.view.Load(); now <= v.freshUntil {
			return v
		}
	}
	return next
}
