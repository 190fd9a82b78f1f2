package selector

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestNthIsWhatSortingPutsThere(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		values := make([]float64, 1+r.IntN(40))
		for i := range values {
			values[i] = float64(r.IntN(1 + r.IntN(50))) // some of them alike
		}
		switch r.IntN(4) {
		case 0:
			slices.Sort(values)
		case 1:
			slices.Sort(values)
			slices.Reverse(values)
		}
		n := r.IntN(len(values))
		want := slices.Sorted(slices.Values(values))[n]
		if got := nth(slices.Clone(values), n); got != want {
			t.Fatalf("nth(%v, %d) = %v, want %v", values, n, got, want)
		}
	}
}
