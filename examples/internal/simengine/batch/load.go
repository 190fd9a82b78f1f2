package batch

import "time"

// Load is the state of a rank at one moment, as its engine would report it.
type Load struct {
	Running       int64 // requests in the batch
	Waiting       int64 // requests in the queue
	WaitingTokens int64 // prompt tokens still to be computed, of both
	KVUsed        int64 // KV tokens allocated
	KVQueued      int64 // KV tokens that the queue will need for its prompts
}

// Totals counts since the Core was made.
type Totals struct {
	Added, Finished, Aborted int64 // requests; what was added and is neither is in the engine
	Rejected                 int64 // requests refused with ErrQueueFull
	Retracted                int64 // retractions, several of one request included
	PrefillTokens            int64 // prompt tokens computed, recomputed ones included
	OutputTokens             int64
	// PrefillBusy is the time that steps would have taken for their prompt tokens
	// alone. The real engine runs prefill and decode in steps of their own and
	// counts the former; here they share steps, and charging the whole step would
	// make a busy rank look slow at prefill.
	PrefillBusy time.Duration
}

// Plus returns the sum of both.
func (t Totals) Plus(u Totals) Totals {
	t.Added += u.Added
	t.Finished += u.Finished
	t.Aborted += u.Aborted
	t.Rejected += u.Rejected
	t.Retracted += u.Retracted
	t.PrefillTokens += u.PrefillTokens
	t.OutputTokens += u.OutputTokens
	t.PrefillBusy += u.PrefillBusy
	return t
}

// Load returns the current state. It may be called in the middle of a step.
func (c *Core) Load() Load {
	l := Load{Running: int64(len(c.running)), Waiting: int64(len(c.waiting))}
	for _, s := range c.running {
		l.WaitingTokens += s.target - s.done
		l.KVUsed += s.held
	}
	for _, s := range c.waiting {
		l.KVQueued += s.target
	}
	l.WaitingTokens += l.KVQueued
	return l
}

// Prefilling reports whether the last step begun computes prompt tokens.
func (c *Core) Prefilling() bool { return c.stepBusy > 0 }

// Totals returns the counters.
func (c *Core) Totals() Totals { return c.totals }
