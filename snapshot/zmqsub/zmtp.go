package zmqsub

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ZMTP 3.1 (rfc.zeromq.org/spec/37), as much of it as a SUB socket needs that
// wants everything and uses the NULL mechanism. Older engines speak 3.0 (spec/23),
// which lacks heartbeats and has another way to subscribe.

const (
	greetingSize  = 64
	signatureSize = 10 // of the greeting
	mechanismSize = 20

	flagMore    = 1
	flagLong    = 2
	flagCommand = 4

	// commandLimit is far above what any command takes. A publisher that sends
	// nothing else costs a round as many of them as commandsPerDrain says.
	commandLimit = 4 << 10
)

// hello is what we say first: signature, version 3.1, NULL, not a server.
var hello = func() (g [greetingSize]byte) {
	g[0], g[signatureSize-1] = 0xff, 0x7f
	g[signatureSize], g[signatureSize+1] = 3, 1
	copy(g[signatureSize+2:], "NULL")
	return g
}()

// Errors of a peer that cannot be talked with, or stopped making sense.
var (
	errNotZMTP   = errors.New("zmqsub: peer does not speak ZMTP 3")
	errFlags     = errors.New("zmqsub: frame with unknown flags")
	errFrameSize = errors.New("zmqsub: frame is too large")
	errCommand   = errors.New("zmqsub: broken ZMTP command")
	errHandshake = errors.New("zmqsub: peer sent something else than its half of the handshake")
	errMidway    = errors.New("zmqsub: connection ended within a message")
)

// readGreeting reads the peer's greeting off the front of b and returns the minor
// version. n is 0 as long as it is not all there, and is right so far.
func readGreeting(b []byte) (minor byte, n int, err error) {
	if len(b) > 0 && b[0] != 0xff || len(b) >= signatureSize && b[signatureSize-1]&1 == 0 ||
		len(b) > signatureSize && b[signatureSize] < 3 {
		return 0, 0, errNotZMTP
	}
	if len(b) < greetingSize {
		return 0, 0, nil
	}
	mechanism := bytes.TrimRight(b[signatureSize+2:][:mechanismSize], "\x00")
	if string(mechanism) != "NULL" {
		return 0, 0, fmt.Errorf("zmqsub: peer wants mechanism %q", mechanism)
	}
	minor = b[signatureSize+1]
	if b[signatureSize] > 3 {
		minor = 1
	}
	return minor, greetingSize, nil
}

// wireFrame is one frame, a part of a message or a command. Its body is
// part of what it was read from.
type wireFrame struct {
	body    []byte
	more    bool
	command bool
}

// readFrame reads a frame off the front of b. n is 0 as long as it is not all
// there.
func readFrame(b []byte, limit int) (f wireFrame, n int, err error) {
	if len(b) == 0 {
		return f, 0, nil
	}
	flags := b[0]
	f.more, f.command = flags&flagMore != 0, flags&flagCommand != 0
	if flags > flagMore|flagLong|flagCommand || f.more && f.command {
		return f, 0, errFlags
	}
	var size uint64
	head := 2
	if flags&flagLong != 0 {
		head = 9
	}
	if len(b) < head {
		return f, 0, nil
	}
	if flags&flagLong != 0 {
		size = binary.BigEndian.Uint64(b[1:])
	} else {
		size = uint64(b[1])
	}
	if size > uint64(limit) || f.command && size > commandLimit {
		return f, 0, errFrameSize
	}
	if n = head + int(size); len(b) < n {
		return f, 0, nil
	}
	f.body = b[head:n]
	return f, n, nil
}

// readCommand takes the body of a command apart.
func readCommand(body []byte) (name string, data []byte, err error) {
	if len(body) == 0 || len(body) < 1+int(body[0]) {
		return "", nil, errCommand
	}
	end := 1 + int(body[0])
	return string(body[1:end]), body[end:], nil
}

// appendCommand appends a command of less than 256 bytes, frame and all.
func appendCommand(dst []byte, name string, data ...byte) []byte {
	dst = append(dst, flagCommand, byte(1+len(name)+len(data)), byte(len(name)))
	dst = append(dst, name...)
	return append(dst, data...)
}

// readyCommand is our half of the NULL handshake.
var readyCommand = appendCommand(nil, "READY", []byte("\x0bSocket-Type\x00\x00\x00\x03SUB")...)

// checkReady looks whether the peer's half is that of a publisher.
func checkReady(body []byte) error {
	name, data, err := readCommand(body)
	switch {
	case err != nil:
		return err
	case name == "ERROR":
		return refusal(data)
	case name != "READY":
		return errHandshake
	}
	for len(data) > 0 {
		key, value, rest, ok := readProperty(data)
		if !ok {
			return errCommand
		}
		if data = rest; bytes.EqualFold(key, []byte("Socket-Type")) && string(value) != "PUB" && string(value) != "XPUB" {
			return fmt.Errorf("zmqsub: peer is a %q socket, not a PUB", clip(value))
		}
	}
	return nil
}

// refusal is the error of a peer's ERROR command.
func refusal(data []byte) error {
	return fmt.Errorf("zmqsub: peer refuses: %q", clip(data[min(1, len(data)):]))
}

// clip keeps what a peer said short enough for a log line.
func clip(b []byte) []byte { return b[:min(64, len(b))] }

// readProperty reads a property of a READY command off the front of b.
func readProperty(b []byte) (key, value, rest []byte, ok bool) {
	if len(b) == 0 || len(b) < 1+int(b[0])+4 {
		return nil, nil, nil, false
	}
	key, b = b[1:][:b[0]], b[1+int(b[0]):]
	size := binary.BigEndian.Uint32(b)
	if b = b[4:]; uint64(size) > uint64(len(b)) {
		return nil, nil, nil, false
	}
	return key, b[:size], b[size:], true
}

// subscribeToAll asks the peer, of that minor version, for everything.
func subscribeToAll(minor byte) []byte {
	if minor == 0 {
		return []byte{0, 1, 1} // a message
	}
	return appendCommand(nil, "SUBSCRIBE")
}

const (
	pingHead   = 2  // time to live, in tenths of a second; 0 = none
	pingLimit  = 16 // bytes of context that come back in the pong
	pingMinor  = 1  // the first version with heartbeats
	pingLength = pingHead + pingLimit
)

var pingCommand = appendCommand(nil, "PING", 0, 0)

// answer returns what a command that came after the handshake is answered with;
// nil if with nothing, as one is that we do not know.
func answer(body []byte) ([]byte, error) {
	name, data, err := readCommand(body)
	switch {
	case err != nil:
		return nil, err
	case name == "ERROR":
		return nil, refusal(data)
	case name != "PING":
		return nil, nil
	case len(data) < pingHead || len(data) > pingLength:
		return nil, errCommand
	}
	return appendCommand(nil, "PONG", data[pingHead:]...), nil
}
