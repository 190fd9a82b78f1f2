// Package tswire is the transport between a TokenSpeed engine and a frontend that
// drives its schedulers directly: the sockets, the handshake and the requests. What
// comes back, the output batches with the load in them, is for package tokenspeed to
// decode.
//
// It is the engine that dials. The frontend binds three sockets, and every
// data-parallel rank connects to them under an identity, which is its engine index
// in two bytes, the low one first:
//
//	handshake  ROUTER  <- DEALER   HELLO, then INIT back with the two other addresses, then READY
//	input      ROUTER  <- DEALER   the rank's [Ready]; after it, requests to the rank: ADD and ABORT
//	output     PULL    <- PUSH     batches of all ranks; nothing but the batch says whose it is
//
// [Listen] is the frontend's side and [Dial] the engine's.
//
// # Concurrency
//
// The methods of a [Frontend] and a [Conn] may be called by any goroutine. A ZeroMQ
// socket belongs to one goroutine at a time; here it belongs to whoever holds its
// mutex. Accept alone holds two of these, the handshake's before the input's.
//
// # What it will not do
//
// It is a reference, made to be read. It does not take a rank back: if one is gone,
// which its engine may have said with its last word or not at all, the group is, and
// a new Frontend is due. For that one the ranks have to dial anew; a Conn notices
// that its frontend is gone (Gone), which a real engine (0.1.1) does not. It knows
// TCP only, no embeddings, no pictures, no disaggregation, and of the sampling
// parameters two.
package tswire
