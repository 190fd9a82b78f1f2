package snapshot

import (
	"bytes"
	"math"
	"reflect"
	"testing"
)

func addSeeds(f *testing.F) {
	for _, v := range readGolden[snapshotVector](f, "loadsnapshot.json") {
		f.Add([]byte(v.Hex))
	}
	for _, v := range readGolden[statVector](f, "loadstat.json") {
		f.Add([]byte(v.Hex))
	}
	for _, v := range readGolden[brokenVector](f, "broken.json") {
		f.Add([]byte(v.Hex))
	}
	for _, tt := range hostile {
		f.Add(tt.payload)
	}
}

// checkNumbers fails for a number that a reader of v must never see.
func checkNumbers(t *testing.T, v any) {
	t.Helper()
	var check func(reflect.Value)
	check = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for _, field := range v.Fields() {
				check(field)
			}
		case reflect.Slice:
			for i := range v.Len() {
				check(v.Index(i))
			}
		case reflect.Int, reflect.Int64:
			if v.Int() < 0 {
				t.Fatalf("negative: %+v", v.Interface())
			}
		case reflect.Float64:
			if x := v.Float(); math.Signbit(x) || math.IsNaN(x) || math.IsInf(x, 0) {
				t.Fatalf("not a number to keep: %v", x)
			}
		}
	}
	check(reflect.ValueOf(v))
}

func checkMarks(t *testing.T, present, null, refused, all Fields) {
	t.Helper()
	if present&null|present&refused|null&refused != 0 {
		t.Fatalf("a field is two things at once: present %v, nil %v, refused %v", present, null, refused)
	}
	if extra := (present | null | refused) &^ all; extra != 0 {
		t.Fatalf("marks that no field has: %b", extra)
	}
}

func checkSnapshot(t *testing.T, s *LoadSnapshot) {
	t.Helper()
	checkNumbers(t, *s)
	checkMarks(t, s.Present, s.Nil, s.Refused, allFields)
	if s.Refused&core != 0 {
		t.Fatalf("a core count was let pass: %v", s.Refused&core)
	}
	values := s.load()
	for f := range (allFields &^ s.Present).All() {
		if values[f] != 0 || s.length(f) != 0 {
			t.Fatalf("%v has a value and is not present", f)
		}
	}

	encoded := s.Append(nil)
	var again LoadSnapshot
	if err := again.Decode(encoded); err != nil {
		t.Fatalf("%x, which we wrote: %v", encoded, err)
	}
	want := *s
	want.Nil, want.Refused = s.Nil|s.Refused, 0 // nil is how unknown is written
	if !equalSnapshots(&again, &want) {
		t.Fatalf("through %x:\n got %+v\nwant %+v", encoded, again, want)
	}
	if b := again.Append(nil); !bytes.Equal(b, encoded) {
		t.Fatalf("encoded as %x, then as %x", encoded, b)
	}
}

func checkStat(t *testing.T, s *LoadStat) {
	t.Helper()
	checkNumbers(t, *s)
	checkMarks(t, s.Present, s.Nil, s.Refused, StatForm(11))
	if required := StatForm(1 + statRequired); s.Present&required != required {
		t.Fatalf("a required count is missing: %v", s.Present)
	}
	if s.Refused&^FieldsOf(FieldDPRank) != 0 {
		t.Fatalf("a count was let pass: %v", s.Refused)
	}

	encoded := s.Append(nil)
	var again LoadStat
	if err := again.Decode(encoded); err != nil {
		t.Fatalf("%x, which we wrote: %v", encoded, err)
	}
	want := *s
	want.Nil, want.Refused = s.Nil|s.Refused, 0
	if !s.Present.Has(FieldDPRank) {
		want.Nil |= FieldsOf(FieldDPRank) // the shortest form says nil rather than nothing
	}
	if again != want {
		t.Fatalf("through %x:\n got %+v\nwant %+v", encoded, again, want)
	}
	if b := again.Append(nil); !bytes.Equal(b, encoded) {
		t.Fatalf("encoded as %x, then as %x", encoded, b)
	}
}

func FuzzLoadSnapshot(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, payload []byte) {
		var s LoadSnapshot
		if s.Decode(payload) == nil {
			checkSnapshot(t, &s)
		}
	})
}

func FuzzLoadStat(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, payload []byte) {
		var s LoadStat
		if s.Decode(payload) == nil {
			checkStat(t, &s)
		}
	})
}

// FuzzReading decodes two messages into one Reading: the first must not show in
// the second.
func FuzzReading(f *testing.F) {
	addSeeds2 := func(b []byte) { f.Add(fullSnapshot().Append(nil), b) }
	for _, v := range readGolden[snapshotVector](f, "loadsnapshot.json") {
		addSeeds2(v.Hex)
	}
	for _, v := range readGolden[statVector](f, "loadstat.json") {
		addSeeds2(v.Hex)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var reused, fresh Reading
		_ = reused.Decode(first)
		err, wantErr := reused.Decode(second), fresh.Decode(second)
		if !reflect.DeepEqual(err, wantErr) || reused.Kind != fresh.Kind {
			t.Fatalf("reused: %v, %v; fresh: %v, %v", reused.Kind, err, fresh.Kind, wantErr)
		}
		switch reused.Kind {
		case KindLoadSnapshot:
			if !equalSnapshots(&reused.Snapshot, &fresh.Snapshot) {
				t.Fatalf("\nreused %+v\n fresh %+v", reused.Snapshot, fresh.Snapshot)
			}
			checkSnapshot(t, &reused.Snapshot)
		case KindLoadStat:
			if reused.Stat != fresh.Stat {
				t.Fatalf("\nreused %+v\n fresh %+v", reused.Stat, fresh.Stat)
			}
			checkStat(t, &reused.Stat)
		default:
			if err == nil || Reason(err) == "other" {
				t.Fatalf("kind %v with error %v", reused.Kind, err)
			}
		}
	})
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte("load"), []byte{0, 0, 0, 0, 0, 0, 0, 1}, []byte{0x80}, 3)
	f.Add([]byte(nil), bytes.Repeat([]byte{0xff}, 8), []byte{0x80}, 3)
	f.Add([]byte(nil), []byte{1}, []byte(nil), 2)
	f.Fuzz(func(t *testing.T, topic, seq, payload []byte, n int) {
		frames := [][]byte{topic, seq, payload, nil}
		frames = frames[:uint(n)%5]
		m, err := Split(frames)
		if err != nil {
			return
		}
		for i, frame := range Join(nil, string(m.Topic), m.Seq, m.Payload) {
			if !bytes.Equal(frame, frames[i]) {
				t.Fatalf("frame %d: got %x, want %x", i, frame, frames[i])
			}
		}
	})
}
