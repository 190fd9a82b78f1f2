package snapshot

import (
	"errors"
	"slices"
	"testing"

	"github.com/plimsoll-go/plimsoll/internal/msgpack"
)

func TestAStatKeepsWhatItCanUse(t *testing.T) {
	four := StatForm(5)
	for _, tt := range []struct {
		name string
		in   []byte
		want LoadStat
	}{
		{"the tag and four counts are enough",
			stat(1, 2, 3, 4),
			LoadStat{Present: four, NumRunningReqs: 1, NumWaitingReqs: 2, NumTokens: 3, MaxTotalNumTokens: 4}},
		{"zeros that were sent are an idle rank",
			stat(0, 0, 0, 0, 0), LoadStat{Present: StatForm(6)}},
		{"a nil rank is a rank that was not given",
			stat(1, 2, 3, 4, nil),
			LoadStat{Present: four, Nil: FieldsOf(FieldDPRank), NumRunningReqs: 1, NumWaitingReqs: 2, NumTokens: 3, MaxTotalNumTokens: 4}},
		{"nil uncached tokens are unknown, which is not zero",
			stat(1, 2, 3, 4, 5, nil),
			LoadStat{Present: StatForm(6), Nil: FieldsOf(FieldNumWaitingUncachedTokens),
				NumRunningReqs: 1, NumWaitingReqs: 2, NumTokens: 3, MaxTotalNumTokens: 4, AttnDPRank: 5}},
		{"nil in the later counts is unknown",
			stat(0, 0, 0, 0, nil, 6, nil, nil, 9, nil),
			LoadStat{
				Present: four | FieldsOf(FieldNumWaitingUncachedTokens, FieldTotalPrefillUncachedTokens),
				Nil:     FieldsOf(FieldDPRank, FieldNumTotalTokens, FieldMaxRunningRequests, FieldTotalPrefillBusyUS),

				NumWaitingUncachedTokens: 6, TotalPrefillUncachedTokens: 9}},
		{"elements that are not modelled are skipped",
			stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, -1, "new", []any{[]any{nil}}, []pair{{"k", nan}}),
			LoadStat{Present: StatForm(11), NumRunningReqs: 1, NumWaitingReqs: 2, NumTokens: 3, MaxTotalNumTokens: 4, AttnDPRank: 5,
				NumWaitingUncachedTokens: 6, NumTotalTokens: 7, MaxRunningRequests: 8, TotalPrefillUncachedTokens: 9, TotalPrefillBusyUS: 10}},
		{"integer-valued floats are integers",
			stat(1.0, float32(2), 3.0, 4.0),
			LoadStat{Present: four, NumRunningReqs: 1, NumWaitingReqs: 2, NumTokens: 3, MaxTotalNumTokens: 4}},
		{"headers may be longer than they need to be",
			[]byte("\xdd\x00\x00\x00\x05\xd9\x08LoadStat\x01\x02\x03\x04"),
			LoadStat{Present: four, NumRunningReqs: 1, NumWaitingReqs: 2, NumTokens: 3, MaxTotalNumTokens: 4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := LoadStat{Present: ^Fields(0), NumTotalTokens: 99} // must not show through
			if err := got.Decode(tt.in); err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("\n got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestABadRankInAStatIsRefusedAlone(t *testing.T) {
	for _, rank := range []any{-1, nan, 0.5, uint64(1 << 63), "0", []any{1, 2}, false} {
		var s LoadStat
		if err := s.Decode(stat(1, 2, 3, 4, rank, 6)); err != nil {
			t.Errorf("rank %v: %v", rank, err)
			continue
		}
		want := LoadStat{Present: StatForm(7) &^ FieldsOf(FieldDPRank), Refused: FieldsOf(FieldDPRank),
			NumRunningReqs: 1, NumWaitingReqs: 2, NumTokens: 3, MaxTotalNumTokens: 4, NumWaitingUncachedTokens: 6}
		if s != want {
			t.Errorf("rank %v:\n got %+v\nwant %+v", rank, s, want)
		}
	}
}

func TestAStatWithABrokenCountIsRefusedSoThatItNeverLooksIdle(t *testing.T) {
	for _, tt := range []struct {
		value any
		want  error
	}{
		{-1, ErrNegative}, {nan, ErrNotFinite}, {inf, ErrNotFinite}, {0.5, ErrNotInteger},
		{uint64(1 << 63), ErrOutOfRange}, {1e19, ErrOutOfRange}, {"1", ErrType}, {true, ErrType}, {[]any{}, ErrType},
	} {
		for k, key := range statKeys {
			if k == statRank {
				continue
			}
			elements := []any{0, 0, 0, 0, nil, 0, 0, 0, 0, 0}
			elements[k] = tt.value
			var s LoadStat
			var d *DecodeError
			if err := s.Decode(stat(elements...)); !errors.As(err, &d) || d.Err != tt.want || d.Field != key || d.Offset != 10+k {
				t.Errorf("%s = %v: got %v, want %v", key, tt.value, err, tt.want)
			}
		}
	}
}

func TestAStatErrorNamesTheOffendingValue(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   []byte
		want DecodeError
	}{
		{"nothing", nil, DecodeError{"LoadStat", 0, "", ErrTruncated}},
		{"a map", wire([]pair{}), DecodeError{"LoadStat", 0, "", ErrType}},
		{"an empty array", wire([]any{}), DecodeError{"LoadStat", 0, "", ErrTooShort}},
		{"a tag alone", stat(), DecodeError{"LoadStat", 0, "", ErrTooShort}},
		{"three counts", stat(1, 2, 3), DecodeError{"LoadStat", 0, "", ErrTooShort}},
		{"another tag", wire([]any{"LoadStat2", 0, 0, 0, 0}), DecodeError{"LoadStat", 1, "", ErrTag}},
		{"a tag that is cut", wire([]any{"LoadSta", 0, 0, 0, 0}), DecodeError{"LoadStat", 1, "", ErrTag}},
		{"a KV event batch", wire([]any{1764439200.5, []any{[]any{"BlockStored"}}, 0}), DecodeError{"LoadStat", 1, "", ErrTag}},
		{"no tag", wire([]any{0, 0, 0, 0, 0}), DecodeError{"LoadStat", 1, "", ErrTag}},
		{"nil in a required count", stat(0, 0, nil, 0), DecodeError{"LoadStat", 12, "num_tokens", ErrNil}},
		{"a count that is missing", []byte("\x95\xa8LoadStat\x01\x02\x03"), DecodeError{"LoadStat", 13, "max_total_num_tokens", ErrTruncated}},
		{"a rank that is cut", []byte("\x96\xa8LoadStat\x01\x02\x03\x04\xcd\x01"), DecodeError{"LoadStat", 14, "attn_dp_rank", ErrTruncated}},
		{"an extra element that is cut", append([]byte("\x9c"), fullStat(11)[1:]...), DecodeError{"LoadStat", len(fullStat(11)), "", ErrTruncated}},
		{"something after the array", append(stat(1, 2, 3, 4), 0xc0), DecodeError{"LoadStat", 14, "", ErrTrailingBytes}},
		{"an extra element nested too deeply", stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, nested(msgpack.MaxDepth+1)), DecodeError{"LoadStat", 20, "", ErrTooDeep}},
		{"too many bytes", make([]byte, MaxPayload+1), DecodeError{"LoadStat", 0, "", ErrPayloadSize}},
	} {
		var s LoadStat
		var got *DecodeError
		if err := s.Decode(tt.in); !errors.As(err, &got) || *got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, err, &tt.want)
		}
	}
}

func TestAStatCutShortAnywhereIsTruncatedAndNotIdle(t *testing.T) {
	for elements := 5; elements <= 11; elements++ {
		payload := fullStat(elements)
		for n := range payload {
			var s LoadStat
			if err := s.Decode(payload[:n:n]); !errors.Is(err, ErrTruncated) {
				t.Errorf("%d bytes of %d: %v", n, len(payload), err)
			}
		}
	}
}

func TestTheLengthOfAnEncodedStatFollowsFromWhatIsKnown(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   LoadStat
		want []any
	}{
		{"no marks: what the engine writes today",
			LoadStat{NumRunningReqs: 1}, []any{1, 0, 0, 0, nil, 0, 0, 0, 0, 0}},
		{"six", LoadStat{Present: StatForm(6), NumRunningReqs: 1, AttnDPRank: 0}, []any{1, 0, 0, 0, 0}},
		{"six without a rank", LoadStat{Present: StatForm(5)}, []any{0, 0, 0, 0, nil}},
		{"seven", LoadStat{Present: StatForm(7)}, []any{0, 0, 0, 0, 0, 0}},
		{"seven, uncached tokens not known",
			LoadStat{Present: StatForm(6), Nil: FieldsOf(FieldNumWaitingUncachedTokens)}, []any{0, 0, 0, 0, 0, nil}},
		{"eleven", LoadStat{Present: StatForm(11)}, []any{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		{"a refused rank", LoadStat{Present: StatForm(5), Refused: FieldsOf(FieldDPRank)}, []any{0, 0, 0, 0, nil}},
		{"no value is lost for want of a mark",
			LoadStat{Present: StatForm(6), NumTotalTokens: 9}, []any{0, 0, 0, 0, 0, 0, 9}},
	} {
		if got, want := tt.in.Append(nil), stat(tt.want...); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %x\nwant %x", tt.name, got, want)
		}
	}
	for n := range 20 {
		if got := StatForm(n).Count(); got != max(0, min(n-1, 10)) {
			t.Errorf("StatForm(%d) has %d fields", n, got)
		}
	}
}
