package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/tswire"
	"github.com/plimsoll-go/plimsoll/load"
)

const (
	glance = 20 * time.Millisecond // how often the ranks are looked at
	second = time.Second           // how often it is told how they are
)

// drain is how long the last answers may take.
const drain = 20 * time.Second

var errTooSlow = errors.New("the answers did not come: are the ranks still there?")

// measure sends the traffic on time and returns what came of it. Meanwhile it tells
// progress how things go.
func measure(ctx context.Context, g *group, t traffic, progress io.Writer) (*result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.start+t.length+drain, errTooSlow)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(g.alive, func() { stop(context.Cause(g.alive)) })()
	plan := t.plan()
	outcomes := make([]outcome, len(plan))
	var sending sync.WaitGroup
	done := make(chan struct{})
	start := time.Now()
	go func() {
		defer close(done)
		defer sending.Wait()
		prompt := make([]int64, max(promptMost, openerPrompt)) // of one token, over and over: nobody reads it
		for i, q := range plan {
			if !sleepUntil(ctx, start.Add(q.at)) {
				return
			}
			sending.Go(func() {
				ctx, leave := context.WithTimeout(ctx, q.stays)
				defer leave()
				outcomes[i] = g.do(ctx, tswire.Request{ID: q.id, Prompt: prompt[:q.prompt], MaxNewTokens: int64(q.output), IgnoreEOS: true, Stream: true}, load.NoRank)
			})
		}
	}()

	idle := newIdleness(t.ranks)
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	told := 2 * burstAt // for the burst to be seen
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-ticker.C:
		}
		at := time.Since(start)
		st := g.connector.Status()
		idle.look(at, st.Ranks)
		if at >= told {
			tell(progress, told, st.Ranks)
			told += second
		}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return newResult(t, plan, outcomes, g.connector.Status(), idle), nil
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
