package load

import (
	"cmp"
	"errors"

	"github.com/plimsoll-go/plimsoll/snapshot/vllm"
	"github.com/plimsoll-go/plimsoll/tokenspeed"
)

// Batch is what an engine's output batch says to a router, in no engine's
// dialect. FromTokenSpeed and FromVLLM make it.
type Batch struct {
	// Rank is the index of the engine that made it, as the engine counts (see
	// ConnectorConfig.FirstIndex). NoRank says that the message is about no rank that
	// is known: a batch of a sender too old to tell, a reply to something else, or
	// bytes that did not decode.
	Rank int

	Load     Report   // sampled when the batch was made, by TokenSpeed before its own ends
	HasLoad  bool     // false: Load means nothing, and the rank's load stays what it was
	Finished [][]byte // ids of the requests that it ends; not kept

	// Err is why the message, or its load, could not be read as a whole. What is
	// here besides can be trusted. It is counted, and returned by Observe.
	Err error
}

// FromTokenSpeed returns what a decoded batch of a TokenSpeed engine says, given
// the error of its Decode: of a ragged one the ends that can be trusted, of any
// other that failed nothing but the error. A batch of nine elements names no rank,
// and has no load. A host that decodes the tokens too passes the Summary of its
// Batch.
//
// Pages are its unit of KV cache. Depending on its version (0.1.1 for one), the
// running requests include those that wait. Nothing on the wire tells, so a queue
// counts twice there; where all requests are ours that can only make a rank that
// queues look worse.
func FromTokenSpeed(s *tokenspeed.Summary, err error) Batch {
	if err != nil && !errors.Is(err, tokenspeed.ErrRagged) {
		return Batch{Rank: NoRank, Err: err}
	}
	b := Batch{Rank: s.EngineIndex, Finished: s.Finished, HasLoad: s.Load.Known, Err: cmp.Or(err, s.LoadErr)}
	if !s.HasEngineIndex() {
		b.Rank = NoRank
	}
	if l := &s.Load; l.Known {
		b.Load = Report{
			Running: l.Running, Waiting: l.Waiting,
			KVUsed: Known(l.KVActivePages), KVCapacity: Known(l.KVTotalPages), KVUsage: Known(l.KVUsage()),
			Source: SourceBatch,
		}
	}
	return b
}

// FromVLLM returns what a decoded message of a vLLM engine core says, given the
// error of its Decode. Of a message that is no batch, a reply to a call or a
// notice of a wave, that is nothing: it bears the index of a rank and tells
// nothing of it.
//
// Requests that cannot run yet for reasons of their own are queued too: older
// versions count them as waiting, newer ones apart, and Report.Waiting has them in
// either case.
func FromVLLM(o *vllm.Outputs, err error) Batch {
	if err != nil || o.Kind != vllm.KindBatch {
		return Batch{Rank: NoRank, Err: err}
	}
	b := Batch{Rank: o.EngineIndex, Finished: o.Finished, HasLoad: o.Load.Known, Err: o.LoadErr}
	if l := &o.Load; l.Known {
		b.Err = nil // if there is one it is about the KV usage, which the report does without
		b.Load = Report{
			Running: l.Running, Waiting: addSat(l.Waiting, l.Skipped.Or(0)),
			KVUsage: unless(!l.KVUsage.IsKnown(), l.KVUsage.Or(0)),
			Source:  SourceBatch,
		}
		if o.LoadErr != nil {
			b.Load.Flaws = FlawKVUsage
		}
	}
	return b
}
