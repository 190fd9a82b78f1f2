package snapshot

import (
	"errors"
	"strings"
	"testing"

	"github.com/plimsoll-go/plimsoll/internal/msgpack"
)

func decodeSnapshot(t *testing.T, payload []byte) LoadSnapshot {
	t.Helper()
	var s LoadSnapshot
	if err := s.Decode(payload); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestASnapshotKeepsWhatItCanUse(t *testing.T) {
	running := FieldsOf(FieldNumRunningReqs)
	for _, tt := range []struct {
		name string
		in   any
		want LoadSnapshot
	}{
		{"an empty map is an idle rank",
			[]pair{}, LoadSnapshot{}},
		{"a timestamp alone is an idle rank",
			[]pair{{"timestamp", 2.5}},
			LoadSnapshot{Present: FieldsOf(FieldTimestamp), Timestamp: 2.5}},
		{"a zero that was sent is present, unlike one that was left out",
			[]pair{{"num_running_reqs", 0}}, LoadSnapshot{Present: running}},
		{"a nil count is unknown and not zero",
			[]pair{{"num_waiting_reqs", nil}, {"num_running_reqs", 2}},
			LoadSnapshot{Present: running, Nil: FieldsOf(FieldNumWaitingReqs), NumRunningReqs: 2}},
		{"a nil section is one that is not there",
			[]pair{{"queues", nil}, {"decode_moments", nil}, {"timestamp", nil}},
			LoadSnapshot{Nil: FieldsOf(FieldQueues, FieldDecodeMoments, FieldTimestamp)}},
		{"keys come in any order",
			[]pair{{"queues", []any{1, 2, 3, 4, 5}}, {"num_running_reqs", 2}, {"timestamp", 1.0}},
			LoadSnapshot{
				Present:        FieldsOf(FieldQueues, FieldTimestamp) | running,
				NumRunningReqs: 2, Timestamp: 1, Queues: QueuesSection{5, 1, 2, 3, 4, 5},
			}},
		{"unknown keys are skipped whatever they hold",
			[]pair{
				{"a", nil}, {"b", []any{1, []any{2, []pair{{"c", "d"}}}}}, {"", []pair{{1, []any{}}, {nil, []pair{}}}},
				{"num_running_reqs", 2},
				{"bin", []byte("xyz")}, {"ext", raw("\xc7\x02\x05ab")}, {"fixext", raw("\xd4\x05a")}, {"f", float32(1)},
				{strings.Repeat("k", 300), strings.Repeat("v", 3000)},
			},
			LoadSnapshot{Present: running, NumRunningReqs: 2}},
		{"a key that merely starts like a known one is unknown",
			[]pair{{"num_running_reqs_total", -1}, {"num_running", -1}, {"num_running_reqs", 2}},
			LoadSnapshot{Present: running, NumRunningReqs: 2}},
		{"keys may have longer headers than they need",
			[]pair{
				{raw("\xd9\x10num_running_reqs"), 2},
				{raw("\xda\x00\x10num_waiting_reqs"), 3},
				{raw("\xdb\x00\x00\x00\x07dp_rank"), 1},
			},
			LoadSnapshot{
				Present:        FieldsOf(FieldNumWaitingReqs, FieldDPRank) | running,
				NumRunningReqs: 2, NumWaitingReqs: 3, DPRank: 1,
			}},
		{"integers may come as floats and floats as integers",
			[]pair{{"num_running_reqs", 2.0}, {"dp_rank", float32(3)}, {"token_usage", 1}, {"utilization", float32(0.5)},
				{"timestamp", uint64(1 << 63)}, {"gen_throughput", raw("\xd1\x00\x07")}},
			LoadSnapshot{
				Present:        running | FieldsOf(FieldDPRank, FieldTokenUsage, FieldUtilization, FieldTimestamp, FieldGenThroughput),
				NumRunningReqs: 2, DPRank: 3, TokenUsage: 1, Utilization: 0.5, Timestamp: 1 << 63, GenThroughput: 7,
			}},
		{"integers come in every form there is",
			[]pair{
				{"num_running_reqs", raw("\xd0\x02")}, {"num_waiting_reqs", raw("\xd1\x00\x03")},
				{"num_used_tokens", raw("\xd2\x00\x00\x00\x04")}, {"num_total_tokens", raw("\xd3\x00\x00\x00\x00\x00\x00\x00\x05")},
				{"num_active_tokens", raw("\xcf\x00\x00\x00\x00\x00\x00\x00\x06")}, {"max_total_num_tokens", raw("\xcc\x07")},
				{"max_running_requests", raw("\xcd\x00\x08")}, {"total_prefill_busy_us", raw("\xce\x00\x00\x00\x09")},
			},
			LoadSnapshot{
				Present: running | FieldsOf(FieldNumWaitingReqs, FieldNumUsedTokens, FieldNumTotalTokens, FieldNumActiveTokens,
					FieldMaxTotalNumTokens, FieldMaxRunningRequests, FieldTotalPrefillBusyUS),
				NumRunningReqs: 2, NumWaitingReqs: 3, NumUsedTokens: 4, NumTotalTokens: 5, NumActiveTokens: 6,
				MaxTotalNumTokens: 7, MaxRunningRequests: 8, TotalPrefillBusyUS: 9,
			}},
		{"a negative zero is a zero",
			[]pair{{"token_usage", raw("\xcb\x80\x00\x00\x00\x00\x00\x00\x00")}, {"num_running_reqs", raw("\xca\x80\x00\x00\x00")}},
			LoadSnapshot{Present: FieldsOf(FieldTokenUsage) | running}},
		{"of a key that comes twice the last value counts",
			[]pair{{"num_running_reqs", 7}, {"token_usage", nan}, {"num_running_reqs", 2}, {"token_usage", 0.5}},
			LoadSnapshot{Present: FieldsOf(FieldTokenUsage) | running, NumRunningReqs: 2, TokenUsage: 0.5}},
		{"of a key that comes twice nothing of the first value is left",
			[]pair{
				{"token_usage", 0.5}, {"token_usage", nan},
				{"num_running_reqs", 7}, {"num_running_reqs", nil},
				{"queues", []any{1, 2, 3, 4, 5}}, {"queues", []any{9}},
				{"memory", []any{1.0, 2.0}}, {"memory", "no"},
				{"decode_moments", []any{1.0, 2.0}}, {"decode_moments", []any{3.0}},
			},
			LoadSnapshot{
				Present: FieldsOf(FieldQueues, FieldDecodeMoments), Nil: running, Refused: FieldsOf(FieldTokenUsage, FieldMemory),
				Queues: QueuesSection{Len: 1, Waiting: 9}, DecodeMoments: []float64{3},
			}},
		{"a section of an older engine is shorter",
			[]pair{{"queues", []any{1, 2, 3, 4}}, {"memory", []any{}}, {"disaggregation", []any{"prefill"}}},
			LoadSnapshot{
				Present:        FieldsOf(FieldQueues, FieldMemory, FieldDisaggregation),
				Queues:         QueuesSection{Len: 4, Waiting: 1, Grammar: 2, Paused: 3, Retracted: 4},
				Disaggregation: DisaggregationSection{Len: 1, Mode: "prefill"},
			}},
		{"a section of a newer engine is longer",
			[]pair{
				{"speculative", []any{2.5, 0.5, "more", []any{1, 2}, nil}},
				{"disaggregation", []any{"null", 1, 2, 3, 4, 5, 6.0, 7.0, 8.0, -1}},
				{"num_running_reqs", 2},
			},
			LoadSnapshot{
				Present:        FieldsOf(FieldSpeculative, FieldDisaggregation) | running,
				Speculative:    SpeculativeSection{2, 2.5, 0.5},
				Disaggregation: DisaggregationSection{8, "null", 1, 2, 3, 4, 5, 6, 7},
				NumRunningReqs: 2,
			}},
		{"a section that turns bad halfway is not kept by half",
			[]pair{{"queues", []any{1, 2, nan, 4, 5}}, {"lora", []any{1, 2, nil}}, {"num_running_reqs", 2}},
			LoadSnapshot{Present: running, Refused: FieldsOf(FieldQueues, FieldLoRA), NumRunningReqs: 2}},
		{"a mode that is not text is refused",
			[]pair{{"disaggregation", []any{"\xff\xfe"}}}, LoadSnapshot{Refused: FieldsOf(FieldDisaggregation)}},
		{"the cap on moments is inclusive",
			[]pair{{"decode_moments", []any{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}},
			LoadSnapshot{
				Present:       FieldsOf(FieldDecodeMoments),
				DecodeMoments: []float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
			}},
		{"KV tokens in use above capacity come through for the reader to judge",
			[]pair{{"num_used_tokens", 9}, {"max_total_num_tokens", 8}, {"token_usage", 1.125}},
			LoadSnapshot{
				Present:       FieldsOf(FieldNumUsedTokens, FieldMaxTotalNumTokens, FieldTokenUsage),
				NumUsedTokens: 9, MaxTotalNumTokens: 8, TokenUsage: 1.125,
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := decodeSnapshot(t, wire(tt.in))
			if !equalSnapshots(&got, &tt.want) {
				t.Errorf("\n got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestASnapshotWithABrokenCountIsRefusedSoThatItNeverLooksIdle(t *testing.T) {
	for _, tt := range []struct {
		value any
		want  error
	}{
		{-1, ErrNegative}, {-1e9, ErrNegative}, {float32(-0.5), ErrNegative},
		{nan, ErrNotFinite}, {inf, ErrNotFinite}, {-inf, ErrNotFinite}, {raw("\xca\x7f\x80\x00\x00"), ErrNotFinite},
		{0.5, ErrNotInteger}, {uint64(1 << 63), ErrOutOfRange}, {float64(1 << 63), ErrOutOfRange},
		{"1", ErrType}, {true, ErrType}, {[]byte("1"), ErrType}, {[]any{}, ErrType}, {[]pair{}, ErrType},
		{raw("\xd4\x01\x01"), ErrType}, {raw("\xc1"), ErrType},
	} {
		for f := range core.All() {
			// Broken alone, at the end, and with room behind it, since the paths differ.
			for _, in := range [][]pair{
				{{f.String(), tt.value}},
				{{"timestamp", 1.0}, {f.String(), tt.value}, {"zzzzzzzzzzzzzzzzzzzzzzzzzz", 1.0}},
			} {
				var s LoadSnapshot
				err := s.Decode(wire(in))
				var d *DecodeError
				if !errors.As(err, &d) || d.Err != tt.want || d.Field != f.String() || d.Type != "LoadSnapshot" {
					t.Errorf("%v = %v: got %v, want %v", f, tt.value, err, tt.want)
				}
			}
		}
	}
}

func TestABadAdvisoryFieldIsRefusedAloneAndItsValueNotStored(t *testing.T) {
	for f := range (allFields &^ core).All() {
		for _, value := range []any{
			-1, nan, inf, -inf, -0.5, "1", true, []byte("1"), []pair{}, raw("\xd4\x01\x01"),
			[]any{nan}, []any{"x", []any{nan}}, nested(msgpack.MaxDepth),
		} {
			s := decodeSnapshot(t, wire([]pair{{f.String(), value}, {"num_running_reqs", 2}}))
			want := LoadSnapshot{Present: FieldsOf(FieldNumRunningReqs), Refused: FieldsOf(f), NumRunningReqs: 2}
			if !equalSnapshots(&s, &want) {
				t.Errorf("%v = %v:\n got %+v\nwant %+v", f, value, s, want)
			}
		}
	}
	// A float may be as large as it likes, a rank may not.
	s := decodeSnapshot(t, wire([]pair{{"dp_rank", uint64(1 << 63)}, {"gen_throughput", uint64(1 << 63)}}))
	if s.Refused != FieldsOf(FieldDPRank) || s.GenThroughput != 1<<63 {
		t.Errorf("%+v", s)
	}
}

func TestASnapshotErrorNamesTheOffendingValue(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   []byte
		want DecodeError
	}{
		{"nothing", nil, DecodeError{"LoadSnapshot", 0, "", ErrTruncated}},
		{"an array", wire([]any{}), DecodeError{"LoadSnapshot", 0, "", ErrType}},
		{"nil", wire(nil), DecodeError{"LoadSnapshot", 0, "", ErrType}},
		{"a broken count", wire([]pair{{"x", 1}, {"num_used_tokens", -1}}), DecodeError{"LoadSnapshot", 20, "num_used_tokens", ErrNegative}},
		{"a payload cut in a value", []byte("\x81\xa7dp_rank\xcd\x01"), DecodeError{"LoadSnapshot", 9, "dp_rank", ErrTruncated}},
		{"a payload cut before a value", []byte("\x81\xa7dp_rank"), DecodeError{"LoadSnapshot", 9, "dp_rank", ErrTruncated}},
		{"a payload cut in a key", []byte("\x81\xa7dp_r"), DecodeError{"LoadSnapshot", 1, "", ErrTruncated}},
		{"an integer for a key", wire([]pair{{"dp_rank", 1}, {1, 1}}), DecodeError{"LoadSnapshot", 10, "", ErrType}},
		{"bytes for a key", wire([]pair{{[]byte("dp_rank"), 1}}), DecodeError{"LoadSnapshot", 1, "", ErrType}},
		{"nil for a key", wire([]pair{{nil, 1}}), DecodeError{"LoadSnapshot", 1, "", ErrType}},
		{"a byte msgpack does not use", wire([]pair{{"x", raw("\xc1")}}), DecodeError{"LoadSnapshot", 3, "", ErrType}},
		{"something after the map", append(wire([]pair{{"dp_rank", 1}}), 0x80), DecodeError{"LoadSnapshot", 10, "", ErrTrailingBytes}},
		{"a value nested too deeply", wire([]pair{{"x", nested(msgpack.MaxDepth + 1)}}), DecodeError{"LoadSnapshot", 3, "", ErrTooDeep}},
		{"too many bytes", make([]byte, MaxPayload+1), DecodeError{"LoadSnapshot", 0, "", ErrPayloadSize}},
	} {
		var s LoadSnapshot
		var got *DecodeError
		if err := s.Decode(tt.in); !errors.As(err, &got) || *got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, err, &tt.want)
		}
	}
}

func TestASnapshotCutShortAnywhereIsTruncatedAndNotIdle(t *testing.T) {
	payload := fullSnapshot().Append(nil)
	for n := range payload {
		var s LoadSnapshot
		if err := s.Decode(payload[:n:n]); !errors.Is(err, ErrTruncated) {
			t.Errorf("%d bytes of %d: %v", n, len(payload), err)
		}
	}
}

func TestAReusedSnapshotKeepsNothingOfAnEarlierMessage(t *testing.T) {
	s := *fullSnapshot()
	payload := s.Append(nil)
	if err := s.Decode(payload); err != nil {
		t.Fatal(err)
	}
	clear(payload) // nor may it refer to the payload
	want := *fullSnapshot()
	want.Present = allFields
	if !equalSnapshots(&s, &want) {
		t.Errorf("after the payload changed:\n got %+v\nwant %+v", s, want)
	}
	if err := s.Decode(wire([]pair{})); err != nil {
		t.Fatal(err)
	}
	if !equalSnapshots(&s, &LoadSnapshot{}) {
		t.Errorf("left over: %+v", s)
	}
	if cap(s.DecodeMoments) == 0 {
		t.Error("the capacity for moments is gone")
	}
}

func TestWhatIsUnknownInASnapshotIsEncodedAsUnknownAndNotAsZero(t *testing.T) {
	s := LoadSnapshot{
		Nil:     FieldsOf(FieldNumWaitingReqs, FieldMemory),
		Refused: FieldsOf(FieldTokenUsage, FieldQueues),
	}
	var got LoadSnapshot
	if err := got.Decode(s.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if want := (LoadSnapshot{Nil: s.Nil | s.Refused}); !equalSnapshots(&got, &want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func TestAppendingASnapshotSurvivesMarksAndLengthsThatMakeNoSense(t *testing.T) {
	s := LoadSnapshot{Present: ^Fields(0), Memory: MemorySection{Len: 99}, Queues: QueuesSection{Len: -1}, NumRunningReqs: -5}
	b := s.Append(nil)
	if n, err := msgpack.Skip(b, 0); err != nil || n != len(b) {
		t.Errorf("not one msgpack value: %x, %v", b, err)
	}
	if err := s.Decode(b); !errors.Is(err, ErrNegative) {
		t.Errorf("a negative count was written as something else: %v", err)
	}
}
