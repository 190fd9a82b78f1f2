package zmqsub

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// peerGreeting is what a peer may say first.
func peerGreeting(major, minor byte, mechanism string) []byte {
	g := make([]byte, greetingSize)
	g[0], g[8], g[9], g[10], g[11] = 0xff, 1, 0x7f, major, minor // libzmq has 1 for the length of a name
	copy(g[12:], mechanism)
	return g
}

func TestGreetingIsUnderstoodOrRefusedAsSoonAsItCanBe(t *testing.T) {
	for _, test := range []struct {
		name     string
		greeting []byte
		minor    byte
		refused  int // after so many bytes; 0: it is not
	}{
		{"3.0", peerGreeting(3, 0, "NULL"), 0, 0},
		{"3.1", peerGreeting(3, 1, "NULL"), 1, 0},
		{"of the future", peerGreeting(4, 0, "NULL"), 1, 0},
		{"2.0", append([]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x02\x00\x00"), make([]byte, 50)...), 0, 11},
		{"1.0", append([]byte("\x01\x00"), make([]byte, 62)...), 0, 1},
		{"no signature", append([]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7e\x03\x00NULL"), make([]byte, 50)...), 0, 10},
		{"HTTP", []byte("HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat(" ", 64)), 0, 1},
		{"CURVE", peerGreeting(3, 1, "CURVE"), 0, greetingSize},
		{"no mechanism", peerGreeting(3, 1, ""), 0, greetingSize},
		{"NULL and more", peerGreeting(3, 1, "NULLE"), 0, greetingSize},
	} {
		for have := range greetingSize + 1 {
			minor, n, err := readGreeting(test.greeting[:have])
			switch refused := test.refused > 0 && have >= test.refused; {
			case (err != nil) != refused:
				t.Errorf("%s: after %d bytes: %v", test.name, have, err)
			case err == nil && have < greetingSize && n != 0:
				t.Errorf("%s: whole after %d bytes", test.name, have)
			case err == nil && have == greetingSize && (n != greetingSize || minor != test.minor):
				t.Errorf("%s: %d bytes, minor version %d", test.name, n, minor)
			}
		}
	}
	if minor, n, err := readGreeting(hello[:]); minor != 1 || n != greetingSize || err != nil {
		t.Errorf("our own: %d, %d, %v", minor, n, err)
	}
}

func TestFramesAreTakenOneByOne(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 300)
	var wire []byte
	wire = append(wire, 0, 0)
	wire = append(wire, "\x01\x03abc"...)
	wire = append(append(wire, "\x02\x00\x00\x00\x00\x00\x00\x01\x2c"...), long...)
	wire = append(wire, "\x04\x07\x04PING\x00\x00"...)
	want := []wireFrame{{body: []byte{}}, {body: []byte("abc"), more: true}, {body: long}, {body: []byte("\x04PING\x00\x00"), command: true}}
	for cut := range len(wire) {
		var got []wireFrame
		for at := 0; ; {
			f, n, err := readFrame(wire[at:cut+1], 300)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
			got = append(got, f)
			at += n
		}
		if cut+1 == len(wire) && len(got) != len(want) {
			t.Errorf("%d frames", len(got))
		}
		for i, f := range got {
			if !bytes.Equal(f.body, want[i].body) || f.more != want[i].more || f.command != want[i].command {
				t.Errorf("frame %d of the first %d bytes: %+v", i, cut+1, f)
			}
		}
	}
}

func TestFrameThatCannotBeIsRefusedByItsHead(t *testing.T) {
	for name, test := range map[string]struct {
		wire string
		want error
	}{
		"unknown flag":       {"\x08", errFlags},
		"all flags":          {"\xff", errFlags},
		"command with more":  {"\x05", errFlags},
		"too large":          {"\x02\x00\x00\x00\x00\x00\x00\x00\xc9", errFrameSize},
		"2^62 bytes":         {"\x02\x40\x00\x00\x00\x00\x00\x00\x00", errFrameSize},
		"2^64-1 bytes":       {"\x02\xff\xff\xff\xff\xff\xff\xff\xff", errFrameSize},
		"too large, shortly": {"\x00\xc9", errFrameSize},
	} {
		if _, _, err := readFrame([]byte(test.wire), 200); err != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCommandsAreSmall(t *testing.T) {
	head := func(size uint64) []byte {
		return binary.BigEndian.AppendUint64([]byte{flagCommand | flagLong}, size)
	}
	if _, _, err := readFrame(head(commandLimit), 1<<20); err != nil {
		t.Error(err)
	}
	if _, _, err := readFrame(head(commandLimit+1), 1<<20); err != errFrameSize {
		t.Errorf("got %v", err)
	}
}

func TestWhatAPeerSaysIsClipped(t *testing.T) {
	long := strings.Repeat("\x00", commandLimit-100)
	property := binary.BigEndian.AppendUint32([]byte("\x05READY\x0bSocket-Type"), uint32(len(long)))
	_, later := answer([]byte("\x05ERROR\xff" + long))
	for _, err := range []error{checkReady([]byte("\x05ERROR\xff" + long)), checkReady(append(property, long...)), later} {
		if err == nil || len(err.Error()) > 500 {
			t.Errorf("%.1000v", err)
		}
	}
}

func TestOnlyAPublisherIsReady(t *testing.T) {
	property := func(key, value string) string {
		return string(append(binary.BigEndian.AppendUint32([]byte(string(rune(len(key)))+key), uint32(len(value))), value...))
	}
	for name, test := range map[string]struct {
		body string
		want string // in the error; "" = none
	}{
		"PUB":                {"\x05READY" + property("Socket-Type", "PUB"), ""},
		"XPUB":               {"\x05READY" + property("Socket-Type", "XPUB") + property("Identity", ""), ""},
		"key in lower case":  {"\x05READY" + property("socket-type", "PUB"), ""},
		"nothing said":       {"\x05READY", ""},
		"DEALER":             {"\x05READY" + property("Socket-Type", "DEALER"), `"DEALER"`},
		"refusal":            {"\x05ERROR\x02no", `refuses: "no"`},
		"refusal, unfounded": {"\x05ERROR", `refuses: ""`},
		"another command":    {"\x04PING\x00\x00", "handshake"},
		"no name":            {"", "broken"},
		"name cut short":     {"\x05REA", "broken"},
		"property cut short": {"\x05READY\x0bSocket", "broken"},
		"value cut short":    {"\x05READY\x01x\xff\xff\xff\xffPUB", "broken"},
	} {
		err := checkReady([]byte(test.body))
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPingIsAnsweredWithItsContext(t *testing.T) {
	for name, test := range map[string]struct {
		body, want string
		broken     bool
	}{
		"ping":             {"\x04PING\x00\x00", "\x04\x05\x04PONG", false},
		"with context":     {"\x04PING\x00\x0aabc", "\x04\x08\x04PONGabc", false},
		"longest context":  {"\x04PING\x00\x0a0123456789abcdef", "\x04\x15\x04PONG0123456789abcdef", false},
		"too long context": {"\x04PING\x00\x0a0123456789abcdefg", "", true},
		"no time to live":  {"\x04PING\x00", "", true},
		"pong":             {"\x04PONG", "", false},
		"unknown":          {"\x03XYZ!", "", false},
		"error":            {"\x05ERROR\x00", "", true},
		"nothing":          {"", "", true},
	} {
		reply, err := answer([]byte(test.body))
		if string(reply) != test.want || (err != nil) != test.broken {
			t.Errorf("%s: %q, %v", name, reply, err)
		}
	}
}

// FuzzFrames looks for bytes that make the frames depend on how they arrived.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x01\x00\x01\x08\x00\x00\x00\x00\x00\x00\x00\x07\x00\x02ab"), byte(3))
	f.Add([]byte("\x04\x07\x04PING\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01x"), byte(1))
	f.Add(append(readyCommand, 0x08), byte(200))
	f.Fuzz(func(t *testing.T, wire []byte, step byte) {
		const limit = 1000
		type piece struct {
			body          string
			more, command bool
		}
		read := func(step int) (got []piece, broken error) {
			at := 0
			for have := 0; have < len(wire); {
				have = min(have+step, len(wire))
				for {
					f, n, err := readFrame(wire[at:have], limit)
					if err != nil {
						return got, err
					}
					if n == 0 {
						break
					}
					if n > limit+9 {
						t.Fatalf("a frame of %d bytes", n)
					}
					at += n
					got = append(got, piece{string(f.body), f.more, f.command})
					if f.command {
						answer(f.body)
						checkReady(f.body)
					}
				}
			}
			return got, nil
		}
		once, err := read(len(wire) + 1)
		pieces, perr := read(int(step) + 1)
		if !errors.Is(perr, err) || len(once) != len(pieces) {
			t.Fatalf("%d frames, %v; in pieces %d, %v", len(once), err, len(pieces), perr)
		}
		for i := range once {
			if once[i] != pieces[i] {
				t.Errorf("frame %d: %+v, in pieces %+v", i, once[i], pieces[i])
			}
		}
	})
}
