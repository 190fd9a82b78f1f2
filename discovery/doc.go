// Package discovery finds the engines, learns on which sockets they publish
// their load, and keeps a [load.Table] fed from those sockets.
//
// Three pieces, each usable alone:
//
//   - A [Source] emits complete sets of workers: [Static], [File], [DNS], or
//     several of them through [Merge].
//   - A [Client] asks one engine for its /server_info and returns one of three
//     outcomes, never two: it publishes load (on these endpoints), it answers and
//     does not publish (for this reason), or it could not be told (an error).
//   - A [Fleet] wires the two to a table and to a [Subscriber]: it diffs the
//     sets, asks every worker, subscribes what is advertised, asks again when
//     that is due, and polls /v1/loads, where that is switched on, for ranks that
//     no load socket tells of: the engine offers none, or it is silent.
//
// # Replicas of the gateway
//
// A gateway that is one of several does better if each prefers a slice of the
// workers of its own, and for that each needs to know which one it is, of how many.
// [Peers] tells it, from a source of another kind of workers: the gateway's own
// replicas, such as [DNS] with the name of their headless service. Without an
// answer there is no slice; a replica that cannot tell who it is does not guess.
//
// # Unknown is not zero
//
// A worker that could not be asked, one that does not publish and one whose
// sockets are silent stay in the table without a trusted report; pickers then
// go by the gateway's own books. Nothing here ever turns a missing number into
// 0: in /v1/loads a count of -1, null or none at all is unknown, and an answer
// without the queue counts is not a report.
//
// # Trust
//
// An engine's answer names hosts and ports that this process will connect to.
// Ports are taken from the answer, hosts are not: unless [Client.AllowHost]
// says otherwise, load sockets are dialled at the host of the engine's own URL.
//
// Answers are bounded in size and in what it may cost to read them, ranks and
// workers in number, and redirects in where they may lead; the table of bounds in
// DESIGN.md has the figures. Whose certificates are trusted, and what engines are
// told of us, is said by [Client.TLS], [Client.Token] and [Client.TokenOf]. A token
// goes to its worker and nowhere else, and like user information in a worker's URL
// it is never logged or shown.
//
// # Concurrency
//
// A Client is safe for concurrent use once its fields are set. A Source's Run
// is called by one Fleet, or one Peers, at a time. [Fleet.Run] is called once;
// [Fleet.Status] may be called at any time. [Peers.Replica] is one atomic load, made
// to be asked with every pick. A worker has one goroutine in the Fleet (and one
// more while it is polled) that lives until the worker is removed or Run
// returns, and waits for no other worker's. Subscriptions have none: they belong
// to the Subscriber.
//
// # What it does not do
//
// It opens no load socket and knows no ZeroMQ: the host passes a Subscriber,
// such as the one in snapshot/zmqsub. It checks no health: a worker that does
// not answer stays in the table, marked so in its status, until its source
// drops it; the host says whether it is healthy. It resolves no names of load
// endpoints: a name that stands for several machines gives whichever of them the
// transport happens to reach, so list the machines instead (that is what [DNS]
// is for).
package discovery
