package zmqsub

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

var errPayloadSize = &snapshot.DecodeError{Type: "message", Field: "payload", Err: snapshot.ErrPayloadSize}

// subscription is one endpoint with one deliver function.
type subscription struct {
	endpoint string
	target   target
	deliver  func(snapshot.Delivery)
	owner    *owner

	stopped atomic.Bool

	// call is a lock, held while deliver runs so that stop can wait for it. It
	// is taken before any other, because deliver may call anything of ours. It
	// is a channel because that is what testing/synctest can wait on, here and
	// in the tests of whoever stops a subscription whose deliver takes time.
	call chan struct{}

	mu          sync.Mutex // taken last
	counts      Counts     // guarded by mu
	lastMessage time.Time  // guarded by mu

	// The rest belongs to the owner goroutine.

	source source      // nil before add and after remove
	index  int         // in owner.subs
	parts  [][]byte    // of the message being read
	newest held        // the newest usable message that was not handed on yet
	bad    held        // the last dropped one that was not handed on yet
	settle settle      // whether a backlog is being worked off
	link   link        // when to connect afresh
	report troubleNote // what to log, and when
}

// held is a message between its drain and its delivery.
type held struct {
	delivery snapshot.Delivery
	payload  []byte
	ok       bool
}

func newSubscription(endpoint string, t target, deliver func(snapshot.Delivery), o *owner) *subscription {
	return &subscription{endpoint: endpoint, target: t, deliver: deliver, owner: o, call: make(chan struct{}, 1)}
}

// settle decides whether the newest message that a drain found may be believed
// to be the newest there is. A drain that pulled a lot freed a queue which the
// I/O thread had given up filling, so "nothing to read" only means that the
// thread has not got round to the rest.
type settle struct {
	active  bool
	limit   time.Time // a publisher that does not pause is handed on from here
	quietAt time.Time // when the backlog is taken to be over, unless more arrives
}

// drained notes a drain that ended now, and reports whether to hold back what
// it found.
func (s *settle) drained(big bool, now time.Time) (hold bool) {
	if big && !s.active && now.Sub(s.limit) >= settlePause {
		*s = settle{active: true, limit: now.Add(settleLimit)}
	}
	if s.catchingUp(now) {
		s.quietAt = now.Add(quietFor)
		return true
	}
	s.active = s.active && big
	return false
}

// quiet ends the catching up if nothing more has arrived, and reports whether
// it did.
func (s *settle) quiet(now time.Time) bool {
	if !s.active || now.Before(s.quietAt) {
		return false
	}
	*s = settle{}
	return true
}

func (s *settle) catchingUp(now time.Time) bool { return s.active && now.Before(s.limit) }

// troubleNote collects what goes wrong between two log records.
type troubleNote struct {
	dropped    map[string]uint64
	reconnects uint64
	err        error     // the last one
	pending    bool      // something is to be logged
	notBefore  time.Time // when the next record may be written
}

func (n *troubleNote) drop(reason string, err error) {
	if n.dropped == nil {
		n.dropped = make(map[string]uint64)
	}
	n.dropped[reason]++
	n.note(err)
}

func (n *troubleNote) note(err error) { n.err, n.pending = err, true }

// message takes one whole message, of which frames holds at most the first
// four frames.
func (sub *subscription) message(frames [][]byte, maxPayload int) {
	m, err := snapshot.Split(frames)
	if err == nil && len(m.Payload) > maxPayload {
		err = errPayloadSize
	}

	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.counts.Messages++
	if err != nil {
		d := snapshot.Delivery{Err: err}
		if len(frames) >= 3 {
			d.Size = len(frames[2])
		}
		sub.dropLocked(d)
		return
	}
	if sub.newest.ok {
		sub.counts.Superseded++
	}
	sub.newest = held{
		delivery: snapshot.Delivery{Seq: m.Seq, Size: len(m.Payload)},
		payload:  m.Payload,
		ok:       true,
	}
}

func (sub *subscription) drop(d snapshot.Delivery) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	sub.dropLocked(d)
}

func (sub *subscription) dropLocked(d snapshot.Delivery) {
	reason := snapshot.Reason(d.Err)
	sub.counts.drop(reason)
	sub.report.drop(reason, d.Err)
	sub.bad = held{delivery: d, ok: true}
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

// due is when the owner has to look at the subscription even if nothing arrives.
func (sub *subscription) due() time.Time {
	t := sub.link.renewAt
	if sub.settle.active && (sub.newest.ok || sub.bad.ok) && sub.settle.quietAt.Before(t) {
		t = sub.settle.quietAt
	}
	if sub.report.pending && sub.report.notBefore.Before(t) {
		t = sub.report.notBefore
	}
	return t
}

func (sub *subscription) stats() EndpointStats {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	return EndpointStats{Endpoint: sub.endpoint, Counts: sub.counts.clone(), LastMessage: sub.lastMessage}
}

// waitForCall returns when no call of deliver is running.
func (sub *subscription) waitForCall() {
	sub.call <- struct{}{}
	<-sub.call
}
