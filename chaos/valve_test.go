//go:build chaos && linux

package chaos

import (
	"maps"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// valve is a toxic that is in a link from the beginning and stands for another one,
// which can be changed at any time, also for connections that there are.
type valve struct {
	mu      sync.Mutex
	toxic   func() toxics.Toxic // nil: pass
	changed chan struct{}       // closed when toxic is
	births  int
	frozen  int          // those born before stand still
	old     map[int]bool // connections, by birth, that have not noticed the last change
	alive   map[int]bool
}

// hold makes toxics that pass nothing on and read nothing, so that whoever sends
// notices a full window at most.
func hold() toxics.Toxic { return nil }

// pass makes toxics that pass everything on.
func pass() toxics.Toxic { return new(toxics.NoopToxic) }

func (v *valve) set(toxic func() toxics.Toxic) { v.change(toxic, false) }

// freeze holds what there is on the connections that there are, and passes on what
// comes on new ones.
func (v *valve) freeze() { v.change(pass, true) }

// change returns when all connections have noticed. One that cannot write does not
// notice, and nobody will notice that.
func (v *valve) change(toxic func() toxics.Toxic, freeze bool) {
	v.mu.Lock()
	if v.toxic, v.frozen = toxic, 0; freeze {
		v.frozen = v.births
	}
	v.old = maps.Clone(v.alive)
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
	v.mu.Unlock()
	for deadline := awake.now().Add(time.Second); awake.now().Before(deadline); time.Sleep(time.Millisecond) {
		v.mu.Lock()
		n := len(v.old)
		v.mu.Unlock()
		if n == 0 {
			return
		}
	}
}

// born counts a connection.
func (v *valve) born() (birth int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.alive == nil {
		v.alive = make(map[int]bool)
	}
	birth = v.births
	v.births++
	v.alive[birth] = true
	return birth
}

func (v *valve) died(birth int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.alive, birth)
	delete(v.old, birth)
}

// now returns the toxic for a connection, and what tells when it is another.
func (v *valve) now(birth int) (toxics.Toxic, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.old, birth)
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	switch {
	case birth < v.frozen:
		return nil, v.changed
	case v.toxic == nil:
		return pass(), v.changed
	default:
		return v.toxic(), v.changed
	}
}

// Pipe is called once for each direction of a connection.
func (v *valve) Pipe(outer *toxics.ToxicStub) {
	birth := v.born()
	defer v.died(birth)
	for {
		toxic, changed := v.now(birth)
		if toxic == nil {
			<-changed
			continue
		}
		stub := toxics.NewToxicStub(outer.Input, outer.Output)
		if stateful, ok := toxic.(toxics.StatefulToxic); ok {
			stub.State = stateful.NewState()
		}
		returned := make(chan struct{})
		go func() {
			select {
			case <-changed:
				select {
				case stub.Interrupt <- struct{}{}:
				case <-returned:
				}
			case <-returned:
			}
		}()
		toxic.Pipe(stub)
		close(returned)
		if stub.Closed() {
			return
		}
	}
}

func init() {
	toxics.Register("valve", new(valve))
	zerolog.SetGlobalLevel(zerolog.Disabled) // some toxics log for themselves
}
