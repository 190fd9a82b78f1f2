package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/tswire"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/tokenspeed"
)

// router is all that a host of a group of ranks has to do: it asks the connector
// for a rank, sends the request there, marks how far it has come, and hands the
// connector every batch.
type router struct {
	connector *load.Connector
	frontend  *tswire.Frontend
	logger    *slog.Logger

	// alive ends when the group turns out to be dead, with the cause; died ends it.
	alive context.Context
	died  context.CancelCauseFunc

	mu    sync.Mutex
	calls map[string]*call

	batch tokenspeed.Batch // only receive uses it
}

// call is a request that somebody waits for. What is written before a channel is
// closed may be read after.
type call struct {
	first chan struct{} // closed with the first token, or without one at the end
	ended chan struct{}
	begun bool // first is closed; guarded by router.mu
	err   error
}

// outcome is what a client sees of one request, and where it went.
type outcome struct {
	rank  int           // load.NoRank if it got none
	first time.Duration // until the first token
	left  bool          // the client did not stay until the end
	err   error
}

// do sends a request and returns when it has ended. rank is load.NoRank for the
// connector to choose one. If ctx ends first, the client has left.
func (r *router) do(ctx context.Context, q tswire.Request, rank int) (o outcome) {
	start := time.Now()
	o.rank = load.NoRank
	place, err := r.reserve(q, rank)
	if err != nil {
		o.err = err
		return o
	}
	o.rank = place.Rank()
	// Whatever happens to the request, the rank must not be left with it. If it has
	// ended there, or the engine has, this does nothing.
	defer func() {
		if place.Abort() {
			_ = r.frontend.Abort(o.rank, q.ID) // a rank that cannot hear it has nothing to abort
		}
	}()
	c := r.expect(q.ID)
	defer r.forget(q.ID)

	if err := r.frontend.Add(o.rank, q); err != nil {
		o.err = fmt.Errorf("rank %d: %w", o.rank, err)
		if errors.Is(err, tswire.ErrUnreachable) {
			// Or it would look idle for ever, and get every request from now on.
			r.fail(o.err)
		}
		return o
	}
	place.Dispatched()
	if !r.wait(ctx, c.first, &o) {
		return o
	}
	place.FirstToken()
	o.first = time.Since(start)
	if r.wait(ctx, c.ended, &o) {
		o.err = c.err
	}
	return o
}

// wait returns true when c is closed, and otherwise says in o why it never may be.
func (r *router) wait(ctx context.Context, c <-chan struct{}, o *outcome) bool {
	select {
	case <-c:
		return true
	case <-r.alive.Done():
		o.err = context.Cause(r.alive)
	case <-ctx.Done():
		o.left = true
	}
	return false
}

func (r *router) reserve(q tswire.Request, rank int) (load.Reservation, error) {
	if rank == load.NoRank {
		return r.connector.Reserve(q.ID, int64(len(q.Prompt)))
	}
	return r.connector.ReserveRank(q.ID, rank, int64(len(q.Prompt)))
}

func (r *router) expect(id string) *call {
	c := &call{first: make(chan struct{}), ended: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[id] = c
	return c
}

func (r *router) forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.calls, id)
}

// receive takes in one message. It is what the frontend delivers to.
func (r *router) receive(frames [][]byte) {
	payload, err := tokenspeed.Split(frames)
	if errors.Is(err, tokenspeed.ErrEngineDead) {
		r.fail(err)
		return
	}
	r.batch.Reset()
	if err == nil {
		err = r.batch.Decode(payload)
	}
	// First of all: whoever is told that his request has ended may send the next one
	// at once, and is to find the ranks as they are after this batch.
	switch err := r.connector.Observe(load.FromTokenSpeed(&r.batch.Summary, err)); {
	case errors.Is(err, load.ErrDead):
		return // a rank that has outlived the others; everybody has been told
	case err != nil:
		r.logger.Warn("batch not taken as a whole", "err", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.batch.Len() {
		// A router that passes tokens on would do that here.
		if q := r.batch.At(i); len(q.OutputIDs) > 0 {
			r.beginLocked(string(q.ID))
		}
	}
	for i, id := range r.batch.Finished {
		var err error
		if reason := r.batch.Reasons[i]; reason != tokenspeed.FinishLength && reason != tokenspeed.FinishStop {
			err = fmt.Errorf("the engine ended the request: %v", reason)
		}
		r.endLocked(string(id), err)
	}
}

func (r *router) beginLocked(id string) {
	if c := r.calls[id]; c != nil && !c.begun {
		c.begun = true
		close(c.first)
	}
}

func (r *router) endLocked(id string, err error) {
	c := r.calls[id]
	if c == nil {
		return // its client has left
	}
	r.beginLocked(id)
	delete(r.calls, id)
	c.err = err
	close(c.ended)
}

// fail ends everything: of a group, all ranks are dead if one is. The connector
// comes first, so that nothing can be reserved by the time that somebody is told.
func (r *router) fail(cause error) {
	r.connector.Fail(cause)
	r.died(cause)
}
