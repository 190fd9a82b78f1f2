package zmqsub

import (
	"errors"
	"net/netip"
	"time"
)

// receiveBuffer is SO_RCVBUF, in bytes. Left alone, Linux grows it to megabytes
// when the reader stalls: tens of thousands of readings, all of them old by the
// time they are read.
const receiveBuffer = 64 << 10

// The seam between the owners and the network. Everything behind it belongs to one
// owner goroutine; only wake may be called from others.

// errQuiet is what source.recv returns when there is nothing to read.
var errQuiet = errors.New("zmqsub: nothing to read")

// bus is what all owners share.
type bus interface {
	port() (port, error) // one per owner
	gauge() gauge        // nil where there is none
	close() error        // after every port is closed
}

// gauge tells what peers make us hold. It belongs to one goroutine.
type gauge interface {
	// memory is that of the process, in bytes, without Go's. Only its changes mean
	// anything.
	memory() (int64, error)

	// trim makes memory leave out, as far as it can, what is held and not used.
	trim()

	// read returns how many bytes have been read from the open connections of the
	// process, by the address of the peer. What nobody got round to reading is not
	// the peer's fault.
	read() (map[netip.AddrPort]uint64, error)

	close()
}

// port is the set of sources that an owner waits for.
type port interface {
	// open makes a source that is part of the set and not connected yet. An
	// error for want of sockets or descriptors is ErrLimit.
	open(sub *subscription) (source, error)

	waiter
}

// waiter is the part of a port that waits.
type waiter interface {
	// wait blocks until a source may have something to read, wake is called or
	// the time has come; a zero time never comes. It may return early. A source
	// that it returned is returned again as long as it was not read until
	// errQuiet; what is left in one that was read from, but not to that point,
	// may go unreported. The slice is valid until the next call.
	wait(until time.Time) ([]*subscription, error)

	// wake makes wait return, now or the next time. Any goroutine, also after
	// close.
	wake()

	close()
}

// source is one SUB socket.
type source interface {
	connect(address string) error

	// recv returns the next frame and whether more of the same message follow,
	// or errQuiet. The frame is valid until the port is asked for anything else.
	recv() (frame []byte, more bool, err error)

	close()
}
