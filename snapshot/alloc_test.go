package snapshot

import "testing"

func TestDecodingAllocatesNothing(t *testing.T) {
	if raceEnabled {
		return // the detector allocates on its own, so the count would mean nothing
	}
	core := *fullSnapshot()
	core = LoadSnapshot{Timestamp: core.Timestamp, NumRunningReqs: 17, NumUsedTokens: 131072, TokenUsage: 0.25, TotalPrefillBusyUS: 1 << 40}
	for name, payload := range map[string][]byte{
		"idle snapshot":                {0x80},
		"core fields":                  core.Append(nil),
		"every section":                fullSnapshot().Append(nil),
		"unknown keys":                 wire([]pair{{"x", []any{1, []any{2}}}, {"num_running_reqs", 2}}),
		"refused and nil fields":       wire([]pair{{"token_usage", nan}, {"queues", []any{-1}}, {"lora", nil}}),
		"stat of six elements":         fullStat(6),
		"stat of eleven elements":      fullStat(11),
		"stat with a rank that is bad": stat(1, 2, 3, 4, -1),
	} {
		var r Reading
		r.Snapshot.DecodeMoments = make([]float64, 0, MaxDecodeMoments) // as it is from the second message on
		allocs := testing.AllocsPerRun(100, func() {
			if err := r.Decode(payload); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

func TestAFreshSnapshotAllocatesForItsMomentsAlone(t *testing.T) {
	if raceEnabled {
		return
	}
	payload := fullSnapshot().Append(nil)
	var r *Reading
	allocs := testing.AllocsPerRun(100, func() {
		r = new(Reading)
		if err := r.Decode(payload); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 2 { // the Reading and its moments
		t.Errorf("%v allocations", allocs)
	}
}

func TestSplittingAndAppendingAllocateNothing(t *testing.T) {
	if raceEnabled {
		return
	}
	s, frames, buf := fullSnapshot(), Join(nil, "load", 1, nil), make([]byte, 0, 2048)
	var st LoadStat
	allocs := testing.AllocsPerRun(100, func() {
		buf = st.Append(s.Append(buf[:0]))
		if _, err := Split(frames); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
