package vllm

import "github.com/plimsoll-go/plimsoll/internal/msgpack"

// Output is what a message brings for one request.
type Output struct {
	ID           []byte // points into the payload
	NewTokens    int    // how many tokens there are that were not sent before
	FinishReason FinishReason

	payload []byte
	tokens  int // where their ids begin
}

// output is where an Output is in the payload, which MaxPayload keeps within 32
// bits.
type output struct {
	id, idLen         uint32
	tokens, numTokens uint32
	finish            FinishReason
}

// Len returns the number of outputs, of which At can be asked for each.
func (o *Outputs) Len() int { return len(o.outputs) }

// At returns the output at position i, from 0 to Len()-1.
func (o *Outputs) At(i int) Output {
	r := &o.outputs[i]
	return Output{
		ID:           o.payload[r.id : r.id+r.idLen : r.id+r.idLen],
		NewTokens:    int(r.numTokens),
		FinishReason: r.finish,
		payload:      o.payload,
		tokens:       int(r.tokens),
	}
}

// AppendTokens appends the ids of the new tokens to dst. Decode steps over them,
// since few of its callers want them, so that it is here that an id which is no
// count makes a *DecodeError.
func (r Output) AppendTokens(dst []int64) ([]int64, error) {
	dst, i, err := msgpack.AppendCounts(dst, r.payload, r.tokens, r.NewTokens)
	if err != nil {
		return dst, decodeError(r.payload, "new_token_ids", i, err)
	}
	return dst, nil
}
