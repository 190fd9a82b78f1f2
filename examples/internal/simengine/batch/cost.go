package batch

import (
	"math"
	"time"
)

// Cost says how long one step of a rank takes:
//
//	Base + prefill tokens · PerPrefillToken
//	     + decoding requests · PerDecode + KV tokens they read · PerKVToken
//
// A zero Cost is replaced by [H100x8B]; in any other, a zero term costs nothing.
type Cost struct {
	Base            time.Duration
	PerPrefillToken time.Duration
	PerDecode       time.Duration
	PerKVToken      time.Duration
}

// H100x8B is about what an 8B model takes on one H100: 30,000 prompt tokens per
// second, and 7 ms for a decode step of a small batch.
var H100x8B = Cost{
	Base:            6500 * time.Microsecond,
	PerPrefillToken: 33 * time.Microsecond,
	PerDecode:       15 * time.Microsecond,
	PerKVToken:      50 * time.Nanosecond,
}

// step returns the time of a step at speed 1.
func (c Cost) step(prefill, decodes, kvRead int64) time.Duration {
	return c.prefill(prefill) +
		time.Duration(decodes)*c.PerDecode +
		time.Duration(kvRead)*c.PerKVToken
}

// prefill returns what the step would have taken with its prompt tokens alone.
func (c Cost) prefill(tokens int64) time.Duration {
	return c.Base + time.Duration(tokens)*c.PerPrefillToken
}

// scaled divides d by a speed. It saturates: an engine slowed to a standstill is a
// thing to simulate, and must not overflow into one that is infinitely fast.
func scaled(d time.Duration, speed float64) time.Duration {
	return time.Duration(min(float64(d)/speed, math.MaxInt64/4))
}
