// Package plimsoll routes LLM inference requests on the load that engines
// publish. It holds no code: import the packages below it.
//
//   - [github.com/plimsoll-go/plimsoll/discovery] finds the engines, learns where
//     they publish, and keeps a table fed.
//   - [github.com/plimsoll-go/plimsoll/snapshot/zmqsub] listens to their sockets.
//   - [github.com/plimsoll-go/plimsoll/snapshot] decodes what they say,
//     [github.com/plimsoll-go/plimsoll/tokenspeed] and
//     [github.com/plimsoll-go/plimsoll/snapshot/vllm] what other engines put on their
//     output batches.
//   - [github.com/plimsoll-go/plimsoll/load] keeps what is known of each worker.
//   - [github.com/plimsoll-go/plimsoll/selector] picks one for a request.
//
// The example shows all of them in one gateway.
package plimsoll
