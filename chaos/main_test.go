//go:build chaos && linux

// A socket of multipath TCP takes no filter, and Go's listeners are such unless
// told otherwise.
//go:debug multipathtcp=0

package chaos

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is for what happens sooner or later or, where there is a bug, never.
const patience = time.Minute

// eventually waits until there is no error any more.
func eventually(t testing.TB, what string, unmet func() error) {
	t.Helper()
	within(t, patience, what, unmet)
}

func within(t testing.TB, limit time.Duration, what string, unmet func() error) {
	t.Helper()
	for deadline := awake.now().Add(limit); ; time.Sleep(2 * time.Millisecond) {
		late := awake.now().After(deadline) // before it is looked at for the last time
		err := unmet()
		if err == nil {
			return
		}
		if late {
			t.Fatalf("waited for %v in vain for %s: %v", limit, what, err)
		}
	}
}

// leavesNothing checks that at the end of the test, when all is cleaned up, there
// are no more goroutines and descriptors than now.
func leavesNothing(t testing.TB) {
	t.Helper()
	// The runtime's own descriptor for waiting comes with the first socket.
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		l.Close()
	}
	before := descriptors(t)
	known := []goleak.Option{
		goleak.IgnoreCurrent(),
		// A connection that ends elsewhere than where it is read leaves goroutines of
		// its link waiting for ever.
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).write"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
		goleak.IgnoreAnyFunction("github.com/plimsoll-go/plimsoll/chaos.(*valve).Pipe.func1"),
	}
	t.Cleanup(func() {
		eventually(t, "the goroutines to end", func() error { return goleak.Find(known...) })
		eventually(t, "the descriptors to be closed", func() error {
			if n := descriptors(t); n > before {
				return fmt.Errorf("%d, and there were %d", n, before)
			}
			return nil
		})
	})
}

func contains(s, part string) bool { return strings.Contains(s, part) }

func descriptors(t testing.TB) int {
	t.Helper()
	listening.Lock() // no copies now
	defer listening.Unlock()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
