package fleetsim

import "github.com/plimsoll-go/plimsoll/selector"

// prefixMemory is what a gateway remembers of the prompts that it has sent where,
// and so believes to be cached there. It knows nothing of what other gateways send,
// and guesses what an engine has dropped: a block is gone when as many others have
// been sent there since as the cache can hold.
type prefixMemory struct {
	owners  map[uint64][]owner
	sentTo  []int64 // blocks, by engine
	since   []int64 // of these, those before the engine's last start
	fits    []int64 // blocks that an engine can hold
	matches []selector.PrefixMatch
	holding []owner
}

// owner is an engine that a block was sent to.
type owner struct {
	engine int32
	at     int64 // sentTo then
}

func newPrefixMemory(engines []*engine) *prefixMemory {
	m := &prefixMemory{
		owners: make(map[uint64][]owner),
		sentTo: make([]int64, len(engines)),
		since:  make([]int64, len(engines)),
	}
	for _, e := range engines {
		fits := int64(0)
		if e.config.PrefixCache {
			fits = int64(e.config.KVTokens) / blockTokens * int64(len(e.ranks))
		}
		m.fits = append(m.fits, fits)
	}
	return m
}

func (m *prefixMemory) has(o owner) bool {
	return o.at > m.since[o.engine] && m.sentTo[o.engine]-o.at < m.fits[o.engine]
}

// sent remembers that blocks have been sent to an engine.
func (m *prefixMemory) sent(engine int32, blocks []uint64) {
	for _, b := range blocks {
		m.sentTo[engine]++
		list := m.owners[b]
		kept := list[:0]
		for _, o := range list {
			if o.engine != engine && m.has(o) {
				kept = append(kept, o)
			}
		}
		m.owners[b] = append(kept, owner{engine, m.sentTo[engine]})
	}
}

// forget forgets all that was sent to an engine.
func (m *prefixMemory) forget(engine int32) { m.since[engine] = m.sentTo[engine] }

// prefixes returns what of a prompt the gateway believes to be cached where. It is
// valid until the next call.
func (g *gateway) prefixes(blocks []uint64) []selector.PrefixMatch {
	m := g.memory
	m.matches, m.holding = m.matches[:0], m.holding[:0]
	for i, b := range blocks {
		list := m.owners[b]
		if i == 0 {
			for _, o := range list {
				if m.has(o) {
					m.holding = append(m.holding, o)
				}
			}
		}
		// Who has all blocks up to this one goes on, the others have had their match.
		still := m.holding[:0]
		for _, o := range m.holding {
			if m.holds(list, o.engine) {
				still = append(still, o)
			} else {
				m.matched(g, o.engine, i)
			}
		}
		if m.holding = still; len(still) == 0 {
			break
		}
	}
	for _, o := range m.holding {
		m.matched(g, o.engine, len(blocks))
	}
	return m.matches
}

func (m *prefixMemory) holds(list []owner, engine int32) bool {
	for _, o := range list {
		if o.engine == engine {
			return m.has(o)
		}
	}
	return false
}

func (m *prefixMemory) matched(g *gateway, engine int32, blocks int) {
	if w := g.targets[engine].worker; w != nil && blocks > 0 {
		m.matches = append(m.matches, selector.PrefixMatch{Worker: w, Tokens: int64(blocks) * blockTokens})
	}
}
