package load

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"weak"
)

// ConnectorConfig configures a Connector.
type ConnectorConfig struct {
	// Ranks is the number of data-parallel ranks of the group; 0 means 1.
	Ranks int

	// Shared says that others send requests to these ranks too: another gateway, a
	// direct client. Then a rank that has none of ours left may well be busy, and
	// keeps its last report until that is stale; while a rank has no fresh report,
	// what others have on it is taken to be what they have on the average rank.
	//
	// Without it this client is the authority on what is quiet, and there is no
	// staleness: see Connector.
	Shared bool

	// FirstIndex is the index that the engine of rank 0 goes by. TokenSpeed counts
	// on from its --zmq-engine-index.
	FirstIndex int

	// Rand says which rank begins; nil means math/rand/v2. A simulation brings its
	// own.
	Rand func() uint64
}

// Connector keeps the books of a group of data-parallel ranks whose requests one
// client sends, and whose load rides on their output batches (TokenSpeed, vLLM
// with dense data parallelism). The host drives the engines; it reserves a rank
// for each request and hands every batch to Observe.
//
// Such an engine speaks only when it has output. TokenSpeed counts its requests
// before it ends those of the batch, so its last word is always "still busy"; vLLM
// counts after that, and still its last word is what it said before an abort, or
// before a batch whose statistics went to another client. A rank that was taken at
// its word would be shunned from the moment it fell idle. The client knows better:
// once none of its requests is left on a rank, the rank's running and waiting counts
// read 0, until the next batch that finds it with a request. Its KV usage stays, for
// that is true. And since a rank is silent only when it is idle or computing, its
// reports do not go stale. (All this unless ConnectorConfig.Shared.)
//
// The loads go to the worker's place in its table, and the requests into its
// books, so selectors, views and status see the worker like any other.
//
// A rank that cannot be reached any more looks idle, and is reserved for every
// request: a host whose send fails for good calls Fail.
//
// All methods may be called from any goroutine and do not block on any engine.
type Connector struct {
	// immutable
	worker     *Worker
	feed       *Feed
	shared     bool
	firstIndex int

	// mu makes choosing a rank and counting on it one step, and storing a batch's
	// load and releasing what it ends. Lock order: mu, then Table.mu. The table
	// calls nothing back, so the other order cannot come about.
	mu       sync.Mutex
	requests map[string]held
	ranks    []connectorRank
	next     int // rank whose turn it is among equals
	dead     error
	stats    connectorStats
	ended    []held   // scratch of Observe
	untold   []ending // ends that watches are to be told of; see unlock
}

// held is a request in flight.
type held struct {
	id     string
	ticket Ticket
	rank   int
}

// connectorRank is one rank's side of the books, as rankState is the table's.
type connectorRank struct {
	requests int // ids held
	reported bool
	report   Report // the newest, silenced where that is due
	received int64  // when; only where it can go stale
	counted  uint64 // requests that it is taken to count; see books.counted
	own      int64  // in flight, then

	running, waiting int64  // the engine's last word
	silenced         uint64 // times that it was overruled
}

// Errors of a Connector.
var (
	// ErrDuplicate is returned for an id that is in flight. The request that has it
	// is left alone.
	ErrDuplicate = errors.New("load: a request of this id is in flight")
	// ErrDead is returned after Fail.
	ErrDead = errors.New("load: engine is dead")
	// ErrForeignTicket is returned for a ticket of another worker, of a rank that the
	// group does not have, that is done, or that is registered already.
	ErrForeignTicket = errors.New("load: not a live ticket of this group")
	// ErrConnector is returned where a connector cannot be made.
	ErrConnector = errors.New("load: no connector")
)

// maxEngines is how many engines a group can have: they go by numbers of two bytes.
const maxEngines = 1 << 16

// NewConnector returns the connector of a worker, and advertises its ranks. A
// worker has one connector in its life: after Fail, the engine that comes in its
// place is a new worker. The error, ErrConnector, is for a worker that has one and
// for numbers of which no group can be made.
func NewConnector(w *Worker, c ConnectorConfig) (*Connector, error) {
	ranks := cmp.Or(c.Ranks, 1)
	if c.FirstIndex < 0 || ranks < 1 || ranks > maxEngines-c.FirstIndex {
		return nil, fmt.Errorf("%w: %d ranks from engine index %d", ErrConnector, ranks, c.FirstIndex)
	}
	if c.Rand == nil {
		c.Rand = rand.Uint64
	}
	conn := &Connector{
		worker:     w,
		shared:     c.Shared,
		firstIndex: c.FirstIndex,
		requests:   make(map[string]held),
		ranks:      make([]connectorRank, ranks),
		next:       int(c.Rand() % uint64(ranks)), // connectors that start together must not all begin with rank 0
	}
	conn.mu.Lock() // nobody can know it yet but who finds it with the worker
	defer conn.mu.Unlock()
	// Weak, because a connector that nobody else has need not be told of anything, and
	// the requests that it holds are as good as dropped: nothing can end them.
	self := weak.Make(conn)
	if !w.connector.CompareAndSwap(nil, &self) {
		return nil, fmt.Errorf("%w: %s has one", ErrConnector, w.id)
	}
	conn.feed = w.advertise(ranks, Feed{connector: true, owned: !c.Shared})
	return conn, nil
}

// Worker returns the worker whose connector this is.
func (c *Connector) Worker() *Worker { return c.worker }

// Reserve chooses the least loaded rank by RankScore, the next in turn among
// equals, and counts the request on it in the same step. promptTokens may be 0
// where they are not known. The errors are ErrDuplicate and ErrDead.
//
// An id names one request of the group until it is released. A request that is sent
// again needs another one: the engines could not tell the two apart either.
func (c *Connector) Reserve(id string, promptTokens int64) (Reservation, error) {
	return c.reserve(id, NoRank, promptTokens)
}

// ReserveRank is Reserve on a rank of the host's choice. A rank that the group
// does not have is ErrNoRank.
func (c *Connector) ReserveRank(id string, rank int, promptTokens int64) (Reservation, error) {
	if rank < 0 || rank >= len(c.ranks) {
		return Reservation{}, fmt.Errorf("%w: %d of %d", ErrNoRank, rank, len(c.ranks))
	}
	return c.reserve(id, rank, promptTokens)
}

func (c *Connector) reserve(id string, rank int, promptTokens int64) (Reservation, error) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reserveLocked(id, rank, promptTokens, now)
}

// now is for what can go stale, and spares the others the clock.
func (c *Connector) now() int64 {
	if c.shared {
		return c.worker.table.now()
	}
	return 0
}

func (c *Connector) reserveLocked(id string, rank int, promptTokens, now int64) (Reservation, error) {
	if err := c.refuseLocked(id); err != nil {
		return Reservation{}, err
	}
	if rank == NoRank {
		rank = c.leastLoadedLocked(now)
	}
	t := c.worker.Reserve(rank, promptTokens)
	t.hold(rank)
	return c.holdLocked(id, held{id, t, rank}), nil
}

// Register takes in a request that a selector has counted on the worker: from here
// on the batches that end it release it. ticket is that of the pick. Where the pick
// chose a rank (policy dp_rank) it is that one; where it did not, the least loaded
// one is reserved as in Reserve. The ticket remains good: whoever is done first, it
// or the reservation, ends the request.
//
// If it is refused, with ErrDuplicate, ErrDead or ErrForeignTicket, the ticket
// remains the caller's to release.
func (c *Connector) Register(id string, ticket Ticket) (Reservation, error) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refuseLocked(id); err != nil {
		return Reservation{}, err
	}
	rank := ticket.request.rank()
	if ticket.worker != c.worker || rank >= len(c.ranks) {
		return Reservation{}, ErrForeignTicket
	}
	// Before a rank is chosen for it: that counts, and is somebody's turn.
	if word := ticket.flight.word.Load(); !ticket.live(word) || word&flightHeld != 0 {
		return Reservation{}, ErrForeignTicket
	}
	if rank == NoRank {
		rank = c.leastLoadedLocked(now)
	}
	if !ticket.hold(rank) {
		return Reservation{}, ErrForeignTicket
	}
	return c.holdLocked(id, held{id, ticket, rank}), nil
}

// refuseLocked comes before anything is counted: who is refused must have nothing
// to give back, least of all what belongs to the live request of the same id.
func (c *Connector) refuseLocked(id string) error {
	if c.dead != nil {
		return fmt.Errorf("%w: %w", ErrDead, c.dead)
	}
	if _, ok := c.requests[id]; ok {
		c.stats.Duplicates++
		return ErrDuplicate
	}
	return nil
}

func (c *Connector) holdLocked(id string, h held) Reservation {
	h.ticket.flight.id = id
	c.requests[id] = h
	c.ranks[h.rank].requests++
	c.stats.Reserved++
	return Reservation{Ticket: h.ticket, connector: c, id: id, rank: h.rank}
}

func (c *Connector) leastLoadedLocked(now int64) int {
	unheard := c.unheardLocked(now)
	best, lowest := -1, 0.0
	for i, rank := 0, c.next; i < len(c.ranks); i++ {
		if score := c.scoreLocked(rank, now, unheard); best < 0 || score < lowest {
			best, lowest = rank, score
		}
		if rank++; rank == len(c.ranks) {
			rank = 0
		}
	}
	c.next = (best + 1) % len(c.ranks)
	return best
}

// scoreLocked is the score of a rank. unheard is what to add to our own requests
// where there is no report to go by.
func (c *Connector) scoreLocked(rank int, now int64, unheard float64) float64 {
	b := c.rankBook(rank)
	own, _ := b.inFlight()
	r := &c.ranks[rank]
	if !c.heard(r, now) {
		return RankScore(own, own, nil) + unheard
	}
	since, _ := b.sinceReport(r.counted)
	return RankScore(own, since, &r.report)
}

// heard reports whether the rank's newest report counts.
func (c *Connector) heard(r *connectorRank, now int64) bool {
	return r.reported && (!c.shared || now-r.received <= c.worker.table.window)
}

// unheardLocked is what others have on the average rank that has a fresh report.
// Where all requests are ours, they have nothing.
func (c *Connector) unheardLocked(now int64) float64 {
	if !c.shared {
		return 0
	}
	var others float64
	ranks := 0
	for i := range c.ranks {
		if r := &c.ranks[i]; c.heard(r, now) {
			others += float64(max(r.report.depth()-r.own, 0))
			ranks++
		}
	}
	if ranks == 0 {
		return 0
	}
	return others / float64(ranks)
}

// Observe takes in an output batch: its load first, then the requests that it
// ends, in one step. The ids that it ends may be of any rank; those that are not
// in flight, because they were released before, are no fault.
//
// The error says what of the batch was not taken, for the log: ErrNoRank if it
// names a rank outside the group (then nothing of it is), ErrDead, Batch.Err, or
// that of a Put. It is counted in the status, and the books are right in any case.
// The news that the engine is dead (tokenspeed.ErrEngineDead, vllm.ErrEngineDead) is
// not for Observe but for Fail.
func (c *Connector) Observe(b Batch) error {
	c.mu.Lock()
	defer c.unlock()
	if c.dead != nil {
		return fmt.Errorf("%w: %w", ErrDead, c.dead)
	}
	rank := NoRank
	if b.Rank != NoRank {
		if rank = b.Rank - c.firstIndex; rank < 0 || rank >= len(c.ranks) {
			err := fmt.Errorf("%w: engine index %d, of %d from %d", ErrNoRank, b.Rank, len(c.ranks), c.firstIndex)
			c.stats.drop(err)
			return err
		}
	}
	if rank != NoRank || len(b.Finished) > 0 {
		c.stats.Batches++
	}

	// What the batch ends is taken out first, so that the load can be stored as it
	// will be without it; the tickets are released after that. So whoever looks
	// meanwhile sees these requests once too often rather than not at all.
	for _, id := range b.Finished {
		if h, ok := c.requests[string(id)]; ok {
			c.takeLocked(h)
			c.stats.Finished++
			c.ended = append(c.ended, h)
		} else {
			c.stats.Unknown++
		}
	}
	err := b.Err
	c.stats.drop(err)
	if rank != NoRank {
		err = c.storeLocked(rank, &b)
	}
	for i, h := range c.ended {
		c.endLocked(h)
		c.ended[i] = held{}
		c.silenceLocked(h.rank)
	}
	c.ended = c.ended[:0]
	return err
}

func (c *Connector) storeLocked(rank int, b *Batch) error {
	if b.Err != nil {
		c.feed.Drop(rank, dropReason(b.Err), b.Err)
	}
	if !b.HasLoad {
		c.stats.WithoutLoad++
		return b.Err
	}
	if b.Load.Source == 0 {
		b.Load.Source = SourceBatch
	}
	b.Load.quiet = c.quietLocked(rank)
	if err := c.feed.Put(rank, b.Load); err != nil {
		c.stats.drop(err)
		return errors.Join(b.Err, err)
	}
	b.Load.check() // as the table did with its own copy
	r := &c.ranks[rank]
	r.report, r.reported = b.Load, true
	r.running, r.waiting = b.Load.Running, b.Load.Waiting
	r.own, r.counted = c.inFlight(rank), c.rankBook(rank).counted(!c.shared)
	if c.shared {
		r.received = c.worker.table.receivedAt(&b.Load, c.now())
	}
	if b.Load.quiet {
		r.report.silence()
		r.silenced++
	}
	return b.Err
}

// quietLocked reports whether the rank has nothing to do by what we know.
func (c *Connector) quietLocked(rank int) bool { return !c.shared && c.ranks[rank].requests == 0 }

// inFlight is what the books say of a rank: with picks of a selector that have not
// been registered yet.
func (c *Connector) inFlight(rank int) int64 {
	n, _ := c.rankBook(rank).inFlight()
	return n
}

func (c *Connector) rankBook(rank int) *books { return (*c.worker.rankBooks.Load())[rank] }

// silenceLocked makes a rank read idle if it has become so.
func (c *Connector) silenceLocked(rank int) {
	r := &c.ranks[rank]
	if !r.reported || r.report.quiet || !c.quietLocked(rank) {
		return
	}
	r.report.silence()
	r.silenced++
	c.feed.silence(rank)
}

// takeLocked takes a request out of the books of its rank.
func (c *Connector) takeLocked(h held) {
	delete(c.requests, h.id)
	c.ranks[h.rank].requests--
}

// endLocked releases a request that has been taken out. If somebody else has released
// its ticket at this moment, the rest is theirs.
func (c *Connector) endLocked(h held) {
	held, end := h.ticket.release(false)
	if held {
		h.ticket.flight.id = ""
		flights.Put(h.ticket.flight)
	}
	if end.watch != nil {
		c.untold = append(c.untold, end)
	}
}

// unlock releases mu, and then tells the watches of what has ended: it is for whoever
// has called endLocked.
func (c *Connector) unlock() {
	untold := c.untold
	c.untold = nil
	c.mu.Unlock()
	for _, end := range untold {
		end.tell()
	}
}

// ticketDone is called when a ticket that is held here was done by itself, before
// its flight is given back.
func (c *Connector) ticketDone(t Ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, ok := c.requests[t.flight.id]; ok && h.ticket == t {
		c.takeLocked(h)
		c.stats.Released++
		c.silenceLocked(h.rank)
	}
	t.flight.id = ""
}

// Release ends the request of that id, if it is in flight; whether it was is the
// result.
func (c *Connector) Release(id string) bool { return c.release(id, Ticket{}, &c.stats.Released) }

// Abort is Release for a request that its client has given up. If it returns
// true, the engine is still at it and should be told.
func (c *Connector) Abort(id string) bool { return c.release(id, Ticket{}, &c.stats.Aborted) }

// release ends the request of that id; where a ticket is given, only if it is that
// request: the id may have been used again.
func (c *Connector) release(id string, t Ticket, count *uint64) bool {
	c.mu.Lock()
	defer c.unlock()
	h, ok := c.requests[id]
	if !ok || (t != Ticket{} && h.ticket != t) {
		return false
	}
	c.takeLocked(h)
	*count++
	c.endLocked(h)
	c.silenceLocked(h.rank)
	return true
}

// Fail says that the group is dead: one of its engines said so (that message does
// not say which), or their transport broke. Ranks that live and die apart are
// groups of one. Every request in flight is released, and the ids of those are
// returned, sorted, so that the host can fail them; the worker is not healthy any
// more, and nothing can be reserved. Only the first call has an effect. When the
// engines are back, they are a new worker with a new connector.
func (c *Connector) Fail(cause error) (ids []string) {
	if cause == nil {
		cause = errors.New("no cause given")
	}
	c.mu.Lock()
	defer c.unlock()
	if c.dead != nil {
		return nil
	}
	c.dead = cause
	c.worker.noFeed(Dead, cause.Error())
	c.worker.SetHealthy(false)
	for id, h := range c.requests {
		c.takeLocked(h)
		c.stats.Failed++
		c.endLocked(h)
		ids = append(ids, id)
	}
	slices.Sort(ids)
	clear(c.ranks)
	return ids
}

// Reservation is a request's place in the books of its rank, from Reserve until it
// is released: by the batch that ends it, by Done, by Abort, or by Fail, whichever
// comes first. The embedded Ticket is marked like that of any pick: nothing in a
// batch marks it. The usual host defers Abort, and tells the engine if that returns
// true; one whose engine notices by itself defers Done. A reservation that is
// dropped is held until the engine ends the request.
type Reservation struct {
	Ticket
	connector *Connector
	id        string
	rank      int
}

// Rank returns the rank that was reserved; NoRank for the zero Reservation. It
// counts from 0, also where ConnectorConfig.FirstIndex does not.
func (r Reservation) Rank() int {
	if r.connector == nil {
		return NoRank
	}
	return r.rank
}

// Done releases the request, if nothing has yet.
func (r Reservation) Done() {
	if c := r.connector; c != nil {
		c.release(r.id, r.Ticket, &c.stats.Released)
	}
}

// Abort releases the request, if nothing has yet. If it returns true, the engine is
// still at it and should be told.
func (r Reservation) Abort() bool {
	c := r.connector
	return c != nil && c.release(r.id, r.Ticket, &c.stats.Aborted)
}
