package simengine

import (
	"errors"
	"log/slog"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestManyEnginesSideBySide(t *testing.T) {
	var wg sync.WaitGroup
	engines := make([]*Engine, 12)
	for i := range engines {
		wg.Go(func() {
			e, err := Start(Config{Ranks: 2, Wire: WireLoadSnapshot, TimeScale: 10_000, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { e.Close() })
			engines[i] = e
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	seen := map[string]bool{}
	for _, e := range engines {
		for _, addr := range append(e.LoadEndpoints(), strings.Replace(e.URL(), "http", "tcp", 1)) {
			if seen[addr] {
				t.Errorf("%s belongs to two engines", addr)
			}
			seen[addr] = true
		}
		if r := subscribe(t, e.LoadEndpoints()[1]).next(t); r.Snapshot.DPRank != 1 {
			t.Errorf("%s: rank %d on the port of rank 1", e.URL(), r.Snapshot.DPRank)
		}
	}
}

// freePorts returns the first of n ports that are free and claimed by the test.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	base, release, err := ClaimPorts("127.0.0.1", n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return base
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func TestGivenPortsAreUsed(t *testing.T) {
	base := freePorts(t, 8)
	e := fast(t, Config{Listen: address(base), KVPortBase: base + 1, ReplayPortBase: base + 2, Ranks: 2})
	if want := "http://" + address(base); e.URL() != want {
		t.Errorf("serves at %s, want %s", e.URL(), want)
	}
	// KV at 1 and 2, replay at 2 and 3 (overlapping it, as conventional), load behind.
	if got, want := e.LoadEndpoints()[0], "tcp://"+address(base+4); got != want {
		t.Errorf("load at %s, want %s", got, want)
	}
	subscribe(t, e.LoadEndpoints()[0]).next(t)
}

func TestTakenPortsAreAnError(t *testing.T) {
	base := freePorts(t, 4)
	l, err := net.Listen("tcp", address(base+2))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, config := range map[string]Config{
		"http":        {Listen: address(base + 2), KVPortBase: base},
		"load socket": {Listen: address(base + 3), KVPortBase: base, Ranks: 2},
		"admin":       {Admin: address(base + 2)},
	} {
		config.Logger = slog.New(slog.DiscardHandler)
		e, err := Start(config)
		if err == nil {
			e.Close()
			t.Errorf("%s: started on a port in use", name)
		}
		if name != "admin" && !errors.Is(err, errPortInUse) {
			t.Errorf("%s: %v, want %v", name, err, errPortInUse)
		}
	}
	// What failed half way has given back what it had.
	fast(t, Config{Listen: address(base + 3)})
}

func TestClosedEngineGivesItsPortsBack(t *testing.T) {
	e := fast(t, Config{})
	base := e.last.KVPortBase
	e.Close()
	if claims.claimed(base, portsPerEngine) {
		t.Error("the ports are still claimed")
	}
	if !allFree(e.host, base, portsPerEngine) || !allFree(e.host, e.httpPort, 1) {
		t.Error("the ports are still bound")
	}
}

// ZeroMQ's sockets and threads are nothing that goleak knows of.
func TestLivesLeaveNoDescriptors(t *testing.T) {
	const fds = "/proc/self/fd"
	if _, err := os.Stat(fds); err != nil {
		t.Skip("no ", fds, " to count descriptors in")
	}
	count := func() int {
		entries, err := os.ReadDir(fds)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	e := fast(t, Config{Ranks: 4})
	e.Die()
	before := count()
	for range 5 {
		if err := e.Restart(0); err != nil {
			t.Fatal(err)
		}
		e.Die()
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors, %d before five lives", after, before)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, config := range map[string]Config{
		"ranks":             {Ranks: -1},
		"too many ranks":    {Ranks: maxRanks + 1},
		"speed":             {Speed: -1},
		"speed NaN":         {Speed: math.NaN()},
		"time scale":        {TimeScale: math.Inf(1)},
		"limit":             {MaxQueue: -1},
		"port":              {KVPortBase: -1},
		"port too high":     {KVPortBase: 65535},
		"no port in listen": {Listen: "127.0.0.1"},
		"odd port":          {Listen: "127.0.0.1:http"},
		"port out of range": {Listen: "127.0.0.1:65536"},
	} {
		if e, err := Start(config); err == nil {
			e.Close()
			t.Errorf("%s: %+v was accepted", name, config)
		}
	}
}

func TestWildcardHostsAreReachedByLoopback(t *testing.T) {
	for _, tt := range []struct{ host, zmq, dial string }{
		{"127.0.0.1", "127.0.0.1", "127.0.0.1"},
		{"", "*", "127.0.0.1"},
		{"0.0.0.0", "0.0.0.0", "127.0.0.1"},
		{"::", "[::]", "::1"},
		{"::1", "[::1]", "::1"},
		{"engine-7", "engine-7", "engine-7"},
	} {
		e := Engine{host: tt.host}
		if got := zmqHost(tt.host); got != tt.zmq {
			t.Errorf("%q: binds %q, want %q", tt.host, got, tt.zmq)
		}
		if got := e.dialHost(); got != tt.dial {
			t.Errorf("%q: dials %q, want %q", tt.host, got, tt.dial)
		}
	}
}

func TestWireNames(t *testing.T) {
	for _, want := range []Wire{WireLoadStat, WireLoadSnapshot} {
		var got Wire
		text, err := want.MarshalText()
		if err != nil || got.UnmarshalText(text) != nil || got != want {
			t.Errorf("%v is written %q and read %v", want, text, got)
		}
	}
	if new(Wire).UnmarshalText([]byte("load")) == nil {
		t.Error("an unknown wire was read")
	}
}
