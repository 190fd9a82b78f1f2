package tokenspeed

// MaxPayload is the largest payload that is decoded, in bytes. A step of 256
// requests takes some 12 KiB; with logprobs, and many tokens for each, it can
// take a few MiB.
const MaxPayload = 16 << 20

// MaxEngineIndex is the largest index an engine can have: it introduces itself
// by two bytes.
const MaxEngineIndex = 1<<16 - 1

// Summary is what a router needs of a batch: which rank made it, that rank's
// load, and the requests that the batch ends.
type Summary struct {
	// Elements is the length of the array that was decoded: 9, 10, 14 or more. It
	// says which columns the sender knew.
	Elements int
	// EngineIndex is that of the rank: the sender's --zmq-engine-index plus its DP
	// rank. See HasEngineIndex.
	EngineIndex int

	Load Load
	// LoadErr is why a load that was there is refused, a *DecodeError: a count that
	// is none, or more pages in use than there are. The rest of the batch stands.
	LoadErr error

	Requests int            // number of requests in the batch; 0 after an error, also of a ragged one
	Finished [][]byte       // ids of the requests that it ends, in the order of the batch; they point into the payload
	Reasons  []FinishReason // why each of Finished has ended
}

// HasEngineIndex reports whether the sender has said which rank it is. An array of
// nine elements has no place for that, and its EngineIndex is 0.
func (s *Summary) HasEngineIndex() bool {
	return s.Elements == 0 || s.Elements >= indexElements // 0: s was made here
}

// Load is what a rank says of itself in a batch. The engine takes it when it plans
// a step, so that requests which the batch ends are still counted.
type Load struct {
	// Known is false when there was no load: no page count, from a sender that is
	// older or has not looked yet, or one that was refused. All is 0 then, and that
	// is not the reading of an idle rank.
	Known bool

	Running       int64 // requests admitted; depending on the version, those that wait are among them
	Waiting       int64 // requests queued
	KVActivePages int64 // KV pages in use
	KVTotalPages  int64 // KV pages there are
}

// KVUsage returns the share of KV pages in use, from 0 to 1. It is 0 when the
// load is not known.
func (l Load) KVUsage() float64 {
	if l.KVTotalPages == 0 {
		return 0
	}
	return float64(l.KVActivePages) / float64(l.KVTotalPages)
}

// FinishReason is why a request has ended.
type FinishReason uint8

const (
	FinishNone   FinishReason = iota // it has not: "" on the wire
	FinishStop                       // "stop": a stop token or a stop string
	FinishLength                     // "length": as many tokens as were asked for
	FinishAbort                      // "abort": by the client, or the engine has refused it
	FinishOther                      // anything else that is not empty; the request has ended all the same
)

var finishNames = [...]string{"none", "stop", "length", "abort", "other"}

// String returns the name of the reason, such as "length".
func (r FinishReason) String() string {
	if int(r) >= len(finishNames) {
		return "unknown"
	}
	return finishNames[r]
}

// finishTexts are what is written for the reasons.
var finishTexts = [...][]byte{
	FinishNone: nil, FinishStop: []byte("stop"), FinishLength: []byte("length"), FinishAbort: []byte("abort"), FinishOther: []byte("other"),
}

// finishReason reads a reason as it stands on the wire.
func finishReason(text []byte) FinishReason {
	switch string(text) {
	case "":
		return FinishNone
	case "stop":
		return FinishStop
	case "length":
		return FinishLength
	case "abort":
		return FinishAbort
	}
	return FinishOther
}

// Reset empties s but keeps the capacity of its slices.
func (s *Summary) Reset() {
	clear(s.Finished) // or the ids would keep their payloads alive
	*s = Summary{Finished: s.Finished[:0], Reasons: s.Reasons[:0]}
}
