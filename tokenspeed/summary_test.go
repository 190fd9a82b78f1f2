package tokenspeed

import (
	"errors"
	"testing"
)

// vectors are batches as the engine's encoder writes them, of every length that
// there has been, and two that were made by its rules.
var vectors = []struct {
	name     string
	hex      string
	want     Summary // but Finished and Reasons
	finished string
	err      error
}{
	{
		"14 elements",
		"9eb34261746368546f6b656e49444f7574536c696d91a57665632d3191920a0b91a66c656e6774689103910291019192cbbfe0000000000000cbbfd000000000000091920a0b01020564cd0190",
		Summary{Elements: 14, EngineIndex: 1, Requests: 1, Load: Load{true, 2, 5, 100, 400}}, "vec-1:length", nil,
	},
	{
		"10 elements",
		"9ab34261746368546f6b656e49444f7574536c696d91a57665632d3191920a0b91a66c656e6774689103910291019192cbbfe0000000000000cbbfd000000000000091920a0b01",
		Summary{Elements: 10, EngineIndex: 1, Requests: 1}, "vec-1:length", nil,
	},
	{
		"9 elements",
		"99b34261746368546f6b656e49444f7574536c696d91a57665632d3191920a0b91a66c656e6774689103910291019192cbbfe0000000000000cbbfd000000000000091920a0b",
		Summary{Elements: 9, Requests: 1}, "vec-1:length", nil,
	},
	{
		"two requests",
		"9eb34261746368546f6b656e49444f7574536c696d92a161a16292910a911492a0a473746f7092030492010192000092909092909001020564cd0190",
		Summary{Elements: 14, EngineIndex: 1, Requests: 2, Load: Load{true, 2, 5, 100, 400}}, "b:stop", nil,
	},
	{
		"ragged",
		"9eb34261746368546f6b656e49444f7574536c696d92a161a16291910a92a0a09203049201019200009290909290900000000000",
		Summary{}, "", ErrRagged,
	},
}

func checkSummary(t *testing.T, name string, got *Summary, want Summary, wantFinished string) {
	t.Helper()
	if f := finished(got); f != wantFinished {
		t.Errorf("%s: finished %q, want %q", name, f, wantFinished)
	}
	if got.Elements != want.Elements || got.EngineIndex != want.EngineIndex || got.Load != want.Load || got.LoadErr != nil || got.Requests != want.Requests {
		t.Errorf("%s:\n got %+v\nwant %+v", name, *got, want)
	}
}

func TestASummaryHasTheRankTheLoadAndTheRequestsThatAreOver(t *testing.T) {
	var reused Summary // the same throughout: nothing of one may show in the next
	for _, tt := range vectors {
		err := reused.Decode(unhex(t, tt.hex))
		if !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.err)
		}
		if err == nil {
			checkSummary(t, tt.name, &reused, tt.want, tt.finished)
		}
	}
}

func TestWhatASenderLeavesOffIsAbsentAndHalfALoadIsNone(t *testing.T) {
	for n := minElements; n <= loadElements+3; n++ {
		elements := append(two(), map[string]any{"later": list{1, 2.5}}, nil, nested(30))[:n]
		want := Summary{Elements: n, Requests: 2}
		if n >= 10 {
			want.EngineIndex = 1
		}
		if n >= 14 {
			want.Load = Load{true, 2, 5, 100, 400}
		}
		s := Summary{EngineIndex: 9, Load: Load{true, 1, 1, 1, 1}, LoadErr: ErrNil} // must not show through
		if err := s.Decode(wire(elements...)); err != nil {
			t.Errorf("%d elements: %v", n, err)
			continue
		}
		checkSummary(t, "elements", &s, want, "b:length")
		if s.HasEngineIndex() != (n >= 10) {
			t.Errorf("%d elements: has an engine index: %v", n, s.HasEngineIndex())
		}
	}
}

func TestASummaryThatWasMadeHasTheEngineIndexThatItWasGiven(t *testing.T) {
	var b Batch
	b.EngineIndex = 3
	b.Add(Request{ID: []byte("a"), FinishReason: FinishStop})
	if !b.HasEngineIndex() {
		t.Error("it has none")
	}
}

func TestNoPagesAreNoLoadAndAnIdleRankIsALoad(t *testing.T) {
	for _, tt := range []struct {
		running, waiting, active, total any
		want                            Load
		usage                           float64
	}{
		{0, 0, 0, 0, Load{}, 0},
		{2, 5, 100, 0, Load{}, 0}, // the counts of a rank that has not looked at its pages
		{0, 0, 0, 400, Load{Known: true, KVTotalPages: 400}, 0},
		{2, 5, 100, 400, Load{true, 2, 5, 100, 400}, 0.25},
		{2, 5, 400, 400, Load{true, 2, 5, 400, 400}, 1},
		{2.0, float32(5), 100.0, 400.0, Load{true, 2, 5, 100, 400}, 0.25},
		{raw("\xcf\x7f\xff\xff\xff\xff\xff\xff\xff"), 0, 1, 1, Load{true, 1<<63 - 1, 0, 1, 1}, 1},
	} {
		elements := append(two()[:indexElements], tt.running, tt.waiting, tt.active, tt.total)
		var s Summary
		if err := s.Decode(wire(elements...)); err != nil || s.LoadErr != nil {
			t.Errorf("%v: %v, %v", elements[indexElements:], err, s.LoadErr)
		}
		if s.Load != tt.want || s.Load.KVUsage() != tt.usage {
			t.Errorf("%v: got %+v, usage %v, want %+v, usage %v", elements[indexElements:], s.Load, s.Load.KVUsage(), tt.want, tt.usage)
		}
	}
}

func TestALoadThatCannotBeTrueIsRefusedAndTheBatchStands(t *testing.T) {
	first := len(wire(two()[:indexElements]...)) // where the load begins
	check := func(elements list, want DecodeError) {
		t.Helper()
		var s Summary
		if err := s.Decode(wire(elements...)); err != nil {
			t.Errorf("%v: %v", elements[indexElements:], err)
			return
		}
		var got *DecodeError
		if !errors.As(s.LoadErr, &got) || *got != want {
			t.Errorf("%v: got %v, want %v", elements[indexElements:], s.LoadErr, &want)
		}
		if s.Load != (Load{}) || finished(&s) != "b:length" || s.EngineIndex != 1 || s.Elements != len(elements) {
			t.Errorf("%v: %+v", elements[indexElements:], s)
		}
	}
	for _, tt := range []struct {
		value any
		want  error
	}{
		{-1, ErrNegative}, {nan, ErrNotFinite}, {inf, ErrNotFinite}, {0.5, ErrNotInteger}, {uint64(1 << 63), ErrOutOfRange}, {1e19, ErrOutOfRange},
		{nil, ErrNil}, {"1", ErrType}, {true, ErrType}, {list{}, ErrType}, {list{nil, list{}}, ErrType}, {map[string]any{"a": 1}, ErrType},
	} {
		for c := colNumRunning; c < numColumns; c++ {
			elements := append(two(), "later")
			for k := indexElements; k < loadElements; k++ {
				elements[k] = 1 // of one byte each
			}
			elements[c] = tt.value
			check(elements, DecodeError{first + int(c-colNumRunning), columnNames[c], tt.want})
		}
	}
	active := DecodeError{first + 2, "kv_active_pages", ErrOutOfRange}
	check(append(two()[:indexElements], 2, 5, 401, 400), active)
	check(append(two()[:indexElements], 2, 5, 2, 1), active)
	// Of several, the first is named; and it is an error also where there are no pages.
	check(append(two()[:indexElements], 2, -5, -1, 0), DecodeError{first + 1, "num_waiting", ErrNegative})
}

func TestALoadThatIsCutOffRefusesTheBatch(t *testing.T) {
	var s Summary
	for _, value := range []raw{"\xcd\x01", "\xa5x", "\x91", ""} {
		elements := two()
		elements[colKVTotalPages] = value
		err := s.Decode(wire(elements...))
		var d *DecodeError
		if !errors.As(err, &d) || d.Err != ErrTruncated || d.Field != "kv_total_pages" {
			t.Errorf("%x: %v", string(value), err)
		}
	}
}

func TestEveryReasonButTheEmptyOneEndsARequest(t *testing.T) {
	elements := two()
	elements[colRIDs] = list{"a", "b", "c", "d", "e", "f", "g"}
	elements[colFinishedReasons] = list{"stop", "", "length", "abort", "STOP", "", "content_filter"}
	for c := colOutputIDs; int(c) < minElements; c++ {
		if c != colFinishedReasons {
			elements[c] = list{0, 0, 0, 0, 0, 0, 0} // of which a Summary takes only the number
		}
	}
	var s Summary
	if err := s.Decode(wire(elements...)); err != nil {
		t.Fatal(err)
	}
	if got, want := finished(&s), "a:stop c:length d:abort e:other g:other"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestARaggedBatchEndsWhatItsTwoColumnsAgreeOn(t *testing.T) {
	for _, tt := range []struct {
		name     string
		column   column
		value    any
		field    string
		finished string
	}{
		{"fewer rows", colOutputIDs, list{list{10}}, "output_ids", "b:length"},
		{"no rows", colOutputIDs, list{}, "output_ids", "b:length"},
		{"more rows", colOutputIDs, list{list{}, list{}, list{}}, "output_ids", "b:length"},
		{"fewer prompt tokens", colPromptTokens, list{3}, "prompt_tokens", "b:length"},
		{"more completion tokens", colCompletionTokens, list{1, 2, 3}, "completion_tokens", "b:length"},
		{"fewer cached tokens", colCachedTokens, list{0}, "cached_tokens", "b:length"},
		{"fewer logprobs", colLogprobs, list{list{}}, "output_token_logprobs_val", "b:length"},
		{"more logprob ids", colLogprobIDs, list{list{}, list{}, list{}}, "output_token_logprobs_idx", "b:length"},
		{"fewer reasons", colFinishedReasons, list{"length"}, "finished_reasons", ""},
		{"more reasons", colFinishedReasons, list{"", "length", "stop"}, "finished_reasons", ""},
		{"fewer ids", colRIDs, list{"b"}, "output_ids", ""},
		{"more ids", colRIDs, list{"a", "b", "c"}, "output_ids", ""},
		{"no ids", colRIDs, list{}, "output_ids", ""},
	} {
		payload := with(tt.column, tt.value)
		var s Summary
		var b Batch
		errs := []error{s.Decode(payload), b.Decode(payload)}
		for i, s := range []*Summary{&s, &b.Summary} {
			var d *DecodeError
			if !errors.As(errs[i], &d) || d.Err != ErrRagged || d.Field != tt.field || payload[d.Offset]&0xf0 != 0x90 {
				t.Errorf("%s: %v, want %s", tt.name, errs[i], tt.field)
			}
			if got := finished(s); got != tt.finished {
				t.Errorf("%s: finished %q, want %q", tt.name, got, tt.finished)
			}
			if s.EngineIndex != 1 || s.Load != (Load{}) || s.LoadErr != nil {
				t.Errorf("%s: %+v", tt.name, *s)
			}
		}
		if s.Requests != 0 || b.Requests != 0 || b.Len() != 0 {
			t.Errorf("%s: %d, %d and %d requests", tt.name, s.Requests, b.Requests, b.Len())
		}
	}
}

func TestTheFirstColumnThatIsRaggedIsNamed(t *testing.T) {
	elements := two()
	elements[colPromptTokens], elements[colLogprobs] = list{1}, list{}
	var d *DecodeError
	if err := new(Summary).Decode(wire(elements...)); !errors.As(err, &d) || d.Field != "prompt_tokens" {
		t.Error(err)
	}
}

func TestARaggedBatchThatIsBrokenBesidesEndsNothing(t *testing.T) {
	ragged := func(c column, value any) list {
		elements := two()
		elements[colPromptTokens], elements[c] = list{1}, value
		return elements
	}
	for name, tt := range map[string]struct {
		payload []byte
		want    error
	}{
		"no rank":         {wire(ragged(colEngineIndex, nil)...), ErrNil},
		"a column is nil": {wire(ragged(colLogprobIDs, nil)...), ErrNil},
		"cut off":         {wire(ragged(colKVTotalPages, raw(""))...), ErrTruncated},
		"bytes after it":  {append(wire(ragged(colKVTotalPages, 1)...), 0), ErrTrailingBytes},
		"a broken reason": {wire(ragged(colFinishedReasons, list{"stop", 7})...), ErrType},
	} {
		var s Summary
		if err := s.Decode(tt.payload); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if len(s.Finished)+len(s.Reasons)+s.Elements+s.Requests+s.EngineIndex != 0 {
			t.Errorf("%s: left %+v", name, s)
		}
	}
	// A load that is refused changes nothing, for there is none either way.
	var s Summary
	if err := s.Decode(wire(ragged(colNumRunning, -1)...)); !errors.Is(err, ErrRagged) || s.LoadErr != nil || finished(&s) != "b:length" {
		t.Errorf("%v, %+v", err, s)
	}
}

func TestAnErrorNamesTheOffendingValue(t *testing.T) {
	head := len(wire(tag)) // where rids begin
	index := len(wire(two()[:minElements]...))
	end := len(wire(two()...))
	for _, tt := range []struct {
		name string
		in   []byte
		want DecodeError
	}{
		{"nothing", nil, DecodeError{0, "", ErrTruncated}},
		{"nil", []byte{0xc0}, DecodeError{0, "", ErrNil}},
		{"a map", []byte{0x80}, DecodeError{0, "", ErrType}},
		{"text", []byte(EngineDead), DecodeError{0, "", ErrType}},
		{"an empty array", []byte{0x90}, DecodeError{0, "", ErrTooShort}},
		{"a tag alone", wire(tag), DecodeError{0, "rids", ErrTooShort}},
		{"five elements", wire(two()[:5]...), DecodeError{0, "completion_tokens", ErrTooShort}},
		{"eight elements", wire(two()[:8]...), DecodeError{0, "output_token_logprobs_idx", ErrTooShort}},
		{"another tag", with(colTag, "BatchTokenIDOut"), DecodeError{1, "", ErrTag}},
		{"a longer tag", with(colTag, tag+"2"), DecodeError{1, "", ErrTag}},
		{"a short array with another tag", wire("LoadStat", 0, 0, 0, 0), DecodeError{1, "", ErrTag}},
		{"a tag that is no string", with(colTag, 7), DecodeError{1, "", ErrTag}},
		{"a tag that is nil", with(colTag, nil), DecodeError{1, "", ErrTag}},
		{"a tag that is cut", wire(tag)[:10], DecodeError{1, "", ErrTruncated}},
		{"no ids", with(colRIDs, nil), DecodeError{head, "rids", ErrNil}},
		{"ids in a map", with(colRIDs, map[string]any{"a": 1}), DecodeError{head, "rids", ErrType}},
		{"an id that is nil", with(colRIDs, list{"a", nil}), DecodeError{head + 3, "rids", ErrNil}},
		{"an id that is a number", with(colRIDs, list{"a", 7}), DecodeError{head + 3, "rids", ErrType}},
		{"an id that is binary", with(colRIDs, list{"a", []byte("b")}), DecodeError{head + 3, "rids", ErrType}},
		{"a column that is a string", with(colOutputIDs, "x"), DecodeError{head + 5, "output_ids", ErrType}},
		{"a column that is nil", with(colOutputIDs, nil), DecodeError{head + 5, "output_ids", ErrNil}},
		{"a reason that is nil", with(colFinishedReasons, list{nil, "stop"}), DecodeError{head + 12, "finished_reasons", ErrNil}},
		{"a reason that is a map", with(colFinishedReasons, list{"", map[string]any{"type": "stop"}}), DecodeError{head + 13, "finished_reasons", ErrType}},
		{"too few reasons, one of them no string", with(colFinishedReasons, list{false}), DecodeError{head + 12, "finished_reasons", ErrType}},
		{"a rank that is nil", with(colEngineIndex, nil), DecodeError{index, "engine_index", ErrNil}},
		{"a negative rank", with(colEngineIndex, -1), DecodeError{index, "engine_index", ErrNegative}},
		{"half a rank", with(colEngineIndex, 0.5), DecodeError{index, "engine_index", ErrNotInteger}},
		{"a rank that is a string", with(colEngineIndex, "0"), DecodeError{index, "engine_index", ErrType}},
		{"a rank that no identity is long enough for", with(colEngineIndex, MaxEngineIndex+1), DecodeError{index, "engine_index", ErrOutOfRange}},
		{"a rank of 2^63-1", with(colEngineIndex, raw("\xcf\x7f\xff\xff\xff\xff\xff\xff\xff")), DecodeError{index, "engine_index", ErrOutOfRange}},
		{"a rank of 2^32", with(colEngineIndex, uint64(1<<32)), DecodeError{index, "engine_index", ErrOutOfRange}},
		{"something after the array", append(wire(two()...), 0xc0), DecodeError{end, "", ErrTrailingBytes}},
		{"a later element that is cut", append([]byte{0x9f}, wire(two()...)[1:]...), DecodeError{end, "", ErrTruncated}},
		{"a later element nested too deeply", wire(append(two(), nested(33))...), DecodeError{end, "", ErrTooDeep}},
		{"a row nested too deeply", with(colLogprobs, list{list{}, nested(33)}), DecodeError{head + 31, "output_token_logprobs_val", ErrTooDeep}},
		{"a byte that msgpack does not use", with(colPromptTokens, list{0, raw("\xc1")}), DecodeError{head + 22, "prompt_tokens", ErrType}},
		{"too many bytes", make([]byte, MaxPayload+1), DecodeError{0, "", ErrPayloadSize}},
	} {
		var s Summary
		var b Batch
		for _, err := range []error{s.Decode(tt.in), b.Decode(tt.in)} {
			var got *DecodeError
			if !errors.As(err, &got) || *got != tt.want {
				t.Errorf("%s: got %v, want %v", tt.name, err, &tt.want)
			}
		}
		if s.Elements+s.Requests+len(s.Finished) != 0 || b.Elements+b.Requests+b.Len() != 0 {
			t.Errorf("%s: left %+v and %+v", tt.name, s, b)
		}
	}
}

func TestABatchCutShortAnywhereIsTruncated(t *testing.T) {
	for n := minElements; n <= loadElements; n++ {
		payload := wire(two()[:n]...)
		for n := range payload {
			var s Summary
			var b Batch
			if err := s.Decode(payload[:n:n]); !errors.Is(err, ErrTruncated) {
				t.Errorf("%d bytes of %d: %v", n, len(payload), err)
			}
			if err := b.Decode(payload[:n:n]); !errors.Is(err, ErrTruncated) {
				t.Errorf("%d bytes of %d, whole: %v", n, len(payload), err)
			}
		}
	}
}

func TestASummaryDoesNotLookIntoTheColumnsItSkips(t *testing.T) {
	for _, value := range []any{nil, true, "x", -1, 0.5, []byte("x"), list{nil}, list{list{list{}}}, map[string]any{"a": nil}} {
		for c := colOutputIDs; int(c) < minElements; c++ {
			if c == colFinishedReasons {
				continue
			}
			var s Summary
			if err := s.Decode(with(c, list{value, value})); err != nil {
				t.Errorf("%s of %v: %v", columnNames[c], value, err)
				continue
			}
			checkSummary(t, columnNames[c], &s, Summary{Elements: 14, EngineIndex: 1, Requests: 2, Load: Load{true, 2, 5, 100, 400}}, "b:length")
		}
	}
}

func TestHeadersMayBeLongerThanTheyNeedToBe(t *testing.T) {
	elements := two()
	elements[colTag] = raw("\xd9\x13" + tag)
	elements[colRIDs] = raw("\xdd\x00\x00\x00\x02\xda\x00\x01a\xdb\x00\x00\x00\x01b")
	elements[colOutputIDs] = raw("\xdc\x00\x02\xdc\x00\x01\xce\x00\x00\x00\x0a\x92\x14\x15")
	elements[colFinishedReasons] = raw("\xdc\x00\x02\xd9\x00\xd9\x06length")
	payload := append([]byte("\xdc\x00\x0e"), wire(elements...)[1:]...)
	var s Summary
	if err := s.Decode(payload); err != nil {
		t.Fatal(err)
	}
	checkSummary(t, "long headers", &s, Summary{Elements: 14, EngineIndex: 1, Requests: 2, Load: Load{true, 2, 5, 100, 400}}, "b:length")
	var b Batch
	if err := b.Decode(payload); err != nil || string(b.Append(nil)) != string(wire(two()...)) {
		t.Errorf("%v, as %x", err, b.Append(nil))
	}
}

func TestNamesOfReasons(t *testing.T) {
	for r, want := range map[FinishReason]string{
		FinishNone: "none", FinishStop: "stop", FinishLength: "length", FinishAbort: "abort", FinishOther: "other", 9: "unknown",
	} {
		if got := r.String(); got != want {
			t.Errorf("reason %d is called %q, want %q", r, got, want)
		}
	}
}

func TestAResetSummaryHoldsOnToNoPayload(t *testing.T) {
	var s Summary
	if err := s.Decode(wire(two()...)); err != nil {
		t.Fatal(err)
	}
	s.Reset()
	if ids := s.Finished[:1]; ids[0] != nil || s.Elements != 0 || len(s.Finished)+len(s.Reasons) != 0 || cap(s.Reasons) == 0 {
		t.Errorf("%+v", s)
	}
}
