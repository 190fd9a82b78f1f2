//go:build !cgo

package zmqsub

import (
	"errors"
	"testing"
)

func TestWithoutCgoNewSaysWhatIsMissing(t *testing.T) {
	s, err := New(Config{Libzmq: true})
	if s != nil || !errors.Is(err, ErrNoCgo) {
		t.Fatalf("New = %v, %v; want ErrNoCgo", s, err)
	}
}
