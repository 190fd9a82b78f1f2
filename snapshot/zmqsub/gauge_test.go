//go:build cgo && linux && (amd64 || arm64 || arm || loong64 || ppc64le || riscv64)

package zmqsub

import (
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
)

// needGauge skips a test where the kernel does not count bytes by connection
// (Linux before 4.1, some sandboxes).
func needGauge(t *testing.T) gauge {
	t.Helper()
	g := newGauge()
	if g == nil {
		t.Skip("there is no /proc here")
	}
	t.Cleanup(g.close)
	local, remote := pipe(t, "127.0.0.1:0")
	if transfer(t, g, local, remote, 1000) < 1000 {
		t.Skip("the kernel does not count bytes by connection")
	}
	return g
}

// pipe returns the ends of a connection.
func pipe(t *testing.T, address string) (local, remote net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("cannot listen: %v", err)
	}
	defer l.Close()
	if local, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { local.Close() })
	if remote, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remote.Close() })
	return local, remote
}

// transfer sends n bytes to local and returns how many the gauge counts.
func transfer(t *testing.T, g gauge, local, remote net.Conn, n int) uint64 {
	t.Helper()
	peer := netip.MustParseAddrPort(local.RemoteAddr().String())
	// Everything so far has been read.
	before, err := g.read()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := remote.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(local, make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	// What lies in the kernel does not count.
	if _, err := remote.Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	defer io.ReadFull(local, make([]byte, 100))
	after, err := g.read()
	if err != nil {
		t.Fatal(err)
	}
	return after[peer] - before[peer]
}

func TestGaugeCountsWhatIsReadFromAConnection(t *testing.T) {
	g := needGauge(t)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			local, remote := pipe(t, address)
			for _, n := range []int{1, 1000, 1 << 20} {
				if got := transfer(t, g, local, remote, n); got != uint64(n) {
					t.Errorf("counted %d bytes of %d", got, n)
				}
			}
		})
	}
}

func TestGaugeSeesMemoryThatIsNotGos(t *testing.T) {
	g := needGauge(t)
	const size, slack = 64 << 20, 16 << 20
	before, err := g.memory()
	if err != nil {
		t.Fatal(err)
	}
	m, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < size; i += 4096 {
		m[i] = 1
	}
	during, err := g.memory()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Munmap(m); err != nil {
		t.Fatal(err)
	}
	after, err := g.memory()
	if err != nil {
		t.Fatal(err)
	}
	if d := during - before; d < size-slack || d > size+slack {
		t.Errorf("%d bytes of memory are seen as %d", size, d)
	}
	if d := after - before; d < -slack || d > slack {
		t.Errorf("%d bytes are left of it", d)
	}
}
