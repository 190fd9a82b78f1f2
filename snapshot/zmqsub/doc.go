// Package zmqsub listens to the load sockets of SGLang engines: one ZeroMQ PUB
// socket per data-parallel rank, three frames per message (see package
// snapshot). It hands on the newest reading of each rank and keeps every
// connection alive for as long as its subscription lasts. It is the only
// package that needs cgo and libzmq; without cgo, New returns ErrNoCgo.
//
//	sub, err := zmqsub.New(zmqsub.Config{})
//	...
//	defer sub.Close()
//	stop, err := sub.Subscribe("tcp://10.0.0.1:5559", func(d snapshot.Delivery) {
//		if d.Err == nil {
//			feed.Put(rank, load.FromReading(d.Reading))
//		}
//	})
//
// # Newest only
//
// Load is a gauge. Each wake of a socket drains it to its newest message, and
// only that one is decoded; the others count as superseded. What is not a
// message at all (frame count, sequence frame, end of stream, size) is dropped
// before that choice and so never displaces a usable message. A lower sequence
// number is a restarted publisher, not an error.
//
// Nothing on the wire says when a message was sent, and a high-water mark keeps
// the oldest messages. A receive time therefore only means something once a
// backlog has been worked off: after a large drain the messages are held until
// the socket has been quiet for some milliseconds, or for at most 100 ms, and
// only then is the newest delivered. What sits in the peer's own buffers,
// a network round trip away, cannot be seen from here; it is corrected when it
// arrives.
//
// # Concurrency
//
// A fixed number of owner goroutines hold all sockets, each its own share. No
// socket is touched by anybody but its owner. All methods and stop functions
// may be called from any goroutine at any time, including from inside deliver.
//
// deliver runs on an owner goroutine: calls for one subscription never overlap,
// and one that blocks holds up every rank of that owner. It may be called
// before Subscribe has returned. The Reading belongs to the owner and is valid
// only during the call.
//
// stop waits for a call of that deliver in progress, so that none is running or
// begins once stop has returned. Inside a deliver function, be it of this
// subscription or of another one, stop does not wait (it would wait for
// itself); no later call begins there either. Close does the same for all
// subscriptions, and Subscribe waits for an owner to be free. So none of the
// three may be called while holding a lock that deliver takes, nor by another
// goroutine that deliver waits for.
//
// A panic in deliver is not recovered: it ends the process, as in any
// goroutine. An owner that went on would hide a bug that makes a rank look
// silent. runtime.Goexit in deliver closes the Subscriber.
//
// # Bounds
//
// Per subscription: one descriptor for the socket and one for its connection,
// 256 messages in libzmq and 64 KiB in the kernel (which doubles that). Per wake
// and socket: 1024 frames or 1 MiB; a publisher that sends faster waits for the
// next round, and TCP makes it drop on its own side.
// Rounds are some milliseconds apart while messages flow (see roundEvery), so
// that one Poll over all sockets of an owner serves many messages; the first
// message after a pause is taken at once, and an idle owner sleeps.
//
// # What it will not do
//
// It does not know workers, ranks or weights: an endpoint is an endpoint, and
// whoever subscribed knows which rank that is, whatever the payload says. It
// does not route on topics, use CURVE or speak ipc. A frame above the size
// limit of the socket, or a peer that does not speak ZeroMQ, makes libzmq drop
// the connection unseen and not come back by itself; that shows as silence, and
// is cured by the fresh connection that follows. It cannot bound the number of frames in one
// message, which libzmq collects before it shows any of them; the reconnect
// after silence frees them.
package zmqsub
