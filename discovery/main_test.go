package discovery

import (
	"bytes"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// advance lets time pass in the bubble of a synctest, and everything that then
// happens happen.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// logBuffer keeps what is logged, for a test to read meanwhile.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
