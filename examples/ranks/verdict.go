package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// shunned returns the ranks that were left alone for most of the chat while there
// was something to do.
func (r *result) shunned() (ranks []int) {
	for i, k := range r.ranks {
		if k.idle > r.traffic.length/2 {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// told reports whether any rank has told its load.
func (r *result) told() bool {
	return slices.ContainsFunc(r.ranks, func(k rankResult) bool { return k.status.Running.IsKnown() })
}

// few is how many chat requests per rank say nothing yet.
const few = 5

// verdict says what the table means.
func (r *result) verdict() string {
	shunned := r.shunned()
	got := 0 // by those
	for _, rank := range shunned {
		got += r.ranks[rank].chat
	}
	those := fmt.Sprintf("%d of %d ranks (%s), which got %d of %d chat requests",
		len(shunned), len(r.ranks), ranges(shunned), got, r.chat)
	switch {
	case r.cut != nil || r.failed > 0:
		return "Not all was answered, so this says little.\n"
	case r.chat < few*len(r.ranks):
		return fmt.Sprintf("%d chat requests are too few to say anything; see -rate and -time.\n", r.chat)
	case !r.told():
		return "The batches told no load, so there is no last word. The connector went by its own requests alone.\n"
	case r.believed && len(shunned) > 0:
		return fmt.Sprintf(`Shunned: %s.
After the burst all were idle, and the last word of each was that it was busy. Those that got the first chat requests
spoke again, and looked best from then on. The others could not say that they had nothing to do.
`, those)
	case r.believed:
		return `No rank was left alone for long. It takes a burst whose requests end together, more of them on a rank than the chat
ever has on one; see -burst and -rate.
`
	case len(shunned) > 0:
		return fmt.Sprintf(`Left alone for long: %s.
That should not be: or was there too little to do, or the machine too busy?
`, those)
	}
	return `No rank was left alone for long. The last word of each is that it is busy, for an engine counts its requests before it
ends those of the batch, and an idle one says nothing more. The connector sends all the requests, so it knows when a
rank has none left.
`
}

// ranges writes ascending numbers, such as "0, 3-5".
func ranges(numbers []int) string {
	var parts []string
	for len(numbers) > 0 {
		n := 1 // of those that follow one another
		for n < len(numbers) && numbers[n] == numbers[0]+n {
			n++
		}
		part := fmt.Sprint(numbers[0])
		if n > 1 {
			part = fmt.Sprintf("%d-%d", numbers[0], numbers[n-1])
		}
		parts = append(parts, part)
		numbers = numbers[n:]
	}
	return strings.Join(parts, ", ")
}

// compared says in a sentence what believing the last word makes of the same traffic.
func compared(believed, counted *result) string {
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf(`Believing the last word, %d of %d ranks were shunned, and the first token came after %v (median) and %v (99th
percentile). Counting ranks without requests as idle, %d were, and it came after %v and %v.
`, len(believed.shunned()), len(believed.ranks), round(believed.first50), round(believed.first99),
		len(counted.shunned()), round(counted.first50), round(counted.first99))
}
