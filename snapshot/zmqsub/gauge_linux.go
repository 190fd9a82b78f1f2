//go:build cgo && (amd64 || arm64 || arm || loong64 || ppc64le || riscv64)

package zmqsub

// #include <stddef.h>
//
// // glibc's; other C libraries give memory back without being asked.
// extern int malloc_trim(size_t) __attribute__((weak));
//
// static void trim(void) {
// 	if (malloc_trim)
// 		malloc_trim(0);
// }
import "C"

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"runtime/metrics"
	"strconv"
	"syscall"
	"unsafe"
)

// procGauge reads /proc and asks the kernel about each socket of the process.
// libzmq does not tell which are its own.
type procGauge struct {
	statm   *os.File
	samples [2]metrics.Sample
	buf     [128]byte
}

// newGauge returns nil where /proc is not what it should be.
func newGauge() gauge {
	f, err := os.Open("/proc/self/statm")
	if err != nil {
		return nil
	}
	g := &procGauge{statm: f}
	g.samples[0].Name = "/memory/classes/total:bytes"
	g.samples[1].Name = "/memory/classes/heap/released:bytes"
	return g
}

// memory is what is resident, less what is Go's. Go counts pages that it has not
// touched yet, so that the difference may be too small and even negative; it is its
// growth that counts.
func (g *procGauge) memory() (int64, error) {
	n, err := g.statm.ReadAt(g.buf[:], 0)
	if n == 0 {
		return 0, err
	}
	fields := bytes.Fields(g.buf[:n])
	if len(fields) < 2 {
		return 0, strconv.ErrSyntax
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0, err
	}
	metrics.Read(g.samples[:])
	for _, s := range g.samples {
		if s.Value.Kind() != metrics.KindUint64 {
			return 0, os.ErrInvalid
		}
	}
	return pages*int64(os.Getpagesize()) - int64(g.samples[0].Value.Uint64()) + int64(g.samples[1].Value.Uint64()), nil
}

func (g *procGauge) read() (map[netip.AddrPort]uint64, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	bytes := make(map[netip.AddrPort]uint64)
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// It may be closed by now, or be something else. Nothing is changed by
		// asking.
		n, ok := bytesRead(fd)
		if !ok {
			continue
		}
		if peer, ok := peerOf(fd); ok {
			bytes[peer] += n
		}
	}
	return bytes, nil
}

// trim gives back what C has free, which glibc keeps as long as something behind
// it is in use. Or a peer could have it grow by as much again each time.
func (g *procGauge) trim() { C.trim() }

func (g *procGauge) close() { g.statm.Close() }

// bytesRead returns what has been received on a TCP connection, less what still
// lies in the kernel.
func bytesRead(fd int) (uint64, bool) {
	const offset = 128 // of tcpi_bytes_received (linux/tcp.h)
	var info [offset + 8]byte
	size := uint32(len(info))
	_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, uintptr(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 || int(size) < len(info) {
		return 0, false
	}
	var unread int32
	const siocinq = syscall.TIOCINQ
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), siocinq, uintptr(unsafe.Pointer(&unread))); errno != 0 {
		return 0, false
	}
	received := binary.NativeEndian.Uint64(info[offset:])
	return received - min(received, uint64(max(unread, 0))), true
}

func peerOf(fd int) (netip.AddrPort, bool) {
	sa, err := syscall.Getpeername(fd)
	if err != nil {
		return netip.AddrPort{}, false
	}
	switch sa := sa.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), true
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port)), true
	}
	return netip.AddrPort{}, false
}
