package simengine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
)

const maxPort = 65535

// LoadPortBase returns the first port of the load range: rank r binds base + r.
// The range follows the KV-event range, and where it would overlap the replay
// range (replay 0 = none) it follows that one instead, as the engine packs them
// (sglang.srt.disaggregation.kv_events.resolve_load_pub_range).
func LoadPortBase(kv, replay, ranks int) (int, error) {
	base := kv + ranks
	if replay > 0 && base < replay+ranks && replay < base+ranks {
		base = replay + ranks
	}
	if kv < 1 || base+ranks-1 > maxPort {
		return 0, fmt.Errorf("simengine: the load range of %d ranks after port %d does not fit below %d", ranks, kv, maxPort+1)
	}
	return base, nil
}

// loadPortBase is the first port of the load range, wherever that is.
func (c Config) loadPortBase() (int, error) {
	base := c.LoadPortBase
	if base == 0 {
		return LoadPortBase(c.KVPortBase, c.ReplayPortBase, c.Ranks)
	}
	if base+c.Ranks-1 > maxPort {
		return 0, fmt.Errorf("simengine: the load range of %d ranks from port %d on does not fit below %d", c.Ranks, base, maxPort+1)
	}
	return base, nil
}

// Automatic ports come from below the range that kernels take the local ports of
// outgoing connections from. A dead engine has to leave its ports unbound, since
// connections to it must be refused, and a busy gateway next to it would sooner or
// later be given one of them.
const (
	autoPortFirst = 10_000
	autoPortEnd   = 32_768
	autoPortTries = 200
	// blockPorts is how many ports a process takes for itself at once.
	blockPorts = 1024
)

// errNoPorts is returned when no run of free ports was found.
var errNoPorts = errors.New("simengine: found no free consecutive ports")

// claims holds the automatic port ranges of this process's engines, dead ones
// included: to the kernel their ports look free. So that they do not look free to
// other processes that run engines at the same time, such as the tests of another
// package, they come from blocks that the process has for itself.
var claims portClaims

type portClaims struct {
	mu     sync.Mutex
	blocks []*portBlock
}

// portBlock is a block of ports. Whoever listens on the first one has it, for as long as
// any range in it is claimed.
type portBlock struct {
	first int
	lock  net.Listener
	sizes map[int]int // of the claimed ranges, by first port
}

// ClaimPorts finds n consecutive ports that nothing listens on, for engines that are
// to be given ports. No other engine is given them until release is called.
func ClaimPorts(host string, n int) (base int, release func(), err error) {
	return claims.claim(host, n)
}

func (c *portClaims) claim(host string, n int) (base int, release func(), err error) {
	if n >= blockPorts {
		return 0, nil, errNoPorts
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.blocks {
		if base, ok := b.find(host, n); ok {
			return base, c.take(b, base, n), nil
		}
	}
	for _, i := range rand.Perm((autoPortEnd - autoPortFirst) / blockPorts) {
		b, err := lockBlock(autoPortFirst + i*blockPorts)
		if err != nil {
			continue // another process has it, or this one
		}
		if base, ok := b.find(host, n); ok {
			c.blocks = append(c.blocks, b)
			return base, c.take(b, base, n), nil
		}
		b.lock.Close()
	}
	return 0, nil, errNoPorts
}

// take notes a range, and returns what gives it back.
func (c *portClaims) take(b *portBlock, base, n int) (release func()) {
	b.sizes[base] = n
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(b.sizes, base)
		if len(b.sizes) == 0 {
			b.lock.Close()
			c.blocks = slices.DeleteFunc(c.blocks, func(other *portBlock) bool { return other == b })
		}
	})
}

// claimed reports whether any of the ports is.
func (c *portClaims) claimed(base, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.blocks, func(b *portBlock) bool { return b.claimed(base, n) })
}

// lockBlock takes a block whatever host the ports are for: nobody takes one for one
// host alone.
func lockBlock(first int) (*portBlock, error) {
	lock, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first)))
	if err != nil {
		return nil, err
	}
	return &portBlock{first: first, lock: lock, sizes: make(map[int]int)}, nil
}

// find returns a range in the block that is not claimed and that nobody listens in.
func (b *portBlock) find(host string, n int) (base int, ok bool) {
	for range autoPortTries {
		base := b.first + 1 + rand.IntN(blockPorts-n)
		if !b.claimed(base, n) && allFree(host, base, n) {
			return base, true
		}
	}
	return 0, false
}

func (b *portBlock) claimed(base, n int) bool {
	for first, size := range b.sizes {
		if base < first+size && first < base+n {
			return true
		}
	}
	return false
}

func allFree(host string, base, n int) bool {
	for port := base; port < base+n; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}
