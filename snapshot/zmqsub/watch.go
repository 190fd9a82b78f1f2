package zmqsub

import (
	"math"
	"net/netip"
	"time"
)

// libzmq shows a message once all its frames are there, and its high-water mark
// counts whole messages. So a peer whose message never ends fills our memory, as
// fast as the network and libzmq's thread can go (a gigabyte a second), and to the
// owner of its socket it looks like one that says nothing.
//
// Watching every connection for that would cost more than all messages do. What
// is watched is the memory of the process. When that has grown by a good deal,
// the connections are audited: who has sent bytes for a while and finished no
// message with them? That memory may have grown for any other reason does no
// harm: an audit of honest peers finds nobody.

const (
	watchEvery = 20 * time.Millisecond

	// growth is what makes an audit due.
	growth = 64 << 20

	// settleTime is how long a message may take from the network to its owner.
	settleTime = 5 * time.Millisecond

	// freeTime is how long libzmq may take to free what a closed socket held.
	freeTime = time.Second

	// handshake is more bytes than it takes a peer to introduce itself, in plain or
	// with CURVE.
	handshake = 1 << 10
)

// audits are made one after another, until one finds somebody. The first is for
// one peer that is fast, the second for many that are not. Frames without content
// cost 32 bytes of memory for one read, so that whoever passes the second gets
// 1 MiB before its silence costs it the connection in any case. A peer with nothing
// to say sends heartbeats, of some ten bytes each.
var audits = [...]struct {
	time  time.Duration
	bytes uint64 // read in that time, without a whole message, are too many
}{
	{25 * time.Millisecond, 1 << 10},
	{250 * time.Millisecond, 128},
}

// watch has the connections audited when memory grows, until the last owner has
// gone.
func (s *Subscriber) watch(g gauge) {
	defer close(s.watched)
	defer g.close()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	low := int64(math.MaxInt64) // what growth counts from
	var freeing time.Time       // until then memory is given up; zero = it is not
	for {
		select {
		case <-tick.C:
		case <-s.gone:
			return
		}
		if !freeing.IsZero() && time.Now().After(freeing) {
			freeing = time.Time{}
			g.trim()
		}
		memory, err := g.memory()
		if err != nil {
			return // the silence of such a peer is still noticed, only later
		}
		low = min(low, memory)
		if memory-low < growth {
			continue
		}
		switch guilty, ok := s.audit(g); {
		case !ok:
		case guilty > 0:
			freeing = time.Now().Add(freeTime)
		case freeing.IsZero():
			low = memory // others need it
		}
	}
}

// audit gives up the connections on which bytes come and no messages, and returns
// how many those are; false if it cannot tell.
func (s *Subscriber) audit(g gauge) (guilty int, ok bool) {
	for _, a := range audits {
		heard := s.messages() // first, or one that is counted by then might excuse nobody
		before, err := g.read()
		if err != nil || !s.pause(a.time) {
			return 0, false
		}
		after, err := g.read()
		if err != nil || !s.pause(settleTime) {
			return 0, false
		}
		for _, o := range s.owners {
			if err := o.do(func() error {
				guilty += o.audit(heard, before, after, a.bytes)
				return nil
			}); err != nil {
				return 0, false
			}
		}
		if guilty > 0 {
			break
		}
	}
	return guilty, true
}

// pause waits for d, and reports false if the last owner has gone meanwhile.
func (s *Subscriber) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.gone:
		return false
	}
}

func (o *owner) audit(heard map[*subscription]uint64, before, after map[netip.AddrPort]uint64, most uint64) (guilty int) {
	for _, sub := range o.subs {
		n, there := heard[sub]
		was, connected := before[sub.peer()]
		is := after[sub.peer()] // less than before if the connection is another one
		if !there || !connected || is < max(was+most, handshake) || sub.source == (noSource{}) {
			continue
		}
		o.drain(sub)
		if sub.messages() == n {
			o.hangUp(sub, errEndless)
			o.hand(sub)
			o.expect(sub.due())
			guilty++
		}
	}
	return guilty
}

// messages returns how many messages each subscription has had.
func (s *Subscriber) messages() map[*subscription]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	heard := make(map[*subscription]uint64, len(s.subs))
	for sub := range s.subs {
		heard[sub] = sub.messages()
	}
	return heard
}

// peer is where the subscription's connection leads.
func (sub *subscription) peer() netip.AddrPort {
	addr := sub.target.addr
	if !addr.IsValid() {
		addr = sub.address
	}
	return netip.AddrPortFrom(addr.WithZone(""), sub.target.port)
}
