package simengine

import (
	"context"
	"sync"
)

// ice holds up the requests of a frozen life.
type ice struct {
	mu   sync.Mutex
	thaw chan struct{} // nil = not frozen
}

func (i *ice) set(frozen bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case frozen && i.thaw == nil:
		i.thaw = make(chan struct{})
	case !frozen && i.thaw != nil:
		close(i.thaw)
		i.thaw = nil
	}
}

// wait returns when the life is not frozen, with false if ctx ended first.
func (i *ice) wait(ctx context.Context) bool {
	for {
		i.mu.Lock()
		thaw := i.thaw
		i.mu.Unlock()
		if thaw == nil {
			return true
		}
		select {
		case <-thaw:
		case <-ctx.Done():
			return false
		}
	}
}
