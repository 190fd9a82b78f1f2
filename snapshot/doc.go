// Package snapshot reads and writes the load messages that SGLang engines
// publish: the map-shaped LoadSnapshot, the array-shaped LoadStat, and the three
// frames that carry either on a ZeroMQ PUB socket.
//
// # Use
//
// Split takes the frames of a message apart, Reading.Decode recognises and
// decodes its payload:
//
//	m, err := snapshot.Split(frames)
//	if err == nil {
//		err = reading.Decode(m.Payload)
//	}
//
// Append and Join go the other way, for simulated engines and tests, and write
// the bytes the engine writes.
//
// # Unknown is not zero
//
// Each message says of every field whether it was Present, Nil or Refused. A
// LoadSnapshot leaves out what holds its default, so there an absent field is 0;
// in a LoadStat an absent field is one the sender did not know yet. What is Nil
// or Refused is unknown in both. A count that a routing decision rests on (see
// LoadSnapshot.Decode) refuses the whole message when it is broken, because
// reading it as 0 would make a broken rank the best choice.
//
// # Hostile input
//
// A publisher is not trusted. Payloads are bounded by MaxPayload, the nesting of
// unknown values and every array and string that is kept by limits of their own,
// and no header is believed beyond the bytes that follow it. Decoding into a
// reused value allocates nothing but an unheard-of disaggregation mode, and an
// error allocates the error.
//
// # Concurrency
//
// The functions may be called from any goroutine. A value belongs to one
// goroutine at a time; it is meant to be reused, and refers to no payload it
// was decoded from.
//
// # What it does not do
//
// It opens no socket (package zmqsub does), keeps no state between messages,
// never looks at the clock, and has no opinion on whether a rank is busy: KV
// usage above capacity, say, is reported as it came. The rank and the time an
// engine puts into a message are informational.
package snapshot
