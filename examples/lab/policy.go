package main

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
)

// policy is a contestant on the page. Its index names its colour and its switch.
type policy struct {
	contestant
	Index int
	Hue   int // among hues; the oracles and candidates have their own
	Round int // times that the hues were used up before
	Shown bool
	Means []closing // of each group; without a name where it was not in all cells
	Lags  []behind
}

// The page has so many hues, and shows so many known rules until it is told
// otherwise.
const (
	hues       = 8
	knownShown = 4
)

// policiesOf returns the contestants, the oracles first and then the best.
func policiesOf(d *document) (policies []policy) {
	for _, k := range d.Contestants {
		p := policy{contestant: k}
		for _, group := range d.groups() {
			c, ok := d.closing(group, k.Name)
			if !ok {
				c = closing{}
			}
			p.Means = append(p.Means, c)
		}
		for _, b := range d.Behind {
			if b.Contestant == k.Name {
				p.Lags = append(p.Lags, b)
			}
		}
		policies = append(policies, p)
	}
	slices.SortStableFunc(policies, func(a, b policy) int {
		return cmp.Compare(sortKey(&a), sortKey(&b))
	})
	rules := 0
	for i := range policies {
		p := &policies[i]
		p.Index = i
		if p.Shown = true; p.Kind == known {
			p.Hue, p.Round, p.Shown = rules%hues, rules/hues, rules < knownShown
			rules++
		}
	}
	return policies[:min(len(policies), maxSeries)]
}

// Color is the name of the policy's colour in the style sheet.
func (p *policy) Color() template.CSS {
	switch p.Kind {
	case oracle:
		return "--soft"
	case candidate:
		return "--candidate"
	}
	return template.CSS(fmt.Sprint("--h", p.Hue))
}

// sortKey puts the oracles first, and last what was not in all cells.
func sortKey(p *policy) float64 {
	switch {
	case p.Kind == oracle:
		return 0
	case p.Means[0].Contestant == "":
		return math.Inf(1)
	}
	return p.Means[0].Geomean.Mean
}

// Width and Dashes are those of a policy's line, which tell policies of one colour
// apart.
func (p *policy) Width() float64 {
	if p.Kind == candidate {
		return 3
	}
	return 1.6
}

func (p *policy) Dashes() template.CSS {
	switch {
	case p.Kind == oracle && p.Name == oracleName(fleetsim.Instant):
		return "2 2"
	case p.Kind == oracle:
		return "5 2 1 2"
	case p.Round == 1:
		return "7 3"
	case p.Round > 1:
		return "7 3 1 3"
	}
	return "none"
}
