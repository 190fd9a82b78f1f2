//go:build unix

package discovery

import (
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestNamedPipeIsNoFileAndHoldsNobodyUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engines")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skipf("no named pipes here: %v", err)
	}
	if _, err := readSettled(path, io.ReadAll); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
}
