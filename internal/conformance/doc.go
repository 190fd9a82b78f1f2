// Package conformance runs the published engines' own code against this module.
// `make conformance` gets the engines and runs it:
//
//   - SGLang: its load publisher, its encoder and the function that describes its
//     sockets, on real sockets over loopback, with our discovery, subscriber and
//     table at the other end.
//   - TokenSpeed: its side of the transport, handshake and all, with our batch
//     decoder and connector at the other end; and its decoder and encoder on what
//     our encoder writes.
//   - vLLM: the output thread of its engine cores, with our decoder and connector
//     at the other end.
//
// For all of them, the generators of the golden files that lie in the decoders'
// testdata folders.
//
// The tests have a build tag, since they need Python and the engines' code.
// Without the two they fail; nothing else in this module needs either.
//
// They say nothing about when an engine publishes, or how its scheduler comes by
// its numbers: the values are ours.
package conformance
