//go:build unix

package zmqsub

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

func TestMoreSubscriptionsThanDescriptorsAreRefusedByNew(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = 500
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}()
	for sockets, refused := range map[int]bool{500: true, 1000: true, 200: false, 0: false} {
		c := Config{MaxSockets: sockets}
		err := c.checkDescriptors()
		if errors.Is(err, ErrLimit) != refused || (err != nil) != refused {
			t.Errorf("%d subscriptions: %v", sockets, err)
		}
		if refused && !strings.Contains(err.Error(), "may have 500") {
			t.Errorf("%d subscriptions: %v", sockets, err)
		}
	}
	if s, err := New(Config{MaxSockets: 500}); !errors.Is(err, ErrLimit) {
		t.Errorf("New = %v, %v", s, err)
	}
}
