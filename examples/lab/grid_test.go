package main

import (
	"slices"
	"strings"
	"testing"
)

func TestTheStandardGridHas25CellsAndFiveFaultsAndThreeLoads(t *testing.T) {
	cells := grid(sets["standard"].traces)
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

func TestEverySubsetOfTheTracesMakesCells(t *testing.T) {
	for name, s := range sets {
		for n := range len(s.traces) {
			cells := s.cells(s.traces[n:])
			if len(cells) == 0 {
				t.Errorf("%s with %v: no cells", name, s.traces[n:])
			}
			for _, c := range cells {
				if !slices.Contains(s.traces[n:], c.Trace) {
					t.Errorf("%s with %v: %s has the trace %s", name, s.traces[n:], c.Name, c.Trace)
				}
			}
		}
	}
}

func TestMoreHasCellsOfItsOwnNames(t *testing.T) {
	names := make(map[string]cell)
	for _, c := range more(sets["more"].traces) {
		if _, ok := names[c.Name]; ok || c.Doc == "" || c.Group != groupMore || strings.ContainsAny(c.Name, " \t") {
			t.Errorf("%+v", c)
		}
		names[c.Name] = c
	}
	for name, share := range map[string]float64{
		"half_unstreamed/longtail": 0.5, "half_unstreamed/azure_conv": 0.5, "unstreamed/longtail": 1, "unknown_prompts/longtail": 0,
	} {
		if c, ok := names[name]; !ok || c.Unstreamed != share || c.Gateways != 4 {
			t.Errorf("%s: %+v, want a share of %v", name, c, share)
		}
	}
	if c := names["mixed_ranks/longtail"]; c.ranks() != 8+8*4 {
		t.Errorf("%d ranks, want those of 8 engines with one and 8 with four", c.ranks())
	}
}
