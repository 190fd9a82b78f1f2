package vllm

import (
	"math"

	"github.com/plimsoll-go/plimsoll/internal/msgpack"
	"github.com/tinylib/msgp/msgp"
)

// The keys of scheduler_stats that are read.
const (
	keyRunning    = "num_running_reqs"
	keyWaiting    = "num_waiting_reqs"
	keySkipped    = "num_skipped_waiting_reqs"
	keyKVUsage    = "kv_cache_usage"
	keyOldKVUsage = "gpu_cache_usage" // what very old engines call it
)

// readStats reads the load. What is wrong with it goes into LoadErr; an error is
// one that leaves no way to go on. A count that is wrong costs the load, because
// nothing can be compared without it, and a KV usage that is wrong only itself.
func (o *Outputs) readStats(p []byte, i int) (int, error) {
	pairs, next, err := msgpack.ReadMapHeader(p, i)
	switch err {
	case nil:
	case ErrType:
		o.LoadErr = decodeError(p, positionNames[posSchedulerStats], i, err)
		return msgpack.SkipValues(p, i, 1)
	default:
		return i, err
	}
	i = next
	var (
		running, waiting, skipped stat[int64]
		usage                     stat[float64]
		usageKey                  string // by which the usage was there, of whatever value
	)
	for range pairs {
		key, next, err := msgpack.ReadString(p, i)
		if err != nil { // not one of ours
			if next, err = msgpack.SkipValues(p, i, 1); err != nil {
				return i, err
			}
		}
		i = next
		switch string(key) {
		case keyRunning:
			running = readCount(p, i)
		case keyWaiting:
			waiting = readCount(p, i)
		case keySkipped:
			skipped = readCount(p, i)
		case keyKVUsage:
			usage, usageKey = readUsage(p, i), keyKVUsage
		case keyOldKVUsage:
			if usageKey != keyKVUsage {
				usage, usageKey = readUsage(p, i), keyOldKVUsage
			}
		}
		if i, err = msgpack.SkipValues(p, i, 1); err != nil {
			return i, err
		}
	}
	switch {
	case running.err != nil:
		o.LoadErr = decodeError(p, keyRunning, running.at, running.err)
		return i, nil
	case waiting.err != nil:
		o.LoadErr = decodeError(p, keyWaiting, waiting.at, waiting.err)
		return i, nil
	case skipped.err != nil:
		o.LoadErr = decodeError(p, keySkipped, skipped.at, skipped.err)
		return i, nil
	}
	if usage.err != nil {
		o.LoadErr = decodeError(p, usageKey, usage.at, usage.err)
	}
	o.Load = Load{Skipped: skipped.Maybe, KVUsage: usage.Maybe}
	if running.known && waiting.known {
		o.Load.Known, o.Load.Running, o.Load.Waiting = true, running.value, waiting.value
	}
	return i, nil
}

// stat is a number, or what is wrong with it and where.
type stat[T int64 | float64] struct {
	Maybe[T]
	at  int
	err error
}

// readCount reads a count without stepping over it.
func readCount(p []byte, i int) stat[int64] {
	if msgp.IsNil(p[i:]) {
		return stat[int64]{}
	}
	v, _, err := msgpack.ReadCount(p, i)
	if err != nil {
		return stat[int64]{at: i, err: err}
	}
	return stat[int64]{Maybe: Known(int64(v))}
}

// readUsage reads a share without stepping over it.
func readUsage(p []byte, i int) stat[float64] {
	if msgp.IsNil(p[i:]) {
		return stat[float64]{}
	}
	bits, _, err := msgpack.ReadAmount(p, i)
	share := math.Float64frombits(bits)
	if err == nil && share > 1 {
		err = ErrOutOfRange
	}
	if err != nil {
		return stat[float64]{at: i, err: err}
	}
	return stat[float64]{Maybe: Known(share)}
}
