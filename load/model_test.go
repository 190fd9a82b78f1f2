package load

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// The model is the table as one would write it without caring what it costs:
// every question is answered from lists of all that has happened. Random sequences
// of all operations, checked after every step, hold the table to it.

type modelRequest struct {
	ticket              Ticket
	rank                int // NoRank where the worker had no such rank
	tokens              int64
	sent, started, done bool
	watched             bool

	picked          time.Duration
	told, wantsTold []told
}

// told is what a watch was called with.
type told struct {
	what string
	w    *Worker
	took time.Duration
}

// modelMoment is what had been done on a worker, or on one rank of it, by then.
type modelMoment struct {
	sent   int
	tokens int64 // of all requests picked
	own    Own
}

type modelReport struct {
	Report
	received int64
	by       modelMoment // on the worker
	onRank   modelMoment
}

type modelWorker struct {
	w             *Worker
	id            string
	gone, healthy bool
	asideUntil    int64
	feed          *Feed
	feeds         []*Feed // all there ever were
	why           Why     // without a feed and without reports
	advertised    int
	ranks         []*modelReport
	everRanks     int // the highest number of ranks it ever had
	taken         []uint64
	requests      []*modelRequest
	refused       []*modelRequest // by a ReserveIf
	moments       []askedMoment
}

// askedMoment is a moment to ask an engine at, and what had been done by then.
type askedMoment struct {
	Moment
	by modelMoment
}

func (w *modelWorker) count(is func(*modelRequest) bool) (n int64) {
	for _, r := range w.requests {
		if is(r) {
			n++
		}
	}
	return n
}

func (w *modelWorker) sent() int { return int(w.count(func(r *modelRequest) bool { return r.sent })) }

func (w *modelWorker) own() Own { return w.moment(w.requests).own }

func (w *modelWorker) moment(requests []*modelRequest) (at modelMoment) {
	for _, r := range requests {
		at.tokens += r.tokens
		if r.sent {
			at.sent++
		}
		if !r.done {
			at.own.InFlight++
		}
		if !r.started {
			at.own.Unstarted++
			at.own.PendingTokens += r.tokens
		}
	}
	return at
}

// on lists the requests of a rank, with those that were refused.
func (w *modelWorker) on(rank int) []*modelRequest {
	return slices.DeleteFunc(slices.Concat(w.requests, w.refused), func(r *modelRequest) bool { return r.rank != rank })
}

// count is what some requests make the books say.
func countOf(requests []*modelRequest) (c Count) {
	for _, r := range requests {
		c.Picked++
		c.TokensPicked += uint64(r.tokens)
		if r.started {
			c.TokensStarted += uint64(r.tokens)
		}
		if r.done {
			c.Done++
		}
	}
	return c
}

// totals is what some reports say together, with what there was of our own.
func totalsOf(reports []*modelReport, own func(*modelReport) modelMoment) (t Totals) {
	var queued, capacity []Maybe[int64]
	var inFlight, unstarted, pending, tokens float64
	for _, r := range reports {
		t.Running += r.Running
		t.Waiting += r.Waiting
		queued = append(queued, r.WaitingTokens)
		if r.Source == SourceBatch { // which counts pages
			capacity = append(capacity, Maybe[int64]{})
		} else {
			capacity = append(capacity, r.KVCapacity)
		}
		usage, ok := r.KVUsage.Get()
		if used, c := r.KVUsed.Or(-1), r.KVCapacity.Or(0); !ok && used >= 0 && c > 0 {
			usage, ok = float64(used)/float64(c), true
		}
		if ok && usage >= t.KVUsage.Or(0) {
			t.KVUsage = Known(usage)
		}
		at := own(r)
		inFlight += float64(at.own.InFlight)
		unstarted += float64(at.own.Unstarted)
		pending += float64(at.own.PendingTokens)
		tokens += float64(at.tokens)
	}
	t.WaitingTokens, t.KVTokens = sumOfAll(queued), sumOfAll(capacity)
	t.At = time.Duration(slices.MinFunc(reports, func(a, b *modelReport) int { return cmp.Compare(a.received, b.received) }).received)
	n := float64(len(reports))
	t.Own = Own{int64(math.Round(inFlight / n)), int64(math.Round(unstarted / n)), int64(math.Round(pending / n))}
	t.OwnTokens = uint64(tokens / n)
	return t
}

func sumOfAll(list []Maybe[int64]) Maybe[int64] {
	var sum int64
	for _, m := range list {
		v, ok := m.Get()
		if !ok {
			return m
		}
		sum += v
	}
	return Known(sum)
}

// reports lists the newest reports of the ranks that have one.
func (w *modelWorker) reports() (list []*modelReport) {
	for _, r := range w.ranks {
		if r != nil {
			list = append(list, r)
		}
	}
	return list
}

func (w *modelWorker) depth() (sum int64) {
	for _, r := range w.reports() {
		sum += r.Running + r.Waiting
	}
	return sum
}

func (w *modelWorker) whyAt(now, window int64) Why {
	reports := w.reports()
	switch {
	case w.advertised > len(reports):
		return NeverReported
	case len(reports) == 0:
		return w.why
	case slices.ContainsFunc(reports, func(r *modelReport) bool { return now-r.received > window }):
		return Stale
	case slices.ContainsFunc(reports, func(r *modelReport) bool { return r.KVCapacity == Known[int64](0) }):
		return Booting
	}
	return Trusted
}

func (w *modelWorker) oldest() *modelReport {
	return slices.MinFunc(w.reports(), func(a, b *modelReport) int { return cmp.Compare(a.received, b.received) })
}

// sinceReport is how many requests its reports cannot have counted: all that were
// picked and had not been sent when the first of those reports came, at most.
func (w *modelWorker) sinceReport() int64 {
	first := slices.MinFunc(w.reports(), func(a, b *modelReport) int { return cmp.Compare(a.by.sent, b.by.sent) })
	return min(int64(len(w.requests)-first.by.sent), w.own().InFlight)
}

type model struct {
	t       *testing.T
	rnd     *rand.Rand
	table   *Table
	clock   *clock
	workers []*modelWorker // all there ever were, in the order of addition
	held    []heldView
	step    int
	did     string
	watch   Watch
	noted   []*modelRequest // by the note

	// What was met on the way: a model that never gets anywhere proves nothing.
	whys    [Booting + 1]int
	errors  map[error]int
	most    int // workers in the view
	aside   int
	partial int // entries with something since the report, and not all that is in flight
}

type heldView struct {
	v    View
	want picture
}

func (m *model) now() int64 { return m.clock.elapsed.Load() }

func (m *model) fatalf(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("step %d, after %s: %s", m.step, m.did, fmt.Sprintf(format, args...))
}

func (m *model) current() (list []*modelWorker) {
	for _, w := range m.workers {
		if !w.gone {
			list = append(list, w)
		}
	}
	return list
}

// eligible lists the healthy workers as a view must have them, and how many of
// them come before those that are set aside.
func (m *model) eligible() (list []*modelWorker, n int) {
	var aside []*modelWorker
	for _, w := range m.current() {
		switch {
		case !w.healthy:
		case m.now() < w.asideUntil:
			aside = append(aside, w)
		default:
			list = append(list, w)
		}
	}
	if n = len(list); n == 0 {
		n = len(aside)
	}
	return append(list, aside...), n
}

func pickOne[T any](rnd *rand.Rand, list []T) (v T, ok bool) {
	if len(list) == 0 {
		return v, false
	}
	return list[rnd.IntN(len(list))], true
}

// worker is any worker, now and then one that is gone.
func (m *model) worker() (*modelWorker, bool) {
	if m.rnd.IntN(8) == 0 {
		return pickOne(m.rnd, m.workers)
	}
	return pickOne(m.rnd, m.current())
}

func (m *model) add(id string) {
	m.did = "Add " + id
	for _, w := range m.current() {
		if w.id == id {
			w.gone = true
		}
	}
	w := &modelWorker{w: m.table.Add(id, ""), id: id, healthy: true, why: NoFeed}
	m.workers = append(m.workers, w)
}

func (m *model) advertise(w *modelWorker, ranks int) {
	m.did = fmt.Sprintf("Advertise(%d) of %s", ranks, w.id)
	f := w.w.Advertise(ranks)
	w.feeds = append(w.feeds, f)
	if w.gone {
		return
	}
	w.feed, w.advertised, w.ranks, w.taken = f, ranks, make([]*modelReport, ranks), make([]uint64, ranks)
	w.everRanks = max(w.everRanks, ranks)
}

func (m *model) put(w *modelWorker, f *Feed) {
	r := Report{Running: m.rnd.Int64N(20), Waiting: m.rnd.Int64N(5), Source: Source(1 + m.rnd.IntN(3))}
	switch m.rnd.IntN(12) {
	case 0:
		r.KVCapacity = Known[int64](0)
	case 1, 3, 4, 5, 6:
		r.KVCapacity = Known[int64](100 + m.rnd.Int64N(100))
	case 2:
		r.Running = -1
	}
	if m.rnd.IntN(3) > 0 {
		r.WaitingTokens = Known(m.rnd.Int64N(1000))
	}
	switch m.rnd.IntN(3) {
	case 0:
		r.KVUsed = Known(m.rnd.Int64N(100))
	case 1:
		r.KVUsage = Known(m.rnd.Float64())
	}
	now := m.now()
	received := now
	switch m.rnd.IntN(6) {
	case 0:
		received -= m.rnd.Int64N(int64(testWindow) * 5 / 4)
		r.Received = clockStart.Add(time.Duration(received))
	case 1:
		r.Received = clockStart.Add(time.Duration(now + m.rnd.Int64N(1000)))
	}
	by := w.moment(w.requests)
	switch m.rnd.IntN(8) {
	case 0, 1:
		if at, ok := pickOne(m.rnd, w.moments); ok {
			r.Asked, by = at.Moment, at.by
		}
	case 2:
		if other, ok := m.worker(); ok && other != w {
			r.Asked = other.w.Moment()
		}
	}
	rank := m.rnd.IntN(max(len(w.ranks), 1)+2) - 1

	var prev *modelReport
	if rank >= 0 && rank < len(w.ranks) {
		prev = w.ranks[rank]
	}
	var want error
	switch {
	case w.gone || f != nil && f != w.feed:
		want = ErrGone
	case rank < 0 || w.advertised > 0 && rank >= w.advertised:
		want = ErrNoRank
	case r.Running < 0:
		want = ErrBadReport
	case prev != nil && prev.Source > r.Source && now-prev.received <= int64(testWindow):
		want = ErrOutranked
	case prev != nil && prev.received > received:
		want = ErrSuperseded
	}
	m.did = fmt.Sprintf("Put(%d, %+v) to %s, feed %v", rank, r, w.id, f != nil)
	var err error
	if f != nil {
		err = f.Put(rank, r)
	} else {
		err = w.w.Put(rank, r)
	}
	if !errors.Is(err, want) {
		m.fatalf("error is %v, want %v", err, want)
	}
	m.errors[want]++
	if want != nil {
		return
	}
	for rank >= len(w.ranks) {
		w.ranks, w.taken = append(w.ranks, nil), append(w.taken, 0)
	}
	w.everRanks = max(w.everRanks, len(w.ranks))
	w.ranks[rank] = &modelReport{r, received, by, w.moment(w.on(rank))}
	w.taken[rank]++
	if received >= w.asideUntil-int64(testWindow) {
		w.asideUntil = 0
	}
}

func (m *model) noFeed(w *modelWorker, why Why) {
	m.did = fmt.Sprintf("%v of %s", why, w.id)
	if why == NotPublishing {
		w.w.SetNotPublishing("reason")
	} else {
		w.w.SetNoAnswer("reason")
	}
	if w.gone || why == NoAnswer && w.feed != nil {
		return
	}
	w.why = why
	if w.advertised > 0 {
		w.ranks, w.taken = nil, nil
	}
	w.feed, w.advertised = nil, 0
}

func (m *model) reserve(w *modelWorker) {
	r := &modelRequest{rank: m.rnd.IntN(w.everRanks+3) - 1, tokens: m.rnd.Int64N(100)}
	m.did = fmt.Sprintf("reserving rank %d on %s", r.rank, w.id)
	v := m.table.View()
	if m.rnd.IntN(3) == 0 {
		m.clock.advance(time.Duration(m.rnd.IntN(10)))
	}
	booking := Booking{Rank: r.rank, PromptTokens: r.tokens, Note: uint64(len(m.noted))}
	if m.rnd.IntN(4) > 0 {
		booking.Watch, r.picked = &m.watch, v.Now()
		m.noted = append(m.noted, r)
	}
	seen := w.w.Count().Seen()
	var ok bool
	switch m.rnd.IntN(6) {
	case 0:
		r.ticket, ok = v.ReserveIf(w.w, seen, booking)
	case 1:
		booking.Watch = nil
		r.ticket, ok = w.w.ReserveIf(seen, r.rank, r.tokens)
	case 2:
		booking.Watch = nil
		r.ticket, ok = w.w.Reserve(r.rank, r.tokens), true
	default:
		r.ticket, ok = v.Reserve(w.w, booking), true
	}
	if !ok {
		m.fatalf("refused with nobody else about")
	}
	r.watched = booking.Watch != nil
	if r.rank >= w.everRanks {
		r.rank = NoRank
	}
	w.requests = append(w.requests, r)
	if m.rnd.IntN(3) == 0 {
		again := *r
		again.sent, again.started, again.done = true, true, true
		if _, ok := v.ReserveIf(w.w, seen, booking); ok {
			m.fatalf("reserved a second time at one moment")
		}
		w.refused = append(w.refused, &again)
	}
}

func (m *model) mark(w *modelWorker) {
	r, ok := pickOne(m.rnd, w.requests)
	if !ok {
		return
	}
	tell := func(what string) {
		if r.watched {
			r.wantsTold = append(r.wantsTold, told{what, w.w, time.Duration(m.now()) - r.picked})
		}
	}
	switch m.rnd.IntN(8) {
	case 0, 1:
		m.did = "Dispatched on " + w.id
		r.ticket.Dispatched()
		r.sent = true
	case 2, 3:
		m.did = "FirstToken on " + w.id
		if !r.started {
			tell("first token")
		}
		r.ticket.FirstToken()
		r.sent, r.started = true, true
	case 4:
		m.did = "AssumeStarted on " + w.id
		r.ticket.AssumeStarted()
		r.started = true
	default:
		m.did = "Done on " + w.id
		if r.started && !r.done {
			tell("done")
		}
		r.ticket.Done()
		r.sent, r.started, r.done = true, true, true
	}
}

// act does one random thing to table and model.
func (m *model) act(names, ranks int) {
	m.did = "nothing"
	roll := m.rnd.IntN(100)
	if roll < 6 || len(m.current()) == 0 {
		m.add(fmt.Sprint(m.rnd.IntN(names)))
		return
	}
	w, ok := m.worker()
	if !ok {
		return
	}
	switch {
	case roll < 8:
		m.did = "Remove " + w.id
		m.table.Remove(w.w)
		w.gone = true
	case roll < 13:
		m.advertise(w, 1+m.rnd.IntN(ranks))
	case roll < 15:
		m.noFeed(w, NotPublishing)
	case roll < 17:
		m.noFeed(w, NoAnswer)
	case roll < 19:
		healthy := m.rnd.IntN(2) == 0
		m.did = fmt.Sprintf("SetHealthy(%v) of %s", healthy, w.id)
		w.w.SetHealthy(healthy)
		w.healthy = w.healthy && w.gone || healthy && !w.gone
	case roll < 21:
		m.did = "SetAside of " + w.id
		w.w.SetAside()
		if !w.gone {
			w.asideUntil = m.now() + int64(testWindow)
		}
	case roll < 30:
		m.put(w, nil)
	case roll < 55:
		if m.rnd.IntN(6) > 0 && w.feed != nil {
			m.put(w, w.feed)
		} else if f, ok := pickOne(m.rnd, w.feeds); ok {
			m.put(w, f)
		}
	case roll < 70:
		m.reserve(w)
	case roll < 95:
		m.mark(w)
	default:
		m.did = "Moment of " + w.id
		w.moments = append(w.moments, askedMoment{w.w.Moment(), w.moment(w.requests)})
	}
	if m.rnd.IntN(3) == 0 {
		d := time.Duration(m.rnd.Int64N(int64(testWindow) / 20))
		switch m.rnd.IntN(40) {
		case 0:
			d = testWindow
		case 1:
			d = testWindow + 1
		case 2, 3, 4, 5:
			d = 1
		case 6, 7: // to the last nanosecond of somebody's report
			if w, ok := m.worker(); ok && len(w.reports()) > 0 {
				d = max(time.Duration(w.oldest().received-m.now())+testWindow, 0)
			}
		}
		m.did += fmt.Sprintf(" and %v", d)
		m.clock.advance(d)
	}
}

func (m *model) check() {
	m.t.Helper()
	if m.rnd.IntN(4) == 0 {
		// A writer that holds the lock is in no reader's way.
		m.table.mu.Lock()
		v := m.table.View()
		m.table.mu.Unlock()
		for i := range v.Healthy() {
			w := m.modelOf(v.At(i).Worker())
			if got, want := v.At(i).Trusted(), w.whyAt(m.now(), int64(testWindow)) == Trusted; got != want {
				m.fatalf("with the lock held %s is trusted %v, want %v", w.id, got, want)
			}
		}
		m.checkSums(v)
	}
	v := m.table.View()
	want, n := m.eligible()
	if v.Len() != n || v.Healthy() != len(want) || v.Known() != len(m.current()) {
		m.fatalf("%d eligible of %d healthy of %d, want %d of %d of %d", v.Len(), v.Healthy(), v.Known(), n, len(want), len(m.current()))
	}
	m.most = max(m.most, v.Len())
	m.aside += v.Healthy() - v.Len()
	for i, w := range want {
		m.checkEntry(v, i, w)
	}
	m.checkSums(v)
	for _, w := range m.workers {
		i := slices.Index(want, w)
		if at, ok := v.Position(w.w); ok != (i >= 0) || ok && at != i {
			m.fatalf("%s is at %d (%v), want %d", w.id, at, ok, i)
		}
		m.checkBooks(w)
	}
	m.checkStatus()
	m.checkHeld(v)
}

func (m *model) modelOf(w *Worker) *modelWorker {
	i := slices.IndexFunc(m.workers, func(mw *modelWorker) bool { return mw.w == w })
	if i < 0 || m.workers[i].gone {
		m.fatalf("the view has a worker that is not in the table")
	}
	return m.workers[i]
}

func (m *model) checkEntry(v View, i int, w *modelWorker) {
	m.t.Helper()
	e := v.At(i)
	if e.Worker() != w.w {
		m.fatalf("at %d is %s, want %s", i, e.Worker().ID(), w.id)
	}
	why := w.whyAt(m.now(), int64(testWindow))
	m.whys[why]++
	if e.Trusted() != (why == Trusted) || e.Why() != why {
		m.fatalf("%s is trusted %v, %v, want %v", w.id, e.Trusted(), e.Why(), why)
	}
	if e.Ranks() != len(w.ranks) || e.Own() != w.own() {
		m.fatalf("%s has %d ranks and %+v, want %d and %+v", w.id, e.Ranks(), e.Own(), len(w.ranks), w.own())
	}
	for rank, want := range w.ranks {
		r, ok := e.Report(rank)
		if ok != (want != nil) {
			m.fatalf("%s has a report of rank %d: %v", w.id, rank, ok)
		}
		if ok && (r.Running != want.Running || r.Waiting != want.Waiting || r.Source != want.Source || r.KVCapacity != want.KVCapacity) {
			m.fatalf("%s has %+v for rank %d, want %+v", w.id, *r, rank, want.Report)
		}
		var totals Totals
		if want != nil {
			totals = totalsOf([]*modelReport{want}, func(r *modelReport) modelMoment { return r.onRank })
		}
		if want != nil {
			on := w.on(rank)
			own := w.moment(on).own.InFlight
			if got, want := e.RankScore(rank), RankScore(own, min(int64(len(on)-want.onRank.sent), own), &want.Report); got != want {
				m.fatalf("rank %d of %s has a score of %v, want %v", rank, w.id, got, want)
			}
		}
		if got, ok := e.RankTotals(rank); got != totals || ok != (want != nil) {
			m.fatalf("%s has totals of %+v for rank %d (%v), want %+v", w.id, got, rank, ok, totals)
		}
	}
	reports := w.reports()
	totals, reported := e.Totals()
	if len(reports) == 0 {
		if v.Age(e) != 0 || e.Depth() != 0 || totals != (Totals{}) || reported {
			m.fatalf("%s has no report, and an age of %v, a depth of %d and totals of %+v (%v)", w.id, v.Age(e), e.Depth(), totals, reported)
		}
		return
	}
	if want := totalsOf(reports, func(r *modelReport) modelMoment { return r.by }); totals != want || !reported {
		m.fatalf("%s has totals of %+v (%v), want %+v", w.id, totals, reported, want)
	}
	if got, want := int64(v.Age(e)), m.now()-w.oldest().received; got != want {
		m.fatalf("%s has an age of %d, want %d", w.id, got, want)
	}
	depthNow, _ := e.DepthNow()
	if e.Depth() != w.depth() || depthNow != w.depth()+w.sinceReport() {
		m.fatalf("%s has depth %d, now %d, want %d, now %d", w.id, e.Depth(), depthNow, w.depth(), w.depth()+w.sinceReport())
	}
	if since := w.sinceReport(); since > 0 && since < w.own().InFlight {
		m.partial++
	}
	newest := slices.MaxFunc(reports, func(a, b *modelReport) int { return cmp.Compare(a.received, b.received) })
	if !slices.ContainsFunc(reports, func(r *modelReport) bool {
		return r.received == newest.received && r.by.own.InFlight == e.OwnAtReport()
	}) {
		m.fatalf("%s had %d of its own at the report, want %d", w.id, e.OwnAtReport(), newest.by.own.InFlight)
	}
}

// checkSums compares the sums that a view carries with those over its entries.
func (m *model) checkSums(v View) {
	m.t.Helper()
	var workers int
	var depth, own int64
	for i := range v.Len() {
		if e := v.At(i); e.Trusted() {
			workers++
			depth += e.Depth()
			own += e.OwnAtReport()
		}
	}
	if w, d, o := v.Trusted(); w != workers || d != depth || o != own {
		m.fatalf("the sums are %d, %d, %d, want %d, %d, %d", w, d, o, workers, depth, own)
	}
}

func (m *model) checkBooks(w *modelWorker) {
	m.t.Helper()
	own := w.own()
	got := countsOf(&w.w.books)
	if w.w.Own() != own || w.w.InFlight() != own.InFlight || got.picked != uint64(len(w.requests)) || got.left != uint64(w.sent()) || got.leaked != 0 {
		m.fatalf("%s has %+v in %+v, want %+v of %d with %d sent", w.id, w.w.Own(), got, own, len(w.requests), w.sent())
	}
	if got, want := w.w.Count(), countOf(w.requests); got != want || got.InFlight() != own.InFlight || got.PendingTokens() != own.PendingTokens {
		m.fatalf("%s has a count of %+v, want %+v", w.id, got, want)
	}
	for rank := range w.everRanks {
		want := w.count(func(r *modelRequest) bool { return r.rank == rank && !r.done })
		if got, _ := w.w.rankBook(rank).inFlight(); got != want {
			m.fatalf("%s has %d in flight on rank %d, want %d", w.id, got, rank, want)
		}
		if got, want := w.w.CountOn(rank), countOf(w.on(rank)); got != want {
			m.fatalf("%s has a count of %+v on rank %d, want %+v", w.id, got, rank, want)
		}
	}
	for _, r := range w.requests {
		if !slices.Equal(r.told, r.wantsTold) {
			m.fatalf("the watch of a request on %s was told %+v, want %+v", w.id, r.told, r.wantsTold)
		}
	}
}

func (m *model) checkStatus() {
	m.t.Helper()
	list := m.table.Status()
	want := m.current()
	slices.SortFunc(want, func(a, b *modelWorker) int { return cmp.Compare(a.id, b.id) })
	if len(list) != len(want) {
		m.fatalf("status has %d workers, want %d", len(list), len(want))
	}
	for i, w := range want {
		st := list[i]
		why := w.whyAt(m.now(), int64(testWindow))
		if st.ID != w.id || st.Why != why || st.Trusted != (why == Trusted) || (st.Reason == "") != (why == Trusted) || st.Depth.IsKnown() != (why == Trusted) {
			m.fatalf("status of %s is %v (%q) with depth %v, want %v", st.ID, st.Why, st.Reason, st.Depth, why)
		}
		if st.Healthy != w.healthy || st.Aside != (m.now() < w.asideUntil) || st.Advertised != w.advertised || st.Picked != uint64(len(w.requests)) {
			m.fatalf("status of %s is %+v", st.ID, st)
		}
		if len(w.reports()) > 0 && st.SinceReport != w.sinceReport() {
			m.fatalf("status of %s has %d since the report, want %d", st.ID, st.SinceReport, w.sinceReport())
		}
		if len(st.Ranks) != len(w.ranks) {
			m.fatalf("status of %s has %d ranks, want %d", st.ID, len(st.Ranks), len(w.ranks))
		}
		for rank, r := range w.ranks {
			got := st.Ranks[rank]
			if got.Rank != rank || (got.Report != nil) != (r != nil) || got.Reports != w.taken[rank] {
				m.fatalf("status of rank %d of %s is %+v, want %d reports", rank, st.ID, got, w.taken[rank])
			}
			if r != nil && (got.Fresh != (m.now()-r.received <= int64(testWindow)) || int64(got.Age) != m.now()-r.received) {
				m.fatalf("status of rank %d of %s is fresh %v at %v, received at %d", rank, st.ID, got.Fresh, got.Age, r.received)
			}
		}
	}
}

// checkHeld holds on to some views and looks at them again much later.
func (m *model) checkHeld(v View) {
	m.t.Helper()
	if m.rnd.IntN(50) != 0 {
		return
	}
	m.held = append(m.held, heldView{v, pictureOf(v)})
	if len(m.held) > 5 {
		if h := m.held[0]; !reflect.DeepEqual(pictureOf(h.v), h.want) {
			m.fatalf("a view changed while it was held")
		}
		m.held = m.held[1:]
	}
}

func runModel(t *testing.T, seed uint64, names, ranks, steps, checkEvery int) {
	table, clock := newTestTable()
	m := &model{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), table: table, clock: clock, errors: make(map[error]int)}
	tell := func(what string) func(*Worker, time.Duration, uint64) {
		return func(w *Worker, took time.Duration, note uint64) {
			r := m.noted[note]
			r.told = append(r.told, told{what, w, took})
		}
	}
	m.watch = Watch{FirstToken: tell("first token"), Done: tell("done")}
	for m.step = range steps {
		m.act(names, ranks)
		if m.step%checkEvery == 0 {
			m.check()
		}
		// What is long over would only make the model slow.
		if len(m.workers) > 3*names {
			m.workers = slices.DeleteFunc(m.workers, func(w *modelWorker) bool {
				return w.gone && m.rnd.IntN(2) == 0 && w.own().InFlight == 0
			})
		}
	}
	for _, w := range m.workers {
		for _, r := range w.requests {
			r.ticket.Done()
		}
		if own := w.w.Own(); own != (Own{}) {
			t.Errorf("with all done %s has %+v", w.id, own)
		}
	}
	for why, n := range m.whys {
		if n == 0 {
			t.Errorf("no worker was ever %v", Why(why))
		}
	}
	for _, err := range []error{nil, ErrGone, ErrNoRank, ErrBadReport, ErrOutranked, ErrSuperseded} {
		if m.errors[err] == 0 {
			t.Errorf("no report was ever met with %v", err)
		}
	}
	if m.most <= names/2 || m.aside == 0 || m.partial == 0 {
		t.Errorf("at most %d workers, %d set aside, %d counted in part", m.most, m.aside, m.partial)
	}
}

func TestTheTableAgreesWithANaiveModelOverRandomOperations(t *testing.T) {
	seeds := uint64(6)
	if raceEnabled { // one goroutine has no races
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("few workers, seed %d", seed), func(t *testing.T) { runModel(t, seed, 5, 3, 4000, 1) })
	}
	t.Run("several chunks", func(t *testing.T) { runModel(t, 99, 150, 2, 6000, 25) })
}
