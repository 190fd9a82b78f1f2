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
	Running int64 `json:"running"` // requests in the running batch
	Waiting int64 `json:"waiting"` // requests queued

	WaitingTokens Maybe[int64] `json:"waiting_tokens"` // prompt tokens queued that are still to be computed

	// KVUsed and KVCapacity are in tokens, or in a report of SourceBatch in pages of a
	// size that the engine does not tell: only their ratio means anything across
	// engines. A known capacity of 0 says that the engine is still booting.
	KVUsed     Maybe[int64]   `json:"kv_used"`
	KVCapacity Maybe[int64]   `json:"kv_capacity"`
	KVUsage    Maybe[float64] `json:"kv_usage"` // share of the KV cache in use, 0 to 1

	MaxRunning Maybe[int64] `json:"max_running"` // requests that the engine runs at most at once

	PrefillTokens Maybe[int64] `json:"prefill_tokens"`  // prompt tokens computed since the engine started
	PrefillBusyUS Maybe[int64] `json:"prefill_busy_us"` // microseconds spent computing them

	EngineTime Maybe[float64] `json:"engine_time"` // the engine's wall clock, Unix seconds; shown, never compared
	Received   time.Time      `json:"received"`    // when it got here; the zero time means now
	Seq        Maybe[int64]   `json:"seq"`         // sequence number of the transport; informational

	// Asked is, for a report that was asked for, the moment before the question in the
	// books of its worker: the engine may have answered before it saw what was sent
	// since. The zero Moment, and one of another worker, is that of the Put.
	Asked Moment `json:"-"`

	Source Source `json:"source"`
	Flaws  Flaws  `json:"flaws,omitempty"`

	// quiet says that the queue counts are 0 by the word of a Connector, not of
	// the engine.
	quiet bool
}

// silence makes the queue counts 0. What the cache holds stays: it is kept for
// the next prompt that begins alike.
func (r *Report) silence() {
	r.Running, r.Waiting, r.quiet = 0, 0, true
	if r.WaitingTokens.known {
		r.WaitingTokens.value = 0
	}
}

// Source says how a report got here. Where two sources feed one rank, the
// higher one owns it for as long as its report is fresh.
type Source uint8

const (
	SourcePoll  Source = iota + 1 // polled over HTTP (/v1/loads)
	SourcePush                    // published by the engine on a load socket
	SourceBatch                   // rode on an output batch, through a Connector
	SourceHost                    // put there by the host program itself
)

func (s Source) String() string {
	switch s {
	case SourcePoll:
		return "poll"
	case SourcePush:
		return "push"
	case SourceBatch:
		return "batch"
	case SourceHost:
		return "host"
	}
	return "unknown"
}

// MarshalText encodes the source as its name.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText decodes what MarshalText encodes.
func (s *Source) UnmarshalText(b []byte) error { return byName(s, b, SourceHost) }

// byName finds the value up to last that has the name.
func byName[T interface {
	~uint8
	fmt.Stringer
}](v *T, name []byte, last T) error {
	for i := T(0); i <= last; i++ {
		if i.String() == string(name) {
			*v = i
			return nil
		}
	}
	return fmt.Errorf("load: unknown name %q", name)
}

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
	for _, flaw := range flawNames {
		if f&flaw.bit != 0 {
			names = append(names, flaw.name)
		}
	}
	return strings.Join(names, ",")
}

var flawNames = [...]struct {
	bit  Flaws
	name string
}{{FlawField, "field"}, {FlawKVUsed, "kv_used"}, {FlawKVUsage, "kv_usage"}}

// MarshalText encodes the flaws as their names, separated by commas.
func (f Flaws) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText decodes what MarshalText encodes.
func (f *Flaws) UnmarshalText(b []byte) error {
	*f = 0
	for name := range strings.SplitSeq(string(b), ",") {
		known := name == ""
		for _, flaw := range flawNames {
			if flaw.name == name {
				*f |= flaw.bit
				known = true
			}
		}
		if !known {
			return fmt.Errorf("load: unknown flaw %q", name)
		}
	}
	return nil
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

// load fields that a report may carry, for what has never been anything but 0.
var fieldNames = [...]string{"running", "waiting", "waiting_tokens", "kv_used", "kv_capacity", "kv_usage", "max_running", "prefill_tokens", "prefill_busy_us"}

// nonzero has the bit of each of fieldNames set that is known and not 0.
func (r *Report) nonzero() (set uint16) {
	for i, isSet := range [len(fieldNames)]bool{
		r.Running != 0, r.Waiting != 0, r.WaitingTokens.value != 0, r.KVUsed.value != 0, r.KVCapacity.value != 0,
		r.KVUsage.value != 0, r.MaxRunning.value != 0, r.PrefillTokens.value != 0, r.PrefillBusyUS.value != 0,
	} {
		if isSet {
			set |= 1 << i
		}
	}
	return set
}

// depth is the number of requests at the rank.
func (r *Report) depth() int64 { return addSat(r.Running, r.Waiting) }

// usageFromTokens is the KV usage where only its parts are told. More in use than
// there is, is for check to refuse.
func (r *Report) usageFromTokens() Maybe[float64] {
	used, ok := r.KVUsed.Get()
	if capacity, known := r.KVCapacity.Get(); ok && known && used >= 0 && used <= capacity && capacity > 0 {
		return Known(float64(used) / float64(capacity))
	}
	return Maybe[float64]{}
}

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
