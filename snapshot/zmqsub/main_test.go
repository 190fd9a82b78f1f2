package zmqsub

import (
	"testing"

	"go.uber.org/goleak"
)

// instead, if set, is what the test binary does instead of testing.
var instead func() (done bool)

func TestMain(m *testing.M) {
	if instead != nil && instead() {
		return
	}
	goleak.VerifyTestMain(m)
}
