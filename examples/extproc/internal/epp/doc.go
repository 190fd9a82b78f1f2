// Package epp is an endpoint picker: an Envoy external processor that tells Envoy for
// each request which engine to send it to. It is here to be read and copied. Each file is
// one concern:
//
//	picker.go     the gRPC service: one stream for each request of a client
//	exchange.go   one request, from its headers to the end of its answer
//	messages.go   what is said to Envoy
//	request.go    what is learned from a request: its prompt, and where it may go
//	health.go     the gRPC health service
//
// # The protocol
//
// What is said is the Endpoint Picker Protocol of the Gateway API inference extension
// (kubernetes-sigs/gateway-api-inference-extension, docs/proposals/004-endpoint-picker-protocol,
// v1.0.0), over Envoy's external processing service (envoy/service/ext_proc/v3). In short:
//
//   - The endpoint, ip:port, is set as the request header x-gateway-destination-endpoint, and
//     as dynamic metadata of that name in the namespace envoy.lb; both say the same.
//   - Envoy may restrict the choice: by the list x-gateway-destination-endpoint-subset in the
//     namespace envoy.lb.subset_hint of the metadata that it sends. If nothing in it can be
//     picked, the answer is 503.
//   - Without any endpoint the answer is 503, and 429 if the request is to be dropped.
//   - With the response headers Envoy may say which endpoint has served the request:
//     x-gateway-destination-endpoint-served in the namespace envoy.lb.
//   - The health service knows the services liveness, readiness and that of the processor.
//
// Of Envoy's rules these shape the code (its comments on ProcessingMode and CommonResponse):
//
//   - A body response changes headers in the modes BUFFERED and BUFFERED_PARTIAL only, where
//     Envoy waits for the answer to the headers before it sends the body. In the mode
//     FULL_DUPLEX_STREAMED the answer to the headers may wait until the body is here; then it
//     has to come first, and the body, which Envoy has not kept, after it.
//   - Which mode it is, Envoy says in the first message of the stream (protocol_config).
//   - In the mode FULL_DUPLEX_STREAMED a last chunk has been seen twice
//     (envoyproxy/envoy#46237): what comes after the end is dropped.
//
// # When a request is over
//
// With the last piece of its answer, if Envoy sends those pieces here (response_body_mode);
// otherwise with the end of the stream. That comes in any case: also when the client leaves,
// which is how it is released then.
//
// # Concurrency
//
// A Picker is safe for concurrent use. An exchange belongs to the goroutine of its stream,
// which answers each message before it reads the next.
//
// # What it leaves out
//
// Fallback endpoints, which need a load balancing policy of Envoy's own; a map of who has
// which prefix cached; and probes: whoever lists the engines drops those that are not ready.
package epp
