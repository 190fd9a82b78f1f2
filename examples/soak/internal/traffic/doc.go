// Package traffic is the clients of one gateway in a soak, and the judge of what they
// got.
//
// # What must not be lost
//
// A request is one client's. The gateway may try it on several engines, and each of
// these attempts is judged by itself. An engine has accepted an attempt when it has put
// it on one of its ranks. Of each attempt that was accepted, one of three things must
// be true when the request is over:
//
//   - The client has got all of that engine's answer, word for word.
//   - The engine died in it, or hung for so long that the gateway gave it up.
//   - The client left.
//
// So a retry is right after an engine's death, and wrong for any other reason, even if
// the client gets an answer in the end: what an engine that lives had accepted was
// lost. A worker that is taken off the list is no reason either; what it has begun it
// finishes.
//
// # What must not be refused
//
// A client gets a 503 of the gateway's own only if there was no engine in the list that
// had been well for a while. It gets another error only if the engine that was tried
// last was at fault.
//
// There is one exception. The example gateway, where its policy chooses ranks, sends
// requests to a rank that an engine does not have any more when it has come back with
// fewer, until it has noticed; the engine answers 400, and the gateway passes that on as
// if the client were to blame. These are counted apart.
package traffic
