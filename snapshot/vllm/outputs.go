package vllm

import "fmt"

// Outputs is one message of an engine core (vllm.v1.engine.EngineCoreOutputs):
//
//	[engine_index, outputs, scheduler_stats|nil, timestamp, utility_output|nil,
//	 finished_requests|nil, wave_complete|nil, start_wave|nil, ...]
//
// What an older sender leaves off at the end, or a future encoder for being at
// its default, reads as if it were nil.
type Outputs struct {
	// EngineIndex is the rank that sent the message, as the engine counts them.
	// It means nothing unless Kind is KindBatch.
	EngineIndex int
	Kind        Kind

	Load    Load
	LoadErr error // *DecodeError that says why the statistics that were there are no load

	Requests int // how many outputs there are, one for each request that got any

	// Finished are the ids of the requests that have ended, each once: those
	// whose output has a finish reason, and those that the engine lists as gone
	// for whatever reason. They point into the payload. Reasons has the reason of
	// each.
	Finished [][]byte
	Reasons  []FinishReason

	// Data-parallel engines work in waves: WaveComplete is the number of the one
	// that has ended, on all ranks; StartWave that of the one that a request has
	// started. A batch may carry one too.
	WaveComplete Maybe[int64]
	StartWave    Maybe[int64]

	payload []byte
	outputs []output
	ended   idSet
}

// Load is what the scheduler of a rank says of itself.
type Load struct {
	// Known is whether this is a reading of the rank: whether Running and Waiting
	// were both there.
	Known   bool
	Running int64 // requests in the running batch
	Waiting int64 // requests queued: num_waiting_reqs

	// Skipped is the requests that are queued as well but cannot run yet: their
	// adapter has no slot, their grammar is being compiled, their KV blocks are on
	// their way. Newer engines count them here, in num_skipped_waiting_reqs, and
	// not in Waiting; from an older one, which does not know the field, they are
	// in Waiting.
	Skipped Maybe[int64]

	KVUsage Maybe[float64] // share of the KV cache in use, 0 to 1
}

// Maybe is a number that a message need not have. Value is 0 unless Known.
type Maybe[T int64 | float64] struct {
	Value T
	Known bool
}

// Kind says what a message speaks of.
type Kind uint8

// The kinds. A message that is a batch and something else besides, which no
// engine sends today, is a KindBatch.
const (
	KindUnknown      Kind = iota // nothing decoded, or the last Decode failed
	KindBatch                    // of the rank in EngineIndex: its outputs, its load, what has ended; maybe none of them
	KindUtilityReply             // of the answer to a call of the front end
	KindWaveNotice               // of a wave of all ranks
)

// String returns the name of the kind, such as "utility_reply".
func (k Kind) String() string {
	switch k {
	case KindBatch:
		return "batch"
	case KindUtilityReply:
		return "utility_reply"
	case KindWaveNotice:
		return "wave_notice"
	}
	return "unknown"
}

// FinishReason says why a request has ended.
type FinishReason uint8

// The reasons. All but Running end the request.
const (
	Running     FinishReason = iota // it has not ended
	Unsaid                          // only listed in finished_requests
	Stop                            // a stop string or token
	Length                          // as long as it may become
	Abort                           // given up by the client
	Error                           // failed in the engine
	Repetition                      // cut off for repeating itself
	OtherReason                     // a number that this package does not know
)

var reasonNames = [...]string{"running", "unsaid", "stop", "length", "abort", "error", "repetition", "other"}

// String returns the name of the reason, such as "length".
func (r FinishReason) String() string {
	if int(r) >= len(reasonNames) {
		return fmt.Sprintf("FinishReason(%d)", uint8(r))
	}
	return reasonNames[r]
}

// Reset empties o, and keeps the room that its slices have.
func (o *Outputs) Reset() {
	clear(o.Finished) // or they would keep the payload they point into
	*o = Outputs{Finished: o.Finished[:0], Reasons: o.Reasons[:0], outputs: o.outputs[:0], ended: o.ended}
	o.ended.reset()
}
