//go:build conformance

package conformance

import (
	"encoding/binary"
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pebbe/zmq4"
	"github.com/tinylib/msgp/msgp"
)

// frontend has the sockets of a front end that drives engines directly, as a host
// of this module would bind them: two ROUTERs, and a PULL for each client. It
// belongs to the goroutine of the test.
type frontend struct {
	t                *testing.T
	context          *zmq4.Context
	handshake, input *zmq4.Socket
	outputs          []*zmq4.Socket
}

// newFrontend binds the sockets of a front end with so many clients until the end
// of the test.
func newFrontend(t *testing.T, clients int) *frontend {
	t.Helper()
	context, err := zmq4.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	f := &frontend{t: t, context: context}
	var sockets []*zmq4.Socket
	t.Cleanup(func() {
		for _, s := range sockets {
			s.SetLinger(0)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := context.Term(); err != nil {
			t.Error(err)
		}
	})
	bind := func(kind zmq4.Type) *zmq4.Socket {
		s, err := context.NewSocket(kind)
		if err != nil {
			t.Fatal(err)
		}
		sockets = append(sockets, s)
		if err := errors.Join(s.SetRcvtimeo(arrivalTime), s.SetSndtimeo(arrivalTime), s.Bind("tcp://127.0.0.1:*")); err != nil {
			t.Fatal(err)
		}
		return s
	}
	f.handshake, f.input = bind(zmq4.ROUTER), bind(zmq4.ROUTER)
	for range clients {
		f.outputs = append(f.outputs, bind(zmq4.PULL))
	}
	return f
}

func (f *frontend) endpoint(s *zmq4.Socket) string {
	f.t.Helper()
	endpoint, err := s.GetLastEndpoint()
	if err != nil {
		f.t.Fatal(err)
	}
	return endpoint
}

// receive returns the frames of the next message.
func (f *frontend) receive(s *zmq4.Socket) [][]byte {
	f.t.Helper()
	for {
		frames, err := s.RecvMessageBytes(0)
		switch {
		case err == nil:
			return frames
		case zmq4.AsErrno(err) == zmq4.Errno(syscall.EINTR):
		default:
			f.t.Fatalf("nothing within %v: %v", arrivalTime, err)
		}
	}
}

func (f *frontend) send(s *zmq4.Socket, frames ...[]byte) {
	f.t.Helper()
	if _, err := s.SendMessage(frames); err != nil {
		f.t.Fatal(err)
	}
}

// quiet checks that nothing more has been received so far.
func (f *frontend) quiet(s *zmq4.Socket) {
	f.t.Helper()
	if frames, err := s.RecvMessageBytes(zmq4.DONTWAIT); err == nil {
		f.t.Fatalf("a message nobody waits for: %x", frames)
	}
}

func identity(index int) []byte { return binary.LittleEndian.AppendUint16(nil, uint16(index)) }

// welcome shakes hands with the engine of that index, and returns what it says of
// itself when it registers.
func (f *frontend) welcome(index int) map[string]any {
	f.t.Helper()
	status := func(want string) {
		frames := f.receive(f.handshake)
		if len(frames) != 2 || !slices.Equal(frames[0], identity(index)) {
			f.t.Fatalf("%s: frames %x, want the identity %x", want, frames, identity(index))
		}
		m := decodeMap(f.t, frames[1])
		if m["status"] != want || m["local"] != true || m["headless"] != true {
			f.t.Fatalf("%v, want the status %s", m, want)
		}
	}
	status("HELLO")
	init, err := msgp.AppendIntf(nil, map[string]any{
		"addresses": map[string]any{
			"inputs": []string{f.endpoint(f.input)}, "outputs": []string{f.endpoint(f.outputs[0])},
			"coordinator_input": nil, "coordinator_output": nil, "frontend_stats_publish_address": nil,
		},
		"parallel_config": map[string]any{},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.send(f.handshake, identity(index), init)
	status("READY")
	frames := f.receive(f.input)
	if len(frames) != 2 || !slices.Equal(frames[0], identity(index)) {
		f.t.Fatalf("registration: frames %x, want the identity %x", frames, identity(index))
	}
	return decodeMap(f.t, frames[1])
}

func decodeMap(t *testing.T, b []byte) map[string]any {
	t.Helper()
	m, rest, err := msgp.ReadMapStrIntfBytes(b, nil)
	if err != nil || len(rest) != 0 {
		t.Fatalf("%x: %v, %d bytes left", b, err, len(rest))
	}
	return m
}

// during runs what answers the engine while the engine carries out a command.
func (e *engine) during(op string, command map[string]any, answer func()) {
	e.t.Helper()
	done := make(chan error, 1)
	go func() { done <- e.do(op, command, nil) }()
	answer()
	select {
	case err := <-done:
		if err != nil {
			e.t.Fatal(err)
		}
	case <-time.After(answerTime):
		e.t.Fatalf("engine: %s: no answer", op)
	}
}
