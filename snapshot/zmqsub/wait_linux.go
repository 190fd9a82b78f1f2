package zmqsub

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// past is a deadline that is over, and not the zero time, which means none.
var past = time.Unix(1, 0)

// epoll waits for descriptors.
//
// It waits in the runtime's own poller, which can wait for an epoll descriptor as
// for any other, and not in a system call or in zmq_poll: the runtime takes a
// thread that sleeps there for one that works, and watches it, at 20 µs intervals
// at first, which costs more than the message it is waiting for.
//
// What the poller waits for is not the epoll descriptor itself but a gate, another
// one over it, that is open during a wait and shut at any other time. Or each
// message that arrives while its owner rests, or is at work on those before it,
// would wake a thread for nothing. That is most of them where many ranks are.
type epoll struct {
	fd   int      // over what is waited for
	gate *os.File // over fd
	conn syscall.RawConn

	mu    sync.Mutex
	woken bool // guarded by mu; makes the next wait return at once

	// owned by the owner goroutine
	open    bool
	events  [1024]syscall.EpollEvent
	n       int
	pollErr error
	poll    func(uintptr) bool // look, in the form that RawConn wants
}

func newEpoll() (*epoll, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	e := &epoll{fd: fd}
	e.poll = func(uintptr) bool { return e.look() }
	if err := e.makeGate(); err != nil {
		e.close()
		return nil, fmt.Errorf("waiting for epoll: %w", err)
	}
	return e, nil
}

func (e *epoll) makeGate() error {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // or os.NewFile leaves the runtime's poller out
		syscall.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	e.gate = os.NewFile(uintptr(fd), "epoll")
	if e.conn, err = e.gate.SyscallConn(); err != nil {
		return err
	}
	shut := syscall.EpollEvent{Fd: int32(e.fd)}
	if err := syscall.EpollCtl(fd, syscall.EPOLL_CTL_ADD, e.fd, &shut); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	return e.gate.SetReadDeadline(time.Time{})
}

// add begins to wait for a descriptor. Its events carry the tag in place of it.
func (e *epoll) add(fd int, events uint32, tag int32) error {
	return e.control(syscall.EPOLL_CTL_ADD, fd, events, tag)
}

func (e *epoll) modify(fd int, events uint32, tag int32) error {
	return e.control(syscall.EPOLL_CTL_MOD, fd, events, tag)
}

func (e *epoll) control(op, fd int, events uint32, tag int32) error {
	event := syscall.EpollEvent{Events: events, Fd: tag}
	return os.NewSyscallError("epoll_ctl", syscall.EpollCtl(e.fd, op, fd, &event))
}

// remove ends that. It has to come before the descriptor is closed: the number
// may be somebody else's a moment later.
func (e *epoll) remove(fd int) {
	syscall.EpollCtl(e.fd, syscall.EPOLL_CTL_DEL, fd, &syscall.EpollEvent{})
}

// wait blocks until there is something, wake is called or the time has come. What
// it returns is valid until the next call.
func (e *epoll) wait(until time.Time) ([]syscall.EpollEvent, error) {
	e.mu.Lock()
	if e.woken {
		until = past
	}
	err := e.gate.SetReadDeadline(until)
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	e.n, e.pollErr = 0, nil
	err = e.conn.Read(e.poll)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// Or somebody who wakes it all the time would keep it from reading.
		e.look()
		err = nil
	}
	e.shut()
	// Whatever it was woken for since the beginning is in the owner's queue by
	// now, and the owner looks there next.
	e.mu.Lock()
	e.woken = false
	e.mu.Unlock()
	if err == nil && e.pollErr != nil && e.pollErr != syscall.EINTR {
		err = os.NewSyscallError("epoll_wait", e.pollErr)
	}
	return e.events[:max(e.n, 0)], err
}

// look takes what there is and reports whether that is anything. If not, the gate
// is open afterwards.
func (e *epoll) look() bool {
	e.n, e.pollErr = syscall.EpollWait(e.fd, e.events[:], 0)
	if e.n != 0 {
		return true
	}
	if !e.open {
		// What came since the look just now opens it at once.
		e.open = true
		e.pollErr = e.setGate(syscall.EPOLLIN)
	}
	return e.pollErr != nil
}

// shut closes the gate.
func (e *epoll) shut() {
	if !e.open {
		return
	}
	e.open = false
	e.setGate(0)
	// An event that it has announced is taken back only by asking for it, and as
	// long as it is there the next one is no news to the poller.
	var events [1]syscall.EpollEvent
	e.conn.Control(func(fd uintptr) { syscall.EpollWait(int(fd), events[:], 0) })
}

func (e *epoll) setGate(events uint32) (err error) {
	event := syscall.EpollEvent{Events: events, Fd: int32(e.fd)}
	if e := e.conn.Control(func(fd uintptr) { err = syscall.EpollCtl(int(fd), syscall.EPOLL_CTL_MOD, e.fd, &event) }); e != nil {
		return e
	}
	return err
}

func (e *epoll) wake() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.woken {
		e.woken = true
		e.gate.SetReadDeadline(past) // an error is that it is closed
	}
}

func (e *epoll) close() {
	if e.gate != nil {
		e.gate.Close()
	}
	syscall.Close(e.fd)
}
