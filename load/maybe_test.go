package load

import (
	"encoding/json"
	"testing"
)

func TestTheZeroMaybeIsUnknownAndNotAKnownZero(t *testing.T) {
	var unknown Maybe[int64]
	zero := Known[int64](0)
	if unknown == zero {
		t.Fatal("unknown equals a known zero")
	}
	if _, ok := unknown.Get(); ok || unknown.IsKnown() {
		t.Error("the zero Maybe is known")
	}
	if v, ok := zero.Get(); v != 0 || !ok || !zero.IsKnown() {
		t.Error("a known zero is not known")
	}
	if unknown.Or(7) != 7 || zero.Or(7) != 0 {
		t.Error("Or must replace what is unknown and nothing else")
	}
}

func TestAMaybeSurvivesJSONWithUnknownAsNull(t *testing.T) {
	for _, m := range []Maybe[int64]{{}, Known[int64](0), Known[int64](-1), Known[int64](1<<62 + 1)} {
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		back := Known[int64](99)
		if err := json.Unmarshal(b, &back); err != nil || back != m {
			t.Errorf("%v became %s and then %v (%v)", m, b, back, err)
		}
	}
	for _, m := range []Maybe[float64]{{}, Known(0.0), Known(0.25)} {
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		back := Known(99.0)
		if err := json.Unmarshal(b, &back); err != nil || back != m {
			t.Errorf("%v became %s and then %v (%v)", m, b, back, err)
		}
	}
}

func TestAMaybeThatCannotBeDecodedStaysUnknown(t *testing.T) {
	var m Maybe[int64]
	if err := json.Unmarshal([]byte(`"three"`), &m); err == nil {
		t.Fatal("a string was taken for a number")
	}
	if m.IsKnown() {
		t.Errorf("after a failed decode it is a known %v", m)
	}
}

func TestAMaybePrintsItsValueOrThatItIsUnknown(t *testing.T) {
	for want, got := range map[string]string{
		"unknown": Maybe[float64]{}.String(),
		"-3":      Known[int64](-3).String(),
		"0.5":     Known(0.5).String(),
		"1e+300":  Known(1e300).String(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
