package vllm

import (
	"github.com/plimsoll-go/plimsoll/internal/msgpack"
)

// Output is what a step has brought for one request.
type Output struct {
	ID     []byte       // points into the payload
	Tokens int          // how many tokens are new
	Reason FinishReason // Running while it goes on

	payload []byte
	at      int // where the token ids begin
}

// output is where an Output is found in the payload, which MaxPayload keeps
// within 32 bits.
type output struct {
	id, idLen  uint32
	at, tokens uint32
	reason     FinishReason
}

// At returns the output at position i, from 0 to o.Requests-1.
func (o *Outputs) At(i int) Output {
	r := &o.outputs[i]
	return Output{
		ID:      o.payload[r.id : r.id+r.idLen : r.id+r.idLen],
		Tokens:  int(r.tokens),
		Reason:  r.reason,
		payload: o.payload,
		at:      int(r.at),
	}
}

// AppendTokenIDs appends the ids of the new tokens to dst. Decode has stepped
// over them, so that it is here that one which is no count gives an error, a
// *DecodeError, and dst as far as it got.
func (r Output) AppendTokenIDs(dst []int64) ([]int64, error) {
	i := r.at
	for range r.Tokens {
		v, next, err := msgpack.ReadCount(r.payload, i)
		if err != nil {
			return dst, &DecodeError{Offset: i, Field: "new_token_ids", Err: err}
		}
		dst = append(dst, int64(v))
		i = next
	}
	return dst, nil
}
