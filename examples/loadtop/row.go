package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/plimsoll-go/plimsoll/load"
)

// row is a line: what is known of an engine, or of one of its ranks.
type row struct {
	key  string // of its history
	name string

	trouble string // why its load is not known; empty if it is

	// Known unless there is trouble.
	running, waiting int64

	tokens load.Maybe[int64]
	kv     load.Maybe[float64] // of the fullest rank
	age    load.Maybe[float64] // seconds, of the oldest rank; known also of what is stale
}

func (r *row) depth() load.Maybe[int64] {
	if r.trouble != "" {
		return load.Maybe[int64]{}
	}
	return load.Known(add(r.running, r.waiting))
}

// add adds two counts, of which an engine may claim as many as it likes.
func add(a, b int64) int64 {
	if s := a + b; s >= 0 {
		return s
	}
	return math.MaxInt64
}

// engineRow sums up an engine. There is no sum if a part of it is missing.
func engineRow(w *load.WorkerStatus) row {
	r := row{key: w.ID, name: clean(w.ID)}
	if !w.Trusted {
		r.trouble = clean(cmp.Or(w.Reason, w.Why.String()))
	}
	for i := range w.Ranks {
		part := rankRow(w, i)
		r.running, r.waiting = add(r.running, part.running), add(r.waiting, part.waiting)
		r.tokens = sum(r.tokens, part.tokens, i == 0)
		r.kv = most(r.kv, part.kv)
		r.age = most(r.age, part.age)
	}
	return r
}

func rankRow(w *load.WorkerStatus, i int) row {
	s := &w.Ranks[i]
	r := row{key: fmt.Sprint(w.ID, "\x00", s.Rank), name: fmt.Sprint("rank ", s.Rank)}
	if s.Report == nil {
		r.trouble = "never reported"
		if s.LastDrop != "" {
			r.trouble += ": " + clean(s.LastDrop)
		}
		return r
	}
	r.age = load.Known(s.Age.Seconds())
	if !s.Fresh {
		r.trouble = "stale"
		return r
	}
	r.running, r.waiting = s.Report.Running, s.Report.Waiting
	r.tokens, r.kv = s.Report.WaitingTokens, s.Report.KVUsage
	if s.Report.KVCapacity.Or(1) == 0 {
		r.trouble = "booting: its KV capacity is 0"
	}
	return r
}

func sum(a, b load.Maybe[int64], first bool) load.Maybe[int64] {
	x, _ := a.Get()
	y, known := b.Get()
	if _, had := a.Get(); !known || !had && !first {
		return load.Maybe[int64]{}
	}
	return load.Known(add(x, y))
}

func most(a, b load.Maybe[float64]) load.Maybe[float64] {
	x, had := a.Get()
	if y, known := b.Get(); known && (!had || y > x) {
		return b
	}
	return a
}

// order is what lines are sorted by, the most first.
type order int

const (
	byTrouble order = iota // those whose load is not known, then the deepest
	byDepth
	byWaiting
	byTokens
	byKV
	byAge
	byName
)

var orders = [...]string{byTrouble: "worst", byDepth: "depth", byWaiting: "wait", byTokens: "tokens", byKV: "kv", byAge: "age", byName: "name"}

func orderNames() string { return strings.Join(orders[:], ", ") }

func (o order) String() string { return orders[o] }

func (o order) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

func (o *order) UnmarshalText(text []byte) error {
	i := slices.Index(orders[:], string(text))
	if i < 0 {
		return fmt.Errorf("want one of %s", orderNames())
	}
	*o = order(i)
	return nil
}

// sorted sorts rows. What is not known comes last in either direction, except where it is
// the point: byTrouble.
func sorted(rows []row, o order, reverse bool) {
	slices.SortStableFunc(rows, func(a, b row) int {
		c := 0
		switch o {
		case byTrouble:
			c = cmp.Or(boolCompare(b.trouble != "", a.trouble != ""), cmp.Compare(b.depth().Or(0), a.depth().Or(0)))
		case byName:
			c = cmp.Compare(a.name, b.name)
		default:
			x, known := a.measure(o)
			y, knownB := b.measure(o)
			if !known || !knownB {
				return cmp.Or(boolCompare(knownB, known), cmp.Compare(a.name, b.name))
			}
			c = cmp.Compare(y, x)
		}
		if reverse {
			c = -c
		}
		return cmp.Or(c, cmp.Compare(a.name, b.name))
	})
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func (r *row) measure(o order) (v float64, known bool) {
	if o == byAge {
		return r.age.Get()
	}
	if r.trouble != "" {
		return 0, false
	}
	switch o {
	case byWaiting:
		return float64(r.waiting), true
	case byTokens:
		n, known := r.tokens.Get()
		return float64(n), known
	case byKV:
		return r.kv.Get()
	}
	return float64(r.depth().Or(0)), true
}

// memory is how many looks of the past are kept.
const memory = 240

// past is the depth of each line in the last looks, the newest last; unknown where it was.
type past map[string][]load.Maybe[int64]

// take adds a look. Who is not in it any more is forgotten.
func (p past) take(rows []row) {
	here := make(map[string]bool, len(rows))
	for i := range rows {
		r := &rows[i]
		here[r.key] = true
		h := append(p[r.key], r.depth())
		p[r.key] = h[max(0, len(h)-memory):]
	}
	for key := range p {
		if !here[key] {
			delete(p, key)
		}
	}
}

// most is the deepest that anything was in the last so many looks.
func (p past) most(looks int) (deepest int64) {
	for _, h := range p {
		for _, d := range h[max(0, len(h)-looks):] {
			deepest = max(deepest, d.Or(0))
		}
	}
	return deepest
}
