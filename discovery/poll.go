package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// shrinkAfter is how many polls in a row must agree that there are fewer ranks.
// An engine leaves out a rank whose numbers it cannot read just then; taking
// that for the truth at once would make a sum without it look complete.
const shrinkAfter = 3

// poller asks one engine for /v1/loads again and again. Where the engine has no
// load socket, it advertises by itself the ranks that it finds. Where it has some
// and not all of them speak, it fills in for those, in the feed that it has on
// loan from the member: which ranks there are is then for /server_info to say.
// The member stops one poller before it starts another or ends the feed.
type poller struct {
	// immutable
	m    *member
	lent bool   // feed is the member's
	ears []*ear // of its load sockets, by rank

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
	p.fewer = 0
	reason := "/v1/loads: " + failure.Err.Error()
	switch {
	case failure.noEndpoint() && !p.lent:
		p.feed = nil
		p.m.worker.SetNotPublishing(reason)
	case p.feed == nil:
		p.m.worker.SetNoAnswer(reason)
	default:
		// What was reported before stays, and goes stale by itself.
		p.drop("poll_"+failure.Kind.String(), failure)
	}
	if failure.noEndpoint() {
		p.failures = 0
		return jittered(c.RecheckNotPublishing)
	}
	return max(c.PollInterval, backoff(p.failures, c.PollInterval, c.RetryMax))
}

// take puts what an answer says about each rank.
func (p *poller) take(entries []rankLoad, asked time.Time, moment load.Moment) {
	// A rank that is missing in the middle is still a rank.
	ranks := max(len(entries), int(p.m.ranks.Load()))
	for _, e := range entries {
		ranks = max(ranks, e.rank+1)
	}
	if p.lent && ranks > p.feed.Ranks() {
		// The engine has come back with more. Until the member has found that out
		// too, no part of them may pass for the whole.
		p.drop("poll_ranks", fmt.Errorf("/v1/loads has %d ranks, and %d are advertised", ranks, p.feed.Ranks()))
		return
	}
	if !p.lent {
		p.advertise(ranks)
	}
	for i := range entries {
		e := &entries[i]
		if p.spokenFor(e.rank, asked) {
			continue
		}
		if e.err != nil {
			p.feed.Drop(e.rank, e.reason, e.err)
			continue
		}
		r := load.FromSnapshot(&e.load)
		r.Received, r.Asked, r.Source = asked, moment, load.SourcePoll
		_ = p.feed.Put(e.rank, r) // what the table refuses, it counts
	}
}

// advertise makes the poller's own feed one of so many ranks: more at once, fewer
// when that is sure.
func (p *poller) advertise(ranks int) {
	if p.feed != nil && ranks < p.feed.Ranks() {
		if p.fewer++; p.fewer < shrinkAfter {
			return
		}
	}
	p.fewer = 0
	if p.feed == nil || ranks != p.feed.Ranks() {
		p.feed = p.m.worker.Advertise(ranks)
	}
}

// drop says of every rank that is polled for that a poll brought nothing.
func (p *poller) drop(reason string, err error) {
	now := time.Now()
	for rank := range p.feed.Ranks() {
		if !p.spokenFor(rank, now) {
			p.feed.Drop(rank, reason, err)
		}
	}
}

// spokenFor reports whether a rank's load socket tells of it: the table would
// refuse what is polled, and count it as lost.
func (p *poller) spokenFor(rank int, now time.Time) bool {
	if rank >= len(p.ears) {
		return false
	}
	n := p.ears[rank].reported.Load()
	return n != 0 && now.Sub(p.m.fleet.epoch.Add(time.Duration(n))) <= p.m.fleet.config.Table.Window()
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
