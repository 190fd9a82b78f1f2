package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/tswire"
	"github.com/plimsoll-go/plimsoll/load"
)

const (
	glance = 20 * time.Millisecond // how often the ranks are looked at
	second = time.Second           // how often it is told how they are
)

var (
	errTooSlow = errors.New("the ranks do not keep up, or are not there any more; one does about ten chat requests a second, see -rate")
	errLeft    = errors.New("the client has left")
)

// answer is a request of the plan and what came of it.
type answer struct {
	request
	outcome
	sent bool
}

// measure sends the traffic and returns what came of it, also if it was cut short:
// because ctx ended, because the ranks died, or because they are too slow. Meanwhile
// it tells progress how things go.
func measure(ctx context.Context, g *group, t traffic, progress io.Writer) *result {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(g.alive, func() { stop(context.Cause(g.alive)) })()
	var chatting atomic.Bool
	done := make(chan []answer, 1)
	go func() {
		var all []answer
		for phase, requests := range t.plan() {
			chatting.Store(phase == phaseChat)
			wait := send(ctx, g.router, requests)
			chatting.Store(false) // who has nothing to do from here on is not shunned
			tooSlow := time.AfterFunc(t.drain, func() { stop(errTooSlow) })
			all = append(all, wait()...)
			tooSlow.Stop()
		}
		done <- all
	}()

	idle := newIdleness(t.ranks)
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	start, told := time.Now(), 2*burstAt // for the burst to be seen
	for {
		select {
		case answers := <-done:
			return newResult(t, answers, g.connector.Status(), idle, context.Cause(ctx))
		case <-ticker.C:
		}
		at, ranks := time.Since(start), g.connector.Status().Ranks
		if chatting.Load() {
			idle.look(at, ranks)
		}
		if at >= told {
			tell(progress, told, ranks)
			told += second
		}
	}
}

// send sends requests on time, and returns when the last has been sent, or ctx has
// ended. What came of them is known when wait returns.
func send(ctx context.Context, r *router, requests []request) (wait func() []answer) {
	answers := make([]answer, len(requests))
	prompt := make([]int64, max(promptMost, openerPrompt)) // of one token, over and over: nobody reads it
	var asking sync.WaitGroup
	start := time.Now()
	for i, q := range requests {
		a := &answers[i]
		*a = answer{request: q, outcome: outcome{rank: load.NoRank}}
		if a.sent = sleepUntil(ctx, start.Add(q.at)); a.sent {
			asking.Go(func() { a.outcome = ask(ctx, r, q, prompt[:q.prompt]) })
		}
	}
	return func() []answer { asking.Wait(); return answers }
}

// ask sends one request for a client that may leave early.
func ask(ctx context.Context, r *router, q request, prompt []int64) outcome {
	ctx, leave := context.WithTimeoutCause(ctx, q.stays, errLeft)
	defer leave()
	o := r.do(ctx, tswire.Request{ID: q.id, Prompt: prompt, MaxNewTokens: int64(q.output), IgnoreEOS: true, Stream: true}, load.NoRank)
	if cause := context.Cause(ctx); o.left && !errors.Is(cause, errLeft) {
		o.left, o.err = false, cause // it would have stayed
	}
	return o
}

// sleepUntil returns false if ctx ends first.
func sleepUntil(ctx context.Context, at time.Time) bool {
	left := time.Until(at)
	if left <= 0 {
		return ctx.Err() == nil // a burst does not wait for a timer each
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// tell writes how the ranks are: the requests on each, as the connector counts them.
func tell(w io.Writer, at time.Duration, ranks []load.ConnectorRankStatus) {
	fmt.Fprintf(w, "%4.1fs  in flight on each rank", at.Seconds())
	for _, r := range ranks {
		fmt.Fprintf(w, " %3d", r.InFlight)
	}
	fmt.Fprintln(w)
}

// idleness measures how long each rank has had nothing to do while another had
// several requests.
type idleness struct {
	since   []time.Duration // when that began for the rank; -1 = it has not
	longest []time.Duration
}

func newIdleness(ranks int) *idleness {
	i := &idleness{since: make([]time.Duration, ranks), longest: make([]time.Duration, ranks)}
	for r := range i.since {
		i.since[r] = -1
	}
	return i
}

// look takes in how the ranks are at that time. It goes by the requests in flight,
// which are the truth here. Once another rank has had several, the time runs until
// this one gets a request: a lull in between does not make it any less shunned.
func (i *idleness) look(at time.Duration, ranks []load.ConnectorRankStatus) {
	several := slices.ContainsFunc(ranks, func(r load.ConnectorRankStatus) bool { return r.InFlight > 1 })
	for n, r := range ranks {
		switch {
		case r.InFlight > 0:
			i.since[n] = -1
		case i.since[n] >= 0:
			i.longest[n] = max(i.longest[n], at-i.since[n])
		case several:
			i.since[n] = at
		}
	}
}
