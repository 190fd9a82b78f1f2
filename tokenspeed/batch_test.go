package tokenspeed

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"
)

func TestABatchHasEverythingOfEachRequest(t *testing.T) {
	var b Batch
	if err := b.Decode(wire(two()...)); err != nil {
		t.Fatal(err)
	}
	want := []Request{
		{
			ID: []byte("a"), OutputIDs: []int64{10}, FinishReason: FinishNone, FinishText: []byte{},
			PromptTokens: 3, CompletionTokens: 1, CachedTokens: 0, Logprobs: []float64{}, LogprobIDs: []int64{},
		},
		{
			ID: []byte("b"), OutputIDs: []int64{20, 21}, FinishReason: FinishLength, FinishText: []byte("length"),
			PromptTokens: 4, CompletionTokens: 2, CachedTokens: 2, Logprobs: []float64{-0.5, -0.25}, LogprobIDs: []int64{20, 21},
		},
	}
	if b.Len() != len(want) {
		t.Fatalf("%d requests", b.Len())
	}
	for i := range want {
		if got := b.At(i); !reflect.DeepEqual(got, want[i]) {
			t.Errorf("request %d:\n got %+v\nwant %+v", i, got, want[i])
		}
	}
	checkSummary(t, "two", &b.Summary, Summary{Elements: 14, EngineIndex: 1, Requests: 2, Load: Load{true, 2, 5, 100, 400}}, "b:length")
}

func TestTheVectorsAreEncodedByteForByte(t *testing.T) {
	for _, tt := range vectors {
		var b Batch
		payload := unhex(t, tt.hex)
		switch err := b.Decode(payload); {
		case !errors.Is(err, tt.err):
			t.Errorf("%s: %v, want %v", tt.name, err, tt.err)
		case err == nil:
			checkSummary(t, tt.name, &b.Summary, tt.want, tt.finished)
			if got := b.AppendN([]byte("x"), b.Elements); string(got) != "x"+string(payload) {
				t.Errorf("%s:\n got %x\nwant %x", tt.name, got[1:], payload)
			}
		}
	}
}

func TestABatchThatWasBuiltIsTheOneThatWasDecoded(t *testing.T) {
	built := Batch{Summary: Summary{EngineIndex: 1, Load: Load{true, 2, 5, 100, 400}}}
	built.Add(Request{ID: []byte("a"), OutputIDs: []int64{10}, PromptTokens: 3, CompletionTokens: 1})
	built.Add(Request{
		ID: []byte("b"), OutputIDs: []int64{20, 21}, FinishReason: FinishLength, PromptTokens: 4, CompletionTokens: 2, CachedTokens: 2,
		Logprobs: []float64{-0.5, -0.25}, LogprobIDs: []int64{20, 21},
	})
	if got, want := built.Append(nil), wire(two()...); !bytes.Equal(got, want) {
		t.Errorf("\n got %x\nwant %x", got, want)
	}
	checkSummary(t, "built", &built.Summary, Summary{EngineIndex: 1, Requests: 2, Load: Load{true, 2, 5, 100, 400}}, "b:length")
}

func TestTheReasonOfARequestIsItsTextWhereItHasOne(t *testing.T) {
	var b Batch
	for _, r := range []Request{
		{FinishReason: FinishNone}, {FinishReason: FinishStop}, {FinishReason: FinishLength}, {FinishReason: FinishAbort}, {FinishReason: FinishOther}, {FinishReason: 99},
		{FinishReason: FinishStop, FinishText: []byte("content_filter")}, {FinishText: []byte("abort")}, {FinishReason: FinishLength, FinishText: []byte{}},
	} {
		b.Add(r)
	}
	var got []string
	for i := range b.Len() {
		r := b.At(i)
		got = append(got, r.FinishReason.String()+"="+string(r.FinishText))
	}
	want := []string{"none=", "stop=stop", "length=length", "abort=abort", "other=other", "other=other", "other=content_filter", "abort=abort", "length=length"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := finished(&b.Summary), ":stop :length :abort :other :other :other :abort :length"; got != want {
		t.Errorf("finished %q, want %q", got, want)
	}
	var again Batch
	if err := again.Decode(b.Append(nil)); err != nil || finished(&again.Summary) != finished(&b.Summary) {
		t.Errorf("%v, finished %q", err, finished(&again.Summary))
	}
}

func TestABatchIsAsLongAsItIsAskedToBe(t *testing.T) {
	for elements, want := range map[int]int{-1: 9, 0: 9, 8: 9, 9: 9, 10: 10, 11: 11, 12: 12, 13: 13, 14: 14, 15: 14, 99: 14} {
		b := Batch{Summary: Summary{EngineIndex: 1, Load: Load{Running: 2, Waiting: 5, KVActivePages: 100, KVTotalPages: 400}}}
		full := wire(append(list{tag, list{}, list{}, list{}, list{}, list{}, list{}, list{}, list{}}, 1, 2, 5, 100, 400)[:want]...)
		if got := b.AppendN(nil, elements); !bytes.Equal(got, full) {
			t.Errorf("%d elements:\n got %x\nwant %x", elements, got, full)
		}
		if b.Elements = elements; want == 14 && !bytes.Equal(b.Append(nil), full) {
			t.Errorf("%d elements: as today:\n got %x\nwant %x", elements, b.Append(nil), full)
		}
	}
}

func TestAppendingWritesWhatItIsGiven(t *testing.T) {
	b := Batch{Summary: Summary{EngineIndex: -1, Load: Load{Running: -2, KVActivePages: 9, KVTotalPages: 8}}}
	if err := b.Decode(b.Append(nil)); !errors.Is(err, ErrNegative) {
		t.Error(err)
	}
	b = Batch{Summary: Summary{Load: Load{Running: -2, KVActivePages: 9, KVTotalPages: 8}}}
	if err := b.Decode(b.Append(nil)); err != nil || !errors.Is(b.LoadErr, ErrNegative) {
		t.Error(err, b.LoadErr)
	}
}

func TestABatchLooksIntoEveryColumn(t *testing.T) {
	const maxInt = 1<<63 - 1
	for _, tt := range []struct {
		value any
		count error // what it is as a count,
		float error // as a logprob,
		row   error // and as a row
	}{
		{nil, ErrNil, ErrNil, ErrNil},
		{true, ErrType, ErrType, ErrType},
		{"1", ErrType, ErrType, ErrType},
		{[]byte{1}, ErrType, ErrType, ErrType},
		{list{1}, ErrType, ErrType, nil},
		{list{}, ErrType, ErrType, nil},
		{map[string]any{"a": 1}, ErrType, ErrType, ErrType},
		{-1, ErrNegative, nil, ErrType},
		{raw("\xd3\xc0\x00\x00\x00\x00\x00\x00\x00"), ErrNegative, nil, ErrType},
		{0.5, ErrNotInteger, nil, ErrType},
		{nan, ErrNotFinite, nil, ErrType},
		{-inf, ErrNotFinite, nil, ErrType},
		{-2.0, ErrNegative, nil, ErrType},
		{uint64(maxInt) + 1, ErrOutOfRange, nil, ErrType},
		{7, nil, nil, ErrType},
		{7.0, nil, nil, ErrType},
		{float32(7), nil, nil, ErrType},
		{uint64(maxInt), nil, nil, ErrType},
	} {
		check := func(c column, value any, want error) {
			t.Helper()
			var b Batch
			err := b.Decode(with(c, value))
			var d *DecodeError
			if !errors.Is(err, want) || err != nil && (!errors.As(err, &d) || d.Field != columnNames[c]) {
				t.Errorf("%s of %v: %v, want %v", columnNames[c], value, err, want)
			}
			if err != nil && b.Len()+b.Requests+len(b.Finished)+b.Elements != 0 {
				t.Errorf("%s of %v: left %+v", columnNames[c], value, b)
			}
		}
		for _, c := range []column{colPromptTokens, colCompletionTokens, colCachedTokens} {
			check(c, list{0, tt.value}, tt.count)
		}
		for _, c := range []column{colOutputIDs, colLogprobIDs} {
			check(c, list{list{}, list{0, tt.value}}, tt.count)
			check(c, list{list{}, tt.value}, tt.row)
		}
		check(colLogprobs, list{list{}, list{0, tt.value}}, tt.float)
		check(colLogprobs, list{list{}, tt.value}, tt.row)
	}
}

func TestALogprobMayBeAnythingAFloatCanBe(t *testing.T) {
	values := []float64{0, math.Copysign(0, -1), nan, inf, -inf, 1, -math.MaxFloat64, math.SmallestNonzeroFloat64}
	var row list
	for _, v := range values {
		row = append(row, v)
	}
	payload := with(colLogprobs, list{row, list{}})
	var b Batch
	if err := b.Decode(payload); err != nil {
		t.Fatal(err)
	}
	for i, got := range b.At(0).Logprobs {
		if math.Float64bits(got) != math.Float64bits(values[i]) {
			t.Errorf("got %v, want %v", got, values[i])
		}
	}
	if got := b.Append(nil); !bytes.Equal(got, payload) {
		t.Errorf("\n got %x\nwant %x", got, payload)
	}
}

func TestIDsPointIntoThePayload(t *testing.T) {
	payload := wire(two()...)
	var b Batch
	if err := b.Decode(payload); err != nil {
		t.Fatal(err)
	}
	for i := range payload {
		payload[i] = 'x'
	}
	if got := string(b.At(1).ID) + string(b.At(1).FinishText) + string(b.Finished[0]); got != "xxxxxxxx" {
		t.Errorf("got %q", got)
	}
}

func TestWhatABatchHandsOutCannotGrowIntoItsNeighbour(t *testing.T) {
	payload := wire(two()...)
	var b Batch
	if err := b.Decode(payload); err != nil {
		t.Fatal(err)
	}
	r := b.At(0)
	_ = append(r.ID, "xxxxxx"...)
	_ = append(b.Finished[0], "xxxxxx"...)
	_ = append(b.At(1).FinishText, "xxxxxx"...)
	_ = append(r.OutputIDs, 99)
	_ = append(r.Logprobs, 99)
	_ = append(r.LogprobIDs, 99)
	if r := b.At(1); r.OutputIDs[0] != 20 || r.Logprobs[0] != -0.5 || r.LogprobIDs[0] != 20 {
		t.Errorf("%+v", r)
	}
	if !bytes.Equal(payload, wire(two()...)) {
		t.Error("the payload has changed")
	}
}

func TestAResetBatchIsEmptyAndHoldsOnToNoPayload(t *testing.T) {
	b := step(true)
	b.Reset()
	if got, want := b.Append(nil), new(Batch).Append(nil); !bytes.Equal(got, want) || b.Len() != 0 {
		t.Errorf("\n got %x\nwant %x", got, want)
	}
	for i, id := range b.rids[:256] {
		if id != nil || b.finishes[:256][i] != nil {
			t.Fatalf("request %d is still there", i)
		}
	}
	if cap(b.outputIDs.values) < 256 {
		t.Error("the capacity is gone")
	}
}

// A batch that has been decoded can be added to, without a trace in the payload.
func TestAddingToADecodedBatchLeavesThePayloadAlone(t *testing.T) {
	payload := wire(two()...)
	sent := bytes.Clone(payload)
	var b Batch
	if err := b.Decode(payload); err != nil {
		t.Fatal(err)
	}
	b.Add(Request{ID: []byte("c"), FinishReason: FinishAbort})
	if !bytes.Equal(payload, sent) {
		t.Error("the payload has changed")
	}
	var again Batch
	if err := again.Decode(b.Append(nil)); err != nil || finished(&again.Summary) != "b:length c:abort" || again.Len() != 3 {
		t.Errorf("%v, %+v", err, again.Summary)
	}
}
