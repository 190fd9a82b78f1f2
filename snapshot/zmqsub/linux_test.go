//go:build cgo && linux

package zmqsub

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	zmq "github.com/pebbe/zmq4"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// The runtime's poller has descriptors of its own, from its first use on: before
// any test counts them.
func init() {
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
}

// entries counts what /proc lists of this process.
func entries(t testing.TB, dir string) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/" + dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// descriptorsBack waits until the process has as few descriptors as before.
func descriptorsBack(t testing.TB, before int) {
	t.Helper()
	eventually(t, "the descriptors to be closed", func() bool { return entries(t, "fd") <= before })
}

func TestClosingDoesNotWaitForDeadPeers(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	peers := int(min(1024, (limit.Cur-100)/2)) // each takes two descriptors
	if peers < 256 {
		t.Skipf("the descriptor limit of %d is too low", limit.Cur)
	}
	// Some refuse, some accept and say nothing, some let the SYN go unanswered
	// (192.0.2.0/24 is nobody's).
	refusing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing.Close()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	endpoints := []string{"tcp://" + refusing.Addr().String(), "tcp://" + mute.Addr().String(), "tcp://192.0.2.1:5557"}

	descriptors, threads := entries(t, "fd"), entries(t, "task")
	s := newSubscriber(t, Config{Silence: 100 * time.Millisecond, ReconnectMax: 100 * time.Millisecond})
	start := time.Now()
	for i := range peers {
		subscribe(t, s, endpoints[i%len(endpoints)], func(snapshot.Delivery) {})
	}
	subscribed := time.Now()
	// All of them have been replaced at least once: the closing is in the thick
	// of it.
	eventually(t, "fresh connections", func() bool { return s.Stats().Reconnects >= uint64(peers) })
	if n := entries(t, "task") - threads; n > 32 {
		t.Errorf("%d more threads for %d sockets", n, peers)
	}
	closing := time.Now()
	closeSubscriber(t, s)
	t.Logf("%d dead peers: subscribed in %v, closed in %v", peers, subscribed.Sub(start), time.Since(closing))
	descriptorsBack(t, descriptors)
}

func TestStoppedSubscriptionsGiveTheirDescriptorsBack(t *testing.T) {
	s := newSubscriber(t, Config{})
	descriptors := entries(t, "fd")
	for range 20 {
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				stop, err := s.Subscribe(fmt.Sprintf("tcp://127.0.0.1:%d", i+1), func(snapshot.Delivery) {})
				if err != nil {
					t.Error(err)
					return
				}
				stop()
			})
		}
		wg.Wait()
	}
	descriptorsBack(t, descriptors)
}

func TestHandshakesThatFailLeaveNothingBehind(t *testing.T) {
	if !zmq.HasCurve() {
		t.Skip("libzmq was built without CURVE")
	}
	const ranks = 16
	server, other := newKeys(t), newKeys(t)
	ctx := newContext(t)
	curve, plain := publishCurve(t, ctx, "tcp://127.0.0.1:*", server), publish(t, ctx, "tcp://127.0.0.1:*")
	for name, test := range map[string]struct {
		keys *Curve
		peer *publisher
	}{
		"the key is another's": {&Curve{ServerKey: other.public}, curve},
		"we have no key":       {nil, curve},
		"the peer has none":    {&Curve{ServerKey: server.public}, plain},
	} {
		t.Run(name, func(t *testing.T) {
			descriptors := entries(t, "fd")
			s := newSubscriber(t, Config{Silence: 10 * time.Millisecond, ReconnectMax: 10 * time.Millisecond, Curve: test.keys})
			for range ranks {
				subscribe(t, s, test.peer.endpoint, func(snapshot.Delivery) {})
			}
			eventually(t, "fresh connections", func() bool { return s.Stats().Reconnects >= 4*ranks })
			// A socket, and a connection with both its ends in this process; what has
			// just been closed lingers.
			eventually(t, "the closed ones to go", func() bool { return entries(t, "fd")-descriptors <= 4*ranks })
			closeSubscriber(t, s)
			descriptorsBack(t, descriptors)
		})
	}
}

func TestOutOfDescriptorsSubscribeSaysSo(t *testing.T) {
	p := publish(t, newContext(t), "tcp://127.0.0.1:*")
	mute, err := net.Listen("tcp", "127.0.0.1:0") // connections to it stay, and cost it nothing
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	s := newSubscriber(t, Config{})
	var in inbox
	subscribe(t, s, p.endpoint, in.deliver)
	p.await()

	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = uint64(entries(t, "fd") + 20)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	restore := sync.OnceFunc(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	})
	defer restore()
	for range 100 {
		if _, err = s.Subscribe("tcp://"+mute.Addr().String(), func(snapshot.Delivery) {}); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrLimit) {
		t.Errorf("Subscribe: %v, want ErrLimit", err)
	}
	if _, err := New(Config{}); err == nil {
		t.Error("New found descriptors where there are none")
	}
	p.send(message(1))
	eventually(t, "the subscription that was there before", in.has(1))
	restore()
	subscribe(t, s, "tcp://127.0.0.1:1", func(snapshot.Delivery) {})
}

func TestNewWithHardlyADescriptorLeftFailsAndNothingWorse(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = uint64(entries(t, "fd") + 40)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}()
	for free := range 12 {
		var held []*os.File
		for {
			f, err := os.Open(os.DevNull)
			if err != nil {
				break
			}
			held = append(held, f)
		}
		for _, f := range held[:free] {
			f.Close()
		}
		s, err := New(Config{Owners: 1, Libzmq: true})
		for _, f := range held[free:] {
			f.Close()
		}
		if !errors.Is(err, ErrLimit) {
			t.Errorf("with %d descriptors: New = %v, %v, want ErrLimit", free, s, err)
		}
	}
}
