// Package truth keeps what really happened in a soak: what became of every engine,
// which reports each of its ranks sent and when, which requests it took, and what the
// list of workers said. It hears that from whoever did it, at the time, and knows
// nothing of gateways, tables and sockets, so that what these make of it can be held
// against it.
//
// Whatever could be an excuse for somebody is noted before it is done: a request that
// was cut by the death of its engine was cut after the death was noted. So whoever
// looks for the excuse after the fact finds it.
//
// What is long over is forgotten, or a long soak would look like a leak.
package truth

import "time"

// memory is how long things are remembered that are over.
const memory = 2 * time.Minute
