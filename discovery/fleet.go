package discovery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/snapshot"
)

// Subscriber listens to load sockets; the one in snapshot/zmqsub does.
type Subscriber interface {
	// Subscribe has deliver called for what the socket at endpoint
	// (tcp://host:port) publishes, from any goroutine but not from two at once,
	// until stop is called. deliver does not block, and calls neither Subscribe nor
	// a stop. After stop has returned, deliver is not called any more.
	Subscribe(endpoint string, deliver func(snapshot.Delivery)) (stop func(), err error)
}

// Defaults of Config.
const (
	DefaultRecheckPublishing    = 30 * time.Second
	DefaultRecheckNotPublishing = 60 * time.Second
	DefaultRetryMin             = time.Second
	DefaultRetryMax             = 30 * time.Second
	DefaultPollInterval         = time.Second
	DefaultConcurrency          = 128
)

// Config configures a Fleet. Table and Source are required.
type Config struct {
	Table  *load.Table
	Source Source
	// Subscriber listens to the load sockets; nil means that there is nobody to
	// do so. Then no engine is asked what it publishes, and a worker reports its
	// load only where it is polled.
	Subscriber Subscriber
	Client     *Client      // nil means new(Client)
	Logger     *slog.Logger // nil means none

	// How long after its answer a worker is asked again, give or take a tenth. A
	// publishing one is asked sooner when no report of a rank has come for longer
	// than the table's window, and when a rank's publisher seems to have started
	// anew. 0 means the default.
	RecheckPublishing    time.Duration
	RecheckNotPublishing time.Duration
	// A worker that could not be asked is asked again after RetryMin, then at
	// doubling intervals up to RetryMax. 0 means the default.
	RetryMin, RetryMax time.Duration
	// Concurrency bounds how many workers are being asked at once: so many that
	// have not failed, and as many again that have, so that a rack that hangs
	// holds nobody else up. 0 means DefaultConcurrency.
	Concurrency int

	// PollAll has every worker polled as if each had Worker.Poll set.
	PollAll bool
	// PollInterval is the time between two polls of one worker, give or take a
	// tenth; 0 means the default. It should be well below the table's window, or
	// no report is fresh for long.
	PollInterval time.Duration
}

// Errors of Fleet.Run.
var (
	// ErrConfig is returned by Run of a Fleet without a table or a source.
	ErrConfig = errors.New("discovery: Config needs a Table and a Source")
	// ErrRan is returned by a second Run.
	ErrRan = errors.New("discovery: Fleet has been run before")
)

// Fleet keeps a table in step with a source of workers and with what the
// workers publish.
type Fleet struct {
	// immutable
	config Config
	epoch  time.Time     // what heard times count from, for the monotonic clock
	first  chan struct{} // slots for asking workers that have not failed
	again  chan struct{} // and those that have
	wake   chan struct{} // a set is pending

	// No other lock is taken with mu held, and nothing of anybody else's called:
	// a source holds its own while it emits, and a log handler may ask for Status.
	mu      sync.Mutex
	ran     bool
	members map[string]*member // by id; a map is never changed, and replaced only by Run
	pending *[]Worker          // newest set not yet looked at
	refused []Refusal          // of the newest set
	problem string             // why the source gave up or its set was refused, until it emits one that is not
}

// NewFleet returns a fleet that does nothing until Run.
func NewFleet(c Config) *Fleet {
	if c.Client == nil {
		c.Client = new(Client)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for _, d := range [...]struct {
		v   *time.Duration
		def time.Duration
	}{
		{&c.RecheckPublishing, DefaultRecheckPublishing},
		{&c.RecheckNotPublishing, DefaultRecheckNotPublishing},
		{&c.RetryMin, DefaultRetryMin},
		{&c.RetryMax, DefaultRetryMax},
		{&c.PollInterval, DefaultPollInterval},
	} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	c.RetryMax = max(c.RetryMax, c.RetryMin)
	if c.Concurrency <= 0 {
		c.Concurrency = DefaultConcurrency
	}
	return &Fleet{
		config:  c,
		epoch:   time.Now(),
		first:   make(chan struct{}, c.Concurrency),
		again:   make(chan struct{}, c.Concurrency),
		wake:    make(chan struct{}, 1),
		members: make(map[string]*member),
	}
}

// Run works until ctx ends, and then returns nil with every subscription stopped
// and every goroutine of its own gone. The workers stay in the table, without
// reports after one window: a gateway that is shutting down still has requests
// to route. It returns an error at once if it cannot work at all; a Fleet runs
// once.
func (f *Fleet) Run(ctx context.Context) error {
	if f.config.Table == nil || f.config.Source == nil {
		return ErrConfig
	}
	f.mu.Lock()
	ran := f.ran
	f.ran = true
	f.mu.Unlock()
	if ran {
		return ErrRan
	}

	var wg sync.WaitGroup
	wg.Go(func() { supervise(ctx, f.config.Source, f.emit, f.sourceFailed) })
	for ctx.Err() == nil {
		select {
		case <-f.wake:
			f.reconcile(ctx, &wg)
		case <-ctx.Done():
		}
	}
	wg.Wait()
	f.config.Client.closeIdle()
	return nil
}

// emit takes a complete set. Only the newest one matters, so a source never
// waits for the one before to be worked through.
func (f *Fleet) emit(set []Worker) {
	if len(set) > MaxWorkers {
		f.sourceFailed(tooMany("workers"))
		return
	}
	set = slices.Clone(set)
	f.mu.Lock()
	f.pending, f.problem = &set, ""
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *Fleet) sourceFailed(err error) {
	f.mu.Lock()
	news := f.problem != err.Error()
	f.problem = err.Error()
	f.mu.Unlock()
	if news {
		f.config.Logger.Error("discovery: source failed, keeping its last set", "error", err)
	}
}

// reconcile makes the members those of the pending set.
func (f *Fleet) reconcile(ctx context.Context, wg *sync.WaitGroup) {
	f.mu.Lock()
	pending, old, refusedBefore := f.pending, f.members, f.refused
	f.pending = nil
	f.mu.Unlock()
	if pending == nil {
		return
	}
	targets, refused := admit(*pending)
	wanted := make(map[string]*target, len(targets))
	for _, t := range targets {
		if f.config.PollAll {
			t.poll = true
		}
		wanted[t.id] = t
	}
	members := make(map[string]*member, len(targets))
	var added, removed []*member
	for id, m := range old {
		// An id at another URL is another engine: nothing that is known of the
		// old one is true of it. The same goes for other credentials, because
		// load.Worker.URL hands them to whoever sends the requests.
		if t := wanted[id]; t != nil && t.url.String() == m.target.Load().url.String() {
			members[id] = m
			continue
		}
		m.cancel()
		// At once, not when the member has wound up: it may be waiting for an
		// engine, and nobody should be sent there meanwhile. What it still
		// delivers goes to a handle that is gone.
		f.config.Table.Remove(m.worker)
		removed = append(removed, m)
	}
	for _, t := range targets {
		if m := members[t.id]; m != nil {
			if m.target.Load().poll != t.poll {
				m.target.Store(t)
				m.nudge()
			}
			continue
		}
		m := newMember(f, t, f.config.Table.Add(t.id, t.url.String()))
		members[t.id] = m
		added = append(added, m)
	}
	f.mu.Lock()
	f.members, f.refused = members, refused
	f.mu.Unlock()

	for _, r := range refused {
		if !slices.Contains(refusedBefore, r) {
			f.config.Logger.Error("discovery: worker refused", "worker", r.Worker, "reason", r.Reason)
		}
	}
	for _, m := range removed {
		m.log(slog.LevelInfo, "discovery: worker removed")
	}
	for _, m := range added {
		m.log(slog.LevelInfo, "discovery: worker added")
		memberCtx, cancel := context.WithCancel(ctx)
		m.cancel = cancel
		wg.Go(func() {
			defer cancel()
			m.run(memberCtx)
		})
	}
}

// Status is what a Fleet knows about its workers besides their load, which
// load.Table.Status has.
type Status struct {
	Sources []SourceStatus `json:"sources"`
	Refused []Refusal      `json:"refused"` // workers of the newest set that cannot be used
	Workers []WorkerStatus `json:"workers"` // ordered by id
}

// Status returns how every worker and every source is doing.
func (f *Fleet) Status() Status {
	f.mu.Lock()
	problem := f.problem
	st := Status{Refused: slices.Clone(f.refused)}
	members := make([]*member, 0, len(f.members))
	for _, m := range f.members {
		members = append(members, m)
	}
	f.mu.Unlock()

	if f.config.Source != nil {
		st.Sources = statusOf(f.config.Source)
		if problem != "" {
			st.Sources[0].Problem = problem
		}
	}
	for _, m := range members {
		st.Workers = append(st.Workers, m.read())
	}
	slices.SortFunc(st.Workers, func(a, b WorkerStatus) int { return cmp.Compare(a.ID, b.ID) })
	return st
}

// Outcome is what came of asking an engine for its /server_info.
type Outcome uint8

const (
	OutcomeNone           Outcome = iota // not asked yet, or not at all
	OutcomePublishes                     // it publishes its load
	OutcomeDoesNotPublish                // it answers and does not
	OutcomeCouldNotTell                  // it could not be asked
)

func (o Outcome) String() string {
	switch o {
	case OutcomePublishes:
		return "publishes"
	case OutcomeDoesNotPublish:
		return "does_not_publish"
	case OutcomeCouldNotTell:
		return "could_not_tell"
	}
	return "none"
}

// MarshalText encodes the outcome as its name.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// WorkerStatus is what is known of one worker besides its load.
type WorkerStatus struct {
	ID  string `json:"id"`
	URL string `json:"url"` // without user information

	Outcome  Outcome   `json:"outcome"`  // of the newest time it was asked
	Reason   string    `json:"reason"`   // why it does not publish
	Broken   bool      `json:"broken"`   // Reason is a mistake in its answer
	Error    string    `json:"error"`    // why it could not be asked, the newest time; empty if it could
	Asked    uint64    `json:"asked"`    // how often
	Failures int       `json:"failures"` // in a row, the newest included
	LastAsk  time.Time `json:"last_ask"`
	NextAsk  time.Time `json:"next_ask"` // zero: not planned

	// Endpoints are the load sockets in use, one per advertised rank. An error
	// of asking leaves them as they are.
	Endpoints []EndpointStatus `json:"endpoints"`
	Notes     []string         `json:"notes"` // see Advertisement.Notes

	Poll PollStatus `json:"poll"`
}

// EndpointStatus is the load socket of one rank.
type EndpointStatus struct {
	Rank  int       `json:"rank"`
	Addr  string    `json:"addr"`
	Error string    `json:"error"` // why it is not subscribed
	Heard time.Time `json:"heard"` // newest message, good or bad; zero: none yet
}

// PollStatus is about polling /v1/loads.
type PollStatus struct {
	Active bool      `json:"active"`
	Polls  uint64    `json:"polls"`
	Last   time.Time `json:"last"`
	Next   time.Time `json:"next"`
	Error  string    `json:"error"` // of the newest poll; empty if it worked
}

// backoff returns the pause after so many failures in a row.
func backoff(failures int, least, most time.Duration) time.Duration {
	d := least
	for i := 1; i < failures && d < most; i++ {
		d *= 2
	}
	return jittered(min(d, most))
}
