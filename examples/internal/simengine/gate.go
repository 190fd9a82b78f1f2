package simengine

import "sync"

// gate counts who is inside, and can be shut. It is a WaitGroup that can be joined
// while it is being waited for.
type gate struct {
	mu   sync.Mutex
	shut bool
	in   sync.WaitGroup
}

// enter reports whether the gate is open; if so, leave must be called.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.in.Add(1)
	return true
}

func (g *gate) leave() { g.in.Done() }

// close shuts the gate and waits until everyone has left.
func (g *gate) close() {
	g.mu.Lock()
	g.shut = true
	g.mu.Unlock()
	g.in.Wait()
}
