// Package simengine is an inference engine without a model: it answers like an
// SGLang server, takes the time that one would take, and publishes its load the
// way one does. Gateways, demos and tests run against it where no GPU is. There is
// another kind, [TokenSpeed], which dials its frontend and tells its load in its
// output; the faults and most of the following are SGLang's.
//
// [Start] brings up a real HTTP server and one real ZeroMQ PUB socket per
// data-parallel rank, on loopback unless told otherwise:
//
//	POST /v1/chat/completions, /v1/completions   with and without streaming
//	GET  /v1/models, /health, /health_generate
//	GET  /server_info                            with the kv_events block
//	GET  /v1/loads                               include=, dp_rank=
//	POST /sim/...                                faults on demand, see below
//
// Behind them, every rank runs package batch against the wall clock. Output is
// deterministic filler, one word per token. Prompts are counted, not read.
//
// # Faults
//
// The methods Mute, Die, Restart, Garbage, Flood, Freeze, SetSpeed and FailNext of an
// [Engine] break it in the ways engines break in the field. The same is to be had as
//
//	POST /sim/mute?for=5s&rank=0   no load messages, for a while or until unmuted, of one rank or of all
//	POST /sim/unmute
//	POST /sim/die?for=5s      connections cut, nothing published, new ones refused
//	POST /sim/restart?ranks=4&down=1s   same ports, everything forgotten, seq 0
//	POST /sim/garbage?n=100   broken load messages of every kind
//	POST /sim/flood?for=1s    good ones, without a pause
//	POST /sim/freeze?for=5s   it hangs, for a while or until thawed
//	POST /sim/thaw            on the admin address, since a frozen engine answers nothing
//	POST /sim/slow?factor=0.5 speed, relative to the configured one
//	POST /sim/fail?n=3&how=error|cut   the next requests fail
//
// on the engine's own port and, so that a dead engine can be called back, on the
// optional admin address, which survives. RestartWith, which brings an engine back with
// any other flags, is only there as a method.
//
// Whoever wants to know what an engine really did, to compare it with what others make
// of it, sets Config.Trace.
//
// # Concurrency
//
// An Engine and a TokenSpeed are safe for concurrent use. Each rank has a goroutine
// and a mutex. Of an Engine one goroutine owns the ZeroMQ sockets; of a TokenSpeed
// each rank has its own, and a second goroutine that hears its commands. Close
// leaves nothing of them behind.
//
// # What it will not do
//
// Publish KV events: their ports are advertised, because load discovery goes
// through the same block, and nothing listens there. Cache prefixes, speculate,
// split prefill from decode, or keep ranks in lockstep.
package simengine
