package simengine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
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
)

// errNoPorts is returned when no run of free ports was found.
var errNoPorts = errors.New("simengine: found no free consecutive ports")

// claims holds the automatic port ranges of this process's engines, dead ones
// included: to the kernel their ports look free.
var claims = struct {
	sync.Mutex
	size map[int]int // by first port
}{size: map[int]int{}}

// ClaimPorts finds n consecutive ports that nothing listens on, for engines that are
// to be given ports. No engine of this process takes them for another use until
// release is called.
func ClaimPorts(host string, n int) (base int, release func(), err error) {
	if n > autoPortEnd-autoPortFirst {
		return 0, nil, errNoPorts
	}
	claims.Lock()
	defer claims.Unlock()
	for range autoPortTries {
		base := autoPortFirst + rand.IntN(autoPortEnd-autoPortFirst-n+1)
		if claimedLocked(base, n) || !allFree(host, base, n) {
			continue
		}
		claims.size[base] = n
		return base, sync.OnceFunc(func() {
			claims.Lock()
			defer claims.Unlock()
			delete(claims.size, base)
		}), nil
	}
	return 0, nil, errNoPorts
}

func claimedLocked(base, n int) bool {
	for first, size := range claims.size {
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
