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
	Elements    int // length of the array: 9, 10, 14 or more; says which columns the sender knew
	EngineIndex int // of the rank that made it: the sender's --zmq-engine-index plus its DP rank; 0 from a 9-element sender

	Load Load
	// LoadErr is why a load that was there is refused, a *DecodeError: a count that
	// is none, or more pages in use than there are. The rest of the batch stands.
	LoadErr error

	Requests int            // number of requests in the batch
	Finished [][]byte       // ids of the requests that it ends, in the order of the batch; they point into the payload
	Reasons  []FinishReason // why each of Finished has ended
}

// Load is what a rank says of itself in a batch.
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
	Running     FinishReason = iota // it has not: "" on the wire
	Stop                            // "stop": a stop token or a stop string
	Length                          // "length": as many tokens as were asked for
	Abort                           // "abort": by the client, or the engine has refused it
	OtherReason                     // anything else that is not empty; the request has ended all the same
)

// finishTexts are the reasons as they stand on the wire.
var finishTexts = [...][]byte{Running: nil, Stop: []byte("stop"), Length: []byte("length"), Abort: []byte("abort"), OtherReason: []byte("other")}

// String returns "running", "stop", "length", "abort" or "other".
func (r FinishReason) String() string {
	if r == Running {
		return "running"
	}
	return string(finishTexts[min(r, OtherReason)])
}

// finishReason reads a reason as it stands on the wire.
func finishReason(text []byte) FinishReason {
	switch string(text) {
	case "":
		return Running
	case "stop":
		return Stop
	case "length":
		return Length
	case "abort":
		return Abort
	}
	return OtherReason
}

// Reset empties s but keeps the capacity of its slices.
func (s *Summary) Reset() {
	clear(s.Finished) // or the ids would keep their payloads alive
	*s = Summary{Finished: s.Finished[:0], Reasons: s.Reasons[:0]}
}
