package zmqsub

import (
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// patience bounds every wait of these tests. It only has to be longer than any
// machine takes; nothing is concluded from how long something took.
const patience = 60 * time.Second

// eventually waits for a condition.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// overLibzmq has newSubscriber go over libzmq also where there is another way; see
// TestAllTheSameOverLibzmq.
var overLibzmq = false

// newSubscriber returns a subscriber that is closed with the test. It gives no peer up for
// want of patience unless the test says when: on a machine that stands still for some
// seconds nobody speaks in time.
func newSubscriber(t testing.TB, c Config) *Subscriber {
	t.Helper()
	for _, d := range []*time.Duration{&c.Silence, &c.ConnectTimeout, &c.HeartbeatInterval, &c.HeartbeatTimeout} {
		if *d == 0 {
			*d = time.Hour
		}
	}
	c.Libzmq = c.Libzmq || overLibzmq
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSubscriber(t, s) })
	return s
}

// closeSubscriber fails the test if Close does not come back.
func closeSubscriber(t testing.TB, s *Subscriber) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Close() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("Close hangs")
	}
	checkBooks(t, s.Stats().Counts)
}

func subscribe(t testing.TB, s *Subscriber, endpoint string, deliver func(snapshot.Delivery)) (stop func()) {
	t.Helper()
	stop, err := s.Subscribe(endpoint, deliver)
	if err != nil {
		t.Fatal(err)
	}
	return stop
}

func (i *inbox) has(seq int64) func() bool {
	return func() bool {
		r, ok := i.last()
		return ok && r.Seq == seq
	}
}
