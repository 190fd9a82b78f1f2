package vllm

import (
	"fmt"
	"testing"
)

func TestAMaybeTellsUnknownFromZero(t *testing.T) {
	for _, tt := range []struct {
		m     Maybe[int64]
		known bool
		value int64
		or7   int64
		text  string
	}{
		{Maybe[int64]{}, false, 0, 7, "unknown"},
		{Known[int64](0), true, 0, 0, "0"},
		{Known[int64](3), true, 3, 3, "3"},
	} {
		v, known := tt.m.Get()
		if v != tt.value || known != tt.known || tt.m.IsKnown() != tt.known || tt.m.Or(7) != tt.or7 || fmt.Sprint(tt.m) != tt.text {
			t.Errorf("%+v: %v, %v, or 7: %v", tt.m, v, known, tt.m.Or(7))
		}
	}
	if Known(0.0) == (Maybe[float64]{}) {
		t.Error("a known 0 equals what is unknown")
	}
}
