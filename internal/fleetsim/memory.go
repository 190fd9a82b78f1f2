package fleetsim

import "github.com/plimsoll-go/plimsoll/selector"

// prefixMemory is what a gateway remembers of the prompts that it has sent where.
type prefixMemory struct{}

func newPrefixMemory(engines int) *prefixMemory { return &prefixMemory{} }

func (m *prefixMemory) sent(engine int32, blocks []uint64) {}

func (m *prefixMemory) forget(engine int32) {}

func (g *gateway) prefixes(f *flight) []selector.PrefixMatch { return nil }
