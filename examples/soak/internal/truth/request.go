package truth

import (
	"sync"
	"time"
)

// Attempt is one engine's work on a request: it has put it on one of its ranks.
type Attempt struct {
	Engine *Engine
	At     time.Time
	Ended  time.Time // zero: it has not yet
	Whole  bool      // the engine has written all of its answer
}

// Requests is who took which request. It is safe for concurrent use.
type Requests struct {
	mu   sync.Mutex
	open map[string][]Attempt // by id
	late int
}

// Open says that a client is about to send a request.
func (q *Requests) Open(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open == nil {
		q.open = make(map[string][]Attempt)
	}
	q.open[id] = nil
}

// Close forgets a request that is over for its client, and returns who took it so far.
func (q *Requests) Close(id string) []Attempt {
	q.mu.Lock()
	defer q.mu.Unlock()
	attempts := q.open[id]
	delete(q.open, id)
	return attempts
}

// Accepted says that an engine has taken a request.
func (q *Requests) Accepted(e *Engine, id string) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if attempts, ok := q.open[id]; ok {
		q.open[id] = append(attempts, Attempt{Engine: e, At: now})
	} else {
		q.late++ // its client has left meanwhile
	}
}

// Ended says that an engine does no more for a request.
func (q *Requests) Ended(e *Engine, id string, whole bool) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	attempts := q.open[id]
	for i := len(attempts) - 1; i >= 0; i-- {
		if a := &attempts[i]; a.Engine == e && a.Ended.IsZero() {
			a.Ended, a.Whole = now, whole
			return
		}
	}
}

// Late returns how many requests were accepted after their clients had left.
func (q *Requests) Late() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.late
}
