package snapshot

import (
	"slices"
	"testing"
)

func TestAFieldSetListsItsFieldsInWireOrder(t *testing.T) {
	s := FieldsOf(FieldQueues, FieldTimestamp, FieldDPRank)
	if got, want := slices.Collect(s.All()), []Field{FieldTimestamp, FieldDPRank, FieldQueues}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := s.String(), "timestamp,dp_rank,queues"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if s.Count() != 3 || !s.Has(FieldQueues) || s.Has(FieldMemory) {
		t.Errorf("%v: count %d", s, s.Count())
	}
	for range s.All() {
		break // the iterator must stop when it is told to
	}
	if got := Fields(0).String(); got != "" {
		t.Errorf("the empty set prints as %q", got)
	}
}

func TestEveryFieldHasAKeyThatFitsTheFastComparison(t *testing.T) {
	seen := map[string]bool{}
	for f := range numFields {
		key := f.String()
		if key == "" || seen[key] {
			t.Errorf("field %d: key %q", f, key)
		}
		seen[key] = true
		if 1+len(key) > maxWireKey {
			t.Errorf("%s does not fit into %d bytes", key, maxWireKey)
		}
		if (counts | amounts).Has(f) == (f == FieldDecodeMoments || shapes[f] != "") {
			t.Errorf("%s is not of exactly one type", key)
		}
	}
	if got := numFields.String(); got != "unknown" {
		t.Errorf("a field past the last is called %q", got)
	}
	if len(momentsShape) != MaxDecodeMoments || len(statShape) != len(statFields) {
		t.Error("a shape does not have the length of what it describes")
	}
	if numFields > 64 {
		t.Error("too many fields for a set")
	}
}

func TestKindsHaveTheNamesOfTheMessages(t *testing.T) {
	for kind, want := range map[Kind]string{KindUnknown: "unknown", KindLoadSnapshot: "LoadSnapshot", KindLoadStat: "LoadStat", 9: "unknown"} {
		if got := kind.String(); got != want {
			t.Errorf("kind %d is called %q, want %q", kind, got, want)
		}
	}
}
