package zmqsub

import (
	"testing"

	"go.uber.org/goleak"
)

// instead are what the test binary may do instead of testing.
var instead []func() (done bool)

func TestMain(m *testing.M) {
	for _, f := range instead {
		if f() {
			return
		}
	}
	goleak.VerifyTestMain(m)
}
