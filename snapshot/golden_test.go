package snapshot

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// The vectors under testdata come from the engine's own encoders; see
// testdata/generate.py.

type hexBytes []byte

func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

type snapshotVector struct {
	Name      string
	Hex       hexBytes
	Canonical bool // every value has the type its field declares
	Fields    map[string]any
}

type statVector struct {
	Name     string
	Hex      hexBytes
	Elements []any
}

type brokenVector struct {
	Name    string
	Hex     hexBytes
	Reason  string   // why the message is refused, or
	Refused []string // which fields are, while the rest stands
}

func readGolden[T any](t testing.TB, name string) []T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var vectors []T
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // counts reach past what a float64 holds
	if err := d.Decode(&vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) == 0 {
		t.Fatalf("%s has no vectors", name)
	}
	return vectors
}

func asInt(t testing.TB, v any) int64 {
	t.Helper()
	n := v.(json.Number)
	if i, err := n.Int64(); err == nil {
		return i
	}
	f, err := n.Float64()
	if err != nil || f != float64(int64(f)) {
		t.Fatalf("%v is not an integer", n)
	}
	return int64(f)
}

func asFloat(t testing.TB, v any) float64 {
	t.Helper()
	f, err := v.(json.Number).Float64()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// wantSnapshot builds what a decoder should make of the fields on the wire.
func wantSnapshot(t testing.TB, fields map[string]any) LoadSnapshot {
	t.Helper()
	var s LoadSnapshot
	scalars := map[string]any{
		"timestamp": &s.Timestamp, "dp_rank": &s.DPRank,
		"num_running_reqs": &s.NumRunningReqs, "num_waiting_reqs": &s.NumWaitingReqs,
		"num_waiting_uncached_tokens": &s.NumWaitingUncachedTokens,
		"num_used_tokens":             &s.NumUsedTokens, "num_total_tokens": &s.NumTotalTokens,
		"num_active_tokens": &s.NumActiveTokens, "num_prealloc_ready_tokens": &s.NumPreallocReadyTokens,
		"max_total_num_tokens": &s.MaxTotalNumTokens, "max_running_requests": &s.MaxRunningRequests,
		"token_usage": &s.TokenUsage, "gen_throughput": &s.GenThroughput,
		"cache_hit_rate": &s.CacheHitRate, "utilization": &s.Utilization,
		"total_prefill_uncached_tokens": &s.TotalPrefillUncachedTokens,
		"total_prefill_busy_us":         &s.TotalPrefillBusyUS,
	}
	for key, value := range fields {
		f := fieldOf(t, key)
		if value == nil {
			s.Nil |= f.bit()
			continue
		}
		s.Present |= f.bit()
		switch p := scalars[key].(type) {
		case *int64:
			*p = asInt(t, value)
			continue
		case *float64:
			*p = asFloat(t, value)
			continue
		}
		e := value.([]any)
		i := func(k int) int64 { return asInt(t, e[k]) }
		x := func(k int) float64 { return asFloat(t, e[k]) }
		switch key {
		case "decode_moments":
			s.DecodeMoments = []float64{}
			for k := range e {
				s.DecodeMoments = append(s.DecodeMoments, x(k))
			}
		case "memory":
			s.Memory = MemorySection{len(e), x(0), x(1), x(2), i(3)}
		case "speculative":
			s.Speculative = SpeculativeSection{len(e), x(0), x(1)}
		case "lora":
			s.LoRA = LoRASection{len(e), i(0), i(1), x(2)}
		case "disaggregation":
			s.Disaggregation = DisaggregationSection{len(e), e[0].(string), i(1), i(2), i(3), i(4), i(5), x(6), x(7)}
		case "queues":
			s.Queues = QueuesSection{len(e), i(0), i(1), i(2), i(3), i(4)}
		default:
			t.Fatalf("vector has a field %q that is not compared", key)
		}
	}
	return s
}

func fieldOf(t testing.TB, key string) Field {
	t.Helper()
	for f := range numFields {
		if f.String() == key {
			return f
		}
	}
	t.Fatalf("no field has the key %q", key)
	return 0
}

// wantStat builds what a decoder should make of the elements on the wire.
func wantStat(t testing.TB, elements []any) LoadStat {
	t.Helper()
	var s LoadStat
	for k, p := range []*int64{
		&s.NumRunningReqs, &s.NumWaitingReqs, &s.NumTokens, &s.MaxTotalNumTokens, &s.AttnDPRank,
		&s.NumWaitingUncachedTokens, &s.NumTotalTokens, &s.MaxRunningRequests,
		&s.TotalPrefillUncachedTokens, &s.TotalPrefillBusyUS,
	} {
		switch {
		case k+1 >= len(elements):
		case elements[k+1] == nil:
			s.Nil |= statFields[k].bit()
		default:
			s.Present |= statFields[k].bit()
			*p = asInt(t, elements[k+1])
		}
	}
	return s
}

func equalSnapshots(a, b *LoadSnapshot) bool {
	x, y := *a, *b
	if len(x.DecodeMoments) == 0 && len(y.DecodeMoments) == 0 { // nil and empty read alike
		x.DecodeMoments, y.DecodeMoments = nil, nil
	}
	return reflect.DeepEqual(x, y)
}

func TestEverySnapshotOfTheEngineDecodesToTheValuesItWasMadeFrom(t *testing.T) {
	var reused LoadSnapshot // the same throughout: nothing of one may show in the next
	for _, v := range readGolden[snapshotVector](t, "loadsnapshot.json") {
		want := wantSnapshot(t, v.Fields)
		if err := reused.Decode(v.Hex); err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		if !equalSnapshots(&reused, &want) {
			t.Errorf("%s:\n got %+v\nwant %+v", v.Name, reused, want)
		}
	}
}

func TestSnapshotsAreEncodedByteForByteAsTheEngineDoes(t *testing.T) {
	for _, v := range readGolden[snapshotVector](t, "loadsnapshot.json") {
		if !v.Canonical {
			continue // the engine's values have types that ours cannot have
		}
		s := wantSnapshot(t, v.Fields)
		if got := s.Append(nil); !bytes.Equal(got, v.Hex) {
			t.Errorf("%s:\n got %x\nwant %x", v.Name, got, []byte(v.Hex))
		}
	}
}

func TestEveryStatOfTheEngineDecodesToTheValuesItWasMadeFrom(t *testing.T) {
	var reused LoadStat
	for _, v := range readGolden[statVector](t, "loadstat.json") {
		want := wantStat(t, v.Elements)
		if err := reused.Decode(v.Hex); err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		if reused != want {
			t.Errorf("%s:\n got %+v\nwant %+v", v.Name, reused, want)
		}
	}
}

func TestStatsAreEncodedByteForByteAsTheEngineDoes(t *testing.T) {
	for _, v := range readGolden[statVector](t, "loadstat.json") {
		s := wantStat(t, v.Elements)
		if got := s.Append(nil); !bytes.Equal(got, v.Hex) {
			t.Errorf("%s:\n got %x\nwant %x", v.Name, got, []byte(v.Hex))
		}
	}
}

func TestWhatABrokenEngineEncodesIsRefusedOrUnknownAndNeverStored(t *testing.T) {
	for _, v := range readGolden[brokenVector](t, "broken.json") {
		var r Reading
		err := r.Decode(v.Hex)
		if got := Reason(err); got != v.Reason {
			t.Errorf("%s: reason %q (%v), want %q", v.Name, got, err, v.Reason)
			continue
		}
		if err != nil {
			if r.Kind != KindUnknown {
				t.Errorf("%s: kind %v after an error", v.Name, r.Kind)
			}
			continue
		}
		var refused Fields
		for _, key := range v.Refused {
			refused |= fieldOf(t, key).bit()
		}
		if r.Kind == KindLoadStat {
			if r.Stat.Refused != refused || r.Stat.AttnDPRank != 0 || r.Stat.NumRunningReqs != 2 {
				t.Errorf("%s: %+v", v.Name, r.Stat)
			}
			continue
		}
		want := LoadSnapshot{Present: FieldsOf(FieldNumRunningReqs), Refused: refused, NumRunningReqs: 2}
		if !equalSnapshots(&r.Snapshot, &want) {
			t.Errorf("%s:\n got %+v\nwant %+v", v.Name, r.Snapshot, want)
		}
	}
}

func TestFramesOfTheEngineSplitAndJoinUnchanged(t *testing.T) {
	for i, frames := range readGolden[[]hexBytes](t, "messages.json") {
		var sent [][]byte
		for _, f := range frames {
			sent = append(sent, f)
		}
		m, err := Split(sent)
		if err != nil {
			t.Fatal(err)
		}
		if string(m.Topic) != "load" || m.Seq != int64(i) {
			t.Errorf("message %d: topic %q, seq %d", i, m.Topic, m.Seq)
		}
		var r Reading
		if err := r.Decode(m.Payload); err != nil || r.Kind != KindLoadStat {
			t.Errorf("message %d: %v, %v", i, r.Kind, err)
		}
		if got := Join(nil, "load", m.Seq, r.Stat.Append(nil)); !reflect.DeepEqual(got, sent) {
			t.Errorf("message %d: joined as %x, sent as %x", i, got, sent)
		}
	}
}
