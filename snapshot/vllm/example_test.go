package vllm_test

import (
	"errors"
	"fmt"

	"github.com/plimsoll-go/plimsoll/snapshot/vllm"
)

// A receiver keeps one Outputs per engine and decodes every message into it.
func ExampleOutputs() {
	var outputs vllm.Outputs

	receive := func(frames ...[]byte) {
		payload, err := vllm.Split(frames)
		if err == nil {
			err = outputs.Decode(payload)
		}
		switch {
		case errors.Is(err, vllm.ErrEngineDead):
			fmt.Println("the engine is dead: all it had is lost")
			return
		case err != nil:
			fmt.Println("dropped:", vllm.Reason(err))
			return
		case outputs.Kind != vllm.KindBatch:
			fmt.Println("says nothing of a rank:", outputs.Kind)
			return
		}
		fmt.Println("rank", outputs.EngineIndex)
		if load := &outputs.Load; load.Known {
			fmt.Println("  running", load.Running, "waiting", load.Waiting, "KV usage", load.KVUsage)
		} else if outputs.LoadErr != nil {
			fmt.Println("  no load:", vllm.Reason(outputs.LoadErr))
		}
		for i, id := range outputs.Finished {
			fmt.Printf("  %s has ended: %v\n", id, outputs.Reasons[i])
		}
	}

	stats := func(running string) string {
		return "\x83\xb0num_running_reqs" + running + "\xb0num_waiting_reqs\x05\xaekv_cache_usage\xcb\x3f\xe8\x00\x00\x00\x00\x00\x00"
	}
	tensor := make([]byte, 1024)
	receive([]byte("\x96\x01\x91\x96\xa3req\x91\x07\xc0\xc0\xc0\x00"+stats("\x03")+"\xc0\xc0\x92\xa3req\xa5other"), tensor)
	receive([]byte("\x96\x02\x90" + stats("\xff") + "\xc0\xc0\x91\xa4last"))
	receive([]byte("\x95\x00\x90\xc0\xc0\x93\x07\xc0\xc0"))
	receive([]byte("\x91"))
	receive([]byte("ENGINE_CORE_DEAD"))
	// Output:
	// rank 1
	//   running 3 waiting 5 KV usage 0.75
	//   req has ended: stop
	//   other has ended: unsaid
	// rank 2
	//   no load: negative
	//   last has ended: unsaid
	// says nothing of a rank: utility_reply
	// dropped: truncated
	// the engine is dead: all it had is lost
}

// What a step has brought for each request is read without copying the ids.
func ExampleOutputs_At() {
	var outputs vllm.Outputs
	err := outputs.Decode([]byte("\x92\x00\x92\x92\xa1a\x92\x07\x08\x96\xa1b\x91\x09\xc0\xc0\xc0\x01"))
	if err != nil {
		panic(err)
	}
	var tokens []int64
	for i := range outputs.Len() {
		output := outputs.At(i)
		if tokens, err = output.AppendTokens(tokens[:0]); err != nil {
			panic(err)
		}
		fmt.Printf("%s: %d new, %v, finish reason %v\n", output.ID, output.NewTokens, tokens, output.FinishReason)
	}
	// Output:
	// a: 2 new, [7 8], finish reason none
	// b: 1 new, [9], finish reason length
}
