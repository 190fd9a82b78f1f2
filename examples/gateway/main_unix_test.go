//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Such as a shell's <(decrypt gateway.json), where there is nothing to come.
func TestAConfigurationFromAPipeIsReadOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	var out log
	ended := make(chan error)
	go func() {
		ended <- run(ctx, []string{"-config", path, "-listen", "127.0.0.1:0", "-admin", "off"}, &out)
	}()
	if err := os.WriteFile(path, []byte(`{"workers": ["http://127.0.0.1:1"]}`), 0); err != nil {
		t.Fatal(err)
	}
	text := out.waitFor(t, "is not followed")
	end()
	if err := <-ended; err != nil || strings.Contains(text, "refused") {
		t.Errorf("ended with %v, and logged\n%s", err, text)
	}
}
