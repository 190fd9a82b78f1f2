// Package load holds what is known about the load of each worker, and of each
// of its data-parallel ranks, and hands it to pickers as one immutable view.
//
// A [Report] is one engine's word about one rank: requests running and waiting,
// KV cache in use, and so on, whatever wire it came over. A [Table] keeps the
// newest report of every rank of every worker, together with this gateway's own
// books: the requests it has picked a worker for and that are not done yet. A
// [View] is what a pick reads.
//
// # Unknown is not zero
//
// A rank that never reported, a field that was absent, a report that went stale
// and an idle rank are four different things here. A worker is trusted only
// while every rank it advertises has a report no older than the freshness
// window ([DefaultWindow] unless configured) and none of them says that it is
// still booting. [Table.Status] says why a worker is not trusted. Whatever its
// reports say, a worker remains eligible: the books stand in for what is
// missing, and nothing in this package fails a request because a report did.
//
// # Engines without a load socket
//
// TokenSpeed, and vLLM with dense data parallelism, put the load of a rank on each
// output batch. A [Connector] takes those in, for the client that drives such a
// group: it chooses a rank for each request, knows which are in flight there, and
// reads a rank as idle when none is, whatever the engine's last word was. What it
// learns stands in the same table.
//
// # Rules of one's own
//
// Package selector has policies. A host with a rule of its own takes a view, compares
// what its entries and the books of their workers say, and reserves the worker by
// [View.ReserveIf], which fails if somebody else has meanwhile. A [Watch] that it
// gives along is told how long the request took.
//
// # Incarnations
//
// [Table.Add] makes a new incarnation of a worker, [Worker.Advertise] a new
// [Feed] of one. Writes through the handle of an earlier incarnation or feed
// change nothing, so a late report cannot reach a new worker of the same name,
// and a late release cannot touch its books.
//
// # Concurrency
//
// Everything is safe for concurrent use. Writers serialise on one mutex; a
// connector has one of its own, which is taken first. Readers never wait for
// either: a view is one atomic load and one reading of the clock, and the books are
// atomic counters. A table has no goroutine and needs no closing; a report ages by
// being looked at.
//
// # What it does not do
//
// It does not fetch or decode: packages snapshot, snapshot/vllm and tokenspeed
// decode, package discovery wires engines to a table. Nor does it choose a worker,
// which package selector does. It never compares an engine's clock with ours; an
// engine's timestamp is shown and nothing else.
package load
