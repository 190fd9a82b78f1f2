package snapshot

import "time"

// Delivery is what a transport hands on for one message of one rank.
type Delivery struct {
	// Received is when the message was drained from its socket or read off the
	// reply. It carries the monotonic clock.
	Received time.Time
	Seq      int64    // the publisher's sequence number; 0 where the transport has none
	Reading  *Reading // valid only during the call that delivers it; nil if Err is not
	Err      error    // why the message was dropped; see Reason
	Size     int      // bytes of payload
}
