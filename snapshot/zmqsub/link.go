package zmqsub

import (
	"net/netip"
	"time"
)

// maxBackoff is how far apart the fresh connections of a silent rank get.
const maxBackoff = time.Minute

// link is the state of a subscription's connection.
type link struct {
	heard   time.Time     // the last message, or the start
	renewAt time.Time     // a fresh connection is due then
	backoff time.Duration // what renewAt was put off by last
	attempt int           // fruitless fresh connections in a row
	address netip.Addr    // that a name last resolved to
}

func (l *link) reset(now time.Time, silence time.Duration) {
	l.heard, l.renewAt, l.backoff, l.attempt = now, now.Add(silence), silence, 0
}

func (l *link) renewed(now time.Time, silence time.Duration) {
	l.attempt++
	l.backoff = min(2*l.backoff, max(silence, maxBackoff))
	l.renewAt = now.Add(l.backoff)
}

// renew gives a silent subscription a fresh connection.
func (o *owner) renew(sub *subscription) {
	// It may not be silent at all: a deliver function that blocked, or a starved
	// process, keeps everybody's messages waiting.
	o.drain(sub)
	now := time.Now()
	if now.Before(sub.link.renewAt) {
		return
	}
	sub.link.renewed(now, o.s.config.Silence)
	fresh, err := o.port.open(sub)
	if err != nil {
		sub.report.note(err) // out of descriptors; the old connection may still come back
		return
	}
	sub.source.close()
	sub.source = fresh
	clear(sub.parts)
	sub.parts = sub.parts[:0]
	sub.report.reconnects++
	sub.report.note(nil)
	sub.mu.Lock()
	sub.counts.Reconnects++
	sub.mu.Unlock()
	if err := o.dial(sub); err != nil {
		sub.report.note(err)
	}
}

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
	l := &sub.link
	if len(addrs) > 0 {
		// A peer that stays silent at one address may listen on another.
		l.address = addrs[l.attempt%len(addrs)]
	}
	if l.address.IsValid() {
		// When the look-up failed this is where the name led before: a name
		// server that is down should not cost us a peer that is up.
		if e := sub.source.connect(dialString(l.address, sub.target.port)); e != nil {
			err = e
		}
	}
	if err != nil {
		sub.report.note(err)
	}
}
