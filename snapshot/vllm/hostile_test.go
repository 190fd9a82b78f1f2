package vllm

import (
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

// hostile are payloads that promise far more than they hold, or nest far deeper
// than anybody reads.
var hostile = []struct {
	name    string
	payload []byte
	reason  string
}{
	{"an array of 2^32-1 elements", []byte("\xdd\xff\xff\xff\xff"), "truncated"},
	{"an array of 2^31 elements, which is negative in 32 bits", []byte("\xdd\x80\x00\x00\x00"), "truncated"},
	{"2^32-1 outputs", []byte("\x92\x00\xdd\xff\xff\xff\xff"), "truncated"},
	{"an output of 2^32-1 elements", []byte("\x92\x00\x91\xdd\xff\xff\xff\xff"), "truncated"},
	{"a request id of 2^32-1 bytes", []byte("\x92\x00\x91\x92\xdb\xff\xff\xff\xff"), "truncated"},
	{"a request id of 2^31 bytes", []byte("\x92\x00\x91\x92\xdb\x80\x00\x00\x00\x90"), "truncated"},
	{"2^32-1 tokens", []byte("\x92\x00\x91\x92\xa1r\xdd\xff\xff\xff\xff"), "truncated"},
	{"an extension of 2^32-1 bytes in an output", []byte("\x92\x00\x91\x93\xa1r\x90\xc9\xff\xff\xff\xff\x01"), "truncated"},
	{"statistics of 2^32-1 pairs", []byte("\x93\x00\x90\xdf\xff\xff\xff\xff"), "truncated"},
	{"statistics of 2^31 pairs, twice which is 0 in 32 bits", []byte("\x93\x00\x90\xdf\x80\x00\x00\x00"), "truncated"},
	{"a key of 2^32-1 bytes", []byte("\x93\x00\x90\x81\xdb\xff\xff\xff\xff"), "truncated"},
	{"a statistic of 2^32-1 bytes", []byte("\x93\x00\x90\x81\xa1x\xc6\xff\xff\xff\xff"), "truncated"},
	{"2^32-1 ids that have ended", []byte("\x96\x00\x90\xc0\xc0\xc0\xdd\xff\xff\xff\xff"), "truncated"},
	{"an ended id of 2^32-1 bytes", []byte("\x96\x00\x90\xc0\xc0\xc0\x91\xdb\xff\xff\xff\xff"), "truncated"},
	{"a wave of 2^32-1 bytes", []byte("\x97\x00\x90\xc0\xc0\xc0\xc0\xdb\xff\xff\xff\xff"), "truncated"},
	{"arrays nested 100,000 deep", []byte("\x92\x00" + strings.Repeat("\x91", 100_000)), "too_short"},
	{"arrays nested 100,000 deep in the place of a time", []byte("\x94\x00\x90\xc0" + strings.Repeat("\x91", 100_000)), "too_deep"},
	{"maps nested 100,000 deep in a reply", []byte("\x95\x00\x90\xc0\x01" + strings.Repeat("\x81\xa0", 100_000)), "too_deep"},
	{"arrays nested 100,000 deep in an output", []byte("\x92\x00\x91\x93\xa1r\x90" + strings.Repeat("\x91", 100_000)), "too_deep"},
	{"arrays nested 100,000 deep among tokens", []byte("\x92\x00\x91\x92\xa1r\x91" + strings.Repeat("\x91", 100_000)), "too_deep"},
	{"arrays nested 100,000 deep in a statistic", []byte("\x93\x00\x90\x81\xa1x" + strings.Repeat("\x91", 100_000)), "too_deep"},
	{"arrays nested 100,000 deep in a key", []byte("\x93\x00\x90\x81" + strings.Repeat("\x91", 100_000)), "too_deep"},
	{"arrays nested 100,000 deep in the place of statistics", []byte("\x93\x00\x90" + strings.Repeat("\x91", 100_000)), "too_deep"},
	{"arrays nested 100,000 deep in the place of a wave", []byte("\x97\x00\x90\xc0\xc0\xc0\xc0" + strings.Repeat("\x91", 100_000)), "too_deep"},
	{"arrays nested 100,000 deep behind all that is known", []byte("\x99\x00\x90\xc0\xc0\xc0\xc0\xc0\xc0" + strings.Repeat("\x91", 100_000)), "too_deep"},
	{"arrays inside arrays that each claim all that is left", []byte("\x94\x00\x90\xc0" + strings.Repeat("\xdc\x00\xff", 300)), "too_deep"},
	{"one byte more than is read", make([]byte, MaxPayload+1), "payload_size"},
	{"one output more than are kept", append(msgp.AppendArrayHeader([]byte{0x92, 0x00}, MaxRequests+1), make([]byte, MaxRequests+1)...), "out_of_range"},
	{"one ended id more than are kept", append(msgp.AppendArrayHeader([]byte("\x96\x00\x90\xc0\xc0\xc0"), MaxRequests+1), make([]byte, MaxRequests+1)...), "out_of_range"},
}

func TestHostilePayloadsAreRefusedForNoMoreThanTheError(t *testing.T) {
	for _, tt := range hostile {
		var o Outputs
		var err error
		allocs := testing.AllocsPerRun(10, func() { err = o.Decode(tt.payload) })
		if Reason(err) != tt.reason || o.Kind != KindUnknown {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.reason)
		}
		// One more for statistics that are no load in a message that is none.
		if allocs > 2 && !raceEnabled {
			t.Errorf("%s: %v allocations", tt.name, allocs)
		}
	}
}

// The time is worth a look too: only what is skipped or counted takes more than a
// microsecond.
func BenchmarkHostile(b *testing.B) {
	for _, tt := range hostile {
		b.Run(strings.ReplaceAll(tt.name, " ", "-"), func(b *testing.B) {
			var o Outputs
			b.ReportAllocs()
			for b.Loop() {
				if o.Decode(tt.payload) == nil {
					b.Fatal("accepted")
				}
			}
		})
	}
}
