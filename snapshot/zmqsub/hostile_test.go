//go:build cgo && linux && (amd64 || arm64 || arm || loong64 || ppc64le || riscv64)

package zmqsub

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// flood is what a publisher may pour over its subscriber.
type flood struct {
	name  string
	what  []byte
	cause error // that the connection is given up for; nil: it is not
	early error // the same, where frames are seen before their message is whole
	once  bool  // said once, and then nothing more
}

func floods() []flood {
	whole := func(payload []byte) []byte {
		return append(append(frame(true, nil), frame(true, make([]byte, 8))...), frame(false, payload)...)
	}
	const most = oversize * snapshot.MaxPayload
	return []flood{
		{"empty frames without end", bytes.Repeat([]byte{1, 0}, 32<<10), snapshot.ErrEndless, snapshot.ErrFrameCount, false},
		{"small frames without end", bytes.Repeat(frame(true, make([]byte, 34)), 1<<10), snapshot.ErrEndless, snapshot.ErrFrameCount, false},
		{"large frames without end", frame(true, make([]byte, most)), snapshot.ErrEndless, snapshot.ErrPayloadSize, false},
		{"messages of a thousand frames", append(bytes.Repeat([]byte{1, 0}, 1000), 0, 0), snapshot.ErrFrameCount, snapshot.ErrFrameCount, false},
		{"messages too large", whole(make([]byte, most)), snapshot.ErrPayloadSize, snapshot.ErrPayloadSize, false},
		{"large messages", whole(make([]byte, snapshot.MaxPayload)), nil, nil, false},
		{"small messages", bytes.Repeat(whole(payload(1)), 1<<10), nil, nil, false},
		{"subscriptions", bytes.Repeat([]byte("\x04\x0a\x09SUBSCRIBE"), 1<<10), nil, nil, false},
		{"most of a message", append(frame(true, make([]byte, most/2)), frame(false, make([]byte, most/2))[:most/2]...), nil, nil, true},
	}
}

// hostileEnv makes the test binary a subscriber of hostile publishers, so that
// the memory is its own: "number-of-publishers times flood, over transport".
const hostileEnv = "ZMQSUB_HOSTILE"

func init() {
	instead = append(instead, func() bool {
		spec := os.Getenv(hostileEnv)
		if spec == "" {
			return false
		}
		if err := sufferFlood(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return true
	})
}

// sufferFlood listens to publishers that pour, besides one that does not, and
// prints how much larger than at the start the process has ever been, in KiB.
func sufferFlood(spec string) error {
	spec, over, _ := strings.Cut(spec, ", over ")
	count, name, _ := strings.Cut(spec, " times ")
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(floods(), func(f flood) bool { return f.name == name })
	if i < 0 {
		return fmt.Errorf("no flood of %s", name)
	}
	f := floods()[i]
	if over != libzmqFloods {
		f.cause = f.early
	}
	serve := pour(f.what)
	if f.once {
		serve = func(c net.Conn) {
			if introduce(c) == nil {
				blurt(f.what)(c)
			}
		}
	}
	peer, err := listenRaw(serve)
	if err != nil {
		return err
	}
	defer peer.close()
	honest, err := listenRaw(speak)
	if err != nil {
		return err
	}
	defer honest.close()
	// Their silence alone shall not end the floods, nor that of a machine that is busy: a
	// libzmq whose heartbeat ends a connection while its queue is full may abort the
	// process ("Assertion failed: _input_stopped").
	s, err := New(Config{
		Silence: time.Hour, ConnectTimeout: time.Hour, HeartbeatInterval: time.Hour, HeartbeatTimeout: time.Hour,
		Libzmq: over == libzmqFloods,
	})
	if err != nil {
		return err
	}
	start, err := peakMemory()
	if err != nil {
		return err
	}
	var in inbox
	if _, err := s.Subscribe(honest.endpoint(), in.deliver); err != nil {
		return err
	}
	for range n {
		if _, err := s.Subscribe(peer.endpoint(), func(snapshot.Delivery) {}); err != nil {
			return err
		}
	}
	ended := func() bool { return s.Stats().Dropped[snapshot.Reason(f.cause)] >= uint64(n) }
	if f.cause == nil {
		end := time.Now().Add(500 * time.Millisecond)
		ended = func() bool { return time.Now().After(end) }
	}
	heard := func() bool { return len(in.readings()) >= 10 } // the honest one is, meanwhile
	for deadline := time.Now().Add(patience); !ended() || !heard(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("honest publisher heard: %v, floods ended: %v; %+v", heard(), ended(), s.Stats())
		}
		time.Sleep(10 * time.Millisecond)
	}
	peak, err := peakMemory()
	if err != nil {
		return err
	}
	st := s.Stats()
	for _, e := range st.Endpoints {
		if e.Endpoint == honest.endpoint() && e.TotalDropped()+e.Reconnects > 0 {
			return fmt.Errorf("the honest publisher has suffered: %+v", e)
		}
	}
	if err := s.Close(); err != nil {
		return err
	}
	fmt.Println(peak-start, st.Messages, st.Dropped)
	return nil
}

// speak is an honest publisher.
func speak(c net.Conn) {
	if introduce(c) != nil {
		return
	}
	go io.Copy(io.Discard, c)
	for seq := int64(0); ; seq++ {
		var m []byte
		for i, f := range message(seq) {
			m = append(m, frame(i < 2, f)...)
		}
		if _, err := c.Write(m); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// peakMemory is VmHWM of this process in KiB.
func peakMemory() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			return strconv.ParseInt(f[1], 10, 64)
		}
	}
	return 0, fmt.Errorf("no VmHWM in %s", status)
}

// libzmqFloods is a transport of a subscriber of floods.
const libzmqFloods = "libzmq"

// How much comes in over libzmq before somebody looks depends on the machine; a
// gigabyte a second is usual. Without a bound it would be that for a minute.
func TestFloodsAreHeldInBoundedMemory(t *testing.T) {
	const mostOverLibzmq, most = 768 << 10, 64 << 10 // KiB
	needGauge(t)
	for i, f := range floods() {
		testFlood(t, fmt.Sprintf("16 times %s, over our own", f.name), most)
		if i == 0 {
			testFlood(t, fmt.Sprintf("1 times %s, over %s", f.name, libzmqFloods), mostOverLibzmq)
		}
		// What libzmq shows in time is no different.
		if errors.Is(f.cause, snapshot.ErrEndless) || f.cause == nil {
			testFlood(t, fmt.Sprintf("16 times %s, over %s", f.name, libzmqFloods), mostOverLibzmq)
		}
	}
}

func testFlood(t *testing.T, spec string, most int64) {
	t.Run(spec, func(t *testing.T) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), hostileEnv+"="+spec, "GORACE=atexit_sleep_ms=0")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, &stderr)
		}
		var kib int64
		if _, err := fmt.Sscan(string(out), &kib); err != nil {
			t.Fatalf("%v: %q", err, out)
		}
		t.Logf("%d MiB; messages and drops: %s", kib>>10, strings.TrimSpace(string(out)))
		if kib > most {
			t.Errorf("the process has grown by %d MiB, want at most %d", kib>>10, most>>10)
		}
	})
}
