package zmqsub

import (
	"net/netip"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// maxBackoff is how far apart the fresh connections of a silent rank get.
const maxBackoff = time.Minute

// link is when a subscription's connection was heard of and is to be renewed.
type link struct {
	heardAt time.Time     // the last message, or the start
	renewAt time.Time     // a fresh connection is due then
	backoff time.Duration // what renewAt was put off by last
	attempt int           // fruitless fresh connections in a row
	address netip.Addr    // that a name last resolved to

	serverKey string // of the engine; empty without CURVE
}

func (l *link) heard(now time.Time, silence time.Duration) {
	l.heardAt, l.renewAt, l.backoff, l.attempt = now, now.Add(silence), silence, 0
}

// renew gives a silent subscription a fresh connection.
func (o *owner) renew(sub *subscription) {
	// It may not be silent at all: a deliver function that blocked, or a starved
	// process, keeps everybody's messages waiting.
	o.drain(sub)
	now := time.Now()
	if now.Before(sub.renewAt) {
		return
	}
	sub.attempt++
	sub.backoff = min(2*sub.backoff, max(o.s.config.Silence, maxBackoff))
	sub.renewAt = now.Add(sub.backoff)
	key, err := o.s.config.Curve.serverKey(sub.endpoint)
	if err != nil {
		sub.note(err)
		return
	}
	sub.serverKey = key
	fresh, err := o.port.open(sub)
	if err != nil {
		sub.note(err) // out of descriptors; the old connection may still come back
		return
	}
	sub.source.close()
	sub.source = fresh
	sub.clearParts()
	sub.count(func(c *Counts) { c.Reconnects++ })
	sub.note(o.dial(sub))
}

// hangUp gives up a connection whose peer sends more than a rank has to say, and
// with it what libzmq holds of that. There is another one after a pause, so that
// a peer that does it again and again costs a bounded part of our time.
func (o *owner) hangUp(sub *subscription, err error) {
	now := time.Now()
	sub.count(func(c *Counts) { c.Messages++ })
	sub.drop(snapshot.Delivery{Received: now, Err: err})
	sub.clearParts()
	sub.source.close()
	sub.source = noSource{}
	sub.renewAt = now.Add(min(2*o.s.config.Silence, maxBackoff))
}

// noSource is that of a subscription without a connection.
type noSource struct{}

func (noSource) connect(string) error        { return nil }
func (noSource) recv() ([]byte, bool, error) { return nil, false, errQuiet }
func (noSource) close()                      {}

// dial connects a fresh source, after a look-up if the endpoint has a name.
func (o *owner) dial(sub *subscription) error {
	t := sub.target
	if t.addr.IsValid() {
		return sub.source.connect(dialString(t.addr, t.port))
	}
	src := sub.source
	o.s.resolver.resolve(t.host, func(addrs []netip.Addr, err error) {
		o.post(func() {
			if sub.source == src { // neither stopped nor renewed meanwhile
				o.resolved(sub, addrs, err)
			}
		})
	})
	return nil
}

func (o *owner) resolved(sub *subscription, addrs []netip.Addr, err error) {
	if len(addrs) > 0 {
		// A peer that stays silent at one address may listen on another.
		sub.address = addrs[sub.attempt%len(addrs)]
	}
	if sub.address.IsValid() {
		// When the look-up failed this is where the name led before: a name
		// server that is down should not cost us a peer that is up.
		if e := sub.source.connect(dialString(sub.address, sub.target.port)); e != nil {
			err = e
		}
	}
	if err != nil {
		sub.note(err)
		o.expect(sub.due())
	}
}
