package batch

import "time"

// Load is the state of a rank at one moment, as its engine would report it.
type Load struct {
	Running       int64 // requests in the batch
	Waiting       int64 // requests in the queue
	WaitingTokens int64 // prompt tokens still to be computed, of both
	KVUsed        int64 // KV tokens allocated
	KVQueued      int64 // prompt tokens of the queue
	PrefillStep   bool  // the step under way computes prompt tokens
}

// Totals counts since the Core was made.
type Totals struct {
	Added, Finished, Aborted, Rejected, Retracted int64
	PrefillTokens                                 int64 // recomputed ones included
	OutputTokens                                  int64
	// PrefillBusy is the time that steps would have taken for their prompt tokens
	// alone. The real engine runs prefill and decode in steps of their own and
	// counts the former; here they share steps, and charging the whole step would
	// make a busy rank look slow at prefill.
	PrefillBusy time.Duration
}

// Load returns the current state. It may be called in the middle of a step.
func (c *Core) Load() Load {
	l := Load{Running: int64(len(c.running)), Waiting: int64(len(c.waiting))}
	for _, s := range c.running {
		l.WaitingTokens += s.target - s.done
		l.KVUsed += s.held
		l.PrefillStep = l.PrefillStep || s.chunk > 0
	}
	for _, s := range c.waiting {
		l.KVQueued += s.target
	}
	l.WaitingTokens += l.KVQueued
	return l
}

// Totals returns the counters.
func (c *Core) Totals() Totals { return c.totals }
