package fleetsim

import "github.com/plimsoll-go/plimsoll/internal/fleetsim/trace"

const blockTokens = trace.BlockTokens

// prefixCache holds blocks of prompts that have been computed. A block is held
// while any running request uses it, and else goes when room is needed, the one
// first that was not used for the longest time.
type prefixCache struct {
	blocks map[uint64]int32 // place in nodes
	nodes  []cacheNode      // the first is the end of the list in both directions
	unused []int32          // places in nodes
	used   int64            // blocks held
}

type cacheNode struct {
	block      uint64
	users      int32 // 0: it is in the list
	prev, next int32 // the oldest comes first
}

func newPrefixCache() *prefixCache {
	return &prefixCache{blocks: make(map[uint64]int32), nodes: make([]cacheNode, 1)}
}

// held is the number of tokens that running requests use.
func (c *prefixCache) held() int64 { return c.used * blockTokens }

// match returns how many leading blocks are there.
func (c *prefixCache) match(blocks []uint64) (n int32) {
	for _, b := range blocks {
		if _, ok := c.blocks[b]; !ok {
			break
		}
		n++
	}
	return n
}

// hold finds the leading blocks that are there and holds them, until release.
func (c *prefixCache) hold(blocks []uint64) (n int32) {
	n = c.match(blocks)
	for _, b := range blocks[:n] {
		c.use(c.blocks[b])
	}
	return n
}

// insert adds a block, if it is not there, and holds it.
func (c *prefixCache) insert(block uint64) {
	if i, ok := c.blocks[block]; ok {
		c.use(i)
		return
	}
	var i int32
	if last := len(c.unused) - 1; last >= 0 {
		i = c.unused[last]
		c.unused = c.unused[:last]
		c.nodes[i] = cacheNode{block: block, users: 1}
	} else {
		i = int32(len(c.nodes))
		c.nodes = append(c.nodes, cacheNode{block: block, users: 1})
	}
	c.blocks[block] = i
	c.used++
}

func (c *prefixCache) use(i int32) {
	n := &c.nodes[i]
	if n.users == 0 {
		c.unlink(i)
		c.used++
	}
	n.users++
}

// release lets go of blocks. The last goes first, so that a prefix outlives what
// follows it.
func (c *prefixCache) release(blocks []uint64) {
	for k := len(blocks) - 1; k >= 0; k-- {
		i := c.blocks[blocks[k]]
		n := &c.nodes[i]
		if n.users--; n.users > 0 {
			continue
		}
		c.used--
		last := c.nodes[0].prev
		n.prev, n.next = last, 0
		c.nodes[last].next = i
		c.nodes[0].prev = i
	}
}

func (c *prefixCache) unlink(i int32) {
	n := &c.nodes[i]
	c.nodes[n.prev].next = n.next
	c.nodes[n.next].prev = n.prev
}

// shrink drops blocks that nobody holds until all there are fit into so many
// tokens, or none is left.
func (c *prefixCache) shrink(tokens int64) {
	for int64(len(c.blocks))*blockTokens > tokens && c.nodes[0].next != 0 {
		i := c.nodes[0].next
		c.unlink(i)
		delete(c.blocks, c.nodes[i].block)
		c.unused = append(c.unused, i)
	}
}
