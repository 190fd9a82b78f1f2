// Package fleetsim simulates a fleet of inference engines and the gateways in
// front of it, event by event, in simulated time.
//
// The engines are a model: continuous batching with chunked prefill, a bounded KV
// cache, prefix caching and data-parallel ranks. All that is on the gateways' side
// of the network is the real thing: each gateway has a load.Table on the simulated
// clock, its books and tickets, and a selector.Selector with a policy; each report
// goes through the encoder of its wire and the decoder. So what is measured is the
// code that ships.
//
// # Use
//
// [Run] simulates one [Config] and returns a [Result] with the fate of every
// request. A [Chooser] says who chooses the workers: a [Policy], or an [Oracle],
// which sees the true state of all engines and tells how much better a policy could
// do. [Calibrations] scales a trace to a share of what a fleet can do.
//
// # Determinism
//
// A run is a function of its Config: one goroutine, no wall clock, no global
// source of random numbers. Which gateway a request arrives at, which requests are
// hidden and where those go, and which are not streamed, depends on the seed and the
// trace alone, and so does when a rank's first report is due and how the following
// ones jitter: runs that differ in nothing but the policy are paired.
//
// # Concurrency
//
// Run may be called from any goroutine, and several at once. A policy must be made
// for each gateway of each run; see Policy.
package fleetsim
