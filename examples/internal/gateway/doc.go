// Package gateway is the reference gateway: an OpenAI-compatible reverse proxy
// that sends each request to the engine that Plimsoll picks. It is here to be
// read and copied. Each file is one concern:
//
//	gateway.go   the wiring: table, subscriber, fleet, selector
//	proxy.go     one request: pick, try, try elsewhere
//	attempt.go   one attempt: the marks on the pick, streaming, failures
//	call.go      what is kept of a request so that it can be tried again
//	tokens.go    how long a prompt is, roughly
//	header.go    what passes the proxy and what does not
//	health.go    which engines are up
//	status.go    /health and /status
//	serve.go     serving and draining
//	config.go    the configuration file
//
// # Life of a request
//
// The body is read whole, up to a bound, because a second attempt has to send
// it again. Each attempt is a pick of its own, released by a deferred Done
// whatever happens: the client leaves, the engine dies, the handler panics. The
// client sees nothing before the first byte of an engine's answer; until then a
// failure leads to another engine, after it to a cut connection, so that half
// an answer cannot be taken for a whole one.
//
// # What it leaves out
//
// TLS, authentication, rate limits, and a map of who has which prefix cached:
// without one, cache_aware picks the least loaded engine.
package gateway
