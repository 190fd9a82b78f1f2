package batch

import (
	"errors"
	"slices"
	"time"
)

var (
	// ErrQueueFull is returned by Add when Config.MaxQueue requests wait already.
	ErrQueueFull = errors.New("the request queue is full")
	// ErrTooLong is returned by Add for a request that would not fit into the KV
	// cache even alone: queued, it would block everything behind it for ever.
	ErrTooLong = errors.New("the request is longer than the KV cache")
	// ErrDuplicate is returned by Add for an ID that is queued or running.
	ErrDuplicate = errors.New("a request of that id is in the engine already")
)

// ID names a request within one Core. The caller chooses it.
type ID uint64

// Config sizes a Core. The zero value is an 8B model on one H100.
type Config struct {
	Cost        Cost  // zero: H100x8B
	KVTokens    int64 // KV capacity in tokens; 0 = 400,000
	MaxRunning  int   // concurrency cap; 0 = 256
	MaxQueue    int   // requests allowed to wait; 0 = no limit
	ChunkTokens int64 // prompt tokens per step; 0 = 8,192
}

func (c Config) withDefaults() Config {
	if c.Cost == (Cost{}) {
		c.Cost = H100x8B
	}
	if c.KVTokens <= 0 {
		c.KVTokens = 400_000
	}
	if c.MaxRunning <= 0 {
		c.MaxRunning = 256
	}
	if c.ChunkTokens <= 0 {
		c.ChunkTokens = 8_192
	}
	return c
}

// Token is one produced output token.
type Token struct {
	ID   ID
	N    int64 // how many the request has produced, this one included
	Last bool  // the request is finished and out of the Core
}

// seq is a request inside the Core.
type seq struct {
	id        ID
	prompt    int64
	output    int64 // tokens to produce
	generated int64 // tokens produced

	// target tokens must be prefilled before the next token comes out: the prompt,
	// and after a retraction also everything generated until then.
	target int64
	done   int64 // of target, in finished steps
	held   int64 // KV tokens allocated, the step under way included

	chunk  int64 // prompt tokens in the step under way
	decode bool  // whether it decodes in the step under way
}

func (s *seq) prefilled() bool { return s.done == s.target }

// claim is the KV that the request holds or was promised when it was admitted.
func (s *seq) claim() int64 { return max(s.target, s.held) }

// Core is the scheduler of one rank. Create one with [New].
type Core struct {
	config   Config
	speed    float64
	waiting  []*seq // in the order of service
	running  []*seq // in the order of admission
	stepping bool
	stepBusy time.Duration // prefill time of the step under way
	totals   Totals
}

// New returns an idle Core of speed 1.
func New(config Config) *Core {
	return &Core{config: config.withDefaults(), speed: 1}
}

// Config returns the configuration with its defaults filled in.
func (c *Core) Config() Config { return c.config }

// SetSpeed makes every following step take 1/speed of its time; 0.5 is half speed.
// Speeds that are not positive are ignored.
func (c *Core) SetSpeed(speed float64) {
	if speed > 0 {
		c.speed = speed
	}
}

// Add queues a request of prompt tokens that will produce output tokens; both
// count as at least one. It is admitted by a later Begin.
func (c *Core) Add(id ID, prompt, output int64) error {
	prompt, output = max(prompt, 1), max(output, 1)
	switch {
	// Compared term by term: a sum of two numbers off the network may overflow.
	case prompt > c.config.KVTokens || output > c.config.KVTokens-prompt:
		return ErrTooLong
	case c.config.MaxQueue > 0 && len(c.waiting) >= c.config.MaxQueue:
		c.totals.Rejected++
		return ErrQueueFull
	case c.find(c.waiting, id) >= 0 || c.find(c.running, id) >= 0:
		return ErrDuplicate
	}
	c.waiting = append(c.waiting, &seq{id: id, prompt: prompt, output: output, target: prompt})
	c.totals.Added++
	return nil
}

// Abort drops a request and frees its KV, also in the middle of a step. It reports
// whether the request was there.
func (c *Core) Abort(id ID) bool {
	if i := c.find(c.waiting, id); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	} else if i := c.find(c.running, id); i >= 0 {
		c.running = slices.Delete(c.running, i, i+1)
	} else {
		return false
	}
	c.totals.Aborted++
	return true
}

func (c *Core) find(queue []*seq, id ID) int {
	return slices.IndexFunc(queue, func(s *seq) bool { return s.id == id })
}

// Begin forms the next step and returns its duration. ok is false, and there is
// nothing to finish, when the Core is idle. Begin must not be called again before
// Finish.
func (c *Core) Begin() (d time.Duration, ok bool) {
	if c.stepping {
		panic("batch: Begin before Finish")
	}
	if len(c.running) == 0 && len(c.waiting) == 0 {
		return 0, false
	}
	c.stepping = true

	room, decodes, kvRead, retracted := c.growDecodes()
	budget := c.config.ChunkTokens
	for _, s := range c.running {
		budget -= s.plan(budget)
	}
	// What a retraction freed would only be given to the request that it threw
	// out, and taken back in the next step.
	if !retracted {
		budget = c.admit(room, budget)
	}

	prefill := c.config.ChunkTokens - budget
	c.stepBusy = 0
	if prefill > 0 {
		c.stepBusy = scaled(c.config.Cost.prefill(prefill), c.speed)
	}
	return scaled(c.config.Cost.step(prefill, decodes, kvRead), c.speed), true
}

// growDecodes allocates the token that every decoding request is about to write,
// retracting the newest requests until that fits. It returns the unclaimed KV
// that is left, the number of decoding requests and the KV that they read.
func (c *Core) growDecodes() (room, decodes, kvRead int64, retracted bool) {
	room = c.config.KVTokens
	for _, s := range c.running {
		room -= s.claim()
		if s.prefilled() {
			decodes++
		}
	}
	for decodes > room {
		// Never the last one left: Add made sure that it fits alone.
		newest := c.running[len(c.running)-1]
		room += newest.claim()
		if newest.prefilled() {
			decodes--
		}
		c.retract(newest)
		retracted = true
	}
	for _, s := range c.running {
		if s.prefilled() {
			s.decode = true
			s.held++
			kvRead += s.held
		}
	}
	return room - decodes, decodes, kvRead, retracted
}

// retract moves the newest running request back to the head of the queue, to be
// computed again from its first token, and frees its KV.
func (c *Core) retract(newest *seq) {
	c.running = c.running[:len(c.running)-1]
	newest.target = newest.prompt + newest.generated
	newest.done, newest.held = 0, 0
	c.waiting = slices.Insert(c.waiting, 0, newest)
	c.totals.Retracted++
}

// admit moves requests from the queue into the batch, first come first served,
// while their KV fits into room, and returns what is left of the chunk budget.
func (c *Core) admit(room, budget int64) int64 {
	n := 0
	for _, s := range c.waiting {
		if budget <= 0 || len(c.running) >= c.config.MaxRunning || s.target > room {
			break
		}
		room -= s.target
		budget -= s.plan(budget)
		c.running = append(c.running, s)
		n++
	}
	c.waiting = slices.Delete(c.waiting, 0, n)
	return budget
}

// plan takes up to budget prompt tokens into the step and returns how many.
func (s *seq) plan(budget int64) int64 {
	s.chunk = min(s.target-s.done, max(budget, 0))
	s.held += s.chunk
	return s.chunk
}

// Finish applies the step that Begin formed and appends its tokens to dst, in the
// order of admission. Requests aborted in between produce none.
func (c *Core) Finish(dst []Token) []Token {
	if !c.stepping {
		panic("batch: Finish without Begin")
	}
	c.stepping = false
	c.totals.PrefillBusy += c.stepBusy
	c.running = slices.DeleteFunc(c.running, func(s *seq) bool {
		emits := s.decode
		if s.chunk > 0 {
			s.done += s.chunk
			c.totals.PrefillTokens += s.chunk
			emits = s.prefilled()
		}
		s.chunk, s.decode = 0, false
		if !emits {
			return false
		}
		s.generated++
		c.totals.OutputTokens++
		last := s.generated == s.output
		if last {
			c.totals.Finished++
		}
		dst = append(dst, Token{ID: s.id, N: s.generated, Last: last})
		return last
	})
	return dst
}

// Step is Begin and Finish in one, for callers whose time is a number.
func (c *Core) Step(dst []Token) (tokens []Token, d time.Duration, ok bool) {
	d, ok = c.Begin()
	if !ok {
		return dst, 0, false
	}
	return c.Finish(dst), d, true
}
