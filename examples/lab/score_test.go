package main

import (
	"math"
	"testing"
)

// played is a cell with p99 times to first token, by contestant and seed. Those of
// whole responses and between tokens are ten times as long, and a tenth.
func played(name, group string, p99 map[string][]seconds) *cellResult {
	c := &cellResult{cell: cell{Name: name, Group: group}}
	for _, k := range cast {
		times, ok := p99[k.Name]
		if !ok {
			continue
		}
		r := &result{Contestant: k.Name}
		for i, t := range times {
			m := measure{Seed: i + 1}
			m.TTFT.P99, m.Response.P99, m.TPOT.P99 = t, 10*t, t/10
			r.Seeds = append(r.Seeds, m)
		}
		c.Results = append(c.Results, r)
	}
	c.score(cast)
	return c
}

var cast = []contestant{
	{Name: "o1", Kind: oracle}, {Name: "o2", Kind: oracle},
	{Name: "a", Kind: known}, {Name: "b", Kind: known}, {Name: "new", Kind: candidate},
}

func twoCells() *document {
	d := &document{Seeds: 2, Contestants: cast}
	d.Cells = []*cellResult{
		played("one", groupGrid, map[string][]seconds{
			"o1": {1, 4}, "o2": {2, 2}, "a": {3, 3}, "b": {2, 8}, "new": {2, 4},
		}),
		played("two", groupGrid, map[string][]seconds{
			"o1": {1, 1}, "o2": {1, 1}, "a": {8, 8}, "b": {4, 4}, "new": {8, 8},
		}),
		played("three", groupFaults, map[string][]seconds{
			"o1": {1, 1}, "o2": {1, 1}, "a": {1, 1}, "new": {1, 1},
		}),
	}
	d.conclude()
	return d
}

func TestARatioIsToTheBetterOracleOfItsSeed(t *testing.T) {
	c := twoCells().Cells[0]
	for name, want := range map[string][3]float64{ // of both seeds, and the mean
		"o1": {1, 2, 1.5}, "o2": {2, 1, 1.5}, "a": {3, 1.5, 2.25}, "b": {2, 4, 3}, "new": {2, 2, 2},
	} {
		r := c.find(name)
		if have := [3]float64{r.Seeds[0].Ratio, r.Seeds[1].Ratio, r.Ratio.Mean}; have != want {
			t.Errorf("%s: %v, want %v", name, have, want)
		}
	}
}

func TestClosingsAreOfTheGroupsThatAContestantWasAllThrough(t *testing.T) {
	d := twoCells()
	have := make(map[string]closing)
	for _, c := range d.Closing {
		have[c.Group+" "+c.Contestant] = c
	}
	if len(have) != 5+4 {
		t.Errorf("%d closings, want those of 5 contestants and 4", len(have))
	}
	if c := have["grid new"]; math.Abs(c.Geomean.Mean-4) > 1e-12 || c.Worst != 8 || c.WorstCell != "two" {
		t.Errorf("new: %+v, want a mean of 4 and 8 at the worst, in two", c)
	}
	if c, ok := have["faults b"]; ok {
		t.Errorf("b was not in the faults: %+v", c)
	}
}

func TestBehindIsWithTheKnownRuleThatIsBestOverAllSeeds(t *testing.T) {
	d := twoCells()
	for i, want := range []struct {
		contestant, cell, best string
		factor                 float64
		over                   int
	}{
		// In one, a takes 3 and 3 s, and b 2 and 8: a is the better rule, though not
		// with the first seed. In two, b is.
		{"a", "two", "b", 2, 1},
		{"b", "one", "a", (2./3 + 8./3) / 2, 1},
		{"new", "two", "b", 2, 1},
	} {
		b := d.Behind[len(measurands)*i]
		if b.Contestant != want.contestant || b.Cell != want.cell || b.Best != want.best || math.Abs(b.Factor.Mean-want.factor) > 1e-12 || b.Over != want.over {
			t.Errorf("%+v, want %+v", b, want)
		}
	}
}

func TestAnIntervalIsStudents(t *testing.T) {
	// With four degrees of freedom 2.776 standard errors to either side.
	i := newInterval([]float64{1, 2, 3, 4, 5})
	if want := 2.7764451 * math.Sqrt(2.5/5); i.Mean != 3 || math.Abs(i.half()-want) > 1e-6 {
		t.Errorf("%+v, want 3 ± %f", i, want)
	}
	if i := newInterval([]float64{7}); i != (interval{7, 7, 7}) {
		t.Errorf("one seed: %+v", i)
	}
}
