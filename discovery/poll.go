package discovery

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// shrinkAfter is how many polls in a row must agree that there are fewer ranks.
// An engine leaves out a rank whose numbers it cannot read just then; taking
// that for the truth at once would make a sum without it look complete.
const shrinkAfter = 3

// poller asks one engine for /v1/loads again and again, while the engine has no
// load socket. Its feed and a load socket's are never alive at the same time:
// the member stops the one before it starts the other.
type poller struct {
	m     *member
	ranks atomic.Int64 // that the engine said it has in /server_info; 0 unknown

	// owned by run
	feed     *load.Feed
	fewer    int // polls in a row with fewer ranks than the feed has
	failures int // polls in a row that failed
}

func (p *poller) run(ctx context.Context) {
	for {
		pause := p.poll(ctx)
		if ctx.Err() != nil {
			return
		}
		p.m.update(func(s *WorkerStatus) { s.Poll.Next = time.Now().Add(pause) })
		if !sleep(ctx, pause) {
			return
		}
	}
}

// poll asks once and returns how long to wait before the next time.
func (p *poller) poll(ctx context.Context) time.Duration {
	c := &p.m.fleet.config
	var entries []rankLoad
	// A report is as old as the request for it: the engine took its numbers at
	// some moment between then and now, and an answer that was long on its way
	// must not pass for fresh.
	asked, moment := time.Now(), p.m.worker.Moment()
	failure := c.Client.get(ctx, p.m.target.Load().url, "v1/loads", "include=core", func(body []byte) (err error) {
		entries, err = parseLoads(body, c.Client.maxRanks())
		return err
	})
	if ctx.Err() != nil {
		return 0
	}
	p.note(asked, failure)
	if failure == nil {
		p.failures = 0
		p.take(entries, asked, moment)
		return jittered(c.PollInterval) // not all workers in step
	}
	p.failures++
	reason := "/v1/loads: " + failure.Err.Error()
	if failure.noEndpoint() {
		p.feed, p.failures = nil, 0
		p.m.worker.SetNotPublishing(reason)
		return jittered(c.RecheckNotPublishing)
	}
	if p.feed == nil {
		p.m.worker.SetNoAnswer(reason)
	} else {
		// What was reported before stays, and goes stale by itself.
		for rank := range p.feed.Ranks() {
			p.feed.Drop(rank, "poll_"+failure.Kind.String(), failure)
		}
	}
	return max(c.PollInterval, backoff(p.failures, c.PollInterval, c.RetryMax))
}

// take puts what an answer says about each rank.
func (p *poller) take(entries []rankLoad, asked time.Time, moment load.Moment) {
	// A rank that is missing in the middle is still a rank.
	ranks := max(len(entries), int(p.ranks.Load()))
	for _, e := range entries {
		ranks = max(ranks, e.rank+1)
	}
	switch {
	case p.feed == nil || ranks > p.feed.Ranks():
		p.feed, p.fewer = p.m.worker.Advertise(ranks), 0
	case ranks == p.feed.Ranks():
		p.fewer = 0
	default:
		if p.fewer++; p.fewer >= shrinkAfter {
			p.feed, p.fewer = p.m.worker.Advertise(ranks), 0
		}
	}
	for i := range entries {
		e := &entries[i]
		if e.err != nil {
			p.feed.Drop(e.rank, e.reason, e.err)
			continue
		}
		r := load.FromSnapshot(&e.load)
		r.Received, r.Asked, r.Source = asked, moment, load.SourcePoll
		_ = p.feed.Put(e.rank, r) // what the table refuses, it counts
	}
}

func (p *poller) note(asked time.Time, failure *RequestError) {
	var what string
	if failure != nil {
		what = failure.Error()
	}
	var news bool
	p.m.update(func(s *WorkerStatus) {
		news = s.Poll.Error != what
		s.Poll.Last, s.Poll.Error, s.Poll.Polls = asked, what, s.Poll.Polls+1
	})
	switch {
	case !news:
	case failure != nil:
		p.m.log(slog.LevelWarn, "discovery: poll failed", "error", failure)
	default:
		p.m.log(slog.LevelInfo, "discovery: poll works again")
	}
}
