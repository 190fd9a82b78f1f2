package vllm

import (
	"math"

	"github.com/plimsoll-go/plimsoll/internal/msgpack"
	"github.com/tinylib/msgp/msgp"
)

// The counts of the statistics.
const (
	statRunning = iota
	statWaiting
	statSkipped

	numStats
)

var statNames = [numStats]string{"num_running_reqs", "num_waiting_reqs", "num_skipped_waiting_reqs"}

// stat is one count: at 0 it was not there or nil.
type stat struct {
	n   uint64
	at  int
	err error
}

// readStats reads the load. Only what keeps the rest of the message from being
// read is an error.
func (o *Outputs) readStats(p []byte, i int) (int, error) {
	pairs, next, err := msgpack.ReadMapHeader(p, i)
	if err == ErrType {
		o.LoadErr = &DecodeError{Offset: i, Field: "scheduler_stats", Err: err}
		return skip(p, i)
	}
	if err != nil {
		return i, err
	}
	i = next
	var (
		counts [numStats]stat
		usage  Maybe[float64]
		named  bool // kv_cache_usage was there, and outdoes the name it had once
	)
	for range pairs {
		key, next, err := msgpack.ReadString(p, i)
		if err != nil {
			if next, err = skip(p, i); err != nil {
				return i, err
			}
			key = nil
		}
		i = next
		switch string(key) {
		case statNames[statRunning]:
			counts[statRunning] = readStat(p, i)
		case statNames[statWaiting]:
			counts[statWaiting] = readStat(p, i)
		case statNames[statSkipped]:
			counts[statSkipped] = readStat(p, i)
		case "kv_cache_usage":
			usage, named = readUsage(p, i), true
		case "gpu_cache_usage":
			if !named {
				usage = readUsage(p, i)
			}
		}
		if i, err = skip(p, i); err != nil {
			return i, err
		}
	}
	for k, c := range counts {
		if c.err != nil {
			o.LoadErr = &DecodeError{Offset: c.at, Field: statNames[k], Err: c.err}
			return i, nil
		}
	}
	o.Load.KVUsage = usage
	if c := counts[statSkipped]; c.at != 0 {
		o.Load.Skipped = Maybe[int64]{int64(c.n), true}
	}
	if counts[statRunning].at != 0 && counts[statWaiting].at != 0 {
		o.Load.Known = true
		o.Load.Running, o.Load.Waiting = int64(counts[statRunning].n), int64(counts[statWaiting].n)
	}
	return i, nil
}

func readStat(p []byte, i int) stat {
	if msgp.IsNil(p[i:]) {
		return stat{}
	}
	n, _, err := msgpack.ReadCount(p, i)
	return stat{n, i, err}
}

func readUsage(p []byte, i int) Maybe[float64] {
	bits, _, err := msgpack.ReadAmount(p, i)
	if f := math.Float64frombits(bits); err == nil && f <= 1 {
		return Maybe[float64]{f, true}
	}
	return Maybe[float64]{}
}
