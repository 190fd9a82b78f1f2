//go:build chaos && linux

package chaos

import (
	"sync"

	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// valve is a toxic that is in a link from the beginning and stands for another one,
// which can be changed at any time, also for connections that there are. It waits for
// none of them.
type valve struct {
	mu      sync.Mutex
	toxic   func() toxics.Toxic
	changed chan struct{} // closed when toxic is
	births  int
	frozen  int // those born before stand still
}

// hold makes toxics that pass nothing on and read nothing, so that whoever sends
// notices a full window at most.
func hold() toxics.Toxic { return nil }

// pass makes toxics that pass everything on.
func pass() toxics.Toxic { return new(toxics.NoopToxic) }

func (v *valve) set(toxic func() toxics.Toxic) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.toxic, v.frozen = toxic, 0
	v.changeLocked()
}

// freeze holds what there is on the connections that there are, and passes on what
// comes on new ones.
func (v *valve) freeze() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.toxic, v.frozen = pass, v.births
	v.changeLocked()
}

func (v *valve) changeLocked() {
	if v.changed != nil {
		close(v.changed)
	}
	v.changed = make(chan struct{})
}

// now returns the toxic for a connection, and what tells when it is another.
func (v *valve) now(born int) (toxics.Toxic, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.changed == nil {
		v.toxic, v.changed = pass, make(chan struct{})
	}
	if born < v.frozen {
		return nil, v.changed
	}
	return v.toxic(), v.changed
}

// Pipe is called once for each direction of a connection.
func (v *valve) Pipe(outer *toxics.ToxicStub) {
	v.mu.Lock()
	born := v.births
	v.births++
	v.mu.Unlock()
	for {
		toxic, changed := v.now(born)
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
