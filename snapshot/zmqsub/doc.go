// Package zmqsub listens to the load sockets of SGLang engines: one ZeroMQ PUB
// socket per data-parallel rank, three frames per message (see package
// snapshot). It hands on the newest reading of each rank and keeps every
// connection alive for as long as its subscription lasts.
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
// # Two ways
//
// On Linux the package speaks ZeroMQ's protocol itself (ZMTP 3, with the NULL
// mechanism), which takes a third of the CPU time, a quarter of the memory and half
// of the descriptors that libzmq takes. With [Config.Curve] or [Config.Libzmq], and
// elsewhere, it takes libzmq, and is the only package of this module that does. That
// needs cgo; in a program built without, New returns ErrNoCgo then.
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
// backlog has been worked off: after 128 messages at once the newest is held
// until the socket gives fewer, or for at most 100 ms, and only then delivered.
// What sits in the peer's own buffers, a network round trip away, cannot be seen
// from here; it is corrected when it arrives.
//
// # Concurrency
//
// A fixed number of owner goroutines hold all sockets, each its own share; as
// long as there are few sockets the first owner has them all. No socket is
// touched by anybody but its owner. All methods and stop functions may be called
// from any goroutine at any time, but not by a deliver function.
//
// deliver runs on an owner goroutine: calls for one subscription never overlap,
// and one that blocks holds up every rank of that owner. It may be called
// before Subscribe has returned. The Reading belongs to the owner and is valid
// only during the call.
//
// Subscribe and stop are carried out by an owner, so they wait for a deliver
// call that it is in. That is why none of that deliver's calls is running or
// begins once stop has returned; Close does the same for all subscriptions. It is
// also why a deliver function that calls one of the three waits for itself for
// ever, and why none of them may be called while holding a lock that deliver
// takes, nor by another goroutine that deliver waits for. What wants to stop
// because of what it read starts a goroutine for it.
//
// A panic in deliver is not recovered: it ends the process, as in any
// goroutine. An owner that went on would hide a bug that makes a rank look
// silent. runtime.Goexit in deliver closes the Subscriber.
//
// # Bounds
//
// Per subscription: a descriptor, 64 KiB in the kernel (which doubles that), and
// the message that is being received. Per round and socket: 1024 frames or 1 MiB; a
// publisher that sends faster waits for the next round, and TCP makes it drop on
// its own side. An owner makes a round every 3 ms at most, which is how late a
// reading may be because others flow; the first after a pause is taken at once, and
// an idle owner sleeps.
//
// A message of more than 128 frames, or twice Config.MaxPayload, costs its
// connection as soon as it is seen to be one: the next one is made after a pause of
// twice Config.Silence, and at most a minute.
//
// libzmq takes a second descriptor, and holds 256 messages, which a hostile
// publisher can make 32 MiB with (less with a smaller MaxPayload). It does not
// limit a message that never ends, nor show it to anybody. So on Linux the memory of
// a process with libzmq is watched, and when it has grown by 64 MiB whoever sends
// bytes and finishes no message is given up in the same way (the reason is
// "endless"). What comes in within a tenth of a second is added to that. Elsewhere
// only silence ends such a connection, and every socket is looked at every 2 ms.
//
// # CURVE
//
// With [Config.Curve], every connection is encrypted, and an engine has to prove
// that it has the secret key that belongs to the public one we were given. There is
// one public key for all engines, or a function that knows that of each endpoint:
//
//	zmqsub.New(zmqsub.Config{Curve: &zmqsub.Curve{
//		ServerKeyOf: func(endpoint string) string { return keys[endpoint] },
//	}})
//
// A handshake that fails shows as silence: fresh connections further and further
// apart, no message, and EndpointStats.Curve to remind of the key. Some engines in
// plain and some with CURVE are two Subscribers.
//
// # What it will not do
//
// It does not know workers, ranks or weights: an endpoint is an endpoint, and
// whoever subscribed knows which rank that is, whatever the payload says. It
// does not route on topics or speak ipc. A frame of more than twice
// Config.MaxPayload, or a peer that does not speak ZMTP 3 (libzmq 4.0 and newer
// do), costs the connection; there is another one after a pause, and what is wrong
// is logged. libzmq drops such a connection unseen and does not come back by itself;
// that shows as silence, and is cured by the fresh connection that follows.
package zmqsub
