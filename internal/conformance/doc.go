// Package conformance runs the published engine's own code against this module:
// its load publisher, its encoder and the function that describes its sockets,
// on real sockets over loopback, with our discovery, subscriber and table at the
// other end. `make conformance` gets the engine and runs it.
//
// The tests have a build tag, since they need Python and the engine's code.
// Without the two they fail; nothing else in this module needs either.
//
// They say nothing about when an engine publishes, or how its scheduler comes by
// its numbers: the values are ours.
package conformance
