package vllm

// Outputs is one message of an engine core (vllm.v1.engine.EngineCoreOutputs):
//
//	[engine_index, outputs, scheduler_stats|nil, timestamp, utility_output|nil,
//	 finished_requests|nil, wave_complete|nil, start_wave|nil, ...]
//
// What an older sender leaves off at the end, or a future encoder for being at
// its default, reads as if it were nil.
type Outputs struct {
	Kind        Kind
	EngineIndex int // of the rank that sent the message; of a KindUtilityReply it may be 0 whatever rank that was

	Load Load
	// LoadErr is why the statistics, or a part of them, are refused, a *DecodeError.
	// If Load.Known is set it is the KV usage that is, and the counts stand. So does
	// the rest of the message in any case.
	LoadErr error

	Requests int // number of requests with an output in the message; 0 after an error

	// Finished holds the ids of the requests that have ended, each once: first
	// those whose output has a finish reason, then those that the engine lists as
	// gone besides, as it does where there are several ranks. The ids point into the
	// payload.
	//
	// A turn of a session that takes more input ends like a request, but is not
	// listed as gone: vLLM's own front end goes by the list alone, and so sends the
	// next turn to the rank that has the KV cache of this one.
	Finished [][]byte
	Reasons  []FinishReason // why each of Finished has ended

	// Data-parallel ranks that must step together work in waves. WaveComplete is
	// the number of one that has ended on all of them, StartWave that of one that
	// a rank has begun and the others have to join.
	WaveComplete Maybe[int64]
	StartWave    Maybe[int64]

	payload []byte
	outputs []output
	ended   idSet
}

// Load is what the scheduler of a rank says of itself after a step, when the
// requests that the message ends have left it.
type Load struct {
	// Known is whether Running and Waiting were both there. If not, both are 0,
	// and that is not the reading of an idle rank.
	Known bool

	Running int64 // requests in the running batch
	Waiting int64 // requests queued (num_waiting_reqs)

	// Skipped is how many more are queued that could not run even if there were
	// room (num_skipped_waiting_reqs): their grammar is being compiled, their KV
	// blocks are on the way, too many adapters are in use. An engine that does not
	// send it has these in Waiting, so that Waiting + Skipped.Or(0) is the whole
	// queue of any.
	Skipped Maybe[int64]

	KVUsage Maybe[float64] // share of the KV cache in use, 0 to 1
}

// Kind says what a message speaks of.
type Kind uint8

const (
	KindUnknown      Kind = iota // nothing decoded, or the last Decode failed
	KindBatch                    // a rank: its outputs, its load, what has ended there, or nothing of these; a wave maybe as well
	KindUtilityReply             // a call of the front end that is answered, and nothing else
	KindWaveNotice               // a wave, and nothing else
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

// FinishReason is why a request has ended.
type FinishReason uint8

const (
	FinishNone       FinishReason = iota // it has not: nil on the wire
	FinishStop                           // 0: a stop token or a stop string
	FinishLength                         // 1: as many tokens as were asked for, or as the model can take
	FinishAbort                          // 2: by the client
	FinishError                          // 3: the engine failed, and not for the request's fault
	FinishRepetition                     // 4: cut off for repeating itself
	FinishOther                          // any other integer; the request has ended all the same
	FinishUnsaid                         // listed in finished_requests alone
)

var finishNames = [...]string{"none", "stop", "length", "abort", "error", "repetition", "other", "unsaid"}

// String returns the name of the reason, such as "length".
func (r FinishReason) String() string {
	if int(r) >= len(finishNames) {
		return "unknown"
	}
	return finishNames[r]
}

// finishOfWire are the reasons by their numbers on the wire.
var finishOfWire = [...]FinishReason{FinishStop, FinishLength, FinishAbort, FinishError, FinishRepetition}

// Reset empties o but keeps the capacity of its slices.
func (o *Outputs) Reset() {
	clear(o.Finished) // or the ids would keep their payload alive
	*o = Outputs{Finished: o.Finished[:0], Reasons: o.Reasons[:0], outputs: o.outputs[:0], ended: o.ended}
	o.ended.reset()
}
