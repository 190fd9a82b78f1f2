package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/plimsoll-go/plimsoll/discovery"
)

// told names its engines when it is let. Like a file whose reading is being logged, it may
// say in its status that it has done so a little before.
type told struct {
	discovery.StatusSource
	let chan struct{}
}

func (s told) Run(ctx context.Context, emit func([]discovery.Worker)) error {
	return s.StatusSource.Run(ctx, func(set []discovery.Worker) {
		select {
		case <-s.let:
			emit(set)
		case <-ctx.Done():
		}
	})
}

// runReplaceable returns what is emitted, in a bubble.
func runReplaceable(t *testing.T, r *replaceable) (news func() string) {
	var sets string
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- r.Run(ctx, func(set []discovery.Worker) {
			for _, w := range set {
				sets += w.URL + " "
			}
			sets += "; "
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
	return func() (s string) {
		synctest.Wait()
		s, sets = sets, ""
		return s
	}
}

// Whichever of its new lists is read first, an engine that is on one of them is not gone.
func TestNothingIsTakenAwayBeforeAllNewListsAreRead(t *testing.T) {
	for first := range 2 {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				static := func(urls ...string) discovery.StatusSource {
					return discovery.Static(urls...).(discovery.StatusSource)
				}
				r := newReplaceable(merge([]discovery.StatusSource{static("a", "b")}))
				news := runReplaceable(t, r)
				if got := news(); got != "a b ; " {
					t.Errorf("at first: %q", got)
				}
				lists := []told{{static("a"), make(chan struct{})}, {static("b", "c"), make(chan struct{})}}
				r.replace(merge([]discovery.StatusSource{lists[0], lists[1]}))
				if got := news(); got != "" {
					t.Errorf("with no new list: %q", got)
				}
				close(lists[first].let)
				if got := news(); got != "" {
					t.Errorf("with one of two lists: %q", got)
				}
				close(lists[1-first].let)
				if got := news(); got != "a b c ; " {
					t.Errorf("with both: %q", got)
				}
				r.replace(merge([]discovery.StatusSource{static("c")}))
				if got := news(); got != "c ; " {
					t.Errorf("with another one: %q", got)
				}
			})
		})
	}
}
