package trace

import (
	"cmp"
	"slices"
	"time"
)

// Request is one request of a trace.
type Request struct {
	At     time.Duration // of its arrival, since the beginning of the trace
	Prompt int           // tokens, at least 1
	Output int           // tokens, at least 1

	// Blocks name the prompt's content by blocks of BlockTokens tokens, where that is
	// known: equal leading blocks are equal content. The last may be partial.
	Blocks []uint64
}

// BlockTokens is the number of prompt tokens in a block.
const BlockTokens = 512

// Trace is a list of requests in the order of their arrival.
type Trace struct {
	Name     string
	Requests []Request
}

// newTrace takes over requests in any order, and lets time begin with the first.
func newTrace(name string, requests []Request) *Trace {
	slices.SortStableFunc(requests, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	if len(requests) > 0 {
		first := requests[0].At
		for i := range requests {
			requests[i].At -= first
		}
	}
	return &Trace{name, requests}
}

// Span is the time from the first arrival to that of the first request of a
// repetition: the last arrival, and one mean interval.
func (t *Trace) Span() time.Duration {
	n := len(t.Requests)
	if n == 0 {
		return 0
	}
	last := t.Requests[n-1].At - t.Requests[0].At
	return last + last/time.Duration(max(n-1, 1))
}

// Over returns the trace with its arrivals spread over so much time, in
// proportion: Span of the result is span, and its first request arrives at 0.
func (t *Trace) Over(span time.Duration) *Trace {
	old := t.Span()
	return t.mapped(func(r Request) Request {
		r.At -= t.Requests[0].At
		if old > 0 {
			r.At = time.Duration(float64(r.At) / float64(old) * float64(span))
		}
		return r
	})
}

// AtOnce returns the trace with all requests arriving at its beginning.
func (t *Trace) AtOnce() *Trace {
	return t.mapped(func(r Request) Request { r.At = 0; return r })
}

// Limit returns the trace with prompts and outputs cut so that a request needs at
// most so many tokens of KV cache in all, as an engine with that much context
// would have its clients do.
func (t *Trace) Limit(tokens int) *Trace {
	return t.mapped(func(r Request) Request {
		r.Output = max(min(r.Output, tokens/2), 1)
		r.Prompt = max(min(r.Prompt, tokens-r.Output), 1)
		r.Blocks = r.Blocks[:min(len(r.Blocks), (r.Prompt+BlockTokens-1)/BlockTokens)]
		return r
	})
}

func (t *Trace) mapped(f func(Request) Request) *Trace {
	requests := make([]Request, len(t.Requests))
	for i, r := range t.Requests {
		requests[i] = f(r)
	}
	return &Trace{t.Name, requests}
}

// Fit returns the trace with n requests: its first ones, or all of it repeated. A
// repetition starts where Span says, and its content is its own: its blocks are
// not those of the one before.
func (t *Trace) Fit(n int) *Trace {
	old := t.Requests
	if n <= len(old) || len(old) == 0 {
		return &Trace{t.Name, slices.Clone(old[:min(max(n, 0), len(old))])}
	}
	span := t.Span()
	requests := make([]Request, 0, n)
	for lap := uint64(0); len(requests) < n; lap++ {
		for _, r := range old[:min(len(old), n-len(requests))] {
			r.At += time.Duration(lap) * span
			if lap > 0 {
				blocks := make([]uint64, len(r.Blocks))
				for i, b := range r.Blocks {
					blocks[i] = b + lap<<lapShift
				}
				r.Blocks = blocks
			}
			requests = append(requests, r)
		}
	}
	return &Trace{t.Name, requests}
}

// lapShift leaves room for the blocks of a published trace, which are numbered
// from 0, and for as many repetitions as anybody could want.
const lapShift = 40

// Tokens returns the prompt and output tokens of all requests.
func (t *Trace) Tokens() (prompt, output int64) {
	for _, r := range t.Requests {
		prompt += int64(r.Prompt)
		output += int64(r.Output)
	}
	return prompt, output
}
