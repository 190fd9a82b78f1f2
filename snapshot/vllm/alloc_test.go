package vllm

import "testing"

func TestDecodingAllocatesNothingOnceThereIsRoom(t *testing.T) {
	if raceEnabled {
		return // the detector allocates on its own, so the count would mean nothing
	}
	all := map[string][]byte{"a step of 256": step(256), "a step of 1,024": step(1024)}
	for _, tt := range messages {
		all[tt.name] = tt.payload
	}
	delete(all, "a utility reply with statistics that are no load") // LoadErr is one
	delete(all, "every reason")                                     // msgp makes an error of a reason above 2^63-1
	for name, payload := range all {
		var o Outputs
		var tokens []int64
		allocs := testing.AllocsPerRun(100, func() { // runs once before it counts
			if err := o.Decode(payload); err != nil {
				t.Fatal(err)
			}
			for i := range o.Len() {
				var err error
				if tokens, err = o.At(i).AppendTokens(tokens[:0]); err != nil {
					t.Fatal(err)
				}
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

func TestAnErrorAllocatesNothingButItself(t *testing.T) {
	if raceEnabled {
		return
	}
	var o Outputs
	for name, payload := range map[string][]byte{
		"a load that is refused":  message(2, list(), stats(3, -1)),
		"a KV usage that is":      message(2, list(), append(stats(3, 5), pair{"kv_cache_usage", nan})),
		"a message that is":       append(step(5), 0xc0),
		"another that is":         batch(out("a", "stop")),
		"a message of no payload": nil,
	} {
		allocs := testing.AllocsPerRun(100, func() { _ = o.Decode(payload) })
		if allocs != 1 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
	frames := [][]byte{{0x90}, nil}
	if allocs := testing.AllocsPerRun(100, func() { _, _ = Split(frames) }); allocs != 0 {
		t.Errorf("splitting: %v allocations", allocs)
	}
}
