package zmqsub

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
)

// rawPeer accepts connections and speaks ZMTP as a test has it speak.
type rawPeer struct {
	l        net.Listener
	accepted atomic.Int64
	wg       sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// listenRaw serves every connection until the peer is closed or serve returns.
func listenRaw(serve func(net.Conn)) (*rawPeer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &rawPeer{l: l, conns: make(map[net.Conn]struct{})}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.accepted.Add(1)
			p.mu.Lock()
			if p.closed {
				p.mu.Unlock()
				c.Close()
				return
			}
			p.conns[c] = struct{}{}
			p.mu.Unlock()
			p.wg.Go(func() {
				serve(c)
				c.Close()
				p.mu.Lock()
				defer p.mu.Unlock()
				delete(p.conns, c)
			})
		}
	})
	return p, nil
}

func (p *rawPeer) endpoint() string { return "tcp://" + p.l.Addr().String() }

func (p *rawPeer) close() {
	p.l.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// greeting is that of ZMTP 3.0.
func greeting(mechanism string) []byte {
	g := make([]byte, 64)
	g[0], g[9], g[10] = 0xff, 0x7f, 3
	copy(g[12:], mechanism)
	return g
}

// readyPub is the command that a PUB socket follows its greeting with.
var readyPub = []byte("\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB")

// introduce is what a PUB socket does before its first message. libzmq takes one
// that comes before it has introduced itself for a bad introduction.
func introduce(c net.Conn) error {
	_, err := c.Write(append(greeting("NULL"), readyPub...))
	theirs := make([]byte, 64+2)
	if _, rerr := io.ReadFull(c, theirs); err == nil {
		err = rerr
	}
	if err == nil {
		_, err = io.ReadFull(c, make([]byte, theirs[65]))
	}
	return err
}

// frame is one of ZMTP.
func frame(more bool, body []byte) []byte {
	flags := byte(2) // long
	if more {
		flags |= 1
	}
	return append(binary.BigEndian.AppendUint64([]byte{flags}, uint64(len(body))), body...)
}

// pour introduces a publisher that writes one thing over and over.
func pour(what []byte) func(net.Conn) {
	return func(c net.Conn) {
		if introduce(c) != nil {
			return
		}
		go io.Copy(io.Discard, c)
		for {
			if _, err := c.Write(what); err != nil {
				return
			}
		}
	}
}

// blurt says everything at once, without waiting for what it is told, and then
// waits for the other end to hang up.
func blurt(what ...[]byte) func(net.Conn) {
	return func(c net.Conn) {
		c.Write(slices.Concat(what...))
		io.Copy(io.Discard, c)
	}
}

// blurters send message(1) in the words of each version of the protocol.
func blurters() map[string]func(net.Conn) {
	v2 := greeting("")[:12]
	v2[10], v2[11] = 1, 1 // revision, PUB
	var v1 []byte         // which has no greeting but an identity
	m := message(1)
	for i, f := range m {
		more := byte(1)
		if i == len(m)-1 {
			more = 0
		}
		v1 = append(append(v1, byte(len(f)+1), more), f...)
	}
	return map[string]func(net.Conn){
		"ZMTP 3.0": func(c net.Conn) {
			if introduce(c) == nil {
				blurt(zmtp3())(c)
			}
		},
		"ZMTP 2.0": blurt(v2, []byte{0, 0}, zmtp3()),
		"ZMTP 1.0": blurt([]byte{1, 0}, v1),
	}
}

// zmtp3 is message(1) in frames.
func zmtp3() []byte {
	m := message(1)
	return slices.Concat(frame(true, m[0]), frame(true, m[1]), frame(false, m[2]))
}
