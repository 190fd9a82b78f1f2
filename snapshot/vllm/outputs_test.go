package vllm

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func count(n int64) Maybe[int64]     { return Known(n) }
func share(x float64) Maybe[float64] { return Known(x) }

// Messages byte for byte, which owe nothing to the helpers that spell the others.
const (
	vectorStats    = "\x83\xb0num_running_reqs\x03\xb0num_waiting_reqs\x05\xaekv_cache_usage\xcb\x3f\xe8\x00\x00\x00\x00\x00\x00\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00"
	vectorTerminal = "\x98\x01\x91\xdc\x00\x10\xa1r\x91\x07\xc0\xc0\xc0\x00\xc0\xc0\xc0\xc0\xc0\xc0\xc0\x00\xc0\xc0" + vectorStats + "\xc0\x91\xa1r\xc0\xc0"
	vectorLoad     = "\x98\x01\x90" + vectorStats + "\xc0\xc0\xc0\xc0"
)

var vectorReading = Load{Known: true, Running: 3, Waiting: 5, KVUsage: share(0.75)}

// messages are what engines send, or might come to.
var messages = []struct {
	name    string
	payload []byte
	want    reading
}{
	{"a terminal step", []byte(vectorTerminal), reading{
		Kind: KindBatch, EngineIndex: 1, Load: vectorReading, Finished: []string{"r"}, Reasons: []FinishReason{FinishStop},
		Outputs: []readOutput{{"r", 1, FinishStop}},
	}},
	{"statistics only", []byte(vectorLoad), reading{Kind: KindBatch, EngineIndex: 1, Load: vectorReading}},

	// Some engines answer calls with index 0 from any rank: whatever load rank 0
	// has, this says nothing of it.
	{"a utility reply with engine index 0", message(0, list(), nil, 1.5, list(7, nil, list(nil, list(1, 2))), nil, nil, nil),
		reading{Kind: KindUtilityReply}},
	{"a utility reply that has failed, and that ends where it may", message(0, list(), nil, 1.5, list(7, "no such method")),
		reading{Kind: KindUtilityReply}},
	{"a utility reply of rank 3", message(3, list(), nil, 1.5, list(-1, nil, list(nil, list("SHUTDOWN_COMPLETE", 3))), list(), nil, nil, "v7"),
		reading{Kind: KindUtilityReply, EngineIndex: 3}},
	{"a utility reply with a wave", message(0, list(), nil, 1.5, list(7), nil, 4), reading{Kind: KindUtilityReply, WaveComplete: count(4)}},
	{"a utility reply with statistics", message(2, list(), stats(1, 0), 1.5, list(7)),
		reading{Kind: KindBatch, EngineIndex: 2, Load: Load{Known: true, Running: 1}}},
	{"a utility reply with statistics that are no load", message(2, list(), list(), 1.5, list(7)),
		reading{Kind: KindBatch, EngineIndex: 2, Refused: "scheduler_stats: type"}},
	{"a utility reply with an id that has ended", message(2, list(), nil, 1.5, list(7), list("a")),
		reading{Kind: KindBatch, EngineIndex: 2, Finished: []string{"a"}, Reasons: []FinishReason{FinishUnsaid}}},
	{"a utility reply with an output", message(2, list(out("a", nil)), nil, 1.5, list(7)),
		reading{Kind: KindBatch, EngineIndex: 2, Outputs: []readOutput{{"a", 0, FinishNone}}}},

	{"wave 0 is complete", message(0, list(), nil, 1.5, nil, nil, 0, nil), reading{Kind: KindWaveNotice, WaveComplete: count(0)}},
	{"a wave starts", message(2, list(), nil, 1.5, nil, nil, nil, 5), reading{Kind: KindWaveNotice, EngineIndex: 2, StartWave: count(5)}},
	{"a batch with a wave", message(2, list(out("a", 1)), stats(0, 0), 1.5, nil, list("a"), 3, 4), reading{
		Kind: KindBatch, EngineIndex: 2, Load: Load{Known: true}, Finished: []string{"a"}, Reasons: []FinishReason{FinishLength},
		WaveComplete: count(3), StartWave: count(4), Outputs: []readOutput{{"a", 0, FinishLength}},
	}},
	{"waves that are none", message(2, list(), nil, 1.5, nil, nil, -1, "x"), reading{Kind: KindBatch, EngineIndex: 2}},

	{"an empty array", message(), reading{Kind: KindBatch}},
	{"an engine index alone", message(7), reading{Kind: KindBatch, EngineIndex: 7}},
	{"nothing but nil", message(7, nil, nil, nil, nil, nil, nil, nil, nil), reading{Kind: KindBatch, EngineIndex: 7}},
	{"the largest engine index, as a float", message(65535.0), reading{Kind: KindBatch, EngineIndex: 65535}},
	{"cut after the outputs", batch(out("a", 0)), reading{
		Kind: KindBatch, EngineIndex: 1, Finished: []string{"a"}, Reasons: []FinishReason{FinishStop}, Outputs: []readOutput{{"a", 0, FinishStop}},
	}},
	{"more elements than are known", message(1, list(), stats(3, 4), 1.5, nil, nil, nil, nil, "v1", list(nested(5)), []pair{{1, 2}}, raw("\xd4\x01a")),
		reading{Kind: KindBatch, EngineIndex: 1, Load: Load{Known: true, Running: 3, Waiting: 4}}},

	{"every reason", batch(out("a", nil), out("b", 0), out("c", 1), out("d", 2), out("e", 3), out("f", 4), out("g", 5), out("h", -1), out("i", uint64(math.MaxUint64)), out("j", raw("\xd3\x00\x00\x00\x00\x00\x00\x00\x01"))), reading{
		Kind: KindBatch, EngineIndex: 1,
		Finished: []string{"b", "c", "d", "e", "f", "g", "h", "i", "j"},
		Reasons:  []FinishReason{FinishStop, FinishLength, FinishAbort, FinishError, FinishRepetition, FinishOther, FinishOther, FinishOther, FinishLength},
		Outputs: []readOutput{
			{"a", 0, FinishNone}, {"b", 0, FinishStop}, {"c", 0, FinishLength}, {"d", 0, FinishAbort}, {"e", 0, FinishError}, {"f", 0, FinishRepetition},
			{"g", 0, FinishOther}, {"h", 0, FinishOther}, {"i", 0, FinishOther}, {"j", 0, FinishLength},
		},
	}},
	{"outputs that are cut, or go on", batch(list("a", list(1)), list("b", list(1, 2), nil, nil), list("c", list(), nil, nil, nil), list("d", list(), nil, nil, nil, 0), append(out("e", 2, 1), nested(9), 1.5)), reading{
		Kind: KindBatch, EngineIndex: 1, Finished: []string{"d", "e"}, Reasons: []FinishReason{FinishStop, FinishAbort},
		Outputs: []readOutput{{"a", 1, FinishNone}, {"b", 2, FinishNone}, {"c", 0, FinishNone}, {"d", 0, FinishStop}, {"e", 1, FinishAbort}},
	}},
	{"a tensor where the finish reason once was", batch(list("a", list(), nil, nil, list("float32", list(2), raw("\xd7\x0312345678")), 0, 2)), reading{
		Kind: KindBatch, EngineIndex: 1, Finished: []string{"a"}, Reasons: []FinishReason{FinishStop}, Outputs: []readOutput{{"a", 0, FinishStop}},
	}},
	{"logprobs and other nested values before the reason", batch(list("a", list(1), list(list("<i4", list(1), 1), nil), nested(32), []pair{{"x", nested(3)}}, 1)), reading{
		Kind: KindBatch, EngineIndex: 1, Finished: []string{"a"}, Reasons: []FinishReason{FinishLength}, Outputs: []readOutput{{"a", 1, FinishLength}},
	}},

	// Before there were pooling outputs.
	{"older outputs", batch(oldOut("a", 0, nil), oldOut("b", nil, nil), oldOut("c", 1, nil), oldOut("d", 2, "###"), oldOut("e", 0, 151_645)), reading{
		Kind: KindBatch, EngineIndex: 1, Finished: []string{"a", "c", "d", "e"}, Reasons: []FinishReason{FinishStop, FinishLength, FinishAbort, FinishStop},
		Outputs: []readOutput{{"a", 1, FinishStop}, {"b", 1, FinishNone}, {"c", 1, FinishLength}, {"d", 1, FinishAbort}, {"e", 1, FinishStop}},
	}},
	{"older outputs that are cut", batch(list("a", list()), list("b", list(), nil, nil, 0)), reading{
		Kind: KindBatch, EngineIndex: 1, Finished: []string{"b"}, Reasons: []FinishReason{FinishStop},
		Outputs: []readOutput{{"a", 0, FinishNone}, {"b", 0, FinishStop}},
	}},
	{"an older output that has a stop reason and goes on, before one that shows its age", batch(oldOut("a", nil, 2), oldOut("b", 7, 1), oldOut("c", nil, 1)), reading{
		Kind: KindBatch, EngineIndex: 1, Finished: []string{"b"}, Reasons: []FinishReason{FinishOther},
		Outputs: []readOutput{{"a", 1, FinishNone}, {"b", 1, FinishOther}, {"c", 1, FinishNone}},
	}},
	{"older outputs, which have ended without one too", message(1, list(oldOut("a", 0, nil)), nil, 1.5, nil, list("a", "b")), reading{
		Kind: KindBatch, EngineIndex: 1, Finished: []string{"a", "b"}, Reasons: []FinishReason{FinishStop, FinishUnsaid},
		Outputs: []readOutput{{"a", 1, FinishStop}},
	}},

	{"ended twice over", message(1, list(out("a", 0), out("b", nil), out("a", 1)), nil, 1.5, nil, list("c", "a", "b", "c", "")), reading{
		Kind: KindBatch, EngineIndex: 1, Finished: []string{"a", "c", "b", ""}, Reasons: []FinishReason{FinishStop, FinishUnsaid, FinishUnsaid, FinishUnsaid},
		Outputs: []readOutput{{"a", 0, FinishStop}, {"b", 0, FinishNone}, {"a", 0, FinishLength}},
	}},
}

func TestMessagesAreReadAsWhatTheySpeakOf(t *testing.T) {
	var reused Outputs
	for _, tt := range messages {
		var fresh Outputs
		for _, o := range []*Outputs{&fresh, &reused} {
			if err := o.Decode(tt.payload); err != nil {
				t.Errorf("%s: %v", tt.name, err)
				continue
			}
			if got := readingOf(o); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%s:\n got %+v\nwant %+v", tt.name, got, tt.want)
			}
		}
	}
}

func TestTheNaiveDecoderAgreesOnEveryMessage(t *testing.T) {
	var o Outputs
	for _, payload := range seeds(t) {
		checkDecode(t, &o, payload)
	}
	for _, tt := range messages {
		for n := range tt.payload {
			checkDecode(t, &o, tt.payload[:n])
		}
	}
}

func TestABrokenMessageIsRefusedWithFieldAndPlace(t *testing.T) {
	for _, tt := range []struct {
		name    string
		payload []byte
		want    error
		field   string
		offset  int
	}{
		{"no bytes", nil, ErrTruncated, "", 0},
		{"a map", []byte{0x80}, ErrType, "", 0},
		{"the last words of an engine, with tensors", []byte(EngineDead), ErrType, "", 0},
		{"a header alone", []byte{0x91}, ErrTruncated, "", 0},
		{"outputs first, as very old engines have them", message(list(), nil), ErrType, "engine_index", 1},
		{"an engine index of nil", message(nil), ErrNil, "engine_index", 1},
		{"an engine index below 0", message(-1), ErrNegative, "engine_index", 1},
		{"an engine index of more than two bytes", message(65536), ErrOutOfRange, "engine_index", 1},
		{"an engine index that is NaN", message(nan), ErrNotFinite, "engine_index", 1},
		{"half an engine index", message(0.5), ErrNotInteger, "engine_index", 1},
		{"outputs that are a map", message(1, []pair{}), ErrType, "outputs", 2},
		{"an output that is nil", batch(out("a", 0), nil), ErrNil, "outputs", 27},
		{"an output without tokens", batch(list("a")), ErrTooShort, "outputs", 3},
		{"an output of nothing", batch(list()), ErrTooShort, "outputs", 3},
		{"an id that is a number", batch(list(7, list())), ErrType, "request_id", 4},
		{"an id that is nil", batch(list(nil, list())), ErrNil, "request_id", 4},
		{"tokens that are nil", batch(list("a", nil)), ErrNil, "new_token_ids", 6},
		{"tokens that end too early", []byte("\x92\x01\x91\x92\xa1a\x91"), ErrTruncated, "new_token_ids", 6},
		{"tokens that end within", []byte("\x92\x01\x91\x92\xa1a\x91\xcd"), ErrTruncated, "new_token_ids", 7},
		{"an output that ends too early", []byte("\x92\x01\x91\x95\xa1a\x90\xc0\xcd"), ErrTruncated, "outputs", 8},
		{"an output that ends before its reason", []byte("\x92\x01\x91\x96\xa1a\x90\xc0\xc0\xc0"), ErrTruncated, "finish_reason", 10},
		{"an output that ends within its reason", []byte("\x92\x01\x91\x96\xa1a\x90\xc0\xc0\xc0\xcd\x01"), ErrTruncated, "outputs", 10},
		{"a reason in words", batch(out("a", "stop")), ErrType, "finish_reason", 12},
		{"a reason that is a float", batch(out("a", 0.0)), ErrType, "finish_reason", 12},
		{"a reason that is true", batch(out("a", true)), ErrType, "finish_reason", 12},
		{"an older stop reason in words without a reason, before an output that shows its age", batch(oldOut("a", nil, "###"), oldOut("b", 0, nil)), ErrType, "finish_reason", 11},
		{"an older reason in words", batch(oldOut("a", 0, nil), oldOut("b", "stop", nil)), ErrType, "finish_reason", 22},
		{"ended ids that are one", message(1, nil, nil, nil, nil, "a"), ErrType, "finished_requests", 6},
		{"an ended id that is nil", message(1, nil, nil, nil, nil, list("a", nil)), ErrNil, "finished_requests", 9},
		{"an ended id in binary", message(1, nil, nil, nil, nil, list([]byte("a"))), ErrType, "finished_requests", 7},
		{"statistics that end too early", []byte("\x93\x01\xc0\x81\xa1a"), ErrTruncated, "scheduler_stats", 6},
		{"statistics that end within", []byte("\x93\x01\xc0\x81\xa1a\xcd"), ErrTruncated, "scheduler_stats", 6},
		{"a time too deep", message(1, nil, nil, nested(33)), ErrTooDeep, "timestamp", 4},
		{"a reply too deep", message(1, nil, nil, nil, nested(33)), ErrTooDeep, "utility_output", 5},
		{"a wave too deep", message(1, nil, nil, nil, nil, nil, nested(33)), ErrTooDeep, "wave_complete", 7},
		{"another wave that msgpack does not know", message(1, nil, nil, nil, nil, nil, nil, raw("\xc1")), ErrType, "start_wave", 8},
		{"something too deep that is not known", message(1, nil, nil, nil, nil, nil, nil, nil, nested(33)), ErrTooDeep, "", 9},
		{"a second message", append(message(1), 0x90), ErrTrailingBytes, "", 2},
	} {
		o := Outputs{Kind: KindBatch} // what is left from the message before
		err := o.Decode(tt.payload)
		d, ok := errors.AsType[*DecodeError](err)
		if !ok {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if d.Err != tt.want || d.Field != tt.field || d.Offset != tt.offset {
			t.Errorf("%s: %v, want %s: %v at byte %d", tt.name, err, tt.field, tt.want, tt.offset)
		}
		if got := readingOf(&o); !reflect.DeepEqual(got, reading{}) {
			t.Errorf("%s: left %+v", tt.name, got)
		}
	}
}

func TestNothingOfAMessageStandsAfterAnErrorBehindIt(t *testing.T) {
	var o Outputs
	for _, payload := range [][]byte{
		append(step(30), 0xc0),
		append(message(1, list(out("a", 0)), stats(-1, 0), 1.5, nil, list("a"), 1, 2), 0xc0),
	} {
		if err := o.Decode(payload); !errors.Is(err, ErrTrailingBytes) {
			t.Fatal(err)
		}
		if got := readingOf(&o); !reflect.DeepEqual(got, reading{}) || o.LoadErr != nil {
			t.Errorf("left %+v", got)
		}
	}
}

func TestAsManyEndedRequestsAsThereAreAreEachListedOnce(t *testing.T) {
	var o Outputs
	for _, n := range []int{1000, 3, 15, 16, 17, 31, 32, 33, 300, 64, 5000} { // up and down: the table is reused
		ids := list()
		for i := range n {
			ids = append(ids, fmt.Sprint(i))
		}
		outputs := list()
		for i := range min(n, 40) {
			outputs = append(outputs, out(fmt.Sprint(i), 1))
		}
		payload := message(1, outputs, nil, nil, nil, append(ids, ids[:min(n, 100)]...))
		for range 2 {
			if err := o.Decode(payload); err != nil {
				t.Fatal(err)
			}
			if len(o.Finished) != n || len(o.Reasons) != n {
				t.Fatalf("%d ids: %d are listed, with %d reasons", n, len(o.Finished), len(o.Reasons))
			}
			for i, id := range o.Finished {
				want := FinishUnsaid
				if i < len(outputs) {
					want = FinishLength
				}
				if string(id) != fmt.Sprint(i) || o.Reasons[i] != want {
					t.Fatalf("%d ids: %q at %d, %v", n, id, i, o.Reasons[i])
				}
			}
		}
	}
}

func TestAnOlderSenderMayShowItsAgeLate(t *testing.T) {
	outputs, want := list(), []string(nil)
	for i := range 40 {
		outputs = append(outputs, oldOut(fmt.Sprint("runs-", i), nil, 2))
	}
	for i := range 30 {
		id := fmt.Sprint("ends-", i)
		outputs, want = append(outputs, oldOut(id, 0, 2)), append(want, id)
	}
	var o Outputs
	if err := o.Decode(batch(outputs...)); err != nil {
		t.Fatal(err)
	}
	if got := readingOf(&o).Finished; o.Requests != 70 || !slices.Equal(got, want) {
		t.Errorf("of %d requests these have ended: %v", o.Requests, got)
	}
}

func TestAsManyRequestsAsAreKeptAreTaken(t *testing.T) {
	ids := wire(slices.Repeat(list(""), MaxRequests))
	var o Outputs
	if err := o.Decode(message(1, nil, nil, nil, nil, raw(ids))); err != nil || len(o.Finished) != 1 {
		t.Errorf("%d have ended, %v", len(o.Finished), err)
	}
	outputs := wire(slices.Repeat(list(list("", list())), MaxRequests))
	if err := o.Decode(message(1, raw(outputs))); err != nil || o.Requests != MaxRequests {
		t.Errorf("%d requests, %v", o.Requests, err)
	}
}

func TestEndedIDsPointIntoThePayload(t *testing.T) {
	payload := message(1, list(out("one", 0, 1), out("two", nil)), nil, nil, nil, list(strings.Repeat("4", 100), strings.Repeat("5", 300)))
	var o Outputs
	if err := o.Decode(payload); err != nil {
		t.Fatal(err)
	}
	first := o.At(0).ID
	for i := range payload {
		payload[i] = 'x'
	}
	for _, id := range append(slices.Clone(o.Finished), first) {
		for _, c := range id {
			if c != 'x' {
				t.Errorf("%q is a copy", id)
			}
		}
		if len(id) != cap(id) {
			t.Errorf("%q may be appended to, over what follows it", id)
		}
	}
}

func TestAResetLetsGoOfThePayload(t *testing.T) {
	var o Outputs
	for _, payload := range [][]byte{step(300), batch(oldOut("a", nil, 1), oldOut("b", nil, 2), oldOut("c", 0, nil))} {
		if err := o.Decode(payload); err != nil {
			t.Fatal(err)
		}
		o.Reset()
		for _, id := range o.Finished[:cap(o.Finished)] {
			if id != nil {
				t.Fatalf("%q is kept", id)
			}
		}
		if o.payload != nil || cap(o.outputs) == 0 || cap(o.Finished) == 0 {
			t.Error("keeps the payload, or has lost its room")
		}
	}
}

func TestTheTokensOfAnOutputAreReadWhenAskedFor(t *testing.T) {
	var o Outputs
	if err := o.Decode(batch(out("a", nil, 1, 300, 70_000, uint64(1<<40)), out("b", nil), out("c", nil, 5, -1, 6), out("d", nil, 5, nil))); err != nil {
		t.Fatal(err)
	}
	buf := []int64{9}
	tokens, err := o.At(0).AppendTokens(buf)
	if want := []int64{9, 1, 300, 70_000, 1 << 40}; err != nil || !slices.Equal(tokens, want) {
		t.Errorf("got %v, %v, want %v", tokens, err, want)
	}
	if tokens, err = o.At(1).AppendTokens(buf); err != nil || !slices.Equal(tokens, buf) {
		t.Errorf("got %v, %v, want nothing more", tokens, err)
	}
	for i, want := range map[int]error{2: ErrNegative, 3: ErrNil} {
		tokens, err = o.At(i).AppendTokens(buf)
		d, ok := errors.AsType[*DecodeError](err)
		if !ok || d.Err != want || d.Field != "new_token_ids" || !slices.Equal(tokens, []int64{9, 5}) {
			t.Errorf("output %d: got %v, %v, want %v", i, tokens, err, want)
		}
		if p := o.payload[d.Offset]; p != 0xff && p != 0xc0 {
			t.Errorf("output %d: error at %d, where there is %#x", i, d.Offset, p)
		}
	}
}

func TestNamesOfKindsAndReasons(t *testing.T) {
	for kind, want := range map[Kind]string{KindUnknown: "unknown", KindBatch: "batch", KindUtilityReply: "utility_reply", KindWaveNotice: "wave_notice", 9: "unknown"} {
		if got := kind.String(); got != want {
			t.Errorf("kind %d is called %q, want %q", kind, got, want)
		}
	}
	for reason, want := range map[FinishReason]string{
		FinishNone: "none", FinishStop: "stop", FinishLength: "length", FinishAbort: "abort", FinishError: "error", FinishRepetition: "repetition",
		FinishOther: "other", FinishUnsaid: "unsaid", 99: "unknown",
	} {
		if got := reason.String(); got != want {
			t.Errorf("reason %d is called %q, want %q", reason, got, want)
		}
	}
}
