package fleetsim

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim/trace"
)

// Saturated returns how long a fleet works on the requests of a trace when it
// always has enough of them to fill its batches: the time by which a second helping
// of the same requests prolongs what all ranks do, on average, when all requests
// come at once and the WorkLeft oracle spreads them. The time to the end of one
// helping would be too long: towards the end the batches run empty, and the last
// long answers are made one by one.
//
// Engines that keep prefixes are taken not to: how much that saves is up to who
// chooses the workers. Such a fleet can bear a load above 1.
func Saturated(t *trace.Trace, engines []EngineConfig) (time.Duration, error) {
	engines = slices.Clone(engines)
	ranks := 0
	for i := range engines {
		engines[i].PrefixCache = false
		if !engines[i].Absent {
			ranks += max(engines[i].Ranks, 1)
		}
	}
	if ranks == 0 {
		return 0, badConfig("no engines")
	}
	var spent [2]time.Duration
	for i := range spent {
		r, err := Run(Config{Trace: t.Fit((i + 1) * len(t.Requests)).AtOnce(), Engines: engines, Chooser: WorkLeft})
		if err != nil {
			return 0, err
		}
		for _, k := range r.Ranks {
			spent[i] += k.Stepping / time.Duration(ranks)
		}
	}
	return spent[1] - spent[0], nil
}

// Calibrations remembers Saturated. The zero value is ready to use, from any
// goroutine.
type Calibrations struct {
	mu    sync.Mutex
	known map[uint64]time.Duration
}

var calibrationSeed = maphash.MakeSeed()

// AtLoad returns the trace with its arrivals at such a rate that they bring so
// much work as is that share of what the fleet does when Saturated: on average, over
// all of its time. A trace has busier and quieter stretches, and near 1 the busier
// ones bring more than the fleet can do for a while.
func (c *Calibrations) AtLoad(t *trace.Trace, engines []EngineConfig, load float64) (*trace.Trace, error) {
	if !(load > 0) {
		return nil, badConfig("a load of %v", load)
	}
	var h maphash.Hash
	h.SetSeed(calibrationSeed)
	maphash.WriteComparable(&h, len(t.Requests))
	for _, r := range t.Requests {
		maphash.WriteComparable(&h, [2]int{r.Prompt, r.Output})
	}
	for _, e := range engines {
		e.PrefixCache = false
		maphash.WriteComparable(&h, e)
	}
	key := h.Sum64()

	c.mu.Lock()
	span, ok := c.known[key]
	c.mu.Unlock()
	if !ok {
		var err error
		if span, err = Saturated(t, engines); err != nil {
			return nil, err
		}
		c.mu.Lock()
		if c.known == nil {
			c.known = make(map[uint64]time.Duration)
		}
		c.known[key] = span
		c.mu.Unlock()
	}
	return t.Over(time.Duration(float64(span) / load)), nil
}
