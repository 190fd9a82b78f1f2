package simengine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine/batch"
	"github.com/plimsoll-go/plimsoll/examples/internal/tswire"
	"github.com/plimsoll-go/plimsoll/tokenspeed"
)

// TokenSpeed is a simulated engine of the TokenSpeed kind. Nothing can be asked of
// it: it serves no HTTP and publishes nothing. Each of its ranks dials a frontend
// (package tswire), takes requests from it and pushes output batches back, and what
// it tells of its load rides on those:
//
//   - A batch carries the load as it was when the step was formed whose tokens it
//     brings, so the requests that the batch ends are still in it. The last batch of
//     a rank that falls idle says that it is busy.
//   - A rank without output sends nothing. While it is idle that is for ever, and
//     during a long prefill it is until the first token.
//   - The running count is of all requests that the rank has admitted. Those that
//     wait are among them, and are counted once more as waiting.
//   - A request that was aborted is never heard of again, whoever waits for it.
//
// These are ways of the real engine (0.1.1), and some of them flaws. A frontend is
// to be tried against them. One thing this engine does that the real one does not: it
// notices when its frontend is gone; see Gone.
type TokenSpeed struct {
	cancel  context.CancelFunc
	ranks   []*tokenSpeedRank
	running sync.WaitGroup
	speed   float64 // that SetSpeed is relative to

	gone     chan struct{}
	goneOnce sync.Once
}

// StartTokenSpeed brings an engine up whose Wire is WireTokenSpeed. It returns when
// all its ranks have registered with the frontend at config.Handshake, which it
// waits for until ctx ends.
func StartTokenSpeed(ctx context.Context, config Config) (*TokenSpeed, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	switch {
	case config.Wire != WireTokenSpeed:
		return nil, fmt.Errorf("simengine: wire %v is not TokenSpeed's", config.Wire)
	case config.EngineIndex < 0 || config.EngineIndex+config.Ranks-1 > tokenspeed.MaxEngineIndex:
		return nil, fmt.Errorf("simengine: engine index %d and %d ranks: want indexes from 0 to %d", config.EngineIndex, config.Ranks, tokenspeed.MaxEngineIndex)
	case config.Elements != 9 && config.Elements != 10 && config.Elements != 14:
		return nil, fmt.Errorf("simengine: a batch of %d elements: want 9, 10 or 14", config.Elements)
	}
	e := &TokenSpeed{speed: config.Speed * config.TimeScale, gone: make(chan struct{})}
	for i := range config.Ranks {
		e.ranks = append(e.ranks, newTokenSpeedRank(i, config))
	}
	config.Logger.Info("engine dials", "frontend", config.Handshake)
	if err := e.dial(ctx, config); err != nil {
		for _, r := range e.ranks {
			if r.conn != nil {
				r.conn.Kill()
			}
		}
		return nil, err
	}
	running, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	for _, r := range e.ranks {
		e.running.Go(func() { r.rank.run(running) })
		e.running.Go(r.obey)
		e.running.Go(func() { e.miss(running, r.conn) })
	}
	return e, nil
}

// miss waits until a rank's frontend is gone, or the engine ends.
func (e *TokenSpeed) miss(running context.Context, conn *tswire.Conn) {
	select {
	case <-conn.Gone():
		e.goneOnce.Do(func() { close(e.gone) })
	case <-running.Done():
	}
}

// Gone is closed when the frontend is gone. The engine does not end with it, but is
// of no more use: Kill it, and start another.
func (e *TokenSpeed) Gone() <-chan struct{} { return e.gone }

// dial connects all ranks at once: a frontend may want to see them all before it
// answers any. The first that fails ends the wait of the others.
func (e *TokenSpeed) dial(ctx context.Context, config Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, len(e.ranks))
	var dialling sync.WaitGroup
	for _, r := range e.ranks {
		dialling.Go(func() {
			conn, err := tswire.Dial(ctx, tswire.DialConfig{
				Handshake:   config.Handshake,
				EngineIndex: r.index,
				Ready:       r.ready(),
				Logger:      config.Logger,
			})
			if err != nil {
				failed <- err
				cancel()
				return
			}
			r.conn = conn
		})
	}
	dialling.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// SetSpeed makes the engine factor times as fast as configured, from now on: the
// steps under way are stretched too.
func (e *TokenSpeed) SetSpeed(factor float64) error {
	speed := e.speed * factor
	if !usableSpeed(factor) || !usableSpeed(speed) {
		return fmt.Errorf("simengine: speed %v: want a positive number", factor)
	}
	for _, r := range e.ranks {
		r.rank.setSpeed(speed)
	}
	return nil
}

// Loads returns the state of each rank now. It is the truth, which a batch need not
// tell.
func (e *TokenSpeed) Loads() []batch.Load {
	loads := make([]batch.Load, len(e.ranks))
	for i, r := range e.ranks {
		loads[i] = r.rank.current()
	}
	return loads
}

// Totals counts over all ranks.
func (e *TokenSpeed) Totals() batch.Totals {
	var sum batch.Totals
	for _, r := range e.ranks {
		sum = sum.Plus(r.rank.totals())
	}
	return sum
}

// Close ends the engine the way of an orderly shutdown, or of a crash that it got
// to handle: every rank says that the engine is dead. It may be called twice.
func (e *TokenSpeed) Close() error { return e.end((*tswire.Conn).Close) }

// Kill ends the engine without a word. A frontend notices when it tries to send
// something, if at all.
func (e *TokenSpeed) Kill() error { return e.end((*tswire.Conn).Kill) }

func (e *TokenSpeed) end(hangUp func(*tswire.Conn) error) error {
	e.cancel()
	errs := make([]error, len(e.ranks))
	for i, r := range e.ranks {
		e.running.Go(func() { errs[i] = hangUp(r.conn) })
	}
	e.running.Wait()
	return errors.Join(errs...)
}

// tokenSpeedRank drives one rank over its connection.
type tokenSpeedRank struct {
	config Config
	index  int // engine index
	number int // within the engine
	rank   *rank
	conn   *tswire.Conn

	// mu is taken before the rank's. It is also held while a batch is sent, so that
	// batches leave in order; a frontend that does not read stops the whole rank, as
	// it would the scheduler's one thread.
	mu       sync.Mutex
	requests map[string]*stream
	byJob    map[batch.ID]*stream
	load     tokenspeed.Load
	batch    tokenspeed.Batch // reused
	payload  []byte           // reused
	tokens   []int64          // reused
}

// stream is a request whose tokens are to be sent.
type stream struct {
	id       []byte
	job      *job
	prompt   int64
	sent     int64 // tokens
	interval int64
	steady   bool // whether tokens are wanted as they come
	capped   bool // the length is what the client allowed, not where the model ended
}

// unsteadyInterval is how many tokens of a request that is not streamed go into one
// batch.
const unsteadyInterval = 50

// due reports whether the tokens up to n, some of which have not been sent, are to
// be sent now. The first always is.
func (s *stream) due(n int64) bool {
	switch {
	case !s.steady:
		return n == 1 || n%unsteadyInterval == 0
	case s.interval > 1:
		return n%s.interval == 1
	}
	return true
}

func newTokenSpeedRank(number int, config Config) *tokenSpeedRank {
	r := &tokenSpeedRank{
		config:   config,
		index:    config.EngineIndex + number,
		number:   number,
		rank:     newRank(number, config.batch(), config.Speed*config.TimeScale, func() {}),
		requests: map[string]*stream{},
		byJob:    map[batch.ID]*stream{},
	}
	r.rank.stepped = r.stepped
	return r
}

// ready is what the rank says of itself.
func (r *tokenSpeedRank) ready() tswire.Ready {
	limits := r.rank.core.Config()
	return tswire.Ready{
		Model:         r.config.Model,
		Version:       version,
		Rank:          int64(r.number),
		Ranks:         int64(r.config.Ranks),
		MaxModelLen:   limits.KVTokens,
		MaxRunning:    int64(limits.MaxRunning),
		MaxBatch:      limits.ChunkTokens,
		KVPages:       pages(limits.KVTokens),
		PageTokens:    kvBlockSize,
		KVCacheTokens: limits.KVTokens,
	}
}

func pages(tokens int64) int64 { return (tokens + kvBlockSize - 1) / kvBlockSize }

// obey does what the frontend says until the connection is closed.
func (r *tokenSpeedRank) obey() {
	for {
		c, err := r.conn.Receive()
		if errors.Is(err, tswire.ErrClosed) {
			return
		}
		if err != nil {
			r.logger().Error("rank hears no commands any more", "err", err)
			return
		}
		if c.Add != nil {
			r.add(*c.Add)
		}
		for _, id := range c.Abort {
			r.abort(id)
		}
	}
}

func (r *tokenSpeedRank) logger() *slog.Logger { return r.config.Logger.With("engine_index", r.index) }

func (r *tokenSpeedRank) add(q tswire.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.requests[q.ID]; ok {
		// To refuse it by its id would end the one that is running.
		r.logger().Warn("request dropped: its id is in use", "id", q.ID)
		return
	}
	s := &stream{
		id:       []byte(q.ID),
		prompt:   int64(len(q.Prompt)),
		interval: q.StreamInterval,
		steady:   q.Stream,
		capped:   q.MaxNewTokens > 0,
	}
	if s.interval == 0 {
		s.interval = r.config.StreamInterval
	}
	output := q.MaxNewTokens
	if output == 0 {
		output = r.config.MaxTokens
	}
	j, err := r.rank.submit(s.prompt, output)
	if err != nil {
		r.refuseLocked(s, err)
		return
	}
	s.job = j
	r.requests[q.ID], r.byJob[j.id] = s, s
}

// refuseLocked ends a request that never began. The load in it is whatever the rank
// has said last, since no step has been formed for it.
func (r *tokenSpeedRank) refuseLocked(s *stream, err error) {
	if errors.Is(err, errStopped) {
		return // what is left of the engine has a last word for all
	}
	r.logger().Debug("request refused", "id", string(s.id), "err", err)
	r.batch.Reset()
	r.batch.Add(tokenspeed.Request{ID: s.id, FinishReason: tokenspeed.FinishAbort, PromptTokens: s.prompt})
	r.sendLocked()
}

func (r *tokenSpeedRank) abort(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.requests[id]
	if !ok {
		return
	}
	r.forgetLocked(s)
	s.job.abort()
}

func (r *tokenSpeedRank) forgetLocked(s *stream) {
	delete(r.requests, string(s.id))
	delete(r.byJob, s.job.id)
}

// stepped sends what came out of a step.
func (r *tokenSpeedRank) stepped(formed batch.Load, tokens []batch.Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load = r.tell(formed)
	r.batch.Reset()
	for _, t := range tokens {
		s, ok := r.byJob[t.ID]
		if !ok || !t.Last && !s.due(t.N) {
			continue // aborted while the step went on; or later
		}
		reason := tokenspeed.FinishNone
		if t.Last {
			if reason = tokenspeed.FinishStop; s.capped {
				reason = tokenspeed.FinishLength
			}
			r.forgetLocked(s)
		}
		r.tokens = r.tokens[:0]
		for n := s.sent; n < t.N; n++ {
			r.tokens = append(r.tokens, n%int64(len(words)))
		}
		s.sent = t.N
		r.batch.Add(tokenspeed.Request{
			ID: s.id, OutputIDs: r.tokens, FinishReason: reason,
			PromptTokens: s.prompt, CompletionTokens: t.N,
		})
	}
	if r.batch.Len() > 0 {
		r.sendLocked()
	}
}

// tell turns a state into what the engine makes of it.
func (r *tokenSpeedRank) tell(l batch.Load) tokenspeed.Load {
	if r.config.NoLoad {
		return tokenspeed.Load{}
	}
	return tokenspeed.Load{
		Known:         true,
		Running:       l.Running + l.Waiting,
		Waiting:       l.Waiting,
		KVActivePages: pages(l.KVUsed),
		KVTotalPages:  pages(r.rank.core.Config().KVTokens),
	}
}

// sendLocked sends r.batch.
func (r *tokenSpeedRank) sendLocked() {
	r.batch.EngineIndex, r.batch.Load = r.index, r.load
	r.payload = r.batch.AppendN(r.payload[:0], r.config.Elements)
	if err := r.conn.Send(r.payload); err != nil && !errors.Is(err, tswire.ErrClosed) {
		r.logger().Error("batch lost", "err", err)
	}
}
