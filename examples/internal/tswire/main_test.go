package tswire

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds a wait for something that must happen. Nothing is concluded from
// its length.
const patience = time.Minute

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func listen(t *testing.T, config FrontendConfig) *Frontend {
	t.Helper()
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	f, err := Listen(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// group is a frontend whose ranks have all dialled in.
func group(t *testing.T, config FrontendConfig) (*Frontend, []*Conn) {
	t.Helper()
	f := listen(t, config)
	conns := make([]*Conn, f.config.Ranks)
	dialled := make(chan error, len(conns))
	for rank := range conns {
		go func() {
			var err error
			conns[rank], err = Dial(testContext(t), DialConfig{
				Handshake:   f.Endpoint(),
				EngineIndex: config.FirstIndex + rank,
				Ready:       Ready{Model: "m", Rank: int64(rank), Ranks: int64(len(conns)), KVPages: 100, PageTokens: 64},
				Logger:      f.config.Logger,
			})
			dialled <- err
		}()
	}
	said, err := f.Accept(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for range conns {
		if err := <-dialled; err != nil {
			t.Fatal(err)
		}
	}
	for rank, c := range conns {
		t.Cleanup(func() { c.Kill() })
		if want := (Ready{Model: "m", Rank: int64(rank), Ranks: int64(len(conns)), KVPages: 100, PageTokens: 64}); said[rank] != want {
			t.Errorf("rank %d says %+v, want %+v", rank, said[rank], want)
		}
	}
	return f, conns
}

// serve has messages received until the end of the test.
func serve(t *testing.T, f *Frontend) <-chan [][]byte {
	t.Helper()
	messages := make(chan [][]byte, 100)
	done := make(chan error, 1)
	go func() { done <- f.Serve(func(frames [][]byte) { messages <- frames }) }()
	t.Cleanup(func() {
		f.Close()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return messages
}

func next(t *testing.T, messages <-chan [][]byte) [][]byte {
	t.Helper()
	select {
	case frames := <-messages:
		return frames
	case <-time.After(patience):
		t.Fatal("no message")
		return nil
	}
}
