// Package batch is the scheduler of one data-parallel rank of a simulated
// inference engine: continuous batching as arithmetic, with no clock, no
// goroutine and no randomness in it.
//
// A [Core] holds a queue and a running batch. [Core.Begin] forms the next step
// and says how long an engine of the configured [Cost] would be busy with it;
// the caller lets that time pass, by a timer or by adding numbers, and calls
// [Core.Finish], which applies the step and returns the tokens it produced.
// The same calls in the same order always give the same tokens.
//
// What is modelled: FCFS admission while the prompt's KV fits and the
// concurrency cap allows, chunked prefill sharing its steps with decoding
// requests, KV that grows by a token per decoded token, and retraction of the
// newest running request when it overflows. What is not: prefix caching,
// speculative decoding, prefill/decode separation, ranks in lockstep.
//
// A Core is not safe for concurrent use.
package batch
