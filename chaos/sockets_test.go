//go:build chaos && linux

package chaos

import (
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Both ends of every link are in this process, and so the kernel can be told to
// drop their packets, by a filter on each socket. Sockets that are accepted have the
// filter of the one that listens. On most machines that needs no privileges.

// attach gives a socket a filter of one instruction: keep 0 bytes of the packet.
func attach(fd int) error {
	program := unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
}

// filters says why sockets cannot be given filters; nil if they can.
var filters = sync.OnceValue(func() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return attach(fd)
})

// dropPackets drops what arrives at the sockets of addr, and of whoever is connected
// to it.
func dropPackets(t testing.TB, addr string) {
	t.Helper()
	// The one that listens first: what it accepts has its filter.
	if dropAt(t, addr, true) == 0 {
		t.Errorf("nobody listens at %s", addr)
	}
	dropAt(t, addr, false)
}

// dropConnectionPackets leaves out the one that listens.
func dropConnectionPackets(t testing.TB, addr string) { dropAt(t, addr, false) }

func dropAt(t testing.TB, addr string, listening bool) (n int) {
	t.Helper()
	eachSocket(t, addr, func(fd int, s socket) {
		if s.listens != listening {
			return
		}
		n++
		if err := attach(fd); err != nil {
			t.Errorf("dropping the packets of %v: %v", s, err)
		}
	})
	return n
}

func passPackets(t testing.TB, addr string) {
	t.Helper()
	// The same here, or a filter might be inherited after the descriptors were listed.
	for _, listening := range []bool{true, false} {
		eachSocket(t, addr, func(fd int, s socket) {
			if s.listens != listening {
				return
			}
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); err != nil && err != unix.ENOENT {
				t.Errorf("passing the packets of %v: %v", s, err)
			}
		})
	}
}

// linger says whether the link's ends of the connections to addr, those that are yet to
// be accepted included, are closed as usual, or with a reset.
func linger(t testing.TB, addr string, usual bool) {
	t.Helper()
	eachSocket(t, addr, func(fd int, s socket) {
		if s.local.String() != addr {
			return
		}
		how := unix.Linger{Onoff: 1}
		if usual {
			how.Onoff = 0
		}
		if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &how); err != nil {
			t.Errorf("linger of %v: %v", s, err)
		}
	})
}

// dialled lists the ports of this process's connections to addr, also of those
// that are only being made.
func dialled(t testing.TB, addr string) map[uint16]bool {
	t.Helper()
	ports := make(map[uint16]bool)
	eachSocket(t, addr, func(_ int, s socket) {
		if s.peer.String() == addr {
			ports[s.local.Port()] = true
		}
	})
	return ports
}

// socket is a TCP socket of this process.
type socket struct {
	local, peer netip.AddrPort // peer is not valid unless it is connected
	listens     bool
}

// listening is held while a port is opened that was closed just now, and while
// copies of descriptors are around, one of which might keep it from being free.
var listening sync.Mutex

// eachSocket calls do for every TCP socket of this process that is at addr, or
// connected to it. The descriptor is a copy, so that it stands for the same socket
// whatever is closed meanwhile.
func eachSocket(t testing.TB, addr string, do func(fd int, s socket)) {
	t.Helper()
	want, err := netip.ParseAddrPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	listening.Lock()
	defer listening.Unlock()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range list {
		n, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		fd, err := unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			continue // closed since it was listed
		}
		if s, ok := readSocket(fd); ok && (s.local == want || s.peer == want) {
			do(fd, s)
		}
		unix.Close(fd)
	}
}

func readSocket(fd int) (s socket, ok bool) {
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_STREAM {
		return s, false
	}
	local, err := unix.Getsockname(fd)
	if err != nil {
		return s, false
	}
	if s.local, ok = addrPort(local); !ok {
		return s, false
	}
	if peer, err := unix.Getpeername(fd); err == nil {
		s.peer, _ = addrPort(peer)
	}
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	s.listens = err == nil && n == 1
	return s, true
}

func addrPort(a unix.Sockaddr) (netip.AddrPort, bool) {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), true
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)), true
	}
	return netip.AddrPort{}, false
}
