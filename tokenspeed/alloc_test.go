package tokenspeed

import "testing"

func TestDecodingAllocatesNothing(t *testing.T) {
	if raceEnabled {
		return // the detector allocates on its own, so the count would mean nothing
	}
	for name, payload := range map[string][]byte{
		"no requests":        new(Batch).Append(nil),
		"a step":             step(false).Append(nil),
		"a step of logprobs": step(true).Append(nil),
		"an older sender":    wire(two()[:9]...),
		"a newer sender":     wire(append(two(), map[string]any{"a": list{1}}, "later")...),
	} {
		var s Summary
		var b Batch
		for range 2 { // the first message is the one that slices grow with
			if err := s.Decode(payload); err != nil {
				t.Fatal(err)
			}
			if err := b.Decode(payload); err != nil {
				t.Fatal(err)
			}
		}
		if allocs := testing.AllocsPerRun(100, func() { _ = s.Decode(payload) }); allocs != 0 {
			t.Errorf("%s, summary: %v allocations", name, allocs)
		}
		if allocs := testing.AllocsPerRun(100, func() { _ = b.Decode(payload) }); allocs != 0 {
			t.Errorf("%s, batch: %v allocations", name, allocs)
		}
	}
}

func TestAnErrorAllocatesTheErrorAlone(t *testing.T) {
	if raceEnabled {
		return
	}
	var b Batch
	for name, payload := range map[string][]byte{
		"a load that is refused": with(colNumRunning, -1),
		"a ragged batch":         with(colPromptTokens, list{1}),
		"a batch without ids":    with(colRIDs, nil),
		"a broken column":        with(colLogprobs, list{list{}, list{"x"}}),
	} {
		_ = b.Decode(payload)
		if allocs := testing.AllocsPerRun(100, func() { _ = b.Decode(payload) }); allocs != 1 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

func TestAFreshSummaryAllocatesForWhatHasFinishedAlone(t *testing.T) {
	if raceEnabled {
		return
	}
	running := new(Batch)
	running.Add(Request{ID: []byte("a"), OutputIDs: []int64{1}})
	payload := running.Append(nil)
	allocs := testing.AllocsPerRun(100, func() {
		var s Summary
		if err := s.Decode(payload); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestSplittingAddingAndAppendingAllocateNothing(t *testing.T) {
	if raceEnabled {
		return
	}
	b, buf := step(true), make([]byte, 0, 1<<16)
	frames := [][]byte{buf}
	var requests []Request
	for i := range b.Len() {
		requests = append(requests, b.At(i))
	}
	allocs := testing.AllocsPerRun(100, func() {
		var again = b
		again.Reset()
		for _, r := range requests {
			r.OutputIDs, r.Logprobs, r.LogprobIDs = nil, nil, nil // they are b's own
			again.Add(r)
		}
		buf = again.Append(buf[:0])
		if _, err := Split(frames); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
