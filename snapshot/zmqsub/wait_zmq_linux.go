//go:build cgo

package zmqsub

import (
	"syscall"
	"time"

	zmq "github.com/pebbe/zmq4"
)

// zmqEpoll waits for the descriptors by which libzmq's sockets announce that the
// I/O thread has something for them. Such a descriptor stays readable until the
// socket has been read until it has nothing more, which is what an owner does.
//
// zmq_poll would be in its place here, if it did not ask every socket every time,
// so that each message costs more the more ranks there are.
type zmqEpoll struct {
	*epoll
	subs  map[int]*subscription // by descriptor of the socket
	ready []*subscription
}

func newWaiter() (zmqWaiter, error) {
	e, err := newEpoll()
	if err != nil {
		return nil, err
	}
	return &zmqEpoll{epoll: e, subs: make(map[int]*subscription)}, nil
}

func (e *zmqEpoll) add(soc *zmq.Socket, sub *subscription) error {
	fd, err := soc.GetFd()
	if err != nil {
		return err
	}
	if err := e.epoll.add(fd, syscall.EPOLLIN, int32(fd)); err != nil {
		return err
	}
	e.subs[fd] = sub
	return nil
}

func (e *zmqEpoll) remove(soc *zmq.Socket) {
	if fd, err := soc.GetFd(); err == nil {
		e.epoll.remove(fd)
		delete(e.subs, fd)
	}
}

func (e *zmqEpoll) wait(until time.Time) ([]*subscription, error) {
	events, err := e.epoll.wait(until)
	e.ready = e.ready[:0]
	for _, event := range events {
		if sub := e.subs[int(event.Fd)]; sub != nil {
			e.ready = append(e.ready, sub)
		}
	}
	return e.ready, err
}
