package discovery

import (
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
