//go:build cgo

package zmqsub

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	zmq "github.com/pebbe/zmq4"
)

func newWaiter() (zmqWaiter, error) { return newEpoll() }

// past is a deadline that is over, and not the zero time, which means none.
var past = time.Unix(1, 0)

// epoll waits for the descriptors by which sockets announce that the I/O thread
// has something for them. Such a descriptor stays readable until the socket has
// been read until it has nothing more, which is what an owner does.
//
// zmq_poll would be in its place here, if not for two things. It asks every
// socket every time, so that each message costs more the more ranks there are.
// And it blocks inside cgo, where the Go runtime takes a thread that sleeps for
// one that works: it watches it, at 20 µs intervals at first, which costs more
// than the message it is waiting for. This one waits in the runtime's own
// poller, which can wait for an epoll descriptor as for any other.
type epoll struct {
	fd   int
	file *os.File // has fd
	conn syscall.RawConn

	mu    sync.Mutex
	woken bool // guarded by mu; makes the next wait return at once

	// owned by the owner goroutine
	subs   map[int32]*subscription // by descriptor of the socket
	events [256]syscall.EpollEvent
	ready  []*subscription
}

func newEpoll() (*epoll, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // or os.NewFile leaves the runtime's poller out
		syscall.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	e := &epoll{fd: fd, file: os.NewFile(uintptr(fd), "epoll"), subs: make(map[int32]*subscription)}
	e.conn, err = e.file.SyscallConn()
	if err = errors.Join(err, e.file.SetReadDeadline(time.Time{})); err != nil {
		e.file.Close()
		return nil, fmt.Errorf("waiting for epoll: %w", err)
	}
	return e, nil
}

func (e *epoll) add(soc *zmq.Socket, sub *subscription) error {
	fd, err := soc.GetFd()
	if err != nil {
		return err
	}
	event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}
	if err := syscall.EpollCtl(e.fd, syscall.EPOLL_CTL_ADD, fd, &event); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	e.subs[event.Fd] = sub
	return nil
}

func (e *epoll) remove(soc *zmq.Socket) {
	fd, err := soc.GetFd()
	if err != nil {
		return
	}
	// Before the socket closes it: the number may be somebody else's a moment
	// later.
	syscall.EpollCtl(e.fd, syscall.EPOLL_CTL_DEL, fd, &syscall.EpollEvent{})
	delete(e.subs, int32(fd))
}

func (e *epoll) wait(until time.Time) ([]*subscription, error) {
	e.mu.Lock()
	if e.woken {
		until = past
	}
	err := e.file.SetReadDeadline(until)
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}

	var n int
	var pollErr error
	poll := func(uintptr) bool {
		n, pollErr = syscall.EpollWait(e.fd, e.events[:], 0)
		return n > 0 || pollErr != nil
	}
	err = e.conn.Read(poll)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// Or somebody who wakes it all the time would keep it from reading.
		poll(0)
		err = nil
	}
	// Whatever it was woken for since the beginning is in the owner's queue by
	// now, and the owner looks there next.
	e.mu.Lock()
	e.woken = false
	e.mu.Unlock()

	if err == nil && pollErr != nil && pollErr != syscall.EINTR {
		err = os.NewSyscallError("epoll_wait", pollErr)
	}
	e.ready = e.ready[:0]
	for i := range max(n, 0) {
		if sub := e.subs[e.events[i].Fd]; sub != nil {
			e.ready = append(e.ready, sub)
		}
	}
	return e.ready, err
}

func (e *epoll) wake() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.woken {
		e.woken = true
		e.file.SetReadDeadline(past) // an error is that it is closed
	}
}

func (e *epoll) close() { e.file.Close() }
