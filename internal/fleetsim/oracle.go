package fleetsim

import "time"

// Chooser says who chooses the worker of an arrival: a Policy or an Oracle.
type Chooser interface {
	// choose returns where a request goes, and on which rank, or -1 to leave that to
	// the engine; nil if there is nowhere.
	choose(s *sim, f *flight, req int32) (e *engine, rank int)
}

// Oracle sees the true state of all engines at the instant of each arrival,
// requests that are on the way included. Whatever the number of gateways, it is
// one. It sends a request to the rank with the least cost, the first in turn among
// equals.
type Oracle uint8

const (
	// Instant has the costs of the rule that least_work starts from, with truth in
	// place of estimates: so many microseconds for each prompt token that is queued or
	// being computed, and of the request itself as far as it is not cached, so many
	// milliseconds for each request, and a penalty on a KV cache that is nearly full.
	// It does not know how long answers will be.
	Instant Oracle = iota + 1

	// WorkLeft has the time that the rank needs for all that is there, with the
	// request, the lengths of all answers known.
	WorkLeft
)

func (o Oracle) String() string {
	switch o {
	case Instant:
		return "instant"
	case WorkLeft:
		return "work_left"
	}
	return "unknown"
}

func (o Oracle) choose(s *sim, f *flight, req int32) (*engine, int) {
	var best *rank
	var lowest float64
	n := len(s.ranks)
	for i := range n {
		r := s.ranks[(int(req)+i)%n]
		if !r.engine.up {
			continue
		}
		var cost float64
		if o == Instant {
			cost = r.instantCost(f)
		} else {
			cost = r.workLeft(f)
		}
		if best == nil || cost < lowest {
			best, lowest = r, cost
		}
	}
	if best == nil {
		return nil, 0
	}
	return best.engine, best.index
}

const (
	costPerToken   = float64(50 * time.Microsecond)
	costPerRequest = float64(2 * time.Millisecond)
)

func (r *rank) instantCost(f *flight) float64 {
	uncached := float64(r.uncached(f))
	tokens := float64(r.waitingTokens+r.prefillTokens+r.comingTokens) + uncached
	requests := float64(r.requests()+r.coming) + 1
	kv := (float64(r.kvUsed()+r.waitingTokens+r.comingTokens) + uncached) / float64(r.config.KVTokens)
	cost := (costPerToken*tokens + costPerRequest*requests) / r.engine.speed
	if over := (kv - 0.8) / 0.2; over > 0 {
		cost += over * over * float64(time.Second)
	}
	return cost
}

// workLeft is how long it takes to work off what is there and the request: its
// prompts, and its tokens with their share of a full batch. Not of the batch that
// there is: then the last long answer on a rank that is nearly idle would look like
// a lot of work, though any number of others could be made along with it.
func (r *rank) workLeft(f *flight) float64 {
	c := r.config
	uncached := float64(r.uncached(f))
	prompts := float64(r.waitingTokens+r.prefillTokens+r.comingTokens) + uncached
	requests := float64(r.requests()+r.coming) + 1
	outputs := float64(r.outputTokens+r.comingOutput) + float64(f.output)
	// Half of what an answer adds to its context is there on average.
	context := (float64(r.kvUsed()+r.waitingTokens+r.comingTokens) + uncached + outputs/2) / requests
	batch := min(float64(c.MaxRunning), max(float64(c.KVTokens)/context, 1))
	perToken := float64(c.Base)/batch + float64(c.PerRequest) + context*float64(c.PerKVToken)
	return (prompts*float64(c.PrefillPerToken) + outputs*perToken) / r.engine.speed
}
