package load

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Report is one engine's word about the load of one rank, in no engine's
// dialect. Running and Waiting are always known: a message without them is not
// a report.
type Report struct {
	Running int64 // requests in the running batch
	Waiting int64 // requests queued

	WaitingTokens Maybe[int64] // prompt tokens queued that are still to be computed

	// KVUsed and KVCapacity are in the engine's own unit, tokens or pages: only
	// their ratio means anything across engines. A known capacity of 0 says that
	// the engine is still booting.
	KVUsed     Maybe[int64]
	KVCapacity Maybe[int64]
	KVUsage    Maybe[float64] // share of the KV cache in use, 0 to 1

	MaxRunning Maybe[int64] // requests that the engine runs at most at once

	PrefillTokens Maybe[int64] // prompt tokens computed since the engine started
	PrefillBusyUS Maybe[int64] // microseconds spent computing them

	EngineTime Maybe[float64] // the engine's wall clock, Unix seconds; shown, never compared
	Received   time.Time      // when it got here; the zero time means now
	Seq        Maybe[int64]   // sequence number of the transport; informational

	// Asked is, for a report that was asked for, the moment before the question:
	// the engine may have answered before it saw what was sent since. The zero
	// Moment is that of the Put.
	Asked Moment `json:"-"`

	Source Source
	Flaws  Flaws
}

// Source says how a report got here. Where two sources feed one rank, the
// higher one owns it for as long as its report is fresh.
type Source uint8

const (
	SourcePoll Source = iota + 1 // polled over HTTP (/v1/loads)
	SourcePush                   // published by the engine on a load socket
	SourceHost                   // put there by the host program itself
)

func (s Source) String() string {
	switch s {
	case SourcePoll:
		return "poll"
	case SourcePush:
		return "push"
	case SourceHost:
		return "host"
	}
	return "unknown"
}

// MarshalText encodes the source as its name.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Flaws says what was wrong with a report that was taken all the same. What is
// named here was made unknown; the table counts flawed reports per rank.
type Flaws uint8

const (
	// FlawField: a field that is not a queue count held a number that no
	// working engine sends.
	FlawField Flaws = 1 << iota
	// FlawKVUsed: more KV cache in use than there is.
	FlawKVUsed
	// FlawKVUsage: a usage that is not a number from 0 to 1.
	FlawKVUsage
)

func (f Flaws) String() string {
	var names []string
	for _, flaw := range [...]struct {
		bit  Flaws
		name string
	}{{FlawField, "field"}, {FlawKVUsed, "kv_used"}, {FlawKVUsage, "kv_usage"}} {
		if f&flaw.bit != 0 {
			names = append(names, flaw.name)
		}
	}
	return strings.Join(names, ",")
}

// Errors that a Put returns. None of them needs handling: a report that is not
// taken leaves everything as it was.
var (
	// ErrGone is returned for a worker that was removed or a feed that was
	// replaced since the handle was made.
	ErrGone = errors.New("load: worker or feed is gone")
	// ErrNoRank is returned for a rank outside the feed's advertised ranks.
	ErrNoRank = errors.New("load: no such rank")
	// ErrOutranked is returned while a higher source's report of the rank is
	// still fresh.
	ErrOutranked = errors.New("load: rank is owned by a higher source")
	// ErrSuperseded is returned for a report that was received before the one
	// that is there: two answers that crossed.
	ErrSuperseded = errors.New("load: a newer report is there")
	// ErrBadReport is returned for a report with a negative number where none
	// can be.
	ErrBadReport = errors.New("load: report with an impossible number")
)

// depth is the number of requests at the rank.
func (r *Report) depth() int64 { return addSat(r.Running, r.Waiting) }

// check refuses what no engine can mean by a count, and makes unknown what is
// wrong with the rest: a queue length is worth having also from an engine that
// has lost track of its cache.
func (r *Report) check() error {
	if r.Running < 0 || r.Waiting < 0 {
		return fmt.Errorf("%w: running %d, waiting %d", ErrBadReport, r.Running, r.Waiting)
	}
	for _, m := range [...]*Maybe[int64]{&r.WaitingTokens, &r.KVUsed, &r.KVCapacity, &r.MaxRunning, &r.PrefillTokens, &r.PrefillBusyUS} {
		if m.value < 0 {
			*m = Maybe[int64]{}
			r.Flaws |= FlawField
		}
	}
	if used, ok := r.KVUsed.Get(); ok {
		if capacity, ok := r.KVCapacity.Get(); ok && capacity > 0 && used > capacity {
			r.KVUsed, r.KVUsage = Maybe[int64]{}, Maybe[float64]{}
			r.Flaws |= FlawKVUsed
		}
	}
	if v := r.EngineTime.value; math.IsNaN(v) || math.IsInf(v, 0) {
		r.EngineTime = Maybe[float64]{}
		r.Flaws |= FlawField
	}
	// The negated form also catches NaN, which every comparison lets through.
	if u := r.KVUsage.value; !(u >= 0 && u <= 1) {
		r.KVUsage = Maybe[float64]{}
		r.Flaws |= FlawKVUsage
	}
	return nil
}

// addSat adds two counts that are not negative and stops at the largest.
func addSat(a, b int64) int64 {
	if s := a + b; s >= 0 {
		return s
	}
	return math.MaxInt64
}
