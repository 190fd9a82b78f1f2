package discovery

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/snapshot"
)

// member is one worker of a fleet, for one incarnation of it. One goroutine runs
// it, so that its steps come in order and wait for no other worker's.
type member struct {
	// immutable
	fleet  *Fleet
	worker *load.Worker
	cancel context.CancelFunc
	kick   chan struct{} // polling was switched

	target atomic.Pointer[target]

	// owned by run
	feed      *load.Feed // of the load sockets; nil if there are none
	ad        Advertisement
	subs      []subscription // by rank, while there is a feed
	failures  int            // times in a row that it could not be asked
	asked     time.Time
	next      time.Time     // when to ask again
	patience  time.Duration // pause before asking because of a silent rank
	poller    *poller       // nil unless polling
	stopPolls func()

	mu     sync.Mutex
	status WorkerStatus // Endpoints' Heard is filled in on reading
	heard  []*atomic.Int64
}

// subscription is the load socket of one rank.
type subscription struct {
	stop  func()        // nil if not subscribed
	heard *atomic.Int64 // newest message, nanoseconds since Fleet.epoch; 0 none
	since time.Time
	err   error
}

func newMember(f *Fleet, t *target, w *load.Worker) *member {
	m := &member{fleet: f, worker: w, kick: make(chan struct{}, 1)}
	m.target.Store(t)
	m.status = WorkerStatus{ID: t.id, URL: t.key}
	return m
}

func (m *member) nudge() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

func (m *member) run(ctx context.Context) {
	defer func() {
		m.unsubscribe()
		m.stopPolling()
	}()
	if m.fleet.config.Subscriber == nil {
		m.runWithoutSockets(ctx)
		return
	}
	for {
		m.ask(ctx)
		if ctx.Err() != nil || !m.wait(ctx) {
			return
		}
	}
}

// runWithoutSockets is run where nobody can listen to a load socket. Then it does
// not matter what the engine publishes.
func (m *member) runWithoutSockets(ctx context.Context) {
	for {
		m.noSockets(ctx, Advertisement{}, func() { m.worker.SetNotPublishing("no subscriber") })
		select {
		case <-m.kick:
		case <-ctx.Done():
			return
		}
	}
}

// ask asks the engine what it publishes and acts on it.
func (m *member) ask(ctx context.Context) {
	slots := m.fleet.first
	if m.failures > 0 {
		slots = m.fleet.again
	}
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	ad, err := m.fleet.config.Client.serverInfo(ctx, m.target.Load().url)
	<-slots
	if ctx.Err() != nil {
		return
	}
	m.asked = time.Now()
	c := &m.fleet.config
	var outcome Outcome
	var pause time.Duration
	switch {
	case err != nil:
		outcome = OutcomeCouldNotTell
		m.failures++
		pause = backoff(m.failures, c.RetryMin, c.RetryMax)
		if m.feed == nil {
			m.noSockets(ctx, Advertisement{}, func() { m.worker.SetNoAnswer(err.Error()) })
		}
	case !ad.Publishes:
		outcome = OutcomeDoesNotPublish
		m.failures = 0
		pause = jittered(c.RecheckNotPublishing)
		m.unsubscribe()
		m.noSockets(ctx, ad, func() { m.worker.SetNotPublishing(ad.Reason) })
	default:
		outcome = OutcomePublishes
		m.failures = 0
		pause = jittered(c.RecheckPublishing)
		if !m.publishes(ad) {
			// The transport refused a socket. That is nothing that asking the
			// engine could mend, but the same step tries again.
			pause = min(pause, jittered(c.RetryMax))
		}
	}
	m.next = m.asked.Add(pause)
	m.note(outcome, ad, err)
}

// publishes has the advertised sockets subscribed, and reports whether all that
// can be dialled are.
func (m *member) publishes(ad Advertisement) bool {
	if m.feed == nil || !m.ad.sameSockets(ad) {
		m.stopPolling()
		m.unsubscribe()
		// The ranks are there before the first socket is, so that no sum over a
		// part of them ever counts as the worker's load.
		m.feed = m.worker.Advertise(len(ad.Endpoints))
		m.subs = make([]subscription, len(ad.Endpoints))
		m.patience = m.fleet.config.Table.Window()
		for i, e := range ad.Endpoints {
			if e.Err != nil { // never to be heard of; the table's status should say why
				m.feed.Drop(i, "undialable", e.Err)
			}
		}
	}
	m.ad = ad
	ok := true
	for i := range m.subs {
		s := &m.subs[i]
		if s.stop != nil || ad.Endpoints[i].Err != nil {
			continue
		}
		s.since, s.heard = time.Now(), new(atomic.Int64)
		s.stop, s.err = m.fleet.config.Subscriber.Subscribe(ad.Endpoints[i].Addr, m.deliver(m.feed, i, s.heard))
		if s.err != nil {
			s.stop, ok = nil, false
			m.feed.Drop(i, "not_subscribed", s.err)
			m.log(slog.LevelError, "discovery: rank not subscribed", "rank", i, "endpoint", ad.Endpoints[i].Addr, "error", s.err)
		}
	}
	return ok
}

// deliver returns what turns one rank's messages into reports. It holds on to
// one feed, so that whatever comes late, after a removal or a new advertisement,
// ends at a handle that is dead.
func (m *member) deliver(feed *load.Feed, rank int, heard *atomic.Int64) func(snapshot.Delivery) {
	epoch := m.fleet.epoch
	return func(d snapshot.Delivery) {
		if d.Received.IsZero() {
			d.Received = time.Now()
		}
		heard.Store(max(1, int64(d.Received.Sub(epoch))))
		if d.Err != nil {
			feed.Drop(rank, snapshot.Reason(d.Err), d.Err)
			return
		}
		if d.Reading == nil {
			return
		}
		r := load.FromReading(d.Reading)
		r.Received, r.Seq, r.Source = d.Received, load.Known(d.Seq), load.SourcePush
		_ = feed.Put(rank, r) // what the table refuses, it counts
	}
}

func (m *member) unsubscribe() {
	for i := range m.subs {
		if stop := m.subs[i].stop; stop != nil {
			stop()
		}
	}
	m.subs, m.feed, m.ad = nil, nil, Advertisement{}
}

// noSockets is for a worker without load sockets: it is polled where that is
// switched on, and otherwise say tells the table why nothing is known. A worker
// that is being polled already is left to its poller.
func (m *member) noSockets(ctx context.Context, ad Advertisement, say func()) {
	if m.poller == nil {
		say()
	}
	if !m.target.Load().poll {
		if m.poller != nil {
			m.stopPolling()
			// The poller's feed dies, which NoAnswer alone would not do.
			m.worker.SetNotPublishing("polling switched off")
			say()
		}
		return
	}
	if m.poller == nil {
		p := &poller{m: m}
		pollCtx, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		m.update(func(s *WorkerStatus) { s.Poll.Active = true })
		p.ranks.Store(int64(ad.Ranks))
		go func() {
			defer close(done)
			p.run(pollCtx)
		}()
		m.poller, m.stopPolls = p, func() {
			cancel()
			<-done
		}
	}
	if ad.Ranks > 0 {
		m.poller.ranks.Store(int64(ad.Ranks))
	}
}

func (m *member) stopPolling() {
	if m.poller == nil {
		return
	}
	m.stopPolls()
	m.poller, m.stopPolls = nil, nil
	m.update(func(s *WorkerStatus) { s.Poll.Active, s.Poll.Next = false, time.Time{} })
}

// wait returns when it is time to ask again, with false if ctx ended first.
func (m *member) wait(ctx context.Context) bool {
	for {
		now := time.Now()
		due, silent := m.due(now)
		m.update(func(s *WorkerStatus) { s.NextAsk = m.next })
		if !now.Before(due) {
			if silent {
				// An engine that advertises a socket it failed to bind stays
				// silent for good: ask ever more rarely, down to the usual pace.
				m.patience = min(2*m.patience, m.fleet.config.RecheckPublishing)
			}
			return true
		}
		timer := time.NewTimer(due.Sub(now))
		select {
		case <-timer.C:
		case <-m.kick:
			timer.Stop()
			return true
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// due returns when to ask next, as far as can be said now, and whether a rank is
// silent: then the engine may have come back with other ports, and it is asked
// sooner than planned.
func (m *member) due(now time.Time) (due time.Time, silent bool) {
	oldest, ok := m.oldestHeard()
	if !ok {
		return m.next, false
	}
	window := m.fleet.config.Table.Window()
	fresh := oldest.Add(window) // the last moment at which all ranks are
	if !now.After(fresh) {
		m.patience = window
		due = fresh.Add(1)
	} else {
		silent = true
		due = m.asked.Add(m.patience)
	}
	if m.next.Before(due) {
		return m.next, silent && !now.Before(m.next)
	}
	return due, silent
}

// oldestHeard returns when the rank that was heard of least recently was. A rank
// that never was counts from its subscription.
func (m *member) oldestHeard() (oldest time.Time, ok bool) {
	for i := range m.subs {
		s := &m.subs[i]
		if s.stop == nil {
			continue
		}
		at := s.since
		if n := s.heard.Load(); n != 0 {
			at = m.fleet.epoch.Add(time.Duration(n))
		}
		if !ok || at.Before(oldest) {
			oldest, ok = at, true
		}
	}
	return oldest, ok
}

// update changes the status.
func (m *member) update(change func(s *WorkerStatus)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.status)
}

// note puts the outcome of asking into the status, and into the log if it is
// another than the time before.
func (m *member) note(outcome Outcome, ad Advertisement, err error) {
	var news bool
	m.update(func(s *WorkerStatus) {
		before := *s
		s.Outcome, s.Asked, s.Failures = outcome, s.Asked+1, m.failures
		s.LastAsk, s.NextAsk = m.asked, m.next
		s.Error = ""
		if err != nil {
			s.Error = err.Error()
		} else {
			s.Reason, s.Broken, s.Notes = ad.Reason, ad.Broken, ad.Notes
		}
		s.Endpoints, m.heard = nil, nil
		for i := range m.subs {
			e := EndpointStatus{Rank: i, Addr: m.ad.Endpoints[i].Addr}
			if err := errors.Join(m.ad.Endpoints[i].Err, m.subs[i].err); err != nil {
				e.Error = err.Error()
			}
			s.Endpoints = append(s.Endpoints, e)
			m.heard = append(m.heard, m.subs[i].heard)
		}
		news = before.Outcome != s.Outcome || before.Reason != s.Reason || before.Error != s.Error ||
			!slices.Equal(before.Notes, s.Notes) || !slices.Equal(before.Endpoints, s.Endpoints)
	})
	if !news {
		return
	}
	switch {
	case err != nil:
		m.log(slog.LevelWarn, "discovery: could not tell whether the engine publishes load", "error", err)
	case ad.Broken:
		m.log(slog.LevelError, "discovery: engine's advertisement is broken", "reason", ad.Reason)
	case !ad.Publishes:
		m.log(slog.LevelInfo, "discovery: engine does not publish load", "reason", ad.Reason)
	default:
		m.log(slog.LevelInfo, "discovery: engine publishes load", "ranks", len(ad.Endpoints), "first", ad.Endpoints[0].Addr, "notes", ad.Notes)
	}
}

// read returns the status as it is now.
func (m *member) read() WorkerStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.status
	st.Notes, st.Endpoints = slices.Clone(st.Notes), slices.Clone(st.Endpoints)
	for i := range st.Endpoints {
		if h := m.heard[i]; h != nil {
			if n := h.Load(); n != 0 {
				st.Endpoints[i].Heard = m.fleet.epoch.Add(time.Duration(n))
			}
		}
	}
	return st
}

func (m *member) log(level slog.Level, msg string, args ...any) {
	t := m.target.Load()
	m.fleet.config.Logger.Log(context.Background(), level, msg, append([]any{"worker", t.id, "url", t.key}, args...)...)
}
