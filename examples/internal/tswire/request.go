package tswire

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// A request to a rank is [type, payload], with a type of one byte.
var (
	typeAdd   = []byte{0}
	typeAbort = []byte{1}
)

// requestTag opens the array of an ADD.
const requestTag = "TokenizedGenerateReqInput"

// topKOff is how a request says that all tokens are candidates.
const topKOff = -1

// Request is a generation request. What an ADD has besides is left to the engine's
// defaults.
type Request struct {
	ID           string  // must be of one request at a time
	Prompt       []int64 // token ids
	MaxNewTokens int64   // 0 = the engine's limit
	IgnoreEOS    bool    // generate MaxNewTokens, wherever the model would end
	// Stream asks for the tokens of every step. Without it they come now and then,
	// and with them the news of the rank's load.
	Stream bool
	// StreamInterval is how many steps' tokens come together; 0 = the engine's own.
	// It is a sampling parameter on the wire, and does nothing without Stream.
	StreamInterval int64
}

// append writes the elements of an ADD up to stream, the last that is wanted. The
// engine's decoder fills the rest.
func (q *Request) append(dst []byte) []byte {
	dst = msgp.AppendArrayHeader(dst, 11)
	dst = msgp.AppendString(dst, requestTag)
	dst = msgp.AppendString(dst, q.ID)
	dst = msgp.AppendNil(dst) // http_worker_ipc
	dst = msgp.AppendNil(dst) // input_text
	dst = msgp.AppendArrayHeader(dst, uint32(len(q.Prompt)))
	for _, id := range q.Prompt {
		dst = msgp.AppendInt64(dst, id)
	}
	dst = q.appendSampling(dst)
	dst = msgp.AppendBool(dst, false) // return_logprob
	dst = msgp.AppendInt64(dst, -1)   // logprob_start_len
	dst = msgp.AppendInt64(dst, 0)    // top_logprobs_num
	dst = msgp.AppendNil(dst)         // token_ids_logprob
	return msgp.AppendBool(dst, q.Stream)
}

// The elements of the sampling parameters that are read.
const (
	samplingMaxNewTokens   = 0
	samplingIgnoreEOS      = 15
	samplingStreamInterval = 21
)

func (q *Request) appendSampling(dst []byte) []byte {
	dst = msgp.AppendArrayHeader(dst, samplingStreamInterval+1)
	dst = appendIntOrNil(dst, q.MaxNewTokens)
	dst = msgp.AppendNil(dst)            // stop
	dst = msgp.AppendNil(dst)            // stop_token_ids
	dst = msgp.AppendFloat64(dst, 1)     // temperature
	dst = msgp.AppendFloat64(dst, 1)     // top_p
	dst = msgp.AppendInt64(dst, topKOff) // top_k
	dst = msgp.AppendFloat64(dst, 0)     // min_p
	dst = msgp.AppendFloat64(dst, 0)     // frequency_penalty
	dst = msgp.AppendFloat64(dst, 0)     // presence_penalty
	dst = msgp.AppendFloat64(dst, 1)     // repetition_penalty
	dst = msgp.AppendInt64(dst, 0)       // min_new_tokens
	dst = msgp.AppendNil(dst)            // json_schema
	dst = msgp.AppendNil(dst)            // regex
	dst = msgp.AppendNil(dst)            // ebnf
	dst = msgp.AppendNil(dst)            // structural_tag
	dst = msgp.AppendBool(dst, q.IgnoreEOS)
	dst = msgp.AppendBool(dst, true)  // skip_special_tokens
	dst = msgp.AppendBool(dst, true)  // spaces_between_special_tokens
	dst = msgp.AppendBool(dst, false) // no_stop_trim
	dst = msgp.AppendNil(dst)         // thinking_budget
	dst = msgp.AppendNil(dst)         // custom_params
	return appendIntOrNil(dst, q.StreamInterval)
}

func appendIntOrNil(dst []byte, n int64) []byte {
	if n == 0 {
		return msgp.AppendNil(dst)
	}
	return msgp.AppendInt64(dst, n)
}

func readAdd(b []byte) (q Request, err error) {
	r := reader{b: b}
	n := r.array("request")
	if tag := r.string("tag"); r.err == nil && tag != requestTag {
		return q, fmt.Errorf("a request with the tag %q", tag)
	}
	for i := 1; i < n; i++ {
		switch {
		case i == 1:
			q.ID = r.string("rid")
		case r.null():
		case i == 4:
			q.Prompt = r.ints("input_ids")
		case i == 5:
			r.sampling(&q)
		case i == 10:
			q.Stream = r.bool("stream")
		default:
			r.skip("element")
		}
	}
	if r.err == nil && (q.ID == "" || len(q.Prompt) == 0) {
		r.err = fmt.Errorf("a request without an id or without token ids: %q", q.ID)
	}
	return q, r.err
}

func (r *reader) sampling(q *Request) {
	for i := range r.array("sampling_params") {
		switch {
		case r.null():
		case i == samplingMaxNewTokens:
			q.MaxNewTokens = r.int("max_new_tokens")
		case i == samplingIgnoreEOS:
			q.IgnoreEOS = r.bool("ignore_eos")
		case i == samplingStreamInterval:
			q.StreamInterval = r.int("stream_interval")
		default:
			r.skip("sampling parameter")
		}
	}
}

func (r *reader) ints(what string) []int64 {
	n := r.array(what)
	ids := make([]int64, 0, n)
	for range n {
		ids = append(ids, r.int(what))
	}
	return ids
}

func appendAbort(dst []byte, ids []string) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(ids)))
	for _, id := range ids {
		dst = msgp.AppendString(dst, id)
	}
	return dst
}

func readAbort(b []byte) (ids []string, err error) {
	r := reader{b: b}
	for range r.array("abort") {
		ids = append(ids, r.string("request id"))
	}
	return ids, r.err
}

// Command is what a rank is told: to add a request or to abort some.
type Command struct {
	Add   *Request // nil = an abort
	Abort []string // request ids; some of them may not be there any more
}

// readCommand takes apart what follows the identity. More frames than two carry
// tensors, which are of no use here.
func readCommand(frames [][]byte) (c Command, err error) {
	if len(frames) < 2 {
		return c, fmt.Errorf("a command of %d frames", len(frames))
	}
	switch kind, payload := string(frames[0]), frames[1]; kind {
	case string(typeAdd):
		q, err := readAdd(payload)
		return Command{Add: &q}, err
	case string(typeAbort):
		c.Abort, err = readAbort(payload)
		return c, err
	default:
		return c, fmt.Errorf("a command of the type %q", kind)
	}
}
