package tokenspeed_test

import (
	"errors"
	"fmt"

	"github.com/plimsoll-go/plimsoll/tokenspeed"
)

// send makes the message in which a rank says that it has one request running and
// another that has come to its end.
func send() [][]byte {
	b := tokenspeed.Batch{Summary: tokenspeed.Summary{
		EngineIndex: 1,
		Load:        tokenspeed.Load{Known: true, Running: 2, Waiting: 5, KVActivePages: 100, KVTotalPages: 400},
	}}
	b.Add(tokenspeed.Request{ID: []byte("a"), OutputIDs: []int64{10}, PromptTokens: 3, CompletionTokens: 1})
	b.Add(tokenspeed.Request{
		ID: []byte("b"), OutputIDs: []int64{20, 21}, FinishReason: tokenspeed.FinishLength, PromptTokens: 4, CompletionTokens: 9,
	})
	return [][]byte{b.Append(nil)}
}

// A router that passes payloads on reads the load and who has finished, and steps
// over everything else.
func ExampleSummary() {
	var summary tokenspeed.Summary // one for each socket, decoded into again and again

	receive := func(frames [][]byte) {
		payload, err := tokenspeed.Split(frames)
		if errors.Is(err, tokenspeed.ErrEngineDead) {
			fmt.Println("everything in flight is lost")
			return
		}
		if err == nil {
			err = summary.Decode(payload)
		}
		if err != nil {
			fmt.Println("dropped:", tokenspeed.Reason(err))
			if !errors.Is(err, tokenspeed.ErrRagged) {
				return
			}
			// What the batch ends has ended all the same.
		}
		if l := summary.Load; l.Known {
			fmt.Println("rank", summary.EngineIndex, "running", l.Running, "waiting", l.Waiting, "KV usage", l.KVUsage())
		}
		for i, id := range summary.Finished {
			fmt.Printf("release %s: %v\n", id, summary.Reasons[i])
		}
	}

	receive(send())
	receive([][]byte{[]byte("\x93\x01\x02\x03")})
	receive([][]byte{[]byte(tokenspeed.EngineDead)})
	// Output:
	// rank 1 running 2 waiting 5 KV usage 0.25
	// release b: length
	// dropped: tag
	// everything in flight is lost
}

// A router that answers its clients itself decodes the tokens as well.
func ExampleBatch() {
	var batch tokenspeed.Batch

	payload, err := tokenspeed.Split(send())
	if err == nil {
		err = batch.Decode(payload)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range batch.Len() {
		r := batch.At(i)
		fmt.Printf("%s: tokens %v of %d, finish reason %v\n", r.ID, r.OutputIDs, r.CompletionTokens, r.FinishReason)
	}
	fmt.Println("waiting at rank", batch.EngineIndex, "are", batch.Load.Waiting)
	// Output:
	// a: tokens [10] of 1, finish reason none
	// b: tokens [20 21] of 9, finish reason length
	// waiting at rank 1 are 5
}

// A DecodeError says which column was wrong, and where.
func ExampleDecodeError() {
	var summary tokenspeed.Summary
	err := summary.Decode([]byte("\x99\xb3BatchTokenIDOutSlim\xc0"))

	var d *tokenspeed.DecodeError
	if errors.As(err, &d) {
		fmt.Println(d.Field, d.Offset, errors.Is(err, tokenspeed.ErrNil))
	}
	// Output: rids 21 true
}
