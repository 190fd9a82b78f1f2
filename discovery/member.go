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
	kick   chan struct{} // target or renewed has changed

	target  atomic.Pointer[target]
	renewed atomic.Bool  // its publishers may be others than when it was asked
	ranks   atomic.Int64 // that the engine said it has; 0 unknown

	// owned by run
	feed      *load.Feed // of the load sockets; nil if there are none
	ad        Advertisement
	subs      []subscription // by rank, while there is a feed
	explain   func()         // tells the table why there is no feed
	failures  int            // times in a row that it could not be asked
	changes   int            // and that it had other sockets than the time before
	asked     time.Time
	next      time.Time     // when to ask again
	soon      time.Time     // and when at the earliest, if renewed
	patience  time.Duration // pause before asking because of a silent rank
	poller    *poller       // nil unless polling; it has the feed on loan if there is one
	stopPolls func()

	// No other lock is taken with mu held, and nothing of anybody else's called.
	mu     sync.Mutex
	status WorkerStatus // Endpoints' Heard is filled in on reading
	ears   []*ear       // of Endpoints
}

// subscription is the load socket of one rank.
type subscription struct {
	stop  func() // nil if not subscribed
	ear   *ear
	since time.Time
	err   error
}

// ear is when a load socket was last heard, in nanoseconds since Fleet.epoch; 0
// is never.
type ear struct {
	heard    atomic.Int64 // newest message, good or bad
	reported atomic.Int64 // newest that became a report
}

func newMember(f *Fleet, t *target, w *load.Worker) *member {
	m := &member{fleet: f, worker: w, kick: make(chan struct{}, 1)}
	m.target.Store(t)
	m.status = WorkerStatus{ID: t.id, URL: t.key}
	return m
}

// nudge has run look at what has changed.
func (m *member) nudge() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

func (m *member) run(ctx context.Context) {
	defer func() {
		m.stopPolling()
		m.unsubscribe()
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
	m.noSockets(func() { m.worker.SetNotPublishing("no subscriber") })
	for {
		m.switchPolling(ctx, false)
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
	// Before the question: what changes from here on, the answer may not know.
	renewed := m.renewed.Swap(false)
	ad, err := m.fleet.config.Client.serverInfo(ctx, m.target.Load().url)
	<-slots
	if ctx.Err() != nil {
		return
	}
	m.asked = time.Now()
	if err == nil {
		m.ranks.Store(int64(ad.Ranks))
	}
	c := &m.fleet.config
	var outcome Outcome
	var pause time.Duration
	switch {
	case err != nil:
		outcome = OutcomeCouldNotTell
		m.failures++
		pause = backoff(m.failures, c.RetryMin, c.RetryMax)
		if renewed {
			m.renewed.Store(true)
		}
		if m.feed == nil {
			m.noSockets(func() { m.worker.SetNoAnswer(err.Error()) })
		}
	case !ad.Publishes:
		outcome = OutcomeDoesNotPublish
		m.failures = 0
		pause = jittered(c.RecheckNotPublishing)
		m.unsubscribe()
		m.noSockets(func() { m.worker.SetNotPublishing(ad.Reason) })
	default:
		outcome = OutcomePublishes
		m.failures = 0
		pause = jittered(c.RecheckPublishing)
		if m.feed == nil || !m.ad.sameSockets(ad) {
			// An engine that has just come up may be one that comes up again and
			// again, with other ranks and before anybody has heard enough of it to
			// tell one publisher from the next. It is asked once more soon.
			pause = min(pause, c.Table.Window())
			m.changes++
		} else {
			m.changes = 0
		}
		if !m.publishes(ad) {
			// The transport refused a socket. That is nothing that asking the
			// engine could mend, but the same step tries again.
			pause = min(pause, jittered(c.RetryMax))
		}
	}
	m.next = m.asked.Add(pause)
	// An engine's publishers are up long before its HTTP server: until that one
	// answers, the sum of the ranks known so far passes for the whole. One that has
	// other sockets each time it is asked is asked ever more rarely.
	m.soon = m.asked.Add(backoff(m.failures+m.changes, c.RetryMin, c.Table.Window()))
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
			m.subs[i].ear = new(ear)
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
		s.since = time.Now()
		s.stop, s.err = m.fleet.config.Subscriber.Subscribe(ad.Endpoints[i].Addr, m.deliver(m.feed, i, s.ear, s.since))
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
func (m *member) deliver(feed *load.Feed, rank int, ear *ear, since time.Time) func(snapshot.Delivery) {
	epoch, quiet := m.fleet.epoch, min(m.fleet.config.Table.Window(), quietPublisher)
	last, seq := since, int64(-1) // of the newest report
	return func(d snapshot.Delivery) {
		if d.Received.IsZero() {
			d.Received = time.Now()
		}
		at := max(1, int64(d.Received.Sub(epoch)))
		ear.heard.Store(at)
		if d.Err != nil {
			feed.Drop(rank, snapshot.Reason(d.Err), d.Err)
			return
		}
		if d.Reading == nil {
			return
		}
		r := load.FromReading(d.Reading)
		r.Received, r.Seq, r.Source = d.Received, load.Known(d.Seq), load.SourcePush
		if feed.Put(rank, r) != nil {
			return // what the table refuses, it counts
		}
		ear.reported.Store(at)
		// The same number twice comes from two publishers, unless it is the 0 of a
		// transport that has none.
		if d.Seq < seq || (d.Seq == seq && seq > 0) || d.Received.Sub(last) > quiet {
			m.renew()
		}
		last, seq = d.Received, d.Seq
	}
}

// quietPublisher is after how long a pause the publisher may be a new one. An
// engine at rest reports every second; a step that takes longer costs a question
// too many.
const quietPublisher = 2 * time.Second

// renew has the engine asked soon. A rank whose messages count from the beginning
// again, or that speaks after a silence, has a publisher that may be new. What it
// says is good; but the engine may have come back with more ranks than before,
// and then the ranks that are listened to are no longer all of them.
func (m *member) renew() {
	m.renewed.Store(true)
	m.nudge()
}

func (m *member) unsubscribe() {
	if m.feed != nil {
		m.stopPolling() // it puts to this feed
	}
	for i := range m.subs {
		if stop := m.subs[i].stop; stop != nil {
			stop()
		}
	}
	m.subs, m.feed, m.ad = nil, nil, Advertisement{}
}

// noSockets is for a worker without load sockets. explain tells the table why
// nothing is known; one that is being polled is left to its poller.
func (m *member) noSockets(explain func()) {
	m.explain = explain
	if m.poller == nil {
		explain()
	}
}

// switchPolling has the worker polled if that is wanted, for as long as there is
// a rank that no load socket tells of: the engine offers none, it cannot be
// dialled, or it is silent, as it is where the engine failed to bind what it
// advertises, or runs the rank on another node.
func (m *member) switchPolling(ctx context.Context, silent bool) {
	wanted := m.target.Load().poll && (m.feed == nil || silent ||
		slices.ContainsFunc(m.subs, func(s subscription) bool { return s.stop == nil }))
	switch {
	case wanted && m.poller == nil:
		m.startPolling(ctx)
	case !wanted && m.poller != nil:
		m.stopPolling()
		if m.feed == nil {
			// The poller's feed dies, which SetNoAnswer alone would not do.
			m.worker.SetNotPublishing("polling switched off")
			m.explain()
		}
	}
}

func (m *member) startPolling(ctx context.Context) {
	p := &poller{m: m, feed: m.feed, lent: m.feed != nil}
	for i := range m.subs {
		p.ears = append(p.ears, m.subs[i].ear)
	}
	m.update(func(s *WorkerStatus) { s.Poll.Active = true })
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.run(ctx)
	}()
	m.poller, m.stopPolls = p, func() {
		cancel()
		<-done
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
		m.switchPolling(ctx, silent)
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
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// due returns when to ask next, as far as can be said now, and whether a rank is
// silent. If one is, or was until just now, the engine may have come back with
// other ports or ranks, and it is asked sooner than planned.
func (m *member) due(now time.Time) (due time.Time, silent bool) {
	due = m.next
	sooner := func(t time.Time) {
		if t.Before(due) {
			due = t
		}
	}
	if m.renewed.Load() {
		sooner(m.soon)
	}
	oldest, ok := m.oldestReport()
	if !ok {
		return due, false
	}
	window := m.fleet.config.Table.Window()
	if fresh := oldest.Add(window); now.After(fresh) { // the last moment at which all ranks were
		silent = true
		sooner(m.asked.Add(m.patience))
	} else {
		m.patience = window
		sooner(fresh.Add(1))
	}
	return due, silent
}

// oldestReport returns when the rank reported whose newest report is the oldest.
// A rank that never reported counts from its subscription.
func (m *member) oldestReport() (oldest time.Time, ok bool) {
	for i := range m.subs {
		s := &m.subs[i]
		if s.stop == nil {
			continue
		}
		at := s.since
		if n := s.ear.reported.Load(); n != 0 {
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
		s.Endpoints, m.ears = nil, nil
		for i := range m.subs {
			e := EndpointStatus{Rank: i, Addr: m.ad.Endpoints[i].Addr}
			if err := errors.Join(m.ad.Endpoints[i].Err, m.subs[i].err); err != nil {
				e.Error = err.Error()
			}
			s.Endpoints = append(s.Endpoints, e)
			m.ears = append(m.ears, m.subs[i].ear)
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
		if n := m.ears[i].heard.Load(); n != 0 {
			st.Endpoints[i].Heard = m.fleet.epoch.Add(time.Duration(n))
		}
	}
	return st
}

func (m *member) log(level slog.Level, msg string, args ...any) {
	t := m.target.Load()
	m.fleet.config.Logger.Log(context.Background(), level, msg, append([]any{"worker", t.id, "url", t.key}, args...)...)
}
