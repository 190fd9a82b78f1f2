package main

import (
	"strings"
	"testing"
)

func TestTheStandardGridHas25CellsAndFiveFaultsAndThreeLoads(t *testing.T) {
	cells := grid(sets["standard"])
	groups := make(map[string]int)
	names := make(map[string]bool)
	for _, c := range cells {
		groups[c.Group]++
		names[c.Name] = true
		if c.Doc == "" || c.Trace == "" || c.Engines == 0 || c.Gateways == 0 || c.Period == 0 || c.Load == 0 {
			t.Errorf("%+v lacks something", c)
		}
		if strings.ContainsAny(c.Name, " \t") {
			t.Errorf("%q would break the closing lines", c.Name)
		}
	}
	if groups[groupGrid] != 25 || groups[groupFaults] != 5 || groups[groupLoads] != 3 || len(cells) != 33 {
		t.Errorf("groups of %v", groups)
	}
	if len(names) != len(cells) {
		t.Errorf("%d names for %d cells", len(names), len(cells))
	}
}

func TestEverySetOfTracesMakesAGrid(t *testing.T) {
	for name, traces := range sets {
		for n := range len(traces) {
			cells := grid(traces[:n+1])
			if want := 6 * (n + 1); len(cells) < want+5+3+5 {
				t.Errorf("%s with %v: %d cells", name, traces[:n+1], len(cells))
			}
		}
	}
}
