package main

import (
	"slices"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
)

// more returns cells that are not part of any goal: what else may happen to a
// fleet.
func more(traces []string) (cells []cell) {
	add := func(trace, name, doc string, change func(*cell)) {
		if !slices.Contains(traces, trace) {
			return
		}
		c := base(trace)
		change(&c)
		c.Group, c.Name, c.Doc = groupMore, name+"/"+trace, doc
		cells = append(cells, c)
	}
	ranks := func(c *cell) { c.Engines, c.Ranks = 8, []int{4} }

	for _, trace := range []string{longAnswers, bursts} {
		add(trace, "gw4", "another mix of requests", func(*cell) {})
		add(trace, "gw16", "another mix of requests", func(c *cell) { c.Gateways = 16 })
	}
	add(mooncake, "prefixes_gw1", "engines keep prefixes", func(c *cell) { c.Cache, c.Gateways = true, 1 })
	add(mooncake, "prefixes_gw4", "engines keep prefixes, and each gateway knows its own", func(c *cell) { c.Cache = true })
	add(longTail, "ranks", "8 engines of 4 ranks", ranks)
	add(longTail, "lockstep", "8 engines of 4 ranks that step together", func(c *cell) { ranks(c); c.Lockstep = true })
	add(longTail, "mixed_ranks", "8 engines of 1 rank and 8 of 4", func(c *cell) { c.Engines, c.Ranks = 16, []int{1, 4} })
	add(longTail, "batches_gw1", "8 engines of 4 ranks, load rides on the output", func(c *cell) {
		ranks(c)
		c.Wire, c.Gateways = wire(fleetsim.Piggyback), 1
	})
	add(longTail, "batches_gw4", "the same with four gateways", func(c *cell) {
		ranks(c)
		c.Wire = wire(fleetsim.Piggyback)
	})
	add(longTail, "unknown_prompts", "gateways do not know how long prompts are", func(c *cell) { c.PromptUnknown = true })
	for _, trace := range []string{longTail, azureConv} {
		add(trace, "half_unstreamed", "gateways see nothing of half of the answers before their end", func(c *cell) { c.Unstreamed = 0.5 })
	}
	add(longTail, "unstreamed", "gateways see nothing of any answer before its end", func(c *cell) { c.Unstreamed = 1 })
	add(longTail, "slowdown", "one engine falls to a third of its speed", func(c *cell) {
		c.Events = []incident{{At: 0.4, What: "speed", Engine: 3, Speed: 0.33}}
	})
	add(longTail, "crash", "one engine crashes and comes back", func(c *cell) {
		c.Events = []incident{{At: 0.4, What: "crash", Engine: 3}, {At: 0.6, What: "join", Engine: 3}}
	})
	add(longTail, "restart", "one gateway restarts", func(c *cell) {
		c.Events = []incident{{At: 0.5, What: "restart", Gateway: 1}}
	})
	return cells
}
