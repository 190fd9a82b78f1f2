//go:build unix

package gateway

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Nobody will ever write to it, and the gateway has to end nevertheless.
func TestAPipeInThePlaceOfTheFileHoldsNobodyUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.json")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	g := unwired(t, Config{})
	defer g.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.Follow(ctx, path, nil, func([]byte) (Config, error) {
			t.Error("read")
			return Config{}, nil
		})
	}()
	waitFor(t, "it to be refused", func() bool { _, err := g.reloads.newest(); return err != nil })
	if _, err := g.reloads.newest(); !strings.Contains(err.Error(), "no regular file") {
		t.Error(err)
	}
	cancel()
	<-ended
}
