//go:build chaos && linux

package chaos

import (
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// All links of all engines but one fail in any way at any time, and engines restart
// with other ranks meanwhile. CHAOS_FOR=10m goes on for longer than some seconds.
func TestEverythingFailsAtRandom(t *testing.T) {
	leavesNothing(t)
	lasts := 8 * time.Second
	if s := os.Getenv("CHAOS_FOR"); s != "" {
		var err error
		if lasts, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	engines := []*engine{startEngine(t, engineConfig{})}
	for i := range 5 {
		engines = append(engines, startEngine(t, engineConfig{ranks: 1 + i%3}))
	}
	var gateways []*gateway
	var clients []*traffic
	for _, libzmq := range []bool{false, true} {
		g := startGateway(t, gatewayConfig{poll: true, libzmq: libzmq}, engines...)
		g.trusts(engines...)
		gateways, clients = append(gateways, g), append(clients, g.startTraffic(3))
	}
	var all sync.WaitGroup
	end := time.Now().Add(lasts)
	for i, e := range engines[1:] {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 0))
			pause := func() { time.Sleep(time.Duration(rnd.Int64N(int64(3 * window)))) }
			for time.Now().Before(end) {
				for _, l := range append(slices.Clone(e.loads), e.http) {
					if rnd.IntN(2) == 0 { // or one's fault would always have the others' for an excuse
						faults[rnd.IntN(len(faults))].inject(l)
					}
				}
				pause()
				if rnd.IntN(3) == 0 {
					e.stop()
					if rnd.IntN(2) == 0 {
						e.becomes(1+rnd.IntN(4), loadPort+10*rnd.IntN(3))
					}
					pause()
					e.say(1 + rnd.Int64N(9))
					e.start()
				}
				for _, l := range append(slices.Clone(e.loads), e.http) {
					l.heal()
				}
				if rnd.IntN(2) == 0 {
					e.loads[rnd.IntN(len(e.loads))].loseConnections()
				}
				e.say(1 + rnd.Int64N(9))
				pause()
				for _, l := range e.loads {
					l.heal()
				}
			}
		})
	}
	all.Wait()
	for _, g := range gateways {
		g.trusts(engines...)
	}
	for _, c := range clients {
		c.halt()
	}
	for _, c := range clients {
		c.end(engines...)
	}
}
