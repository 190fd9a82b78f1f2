package truth

import (
	"fmt"
	"time"
)

// World is all that there is: the engines, the list of them, and the requests.
type World struct {
	Engines  []*Engine
	List     List
	Requests Requests

	byID    map[string]*Engine
	settled time.Time
}

// NewWorld returns a world of engines with these ids, none of which is in the list or
// lives yet.
func NewWorld(ids ...string) *World {
	w := &World{byID: make(map[string]*Engine)}
	for i, id := range ids {
		e := &Engine{ID: id, Name: fmt.Sprintf("e%02d", i)}
		w.Engines = append(w.Engines, e)
		w.byID[id] = e
	}
	return w
}

// Engine returns the engine with that id, nil if there is none.
func (w *World) Engine(id string) *Engine { return w.byID[id] }

// Settles says that everybody knows by now which engines there are and that they are
// well. It is not to be called concurrently with anything.
func (w *World) Settles() { w.settled = time.Now() }

// Well reports whether nobody can have had a reason not to pick an engine from then to
// then: it was in the list, and in good health, for some time before. settle is how long
// it takes to notice that an engine is there, or well again, and every how often the list
// is looked at.
func (w *World) Well(e *Engine, from, to time.Time, settle, every time.Duration) bool {
	since := from.Add(-settle)
	if since.Before(w.settled) {
		since = w.settled
	}
	ranks, born := e.Life()
	return ranks > 0 && born.Before(since) && !e.Had(Dying|Down|Frozen, since, to) && w.List.Always(e.ID, since, to, every)
}

// Healthy returns an engine that was well from then to then; nil if there was none.
func (w *World) Healthy(from, to time.Time, settle, every time.Duration) *Engine {
	for _, e := range w.Engines {
		if w.Well(e, from, to, settle, every) {
			return e
		}
	}
	return nil
}
