package load

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// The model is a connector as one would write it without caring what it costs: a
// list of all requests there ever were, and what each rank has last said. Random
// sequences of all operations, checked after every step, hold the connector, its
// worker's books, the view and both statuses to it.

type groupRequest struct {
	id                  string // once it has been registered
	held                bool   // the connector knows it
	rank                int    // NoRank as long as none has been chosen
	tokens              int64
	sent, started, done bool

	ticket      Ticket
	reservation Reservation

	watched         bool
	picked          time.Duration
	told, wantsTold []told
}

// groupRank is what is known of one rank.
type groupRank struct {
	reported         bool
	reads            Report // what the rank is taken to have
	quiet            bool   // because none of our requests is left there
	running, waiting int64  // what it said
	received         int64
	sent             int         // requests sent to the worker by then
	counted          int64       // requests of the rank that it is taken to count
	own              int64       // of those, in flight then
	by               modelMoment // on the worker, likewise
	onRank           modelMoment
	reports          uint64
	flawed           uint64
	silenced         uint64
	dropped          map[string]uint64
}

type groupModel struct {
	c       *Connector
	id      string
	ranks   []*groupRank
	shared  bool
	first   int
	next    int
	gone    bool // removed, or replaced by another of its name
	refed   bool // advertised by somebody else, so that the connector's feed is dead
	unfed   bool // and then said not to publish
	healthy bool
	aside   int64 // until then; 0: not
	dead    error

	requests                                                                                 []*groupRequest
	reserved, finished, released, aborted, failed, duplicates, unknown, batches, withoutLoad uint64

	dropped  map[string]uint64
	lastDrop string
}

func (g *groupModel) count(is func(*groupRequest) bool) (n int64) {
	for _, r := range g.requests {
		if is(r) {
			n++
		}
	}
	return n
}

// own is what this gateway has on the worker, or on a rank of it.
func (g *groupModel) own(on func(rank int) bool) (own Own) {
	for _, r := range g.requests {
		if on(r.rank) && !r.done {
			own.InFlight++
		}
		if on(r.rank) && !r.started {
			own.Unstarted++
			own.PendingTokens += r.tokens
		}
	}
	return own
}

// moment is what there had been of our own until now.
func (g *groupModel) moment(on func(rank int) bool) (at modelMoment) {
	at.own = g.own(on)
	for _, r := range g.requests {
		if on(r.rank) {
			at.tokens += r.tokens
		}
	}
	return at
}

func anyRank(int) bool { return true }

func (g *groupModel) onRank(rank int) Own {
	return g.own(func(r int) bool { return r == rank })
}

func (g *groupModel) sent() int { return int(g.count(func(r *groupRequest) bool { return r.sent })) }

func (g *groupModel) find(id string) *groupRequest {
	i := slices.IndexFunc(g.requests, func(r *groupRequest) bool { return r.held && r.id == id })
	if i < 0 {
		return nil
	}
	return g.requests[i]
}

// picked counts the requests that there ever were of a rank.
func (g *groupModel) picked(rank int) int64 {
	return g.count(func(r *groupRequest) bool { return r.rank == rank })
}

// counted counts the requests of a rank that a report is taken to count: those that
// have been sent, or all where nobody else sends any.
func (g *groupModel) counted(rank int) int64 {
	return g.count(func(r *groupRequest) bool { return r.rank == rank && (r.sent || !g.shared) })
}

// known counts the requests of a rank that the connector knows.
func (g *groupModel) known(rank int) int64 {
	return g.count(func(r *groupRequest) bool { return r.held && r.rank == rank })
}

func (g *groupModel) end(r *groupRequest, now int64) {
	if r.started && !r.done {
		r.wantTold("done", g.c.worker, now)
	}
	r.sent, r.started, r.done, r.held = true, true, true, false
}

func (r *groupRequest) wantTold(what string, w *Worker, now int64) {
	if r.watched {
		r.wantsTold = append(r.wantsTold, told{what, w, time.Duration(now) - r.picked})
	}
}

// settle makes a rank idle on which none of our requests is left. It follows
// whatever can have taken one away.
func (g *groupModel) settle(rank int) {
	if s := g.ranks[rank]; !g.shared && s.reported && !s.quiet && g.known(rank) == 0 {
		g.silence(rank)
	}
}

func (g *groupModel) silence(rank int) {
	s := g.ranks[rank]
	s.reads.Running, s.reads.Waiting, s.quiet = 0, 0, true
	if s.reads.WaitingTokens.IsKnown() {
		s.reads.WaitingTokens = Known[int64](0)
	}
	s.silenced++
}

// scores lists what the ranks are chosen by.
func (g *groupModel) scores(now int64) []float64 {
	fresh := func(s *groupRank) bool {
		return s.reported && (!g.shared || now-s.received <= int64(testWindow))
	}
	// Where others send too, they are taken to have on a silent rank what they
	// have on the average one that speaks.
	others, speaking := 0.0, 0.0
	for _, s := range g.ranks {
		if g.shared && fresh(s) {
			speaking++
			others += math.Max(float64(s.reads.Running)+float64(s.reads.Waiting)-float64(s.own), 0)
		}
	}
	list := make([]float64, len(g.ranks))
	for rank, s := range g.ranks {
		own := float64(g.onRank(rank).InFlight)
		switch kv, ok := s.reads.KVUsage.Get(); {
		case fresh(s):
			// What was sent since is not in the report, as far as it is in flight.
			since := math.Min(float64(g.picked(rank)-s.counted), own)
			list[rank] = math.Max(own, float64(s.reads.Running)+float64(s.reads.Waiting)+since)
			if ok && s.reads.Waiting > 0 {
				list[rank] += 6 * float64(s.reads.Waiting) * math.Max(0, kv-0.5)
			}
		case speaking > 0:
			list[rank] = own + others/speaking
		default:
			list[rank] = own
		}
	}
	return list
}

func (g *groupModel) why(now int64) Why {
	reports := slices.DeleteFunc(slices.Clone(g.ranks), func(s *groupRank) bool { return !s.reported })
	switch {
	case g.dead != nil:
		return Dead
	case g.unfed:
		return NotPublishing
	case g.refed, g.shared && len(reports) < len(g.ranks):
		return NeverReported
	case g.shared && slices.ContainsFunc(reports, func(s *groupRank) bool { return now-s.received > int64(testWindow) }):
		return Stale
	case slices.ContainsFunc(reports, func(s *groupRank) bool { return s.reads.KVCapacity == Known[int64](0) }):
		return Booting
	}
	return Trusted
}

type connectorModel struct {
	t      *testing.T
	rnd    *rand.Rand
	table  *Table
	clock  *clock
	groups []*groupModel
	held   []heldView
	watch  Watch
	noted  []*groupRequest // by the note
	step   int
	did    string

	// What was met on the way.
	errors map[error]int
	whys   map[Why]int
	quiet  int // steps with a rank that is, and said otherwise
	ties   int // choices among equals
	ended  int // requests ended by a batch of another rank
	late   int // batches of ranks that had nothing left
}

func (m *connectorModel) now() int64 { return m.clock.elapsed.Load() }

func (m *connectorModel) fatalf(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("step %d, after %s: %s", m.step, m.did, fmt.Sprintf(format, args...))
}

func (m *connectorModel) wantError(err, want error) {
	m.t.Helper()
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		m.fatalf("the error is %v, want %v", err, want)
	}
	m.errors[want]++
}

// id is one of a few, so that they meet again.
func (m *connectorModel) id() string { return fmt.Sprint(m.rnd.IntN(12)) }

// add makes a group of a name, in the place of one that has it.
func (m *connectorModel) add(id string) {
	for _, g := range m.groups {
		g.gone = g.gone || g.id == id
	}
	g := &groupModel{id: id, shared: m.rnd.IntN(3) == 0, first: m.rnd.IntN(3) * 8, healthy: true, dropped: make(map[string]uint64)}
	for range 1 + m.rnd.IntN(4) {
		g.ranks = append(g.ranks, &groupRank{dropped: make(map[string]uint64)})
	}
	begin := m.rnd.Uint64()
	g.next = int(begin % uint64(len(g.ranks)))
	m.did = fmt.Sprintf("adding %s with %d ranks, shared %v", id, len(g.ranks), g.shared)
	g.c = must(NewConnector(m.table.Add(id, ""), ConnectorConfig{
		Ranks: len(g.ranks), Shared: g.shared, FirstIndex: g.first, Rand: func() uint64 { return begin },
	}))
	m.groups = append(m.groups, g)
}

// refused says what a new request of an id is refused with.
func (m *connectorModel) refused(g *groupModel, id string) error {
	if g.dead != nil {
		return ErrDead
	}
	if g.find(id) != nil {
		g.duplicates++
		return ErrDuplicate
	}
	return nil
}

func (m *connectorModel) reserve(g *groupModel, rank int) {
	q := &groupRequest{id: m.id(), held: true, rank: rank, tokens: m.rnd.Int64N(100)}
	m.did = fmt.Sprintf("reserving %q on rank %d of %s", q.id, rank, g.id)
	scores := g.scores(m.now())
	var want error
	if rank != NoRank && (rank < 0 || rank >= len(g.ranks)) {
		want = ErrNoRank
	} else {
		want = m.refused(g, q.id)
	}
	var err error
	if rank == NoRank {
		q.reservation, err = g.c.Reserve(q.id, q.tokens)
	} else {
		q.reservation, err = g.c.ReserveRank(q.id, rank, q.tokens)
	}
	m.wantError(err, want)
	if err != nil {
		q.reservation.Done() // nothing
		return
	}
	q.ticket = q.reservation.Ticket
	if rank == NoRank {
		q.rank = m.least(g, scores)
	}
	if q.reservation.Rank() != q.rank {
		m.fatalf("rank %d was reserved, want %d, by %v", q.reservation.Rank(), q.rank, scores)
	}
	g.reserved++
	g.requests = append(g.requests, q)
}

// least is the rank with the lowest score, the next in turn among equals, which
// moves the turn on.
func (m *connectorModel) least(g *groupModel, scores []float64) int {
	best, equals := g.next, 0
	for i := range g.ranks {
		if rank := (g.next + i) % len(g.ranks); scores[rank] < scores[best] {
			best = rank
		}
	}
	for _, s := range scores {
		if s == scores[best] {
			equals++
		}
	}
	if equals > 1 {
		m.ties++
	}
	g.next = (best + 1) % len(g.ranks)
	return best
}

// pick counts a request as a selector does, for a Register to come.
func (m *connectorModel) pick(g *groupModel) {
	q := &groupRequest{rank: m.rnd.IntN(len(g.ranks)+2) - 1, tokens: m.rnd.Int64N(100)}
	m.did = fmt.Sprintf("picking rank %d of %s", q.rank, g.id)
	v := m.table.View()
	booking := Booking{Rank: q.rank, PromptTokens: q.tokens, Note: uint64(len(m.noted))}
	if q.watched = m.rnd.IntN(4) > 0; q.watched {
		booking.Watch, q.picked = &m.watch, v.Now()
		m.noted = append(m.noted, q)
	}
	q.ticket = v.Reserve(g.c.worker, booking)
	if q.rank == len(g.ranks) {
		q.rank = NoRank
	}
	g.requests = append(g.requests, q)
}

func (m *connectorModel) register(g *groupModel) {
	from := g
	if m.rnd.IntN(10) == 0 {
		from, _ = pickOne(m.rnd, m.groups)
	}
	q, ok := pickOne(m.rnd, from.requests)
	if !ok || q.held && q.ticket.request.rank() == NoRank { // that one may take a turn before it is refused
		return
	}
	id := m.id()
	m.did = fmt.Sprintf("registering %q on rank %d of %s with %s", id, q.rank, from.id, g.id)
	want := m.refused(g, id)
	if want == nil && (from != g || q.done || q.held) {
		want = ErrForeignTicket
	}
	scores := g.scores(m.now())
	r, err := g.c.Register(id, q.ticket)
	m.wantError(err, want)
	if err != nil {
		r.Done()
		return
	}
	if q.rank == NoRank {
		q.rank = m.least(g, scores)
	}
	if r.Rank() != q.rank {
		m.fatalf("it is on rank %d, want %d", r.Rank(), q.rank)
	}
	q.id, q.held, q.reservation = id, true, r
	g.reserved++
}

func (m *connectorModel) mark(g *groupModel) {
	q, ok := pickOne(m.rnd, g.requests)
	if !ok {
		return
	}
	// Through any of its handles, and also after its end.
	marked := q.ticket
	if q.reservation != (Reservation{}) && m.rnd.IntN(2) == 0 {
		marked = q.reservation.Ticket
	}
	switch m.rnd.IntN(5) {
	case 0, 1:
		m.did = "Dispatched on " + g.id
		marked.Dispatched()
		q.sent = true
	case 2:
		m.did = "AssumeStarted on " + g.id
		marked.AssumeStarted()
		q.started = true
	default:
		m.did = "FirstToken on " + g.id
		if !q.started {
			q.wantTold("first token", g.c.worker, m.now())
		}
		marked.FirstToken()
		q.sent, q.started = true, true
	}
}

// release ends a request by one of the ways that a host has, or tries to once more.
func (m *connectorModel) release(g *groupModel) {
	q, ok := pickOne(m.rnd, g.requests)
	if !ok {
		return
	}
	id, what := q.id, m.rnd.IntN(5)
	if what < 2 {
		if m.rnd.IntN(8) == 0 {
			id = "never"
		}
		q = g.find(id)
	}
	// What the connector does not know, and what it knows no more, is not its to end.
	ends := q != nil && q.held
	count := &g.released
	m.did = fmt.Sprintf("ending %q of %s by way %d, known %v", id, g.id, what, ends)
	got := ends
	switch what {
	case 0:
		got = g.c.Release(id)
	case 1:
		got = g.c.Abort(id)
		count = &g.aborted
	case 2:
		q.reservation.Done()
	case 3:
		got = q.reservation.Abort()
		count = &g.aborted
	case 4:
		q.ticket.Done()
		if !ends {
			g.end(q, m.now())
		}
	}
	if got != ends {
		m.fatalf("it says %v", got)
	}
	if ends {
		*count++
		g.end(q, m.now())
		g.settle(q.rank)
	}
}

// again ends what is over once more, through a handle that is too old: whoever has
// its id or its place in a pool now must not notice.
func (m *connectorModel) again(g *groupModel) {
	q, ok := pickOne(m.rnd, slices.DeleteFunc(slices.Clone(g.requests), func(q *groupRequest) bool { return q.held || !q.done }))
	if !ok {
		return
	}
	m.did = fmt.Sprintf("ending %q of %s again", q.id, g.id)
	q.ticket.Done()
	q.reservation.Done()
	if q.reservation.Abort() {
		m.fatalf("there was something to abort")
	}
}

func (m *connectorModel) report() (r Report) {
	r = Report{Running: m.rnd.Int64N(6), Waiting: m.rnd.Int64N(4)}
	switch m.rnd.IntN(8) {
	case 0:
		r.KVUsage = Known(math.NaN())
	case 1:
		r.KVUsage = Known(1.25)
	case 2:
	default:
		r.KVUsage = Known(float64(m.rnd.IntN(9)) / 8)
	}
	switch m.rnd.IntN(8) {
	case 0:
		r.WaitingTokens = Known(m.rnd.Int64N(1000))
	case 1:
		r.KVUsed, r.KVCapacity = Known[int64](5), Known[int64](100)
	case 2:
		r.KVUsed, r.KVCapacity, r.MaxRunning = Known[int64](101), Known[int64](100), Known[int64](7)
	case 3:
		r.PrefillTokens, r.MaxRunning = Known[int64](-5), Known[int64](9)
	}
	switch m.rnd.IntN(30) {
	case 0:
		r.Running = -1
	case 1:
		r.Waiting = math.MinInt64
	case 2:
		r.KVUsed, r.KVCapacity = Maybe[int64]{}, Known[int64](0) // it is still booting
	}
	return r
}

// taken is what a report says once what no engine can mean has been made unknown.
func taken(r Report) (_ Report, flawed bool) {
	if used, ok := r.KVUsed.Get(); ok && r.KVCapacity.Or(0) > 0 && used > r.KVCapacity.Or(0) {
		r.KVUsed, r.KVUsage, r.Flaws = Maybe[int64]{}, Maybe[float64]{}, r.Flaws|FlawKVUsed
	}
	if u := r.KVUsage.Or(0); !(u >= 0 && u <= 1) {
		r.KVUsage, r.Flaws = Maybe[float64]{}, r.Flaws|FlawKVUsage
	}
	if r.PrefillTokens.Or(0) < 0 {
		r.PrefillTokens, r.Flaws = Maybe[int64]{}, r.Flaws|FlawField
	}
	return r, r.Flaws != 0
}

var errRagged = errors.New("ragged")

func (m *connectorModel) observe(g *groupModel) {
	b := Batch{HasLoad: m.rnd.IntN(5) > 0}
	if b.HasLoad || m.rnd.IntN(2) == 0 { // HasLoad false: it means nothing
		b.Load = m.report()
	}
	now := m.now()
	received := now
	switch m.rnd.IntN(10) {
	case 0:
		received -= m.rnd.Int64N(int64(testWindow) / 4)
		b.Load.Received = clockStart.Add(time.Duration(received))
	case 1:
		b.Load.Received = clockStart.Add(time.Duration(now + m.rnd.Int64N(1000)))
	}
	var ids []string
	for range m.rnd.IntN(4) {
		ids = append(ids, m.id())
	}
	if m.rnd.IntN(8) == 0 {
		ids = append(ids, "never")
	}
	for _, id := range ids {
		b.Finished = append(b.Finished, []byte(id))
	}
	if m.rnd.IntN(8) == 0 {
		b.Err = errRagged
		b.HasLoad = m.rnd.IntN(4) == 0 && b.HasLoad
	}
	rank := m.rnd.IntN(len(g.ranks))
	b.Rank = g.first + rank
	switch m.rnd.IntN(20) {
	case 0:
		b.Rank, rank = NoRank, NoRank
	case 1:
		b.Rank, rank = g.first+len(g.ranks), NoRank
	case 2:
		if g.first > 0 {
			b.Rank, rank = g.first-1, NoRank
		}
	}
	m.did = fmt.Sprintf("a batch of engine %d (rank %d) of %s that ends %q, with load %v %+v and %v", b.Rank, rank, g.id, ids, b.HasLoad, b.Load, b.Err)
	err := g.c.Observe(b)
	for _, id := range b.Finished { // the host decodes the next one into the same buffer
		clear(id)
	}

	drop := func(reason, last string) {
		g.dropped[reason]++
		g.lastDrop = last
	}
	switch {
	case g.dead != nil:
		m.wantError(err, ErrDead)
		return
	case rank == NoRank && b.Rank != NoRank:
		m.wantError(err, ErrNoRank)
		drop("no_rank", err.Error())
		return
	}
	if rank != NoRank || len(ids) > 0 {
		g.batches++
	}
	// First its load, then the requests that it ends: whoever ends with it is in the
	// load, and has no part in what is left.
	sent, counted := g.sent(), g.counted(rank)
	by, onRank := g.moment(anyRank), g.moment(func(r int) bool { return r == rank })
	var over []*groupRequest
	for _, id := range ids {
		if q := g.find(id); q != nil {
			q.held = false
			over = append(over, q)
			g.finished++
			if q.rank != rank {
				m.ended++
			}
		} else {
			g.unknown++
		}
	}
	want := b.Err
	if b.Err != nil {
		drop("other", "ragged")
		if rank != NoRank && !g.gone && !g.refed {
			g.ranks[rank].dropped["other"]++
		}
	}
	s := new(groupRank) // nobody's
	if rank != NoRank {
		s = g.ranks[rank]
	}
	switch {
	case rank == NoRank:
	case !b.HasLoad:
		g.withoutLoad++
	case g.gone || g.refed:
		want = ErrGone
		drop("gone", ErrGone.Error())
	case b.Load.Running < 0 || b.Load.Waiting < 0:
		want = ErrBadReport
		drop("bad_report", fmt.Sprintf("%v: running %d, waiting %d", ErrBadReport, b.Load.Running, b.Load.Waiting))
		s.dropped["bad_report"]++
	case s.reported && s.received > received:
		want = ErrSuperseded
		drop("superseded", ErrSuperseded.Error())
		s.dropped["superseded"]++
	default:
		var flawed bool
		s.reads, flawed = taken(b.Load)
		s.reads.Source = SourceBatch
		s.running, s.waiting = b.Load.Running, b.Load.Waiting
		s.reported, s.quiet, s.received, s.sent = true, false, received, sent
		s.counted, s.own = counted, g.onRank(rank).InFlight
		s.by, s.onRank = by, onRank
		s.reports++
		if flawed {
			s.flawed++
		}
		if received >= g.aside-int64(testWindow) {
			g.aside = 0
		}
		if !g.shared && g.known(rank) == 0 {
			m.late++
		}
	}
	m.wantError(err, want)
	if b.Err != nil && !errors.Is(err, b.Err) {
		m.fatalf("the error is %v, and not %v as well", err, b.Err)
	}
	for _, q := range over {
		g.end(q, now)
	}
	for _, q := range over {
		g.settle(q.rank)
	}
	if rank != NoRank {
		g.settle(rank)
	}
}

// put is a host that has a report of its own, of a group that knows better.
func (m *connectorModel) put(g *groupModel) {
	if g.shared || g.refed || g.dead != nil {
		return
	}
	rank := m.rnd.IntN(len(g.ranks))
	m.did = fmt.Sprintf("a Put to rank %d of %s", rank, g.id)
	want := ErrOutranked
	if g.gone {
		want = ErrGone
	} else {
		g.ranks[rank].dropped["outranked"]++
	}
	m.wantError(g.c.worker.Put(rank, Report{Running: 50}), want)
}

func (m *connectorModel) fail(g *groupModel) {
	m.did = "Fail of " + g.id
	var want []string
	for _, q := range g.requests {
		if q.held {
			want = append(want, q.id)
		}
	}
	slices.Sort(want)
	cause := fmt.Errorf("dead at step %d", m.step)
	ids := g.c.Fail(cause)
	if g.dead != nil {
		want = nil
	}
	if !slices.Equal(ids, want) {
		m.fatalf("%q failed, want %q", ids, want)
	}
	if g.dead != nil {
		return
	}
	g.dead = cause
	g.healthy = g.healthy && g.gone
	g.failed += uint64(len(ids))
	for _, q := range g.requests {
		if q.held {
			g.end(q, m.now())
		}
	}
	for _, s := range g.ranks { // what it said is of no use any more
		*s = groupRank{}
	}
}

// act does one random thing to the connectors and their models.
func (m *connectorModel) act() {
	m.did = "nothing"
	roll := m.rnd.IntN(1000)
	// As a rule to one that is there, now and then to one that is long gone.
	g, _ := pickOne(m.rnd, slices.DeleteFunc(slices.Clone(m.groups), func(g *groupModel) bool { return g.gone }))
	if g == nil || m.rnd.IntN(12) == 0 {
		g, _ = pickOne(m.rnd, m.groups)
	}
	switch {
	case roll < 5 || g == nil:
		m.add(fmt.Sprint("group ", m.rnd.IntN(3)))
	case roll < 7:
		m.did = "removing " + g.id
		m.table.Remove(g.c.worker)
		g.gone = true
	case roll < 9:
		m.did = "advertising " + g.id + " behind its connector's back"
		g.c.worker.Advertise(len(g.ranks))
		if !g.gone && g.dead == nil {
			g.refed, g.unfed = true, false
			for _, s := range g.ranks {
				s.reports, s.flawed, s.dropped = 0, 0, make(map[string]uint64)
			}
		}
	case roll < 12:
		m.did = "SetNotPublishing of " + g.id
		g.c.worker.SetNotPublishing("says /server_info")
		if !g.gone && g.refed && g.dead == nil {
			g.unfed = true
		}
	case roll < 14:
		m.did = "SetNoAnswer of " + g.id // which is no news of a feed, and none of an engine without one
		if !g.unfed {
			g.c.worker.SetNoAnswer("refused")
		}
	case roll < 20:
		m.put(g)
	case roll < 23:
		m.fail(g)
	case roll < 30:
		m.did = "SetHealthy of " + g.id
		healthy := m.rnd.IntN(3) > 0
		g.c.worker.SetHealthy(healthy)
		if !g.gone && g.dead == nil {
			g.healthy = healthy
		}
	case roll < 36:
		m.did = "SetAside of " + g.id
		g.c.worker.SetAside()
		if !g.gone {
			g.aside = m.now() + int64(testWindow)
		}
	case roll < 190:
		m.reserve(g, NoRank)
	case roll < 230:
		m.reserve(g, m.rnd.IntN(len(g.ranks)))
	case roll < 240:
		rank, _ := pickOne(m.rnd, []int{-2, len(g.ranks), math.MaxInt})
		m.reserve(g, rank)
	case roll < 290:
		m.pick(g)
	case roll < 350:
		m.register(g)
	case roll < 450:
		m.mark(g)
	case roll < 600:
		m.release(g)
	case roll < 630:
		m.again(g)
	default:
		m.observe(g)
	}
	if m.rnd.IntN(4) == 0 {
		d := time.Duration(m.rnd.Int64N(int64(testWindow) / 10))
		switch m.rnd.IntN(40) {
		case 0:
			d = 3 * testWindow
		case 1, 2: // to the last nanosecond of a report, or the first after it
			s := new(groupRank)
			if g != nil {
				s, _ = pickOne(m.rnd, g.ranks)
			}
			d = max(time.Duration(s.received-m.now())+testWindow, 0) + time.Duration(m.rnd.IntN(2))
		}
		m.did += fmt.Sprintf(" and %v", d)
		m.clock.advance(d)
	}
}

func (m *connectorModel) check() {
	m.t.Helper()
	v := m.table.View()
	for _, g := range m.groups {
		m.checkBooks(g)
		m.checkConnector(g)
		e, ok := v.Find(g.c.worker)
		if ok != (!g.gone && g.healthy) {
			m.fatalf("%s is in the view: %v", g.id, ok)
		}
		if ok {
			m.checkEntry(v, e, g)
		}
		if !g.gone {
			m.checkWorker(g)
		}
	}
	if m.rnd.IntN(20) == 0 {
		m.held = append(m.held, heldView{v, pictureOf(v)})
		if len(m.held) > 5 {
			if h := m.held[0]; !reflect.DeepEqual(pictureOf(h.v), h.want) {
				m.fatalf("a view changed while it was held")
			}
			m.held = m.held[1:]
		}
	}
}

func (m *connectorModel) checkBooks(g *groupModel) {
	m.t.Helper()
	w := g.c.worker
	if got := countsOf(&w.books); got.picked != uint64(len(g.requests)) || got.left != uint64(g.sent()) || got.leaked != 0 {
		m.fatalf("%s has %+v in its books, want %d of which %d left", g.id, got, len(g.requests), g.sent())
	}
	if got, want := w.Own(), g.own(anyRank); got != want {
		m.fatalf("%s has %+v, want %+v", g.id, got, want)
	}
	for rank := range g.ranks {
		if got, want := w.rankBook(rank).read(), g.onRank(rank); got != want {
			m.fatalf("rank %d of %s has %+v, want %+v", rank, g.id, got, want)
		}
	}
	for _, q := range g.requests {
		if !slices.Equal(q.told, q.wantsTold) {
			m.fatalf("the watch of a request on %s was told %+v, want %+v", g.id, q.told, q.wantsTold)
		}
	}
}

// checkConnector compares a connector's own word with the model's.
func (m *connectorModel) checkConnector(g *groupModel) {
	m.t.Helper()
	st := g.c.Status()
	known := g.count(func(q *groupRequest) bool { return q.held })
	if int64(st.InFlight) != known || st.Finished != g.finished || st.Released != g.released || st.Aborted != g.aborted || st.Failed != g.failed || st.Unknown != g.unknown {
		m.fatalf("the status of %s is %+v; want %d in flight, %d finished, %d released, %d aborted, %d failed, %d unknown", g.id, st, known, g.finished, g.released, g.aborted, g.failed, g.unknown)
	}
	if st.Reserved != uint64(st.InFlight)+st.Finished+st.Released+st.Aborted+st.Failed {
		m.fatalf("the counts of %s do not add up: %+v", g.id, st)
	}
	if st.Worker != g.id || st.Shared != g.shared || st.Reserved != g.reserved || st.Duplicates != g.duplicates || st.Batches != g.batches || st.WithoutLoad != g.withoutLoad {
		m.fatalf("the status of %s is %+v; want %d reserved, %d duplicates, %d batches, %d without a load", g.id, st, g.reserved, g.duplicates, g.batches, g.withoutLoad)
	}
	if !maps.Equal(st.Dropped, g.dropped) || st.LastDrop != g.lastDrop || (st.Dead != "") != (g.dead != nil) || g.dead != nil && st.Dead != g.dead.Error() {
		m.fatalf("the status of %s shows %v (%q), dead %q; want %v (%q), dead %v", g.id, st.Dropped, st.LastDrop, st.Dead, g.dropped, g.lastDrop, g.dead)
	}
	if len(st.Ranks) != len(g.ranks) {
		m.fatalf("the status of %s has %d ranks", g.id, len(st.Ranks))
	}
	scores := g.scores(m.now())
	for rank, s := range g.ranks {
		want := ConnectorRankStatus{Rank: rank, InFlight: g.onRank(rank).InFlight, Score: scores[rank], Silenced: s.silenced}
		if s.reported {
			want.Running, want.Waiting, want.KVUsage, want.Quiet = Known(s.running), Known(s.waiting), s.reads.KVUsage, s.quiet
			if s.quiet && s.running+s.waiting > 0 {
				m.quiet++
			}
		}
		if got := st.Ranks[rank]; got != want {
			m.fatalf("the status of %s shows %+v, want %+v", g.id, got, want)
		}
	}
}

// checkEntry compares what a selector sees of a worker with the model.
func (m *connectorModel) checkEntry(v View, e Entry, g *groupModel) {
	m.t.Helper()
	m.checkTrust(g, e.Trusted(), g.c.worker.Status().Why)
	m.checkTotals(e, g)
	if g.refed {
		if e.Depth() != 0 || v.Age(e) != 0 {
			m.fatalf("the old feed of %s has left a depth of %d and an age of %v", g.id, e.Depth(), v.Age(e))
		}
		return
	}
	var depth, age int64
	first := math.MaxInt
	for rank, s := range g.ranks {
		r, ok := e.Report(rank)
		if ok != s.reported {
			m.fatalf("rank %d of %s has a report: %v", rank, g.id, ok)
		}
		if !ok {
			continue
		}
		got := *r
		got.Received, got.quiet = s.reads.Received, false
		if got != s.reads {
			m.fatalf("rank %d of %s reads %+v, want %+v", rank, g.id, got, s.reads)
		}
		depth += s.reads.Running + s.reads.Waiting
		first = min(first, s.sent)
		if !s.quiet {
			age = max(age, m.now()-s.received)
		}
	}
	if e.Depth() != depth || int64(v.Age(e)) != age {
		m.fatalf("%s has a depth of %d, %v old, want %d, %v", g.id, e.Depth(), v.Age(e), depth, time.Duration(age))
	}
	want := depth
	if inFlight := g.own(anyRank).InFlight; !g.shared {
		want = inFlight
	} else if first < math.MaxInt {
		want += min(int64(len(g.requests)-first), inFlight)
	}
	if got, _ := e.DepthNow(); got != want && first < math.MaxInt {
		m.fatalf("%s has a depth of %d now, want %d", g.id, got, want)
	}
}

// checkTotals compares what the ranks are said to have, together and each.
func (m *connectorModel) checkTotals(e Entry, g *groupModel) {
	m.t.Helper()
	owned := !g.shared && !g.refed
	totals := func(ranks []*groupRank, own func(*modelReport) modelMoment) (t Totals, ok bool) {
		var list []*modelReport
		for _, s := range ranks {
			if s.reported && !g.refed {
				list = append(list, &modelReport{s.reads, s.received, s.by, s.onRank})
			}
		}
		if len(list) > 0 {
			t = totalsOf(list, own)
		}
		t.Owned = owned
		return t, owned || len(list) > 0
	}
	got, ok := e.Totals()
	if want, has := totals(g.ranks, func(r *modelReport) modelMoment { return r.by }); got != want || ok != has {
		m.fatalf("%s has totals of %+v (%v), want %+v (%v)", g.id, got, ok, want, has)
	}
	for rank := range g.ranks {
		got, ok := e.RankTotals(rank)
		if want, has := totals(g.ranks[rank:rank+1], func(r *modelReport) modelMoment { return r.onRank }); got != want || ok != has {
			m.fatalf("rank %d of %s has totals of %+v (%v), want %+v (%v)", rank, g.id, got, ok, want, has)
		}
	}
}

func (m *connectorModel) checkTrust(g *groupModel, trusted bool, why Why) {
	m.t.Helper()
	want := g.why(m.now())
	m.whys[want]++
	if why != want || trusted != (want == Trusted) {
		m.fatalf("%s is trusted %v, %v, want %v", g.id, trusted, why, want)
	}
}

// checkWorker compares the status of a worker that is there with the model.
func (m *connectorModel) checkWorker(g *groupModel) {
	m.t.Helper()
	ws := g.c.worker.Status()
	m.checkTrust(g, ws.Trusted, ws.Why)
	if ws.Healthy != g.healthy || ws.Aside != (m.now() < g.aside) || ws.InFlight != g.own(anyRank).InFlight || ws.Owned != (!g.shared && !g.refed && g.dead == nil) {
		m.fatalf("the status of the worker %s is %+v", g.id, ws)
	}
	if depth, ok := ws.Depth.Get(); ok && ws.Owned && depth != ws.InFlight {
		m.fatalf("the status of the worker %s has a depth of %d, with %d in flight", g.id, depth, ws.InFlight)
	}
	switch {
	case g.dead != nil:
		if len(ws.Ranks) != 0 || ws.Reason != g.dead.Error() {
			m.fatalf("the status of the dead worker %s is %+v", g.id, ws)
		}
		return
	case g.unfed:
		if len(ws.Ranks) != 0 {
			m.fatalf("the status of the worker %s, without a feed, is %+v", g.id, ws)
		}
		return
	}
	since, first := int64(0), math.MaxInt
	for _, s := range g.ranks {
		if s.reported && !g.refed && !(s.quiet && !g.shared) {
			first = min(first, s.sent)
			since = min(int64(len(g.requests)-first), ws.InFlight)
		}
	}
	if ws.SinceReport != since {
		m.fatalf("the status of the worker %s has %d since its reports, want %d", g.id, ws.SinceReport, since)
	}
	for rank, s := range g.ranks {
		rs := ws.Ranks[rank]
		fresh := !g.shared || s.reported && m.now()-s.received <= int64(testWindow)
		if g.refed {
			fresh = false
		}
		if rs.InFlight != g.onRank(rank).InFlight || rs.Reports != s.reports || rs.Flawed != s.flawed || !maps.Equal(rs.Dropped, s.dropped) ||
			(rs.Report != nil) != (s.reported && !g.refed) || rs.Quiet != (s.quiet && !g.refed) || rs.Fresh != fresh {
			m.fatalf("the status of rank %d of %s is %+v, want %+v, fresh %v", rank, g.id, rs, *s, fresh)
		}
		if rs.Report != nil && int64(rs.Age) != m.now()-s.received {
			m.fatalf("the report of rank %d of %s is %v old, want %v", rank, g.id, rs.Age, time.Duration(m.now()-s.received))
		}
	}
}

func runConnectorModel(t *testing.T, seed uint64, steps int) {
	table, clock := newTestTable()
	m := &connectorModel{
		t: t, rnd: rand.New(rand.NewPCG(seed, 1)), table: table, clock: clock,
		errors: make(map[error]int), whys: make(map[Why]int),
	}
	tell := func(what string) func(*Worker, time.Duration, uint64) {
		return func(w *Worker, took time.Duration, note uint64) {
			q := m.noted[note]
			q.told = append(q.told, told{what, w, took})
		}
	}
	m.watch = Watch{FirstToken: tell("first token"), Done: tell("done")}
	for m.step = range steps {
		m.act()
		m.check()
		// What is long over would only make the model slow.
		if len(m.groups) > 6 {
			m.groups = slices.DeleteFunc(m.groups, func(g *groupModel) bool {
				return g.gone && m.rnd.IntN(4) == 0 && g.own(anyRank).InFlight == 0
			})
		}
	}
	for _, g := range m.groups {
		for _, q := range g.requests {
			q.reservation.Done()
			q.ticket.Done()
		}
		if own := g.c.worker.Own(); own != (Own{}) {
			t.Errorf("with all done %s has %+v", g.id, own)
		}
	}
	for _, err := range []error{nil, ErrDuplicate, ErrDead, ErrForeignTicket, ErrNoRank, ErrGone, ErrBadReport, ErrSuperseded, errRagged} {
		if m.errors[err] == 0 {
			t.Errorf("nothing was ever met with %v", err)
		}
	}
	for _, why := range []Why{Trusted, NeverReported, Stale, Booting} {
		if m.whys[why] == 0 {
			t.Errorf("no group was ever %v", why)
		}
	}
	if m.quiet == 0 || m.ended == 0 || m.late == 0 || m.ties == 0 {
		t.Errorf("%d ranks were quiet, %d choices among equals, %d requests ended by another rank, %d batches of a rank with nothing left", m.quiet, m.ties, m.ended, m.late)
	}
}

func TestTheConnectorAgreesWithANaiveModelOverRandomOperations(t *testing.T) {
	seeds := uint64(6)
	if raceEnabled { // one goroutine has no races
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { runConnectorModel(t, seed, 6000) })
	}
}
