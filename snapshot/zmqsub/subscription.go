package zmqsub

import (
	"sync"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

const (
	// burst is how many messages mean that more may be behind them: half the
	// receive queue. libzmq's I/O thread stops at a full queue and is told of the
	// room again only after half of it has been read, so "nothing to read" may
	// only mean that the thread has not got round to the rest.
	burst = 128

	// quietFor is how long fewer than that have to come before the newest of
	// them counts as the newest there is.
	quietFor = 2 * time.Millisecond

	// settleLimit is how long a reading may be held back for that, and so how far
	// apart those of a publisher that never pauses are.
	settleLimit = 100 * time.Millisecond

	// keptRoom is how much room for a message a subscription keeps when it has none.
	keptRoom = 4 << 10
)

// reasonStopped is the one drop that is nobody's fault.
const reasonStopped = "stopped"

var (
	errPayloadSize = &snapshot.DecodeError{Type: "message", Field: "payload", Err: snapshot.ErrPayloadSize}
	errFrameCount  = &snapshot.DecodeError{Type: "message", Err: snapshot.ErrFrameCount}
	errEndless     = &snapshot.DecodeError{Type: "message", Err: snapshot.ErrEndless}
)

// subscription is one endpoint with one deliver function.
type subscription struct {
	endpoint string
	target   target
	deliver  func(snapshot.Delivery)
	owner    *owner

	mu          sync.Mutex // taken last
	counts      Counts     // guarded by mu
	lastMessage time.Time  // guarded by mu

	// The rest belongs to the owner goroutine.

	source source   // nil before add and after remove
	index  int      // in owner.subs
	parts  [][]byte // of the message being read
	room   []byte   // where they are
	last   []byte   // the room of the newest usable message
	frames int      // it has so far
	size   int      // of these
	newest held     // the newest usable message that was not handed on yet
	bad    held     // the last dropped one that was not handed on yet

	// While a backlog is worked off; see settle.
	again     time.Time // when to look again; zero = there is no backlog
	holdUntil time.Time
	recent    int // messages since again was set

	link
	trouble trouble
}

// held is a message between its drain and its delivery.
type held struct {
	delivery snapshot.Delivery
	payload  []byte
	ok       bool
}

// trouble is what to log, and when.
type trouble struct {
	err       error     // the last one
	pending   bool      // something is to be logged
	notBefore time.Time // when the next record may be written
}

// note has the next log record tell of err, and with it of the counts.
func (sub *subscription) note(err error) { sub.trouble.err, sub.trouble.pending = err, true }

// message takes the whole message that was read, of which parts has at most the
// first four frames.
func (sub *subscription) message(maxPayload int) {
	m, err := snapshot.Split(sub.parts)
	if err == nil && len(m.Payload) > maxPayload {
		err = errPayloadSize
	}
	if err != nil {
		d := snapshot.Delivery{Err: err}
		if len(sub.parts) >= 3 {
			d.Size = len(sub.parts[2])
		}
		sub.count(func(c *Counts) { c.Messages++ })
		sub.drop(d)
	} else {
		superseded := sub.newest.ok
		sub.newest = held{
			delivery: snapshot.Delivery{Seq: m.Seq, Size: len(m.Payload)},
			payload:  m.Payload,
			ok:       true,
		}
		sub.room, sub.last = sub.last, sub.room // nobody needs that of the one before any more
		sub.count(func(c *Counts) {
			c.Messages++
			if superseded {
				c.Superseded++
			}
		})
	}
	sub.clearParts()
}

// keep adds a copy of a frame to the message being read.
func (sub *subscription) keep(frame []byte) {
	from := len(sub.room)
	sub.room = append(sub.room, frame...) // elsewhere, if there is no room left; what is in parts stays where it is
	sub.parts = append(sub.parts, sub.room[from:])
}

// trimmed is room without what is in it, or none if it is large.
func trimmed(room []byte) []byte {
	if cap(room) > keptRoom {
		return nil
	}
	return room[:0]
}

// excess says why the message being read is more than a rank has to say.
func (sub *subscription) excess(maxPayload int) error {
	switch {
	case sub.size > oversize*maxPayload:
		return errPayloadSize
	case sub.frames > maxFrames:
		return errFrameCount
	}
	return nil
}

func (sub *subscription) clearParts() {
	clear(sub.parts)
	sub.parts = sub.parts[:0]
	sub.room = trimmed(sub.room)
	sub.frames, sub.size = 0, 0
}

func (sub *subscription) drop(d snapshot.Delivery) {
	sub.count(func(c *Counts) { c.drop(snapshot.Reason(d.Err)) })
	sub.note(d.Err)
	sub.bad = held{delivery: d, ok: true}
}

func (sub *subscription) count(change func(*Counts)) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	change(&sub.counts)
}

func (sub *subscription) messages() uint64 {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return sub.counts.Messages
}

// stamp gives what a drain found its receive time.
func (sub *subscription) stamp(now time.Time) {
	for _, h := range []*held{&sub.newest, &sub.bad} {
		if h.ok && h.delivery.Received.IsZero() {
			h.delivery.Received = now
		}
	}
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.lastMessage = now
}

// settle takes note of a drain, one that was cut short if full, and reports
// whether the newest message so far may be believed to be the newest there is.
// After many at once it may not: then it is held, and the socket drained again
// a little later, until it is quiet.
func (sub *subscription) settle(messages int, full bool, now time.Time) bool {
	sub.recent += messages
	if now.Before(sub.again) {
		return false
	}
	backlog := full || sub.recent >= burst
	sub.again, sub.recent = time.Time{}, 0
	if !backlog {
		sub.holdUntil = time.Time{}
		return true
	}
	sub.again = now.Add(quietFor)
	if sub.holdUntil.IsZero() {
		sub.holdUntil = now.Add(settleLimit)
	}
	if now.Before(sub.holdUntil) {
		return false
	}
	sub.holdUntil = now.Add(settleLimit)
	return true
}

func (sub *subscription) unsettled() bool { return !sub.again.IsZero() }

// due is when the owner has to look at the subscription even if nothing arrives.
func (sub *subscription) due() time.Time {
	t := sub.renewAt
	if sub.unsettled() && sub.again.Before(t) {
		t = sub.again
	}
	if sub.trouble.pending && sub.trouble.notBefore.Before(t) {
		t = sub.trouble.notBefore
	}
	return t
}

func (sub *subscription) stats() EndpointStats {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return EndpointStats{Endpoint: sub.endpoint, Counts: sub.counts.clone(), LastMessage: sub.lastMessage}
}
