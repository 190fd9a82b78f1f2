package watch

import (
	"slices"
	"time"
)

// Times are durations of one kind.
type Times struct{ sorted []time.Duration }

// TimesOf returns these durations as one.
func TimesOf(d ...time.Duration) Times {
	slices.Sort(d)
	return Times{d}
}

func (t *Times) add(d time.Duration) {
	i, _ := slices.BinarySearch(t.sorted, d)
	t.sorted = slices.Insert(t.sorted, i, d)
}

// Plus returns both together.
func (t Times) Plus(o Times) Times {
	return TimesOf(slices.Concat(t.sorted, o.sorted)...)
}

// Len returns how many there are.
func (t Times) Len() int { return len(t.sorted) }

// At returns the duration that a share of them does not exceed; 0 if there are none.
func (t Times) At(share float64) time.Duration {
	if len(t.sorted) == 0 {
		return 0
	}
	return t.sorted[min(int(share*float64(len(t.sorted))), len(t.sorted)-1)]
}
