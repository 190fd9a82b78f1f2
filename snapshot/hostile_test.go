package snapshot

import (
	"strings"
	"testing"
)

// hostile are payloads that promise far more than they hold, or nest far
// deeper than anybody reads.
var hostile = []struct {
	name    string
	payload []byte
	reason  string
}{
	{"an array of 2^32-1 elements", []byte("\xdd\xff\xff\xff\xff"), "truncated"},
	{"a map of 2^32-1 pairs", []byte("\xdf\xff\xff\xff\xff"), "truncated"},
	{"a map of 2^31 pairs, twice which is 0 in 32 bits", []byte("\xdf\x80\x00\x00\x00"), "truncated"},
	{"a key of 2^32-1 bytes", []byte("\x81\xdb\xff\xff\xff\xff"), "truncated"},
	{"a tag of 2^32-1 bytes", []byte("\x95\xdb\xff\xff\xff\xff"), "truncated"},
	{"an unknown string of 2^32-1 bytes", []byte("\x81\xa1x\xdb\xff\xff\xff\xff"), "truncated"},
	{"an unknown binary of 2^32-1 bytes", []byte("\x81\xa1x\xc6\xff\xff\xff\xff"), "truncated"},
	{"an unknown extension of 2^32-1 bytes", []byte("\x81\xa1x\xc9\xff\xff\xff\xff\x01"), "truncated"},
	{"an unknown string of 2^31 bytes", []byte("\x81\xa1x\xdb\x80\x00\x00\x00"), "truncated"},
	{"an unknown binary one byte short", []byte("\x81\xa1x\xc6\x00\x00\x00\x02a"), "truncated"},
	{"an unknown array of 2^32-1 elements", []byte("\x81\xa1x\xdd\xff\xff\xff\xff"), "truncated"},
	{"an unknown map of 2^32-1 pairs", []byte("\x81\xa1x\xdf\xff\xff\xff\xff"), "truncated"},
	{"moments without end", []byte("\x81\xaedecode_moments\xdd\xff\xff\xff\xff"), "truncated"},
	{"a section without end", []byte("\x81\xa6queues\xdd\xff\xff\xff\xff"), "truncated"},
	{"a mode of 2^32-1 bytes", []byte("\x81\xaedisaggregation\x91\xdb\xff\xff\xff\xff"), "truncated"},
	{"arrays nested 100,000 deep", []byte("\x81\xa1x" + strings.Repeat("\x91", 100_000)), "payload_size"},
	{"arrays nested as deep as a payload may be long", []byte("\x81\xa1x" + strings.Repeat("\x91", MaxPayload-3)), "too_deep"},
	{"maps nested as deep as a payload may be long", []byte("\x81\xa1x" + strings.Repeat("\x81\xa0", (MaxPayload-3)/2)), "too_deep"},
	{"nesting in a ratio", []byte("\x81\xabtoken_usage" + strings.Repeat("\x91", 60_000)), "too_deep"},
	{"nesting in a section", []byte("\x81\xa4lora" + strings.Repeat("\x91", 60_000)), "too_deep"},
	{"nesting behind a section", []byte("\x81\xabspeculative\x93\x01\x01" + strings.Repeat("\x91", 60_000)), "too_deep"},
	{"nesting in the place of a rank", []byte("\x96\xa8LoadStat\x00\x00\x00\x00" + strings.Repeat("\x91", 60_000)), "too_deep"},
	{"arrays inside arrays that each claim all that is left", []byte("\x81\xa1x" + strings.Repeat("\xdc\x00\xff", 300)), "too_deep"},
}

func TestHostilePayloadsAreRefusedForNoMoreThanTheError(t *testing.T) {
	for _, tt := range hostile {
		var r Reading
		var err error
		allocs := testing.AllocsPerRun(10, func() { err = r.Decode(tt.payload) })
		if Reason(err) != tt.reason || r.Kind != KindUnknown {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.reason)
		}
		if allocs > 1 && !raceEnabled {
			t.Errorf("%s: %v allocations", tt.name, allocs)
		}
	}
}

// The time is worth a look too: each is far below a microsecond but those that
// are skipped over for a while.
func BenchmarkHostile(b *testing.B) {
	for _, tt := range hostile {
		b.Run(strings.ReplaceAll(tt.name, " ", "-"), func(b *testing.B) {
			var r Reading
			b.ReportAllocs()
			for b.Loop() {
				if r.Decode(tt.payload) == nil {
					b.Fatal("accepted")
				}
			}
		})
	}
}
