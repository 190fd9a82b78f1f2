package zmqsub

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The transport of our own: a SUB socket that is a TCP connection and nothing
// else. libzmq would give each an I/O thread to cross, two queues and two
// descriptors, and wake somebody for each message; here the owner reads the
// connection itself, when it is its turn.

func openNative(c Config) (bus, error) { return &nativeBus{config: c}, nil }

type nativeBus struct{ config Config }

func (b *nativeBus) port() (port, error) {
	e, err := newEpoll()
	if err != nil {
		return nil, scarce("owner", err)
	}
	limit := oversize * b.config.MaxPayload
	return &nativePort{
		epoll:  e,
		config: &b.config,
		limit:  limit,
		buf:    make([]byte, limit+readSize),
	}, nil
}

// gauge is nil: no peer can make us hold more than a frame.
func (b *nativeBus) gauge() gauge { return nil }

func (b *nativeBus) close() error { return nil }

const (
	// readSize is how much is read at once, at least.
	readSize = 64 << 10

	// keptSize is how much room for part of a frame a source keeps when it has
	// none.
	keptSize = 4 << 10

	// commandsPerDrain is how many commands in a row, none of which a publisher has
	// a reason to send more often than once a second, keep the owner from the
	// others.
	commandsPerDrain = 64

	// lookEvery is how far apart all sources are looked at for what is due, which
	// none of them needs to the millisecond.
	lookEvery = 50 * time.Millisecond
)

// scarce says what an error is about, and tells want of descriptors or memory
// from the rest.
func scarce(what string, err error) error {
	if isScarce(err) {
		return fmt.Errorf("%w: %s: %w (see the descriptor limit of the process)", ErrLimit, what, err)
	}
	return fmt.Errorf("zmqsub: %s: %w", what, err)
}

func isScarce(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ENOSPC},
		func(errno syscall.Errno) bool { return errors.Is(err, errno) })
}

// nativePort is the connections of one owner. There is nothing in it that
// anybody else touches, but what wakes it.
type nativePort struct {
	*epoll
	config *Config
	limit  int // bytes in a frame

	sources []*nativeSource // by tag; nil where there is none
	free    []int32         // tags of these
	unread  []*nativeSource // with something to read that no descriptor tells of
	ready   []*subscription // what wait returns
	now     time.Time       // when wait returned last
	waits   uint64          // how often
	due     time.Time       // no source is to be looked at before; zero = never
	looked  time.Time       // when all were last

	// buf has what was read last, of the source that reading is. A source that has
	// only part of a frame keeps it elsewhere while others read.
	buf     []byte
	reading *nativeSource
}

func (p *nativePort) open(sub *subscription) (source, error) {
	s := &nativeSource{port: p, sub: sub, fd: -1}
	if last := len(p.free) - 1; last >= 0 {
		s.tag, p.free = p.free[last], p.free[:last]
		p.sources[s.tag] = s
	} else {
		s.tag = int32(len(p.sources))
		p.sources = append(p.sources, s)
	}
	return s, nil
}

func (p *nativePort) wait(until time.Time) ([]*subscription, error) {
	p.ready = p.ready[:0]
	p.unread = slices.DeleteFunc(p.unread, func(s *nativeSource) bool { return !s.unread })
	for _, s := range p.unread {
		p.ready = append(p.ready, s.sub)
		until = past
	}
	if until.IsZero() || !p.due.IsZero() && p.due.Before(until) {
		until = p.due
	}
	events, err := p.epoll.wait(until)
	p.now = time.Now()
	p.waits++
	for _, event := range events {
		s := p.sources[event.Fd]
		s.heardAt = p.now
		if s.phase == streaming {
			p.ready = append(p.ready, s.sub)
		} else {
			s.advance(event.Events)
		}
	}
	if !p.due.IsZero() && !p.now.Before(p.due) {
		p.look()
	}
	return p.ready, err
}

// look does what the time has come for.
func (p *nativePort) look() {
	p.due, p.looked = time.Time{}, p.now
	for _, s := range p.sources {
		if s == nil || s.due.IsZero() {
			continue
		}
		if !p.now.Before(s.due) {
			s.overdue()
		}
		p.expect(s.due)
	}
}

// expect has all sources looked at then, or a little later.
func (p *nativePort) expect(t time.Time) {
	if next := p.looked.Add(lookEvery); t.Before(next) {
		t = next
	}
	if p.due.IsZero() || t.Before(p.due) {
		p.due = t
	}
}

// phase is how far a connection is.
type phase uint8

const (
	idle       phase = iota // nobody has said where to
	connecting              // until the peer has accepted
	greeted                 // until its greeting is there
	shaking                 // until its READY is
	streaming
	pausing // before the next attempt
)

// nativeSource is one connection after another to one peer.
type nativeSource struct {
	port *nativePort
	sub  *subscription
	tag  int32 // in port.sources
	peer netip.AddrPort

	fd      int // -1 = none
	phase   phase
	due     time.Time     // when the phase has taken too long, or the pause is over
	pause   time.Duration // the last one; 0 once a connection has been of use for longer than that
	since   time.Time     // when it began to stream
	heardAt time.Time     // when the peer last sent anything
	pinged  time.Time     // when it was last asked to
	minor   byte          // of the peer's version

	in     []byte // received and not read yet; part of port.buf or of kept
	kept   []byte
	midway bool   // the last frame that was read said that more follow
	dry    uint64 // the wait of the port since which there is nothing more to receive
	unread bool   // see port.unread
	err    error  // to be returned by the next recv
}

// connect begins to connect and never gives up: what becomes of it, a refusal
// included, is not an error. Only if there is no descriptor for it that is.
func (s *nativeSource) connect(address string) error {
	peer, err := netip.ParseAddrPort(strings.TrimPrefix(address, "tcp://"))
	if err != nil {
		return fmt.Errorf("zmqsub: connect %s: %w", address, err)
	}
	s.drop()
	s.peer = peer
	return s.dial(time.Now())
}

// dial makes a connection. There is another attempt after a pause, whatever it
// returns.
func (s *nativeSource) dial(now time.Time) error {
	err := s.open()
	switch {
	case err == nil:
		s.phase = connecting
		s.until(now.Add(s.port.config.ConnectTimeout))
		return nil
	case isScarce(err):
		s.rest(now)
		return scarce("connection", err)
	default:
		s.rest(now) // no route, say; that may change
		return nil
	}
}

func (s *nativeSource) open() error {
	family, address, err := sockaddr(s.peer)
	if err != nil {
		return err
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	s.fd = fd
	err = errors.Join(
		syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, receiveBuffer),
		syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1),
	)
	if err == nil {
		if err = syscall.Connect(fd, address); err == syscall.EINPROGRESS || err == syscall.EINTR {
			err = nil
		}
	}
	if err == nil {
		err = s.port.add(fd, syscall.EPOLLOUT, s.tag)
	}
	if err != nil {
		s.drop()
	}
	return err
}

func sockaddr(peer netip.AddrPort) (family int, _ syscall.Sockaddr, err error) {
	addr := peer.Addr().Unmap()
	if addr.Is4() {
		return syscall.AF_INET, &syscall.SockaddrInet4{Port: int(peer.Port()), Addr: addr.As4()}, nil
	}
	address := &syscall.SockaddrInet6{Port: int(peer.Port()), Addr: addr.As16()}
	if zone := addr.Zone(); zone != "" {
		if id, err := strconv.ParseUint(zone, 10, 32); err == nil {
			address.ZoneId = uint32(id)
		} else if device, err := net.InterfaceByName(zone); err == nil {
			address.ZoneId = uint32(device.Index)
		} else {
			return 0, nil, err
		}
	}
	return syscall.AF_INET6, address, nil
}

// advance goes as far into the handshake as what the peer has sent allows.
func (s *nativeSource) advance(events uint32) {
	if s.phase == connecting {
		if errno, err := syscall.GetsockoptInt(s.fd, syscall.SOL_SOCKET, syscall.SO_ERROR); errno != 0 || err != nil {
			s.rest(s.port.now)
			return
		}
		if err := s.port.modify(s.fd, syscall.EPOLLIN, s.tag); err != nil {
			s.fail(err)
			return
		}
		s.phase = greeted
		// Whose machine was too busy for it the last time gets longer.
		s.until(s.port.now.Add(s.port.config.ConnectTimeout + 4*s.pause))
		s.write(hello[:])
		return
	}
	for s.phase == greeted || s.phase == shaking {
		var n int
		var err error
		if s.phase == greeted {
			s.minor, n, err = readGreeting(s.in)
		} else {
			n, err = s.shake()
		}
		switch {
		case err != nil:
			s.fail(err)
		case n == 0:
			if s.fill() != nil {
				return
			}
		case s.phase == greeted:
			s.in = s.in[n:]
			s.phase = shaking
			s.write(readyCommand)
		default:
			s.in = s.in[n:]
			s.phase, s.since = streaming, s.port.now
			s.until(s.heartbeat())
			s.write(subscribeToAll(s.minor))
			s.announce()
		}
	}
}

// shake reads the peer's half of the handshake and returns its size.
func (s *nativeSource) shake() (n int, err error) {
	f, n, err := readFrame(s.in, s.port.limit)
	if err != nil || n == 0 {
		return 0, err
	}
	if !f.command {
		return 0, errHandshake
	}
	return n, checkReady(f.body)
}

// heartbeat is when the peer has to be asked whether it is there.
func (s *nativeSource) heartbeat() time.Time {
	if s.minor < pingMinor {
		return time.Time{} // its silence is noticed by the owner
	}
	return s.heardAt.Add(s.port.config.HeartbeatInterval)
}

// overdue does what the time has come for.
func (s *nativeSource) overdue() {
	p := s.port
	switch s.phase {
	case pausing:
		if err := s.dial(p.now); err != nil {
			s.err = err
			s.announce()
		}
	case streaming:
		c := p.config
		switch beat := s.heartbeat(); {
		case p.now.Before(beat):
			s.until(beat)
		case !s.pinged.After(s.heardAt):
			s.pinged = p.now
			s.until(p.now.Add(min(c.HeartbeatInterval, c.HeartbeatTimeout)))
			s.write(pingCommand)
		case p.now.Before(s.pinged.Add(c.HeartbeatTimeout)):
			s.until(p.now.Add(min(c.HeartbeatInterval, s.pinged.Add(c.HeartbeatTimeout).Sub(p.now))))
		case s.waiting():
			s.heardAt = p.now // it has spoken, and it is us who did not listen
			s.until(s.heartbeat())
		default:
			s.rest(p.now)
		}
	default:
		s.rest(p.now)
	}
}

// waiting reports whether the peer has sent something that was not received yet.
func (s *nativeSource) waiting() bool {
	var b [1]byte
	n, _, err := syscall.Recvfrom(s.fd, b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return n > 0 && err == nil
}

func (s *nativeSource) recv() ([]byte, bool, error) {
	s.unread = false
	for commands := 0; s.err == nil && s.phase == streaming; {
		f, n, err := readFrame(s.in, s.port.limit)
		switch {
		case err != nil:
			s.fail(err)
		case n == 0:
			if s.fill() != nil && s.phase == streaming {
				return nil, false, errQuiet
			}
		case f.command:
			s.in = s.in[n:]
			if err := s.obey(f.body); err != nil {
				s.fail(err)
			} else if commands++; commands == commandsPerDrain {
				s.announce()
				return nil, false, errQuiet
			}
		default:
			s.in = s.in[n:]
			s.midway = f.more
			if s.pause > 0 && s.port.now.Sub(s.since) > s.pause {
				s.pause = 0
			}
			return f.body, f.more, nil
		}
	}
	if err := s.err; err != nil {
		s.err = nil
		return nil, false, err
	}
	return nil, false, errQuiet
}

func (s *nativeSource) obey(command []byte) error {
	reply, err := answer(command)
	if reply != nil {
		s.write(reply)
	}
	return err
}

// fill receives more. Its error means that there is no more now.
func (s *nativeSource) fill() error {
	p := s.port
	if s.dry == p.waits {
		return errQuiet
	}
	if p.reading != s {
		if p.reading != nil {
			p.reading.keep()
		}
		p.reading = s
	}
	n := copy(p.buf, s.in) // part of a frame, so that there is readSize behind it
	s.in, s.kept = p.buf[:n], s.kept[:0]
	if n == 0 && cap(s.kept) > keptSize {
		s.kept = nil
	}
	for {
		got, err := syscall.Read(s.fd, p.buf[n:])
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			s.dry = p.waits
			return errQuiet
		case err != nil || got == 0:
			s.midway = s.midway || n > 0 && s.phase == streaming
			s.rest(p.now)
			return errQuiet
		}
		if s.in = p.buf[:n+got]; len(s.in) < len(p.buf) {
			s.dry = p.waits // whatever comes after this, the descriptor tells of
		}
		return nil
	}
}

// keep makes what the source has not read yet its own.
func (s *nativeSource) keep() {
	s.kept = append(s.kept[:0], s.in...)
	s.in = s.kept
}

// write sends a few bytes. There is always room for them, unless the peer has
// stopped to take anything.
func (s *nativeSource) write(b []byte) {
	for {
		n, err := syscall.SendmsgN(s.fd, b, nil, nil, syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n < len(b) {
			s.rest(s.port.now)
		}
		return
	}
}

// fail gives up a connection whose peer makes no sense, and has recv say so. It
// will hardly make more in a moment.
func (s *nativeSource) fail(err error) {
	s.midway, s.pause = false, s.port.config.ReconnectMax
	s.rest(s.port.now)
	s.err = err
	s.announce()
}

// announce has the owner call recv though no descriptor has news.
func (s *nativeSource) announce() {
	if !s.unread {
		s.unread = true
		s.port.unread = append(s.port.unread, s)
		s.port.ready = append(s.port.ready, s.sub)
	}
}

// rest gives up the connection, if there is one, until the next attempt.
func (s *nativeSource) rest(now time.Time) {
	s.drop()
	if s.midway { // or its beginning would get the next message for an end
		s.midway, s.err = false, errMidway
		s.announce()
	}
	first := min(reconnectFirst, s.port.config.ReconnectMax)
	s.pause = max(first, min(2*s.pause, s.port.config.ReconnectMax))
	s.phase = pausing
	// Not all of a fleet at once.
	s.until(now.Add(s.pause/2 + rand.N(s.pause/2+1)))
}

func (s *nativeSource) until(t time.Time) {
	s.due = t
	if !t.IsZero() {
		s.port.expect(t)
	}
}

// drop closes the connection.
func (s *nativeSource) drop() {
	if s.fd >= 0 {
		s.port.remove(s.fd)
		syscall.Close(s.fd)
		s.fd = -1
	}
	s.in, s.kept, s.phase, s.due = nil, nil, idle, time.Time{}
}

func (s *nativeSource) close() {
	s.drop()
	s.unread = false
	s.port.sources[s.tag] = nil
	s.port.free = append(s.port.free, s.tag)
	if s.port.reading == s {
		s.port.reading = nil
	}
}
