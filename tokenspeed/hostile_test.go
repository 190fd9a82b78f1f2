package tokenspeed

import (
	"strings"
	"testing"
)

// hostile are payloads that promise far more than they hold, nest far deeper than
// anybody reads, or ask for memory out of proportion to their size.
var hostile = []struct {
	name    string
	payload string
	reason  string
}{
	{"an array of 2^32-1 elements", "\xdd\xff\xff\xff\xff", "truncated"},
	{"an array of 2^32-1 elements with a tag", "\xdd\xff\xff\xff\xff\xb3" + tag, "truncated"},
	{"a tag of 2^32-1 bytes", "\x9e\xdb\xff\xff\xff\xff" + strings.Repeat("x", 20), "truncated"},
	{"2^32-1 ids", head + "\xdd\xff\xff\xff\xff" + strings.Repeat("\xa0", 100), "truncated"},
	{"2^31 ids", head + "\xdd\x80\x00\x00\x00" + strings.Repeat("\xa0", 100), "truncated"},
	{"65,535 ids", head + "\xdc\xff\xff" + strings.Repeat("\xa0", 100), "truncated"},
	{"an id of 2^32-1 bytes", head + "\x91\xdb\xff\xff\xff\xff", "truncated"},
	{"an id of 2^31 bytes", head + "\x91\xdb\x80\x00\x00\x00", "truncated"},
	{"an id of 255 bytes", head + "\x91\xd9\xff", "truncated"},
	{"a map of 2^32-1 ids", head + "\xdf\xff\xff\xff\xff", "type"},
	{"2^32-1 rows", head + "\x91\xa1a\xdd\xff\xff\xff\xff", "truncated"},
	{"a row of 2^32-1 tokens", head + "\x91\xa1a\x91\xdd\xff\xff\xff\xff", "truncated"},
	{"rows that each claim all that is left", head + "\x92\xa1a\xa1b\x92" + strings.Repeat("\xdc\x00\xff", 300), "too_deep"},
	{"a row that is a map of 2^31 pairs, twice which is 0 in 32 bits", head + "\x91\xa1a\x91\xdf\x80\x00\x00\x00", "truncated"},
	{"a token that is an extension of 2^32-1 bytes", head + "\x91\xa1a\x91\x91\xc9\xff\xff\xff\xff\x01", "truncated"},
	{"a token that is binary of 2^31 bytes", head + "\x91\xa1a\x91\x91\xc6\x80\x00\x00\x00", "truncated"},
	{"a reason of 2^32-1 bytes", head + "\x91\xa1a\x91\x90\x91\xdb\xff\xff\xff\xff", "truncated"},
	{"arrays nested 100,000 deep in place of a batch", strings.Repeat("\x91", 100_000), "tag"},
	{"arrays nested 100,000 deep in place of the ids", head + strings.Repeat("\x91", 100_000), "type"},
	{"arrays nested 100,000 deep in place of the rows", head + "\x91\xa1a" + strings.Repeat("\x91", 100_000), "too_deep"},
	{"maps nested 100,000 deep in place of the rows", head + "\x91\xa1a\x91" + strings.Repeat("\x81\xa0", 100_000), "too_deep"},
	{"arrays nested 100,000 deep in place of a load", plain[:len(plain)-1] + strings.Repeat("\x91", 100_000), "too_deep"},
	{"arrays nested 100,000 deep behind the load", "\x9f" + plain[1:] + strings.Repeat("\x91", 100_000), "too_deep"},
	{"arrays nested as deep as a payload may be long", "\x9f" + plain[1:] + strings.Repeat("\x91", MaxPayload-len(plain)), "too_deep"},
	{"a million ids and no rows", head + "\xdd\x00\x0f\x42\x40" + strings.Repeat("\xa0", 1_000_000) + "\x90\x90\x90\x90\x90\x90\x90\x00\x00\x00\x00\x00", "ragged"},
	{"a million tokens of no request", head + "\x90\xdd\x00\x0f\x42\x40" + strings.Repeat("\x00", 1_000_000) + "\x90\x90\x90\x90\x90\x90\x00\x00\x00\x00\x00", "ragged"},
	{"a million tokens and then nothing", head + "\x91\xa1a\x91\xdd\x00\x0f\x42\x40" + strings.Repeat("\x00", 1_000_000), "truncated"},
	{"a payload above the limit", strings.Repeat("\x00", MaxPayload+1), "payload_size"},
}

const (
	head  = "\x9e\xb3" + tag
	plain = head + "\x90\x90\x90\x90\x90\x90\x90\x90\x00\x00\x00\x00\x00" // without requests or load
)

func TestHostilePayloadsAreRefusedForNoMoreThanTheError(t *testing.T) {
	for _, tt := range hostile {
		payload := []byte(tt.payload)
		var s Summary
		var b Batch
		for name, decode := range map[string]func([]byte) error{"summary": s.Decode, "batch": b.Decode} {
			var err error
			allocs := testing.AllocsPerRun(10, func() { err = decode(payload) })
			if Reason(err) != tt.reason {
				t.Errorf("%s, %s: %v, want %s", tt.name, name, err, tt.reason)
			}
			if allocs > 1 && !raceEnabled {
				t.Errorf("%s, %s: %v allocations", tt.name, name, allocs)
			}
		}
		if cap(b.rids)+cap(b.outputIDs.values)+cap(b.Finished)+cap(s.Finished) != 0 {
			t.Errorf("%s: something has been kept", tt.name)
		}
	}
}

// What a batch keeps is bounded by what was sent, whatever it consists of.
func TestABatchKeepsNoMoreThanSixteenTimesWhatWasSent(t *testing.T) {
	if raceEnabled {
		return
	}
	const n = 1 << 16
	header := "\xdd\x00\x01\x00\x00"
	column := func(element string) string { return header + strings.Repeat(element, n) }
	for name, payload := range map[string]string{
		"the shortest requests": head + column("\xa0") + column("\x90") + column("\xa0") + column("\x00") + column("\x00") + column("\x00") + column("\x90") + column("\x90") + "\x00\x00\x00\x00\x00",
		"all of them finished":  head + column("\xa0") + column("\x90") + column("\xa1x") + column("\x00") + column("\x00") + column("\x00") + column("\x90") + column("\x90") + "\x00\x00\x00\x00\x00",
		"the shortest tokens":   head + "\x91\xa0\x91" + column("\x00") + "\x91\xa0\x91\x00\x91\x00\x91\x00\x91" + column("\x00") + "\x91" + column("\x00") + "\x00\x00\x00\x00\x00",
	} {
		var b Batch
		if err := b.Decode([]byte(payload)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		kept := 24*(cap(b.rids)+cap(b.finishes)+cap(b.Finished)) + cap(b.Reasons) +
			8*(cap(b.prompt)+cap(b.completion)+cap(b.cached)) +
			8*(cap(b.outputIDs.ends)+cap(b.logprobs.ends)+cap(b.logprobIDs.ends)) +
			8*(cap(b.outputIDs.values)+cap(b.logprobs.values)+cap(b.logprobIDs.values))
		if factor := float64(kept) / float64(len(payload)); factor > 16 {
			t.Errorf("%s: %.1f times %d bytes", name, factor, len(payload))
		}
	}
}

// The time is worth a look too: each is far below a microsecond but those that
// are stepped over for a while.
func BenchmarkHostile(b *testing.B) {
	for _, tt := range hostile {
		b.Run(strings.ReplaceAll(tt.name, " ", "-"), func(b *testing.B) {
			payload := []byte(tt.payload)
			var s Summary
			b.ReportAllocs()
			for b.Loop() {
				if s.Decode(payload) == nil {
					b.Fatal("accepted")
				}
			}
		})
	}
}
