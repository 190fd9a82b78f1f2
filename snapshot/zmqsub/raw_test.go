//go:build cgo

package zmqsub

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
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

// introduce is what a PUB socket does before its first message.
func introduce(c net.Conn) error {
	ready := "\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"
	_, err := c.Write(append(greeting("NULL"), append([]byte{4, byte(len(ready))}, ready...)...))
	_, rerr := io.ReadFull(c, make([]byte, 64))
	return errors.Join(err, rerr)
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
