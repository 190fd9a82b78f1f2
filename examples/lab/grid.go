package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The groups of cells. The closing lines are about the first that there is.
const (
	groupGrid   = "grid"
	groupFaults = "faults"
	groupLoads  = "loads"
	groupMore   = "more"
	groupOwn    = "own" // from flags
)

// A set is what is run at a time: cells that are made for the traces that are
// there. Policies are tuned on some traces, and looked at with others before they
// are believed.
type set struct {
	traces []string
	cells  func(traces []string) []cell
}

var sets = map[string]set{
	"standard": {[]string{azureConv, mooncake, longTail}, grid},
	"tuning":   {[]string{azureConv, longTail}, grid},
	"check":    {[]string{azureCode, mooncake}, grid},
	"more":     {[]string{azureConv, mooncake, longTail, longAnswers, bursts}, more},
}

// base is what a cell of the grid is unless it says otherwise: the fleet is nearly
// as busy as it can be, and reports are old when they are used.
func base(trace string) cell {
	return cell{
		Group: groupGrid, Trace: trace, Load: 0.95,
		Engines: 32, Gateways: 4, Period: inSeconds(time.Second),
	}
}

// grid returns the cells for the traces, of which the first and the last take
// turns in those that need one only.
func grid(traces []string) []cell {
	first, last := traces[0], traces[len(traces)-1]
	var cells []cell
	add := func(trace, name, doc string, change func(*cell)) {
		c := base(trace)
		change(&c)
		c.Name, c.Doc = name, doc
		cells = append(cells, c)
	}

	for _, trace := range traces {
		for _, gateways := range []int{1, 4, 16} {
			for _, period := range []time.Duration{100 * time.Millisecond, time.Second} {
				name := fmt.Sprintf("%s/gw%d/%gs", trace, gateways, period.Seconds())
				add(trace, name, "nothing special", func(c *cell) {
					c.Gateways, c.Period = gateways, inSeconds(period)
				})
			}
		}
	}

	add(first, "low_load/"+first, "60 % load", func(c *cell) { c.Load = 0.6 })
	add(last, "engines8/"+last, "a fleet of 8 engines", func(c *cell) { c.Engines = 8 })
	add(first, "engines128/"+first, "a fleet of 128 engines", func(c *cell) { c.Engines, c.Gateways = 128, 16 })
	for _, trace := range []string{first, last} {
		add(trace, "mixed_speeds/"+trace, "every second engine at half speed", func(c *cell) { c.Speeds = []float64{1, 0.5} })
		add(trace, "small_kv/"+trace, "a KV cache of 64,000 tokens, requests of at most 32,000", func(c *cell) {
			c.KV, c.Context = 64_000, 32_000
		})
	}

	faults := len(cells)
	add(first, "mute/"+first, "every fourth engine never sends a report", func(c *cell) { c.Mute = every(4, c.Engines) })
	add(first, "lost/"+first, "half of all reports do not reach a gateway", func(c *cell) { c.Loss = 0.5 })
	add(first, "frozen/"+first, "every eighth engine repeats its first busy report for ever", func(c *cell) { c.Frozen = every(8, c.Engines) })
	add(first, "hidden/"+first, "a quarter of the requests comes from somebody else", func(c *cell) { c.Hidden = 0.25 })
	add(first, "skewed/"+first, "one of four gateways has half of the requests", func(c *cell) { c.Shares = []float64{3, 1, 1, 1} })

	loads := len(cells)
	for _, load := range []float64{0.2, 0.5, 0.85} {
		name := fmt.Sprintf("load%.0f/%s", 100*load, first)
		add(first, name, fmt.Sprintf("%.0f %% load", 100*load), func(c *cell) { c.Load = load })
	}

	for i := range cells {
		switch {
		case i >= loads:
			cells[i].Group = groupLoads
		case i >= faults:
			cells[i].Group = groupFaults
		}
	}
	return unique(cells)
}

// unique leaves out repetitions, which there are where the first trace is the last.
func unique(cells []cell) []cell {
	seen := make(map[string]bool)
	kept := cells[:0]
	for _, c := range cells {
		if !seen[c.Name] {
			kept = append(kept, c)
		}
		seen[c.Name] = true
	}
	return kept
}

// every returns every n-th of so many engines.
func every(n, engines int) (list []int) {
	for i := n - 1; i < engines; i += n {
		list = append(list, i)
	}
	return list
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func inWords(numbers []int) string {
	var words []string
	for _, n := range numbers {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, " and ")
}

// about says all there is to know of a cell, in words.
func (c *cell) about() string {
	parts := []string{c.Doc}
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	say("%s trace at %.0f %% load", c.Trace, 100*c.Load)
	say("%s, %s, %s reports every %gs", count(c.Engines, "engine"), count(c.Gateways, "gateway"), c.Wire, float64(c.Period))
	switch {
	case len(c.Ranks) > 1:
		say("%s ranks in turn", inWords(c.Ranks))
	case c.ranks() > c.Engines:
		say("%d ranks each", c.Ranks[0])
	}
	if c.Cache {
		say("with prefix caches")
	}
	if c.Unstreamed > 0 {
		say("%g %% of the answers not streamed", 100*c.Unstreamed)
	}
	return strings.Join(parts, "; ")
}
