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
// one that leaves no way to go on.
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
		running, waiting, skipped stat
		usage, oldUsage           Maybe[float64]
		named                     bool // whether the usage was there by its newer name, of whatever value
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
			running = readStat(p, i)
		case keyWaiting:
			waiting = readStat(p, i)
		case keySkipped:
			skipped = readStat(p, i)
		case keyKVUsage:
			usage, named = readUsage(p, i), true
		case keyOldKVUsage:
			oldUsage = readUsage(p, i)
		}
		if i, err = msgpack.SkipValues(p, i, 1); err != nil {
			return i, err
		}
	}
	if !named {
		usage = oldUsage
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
	o.Load = Load{Skipped: skipped.Maybe, KVUsage: usage}
	if running.known && waiting.known {
		o.Load.Known, o.Load.Running, o.Load.Waiting = true, running.value, waiting.value
	}
	return i, nil
}

// stat is a count, or what is wrong with it and where.
type stat struct {
	Maybe[int64]
	at  int
	err error
}

// readStat reads a count without stepping over it.
func readStat(p []byte, i int) stat {
	if msgp.IsNil(p[i:]) {
		return stat{}
	}
	v, _, err := msgpack.ReadCount(p, i)
	return stat{Maybe[int64]{int64(v), err == nil}, i, err}
}

// readUsage reads a share without stepping over it.
func readUsage(p []byte, i int) Maybe[float64] {
	bits, _, err := msgpack.ReadAmount(p, i)
	if share := math.Float64frombits(bits); err == nil && share <= 1 {
		return Known(share)
	}
	return Maybe[float64]{}
}
