// Package gateway is the reference gateway: an OpenAI-compatible reverse proxy
// that sends each request to the engine that Plimsoll picks. It is here to be
// read and copied. Each file is one concern:
//
//	gateway.go   the wiring: table, subscriber, fleet, selector
//	proxy.go     one request: pick, try, try elsewhere
//	attempt.go   one attempt: the marks on the pick, streaming, failures
//	call.go      what is kept of a request so that it can be tried again
//	rank.go      which data-parallel rank the client asks for
//	tokens.go    how long a prompt is, roughly, of which model, and whether the answer is streamed
//	header.go    what passes the proxy and what does not
//	requestid.go the name of a request
//	trace.go     the trace that it is part of
//	accesslog.go the one line there is about it
//	health.go    which engines are up
//	drain.go     which of them an operator has taken out
//	ready.go     /healthz and /readyz: whether this gateway is
//	admin.go     what operators are served, on a listener of their own
//	status.go    the status page, and what it does not have
//	metrics.go   /metrics
//	serve.go     serving and draining
//	config.go    the configuration file
//	reload.go    another configuration, while the gateway runs
//	secure.go    keys and certificates, between here and the engines
//	source.go    where engines come from, and how that is replaced
//	peers.go     which replica of the gateway this one is
//
// # Life of a request
//
// The body is read whole, up to a bound, because a second attempt has to send
// it again. It is looked at for what the default policy, least_work, goes by: how long
// the prompt is, roughly, and whether the answer is streamed, without which the first
// byte is no first token. That costs the same whatever its shape. Each attempt is a pick
// of its own, released by a deferred Done whatever happens: the client leaves, the engine
// dies, the handler panics. The client sees nothing before the first byte of an engine's
// answer; until then a failure leads to another engine, after it to a cut connection, so
// that half an answer cannot be taken for a whole one.
//
// # Whose fault it is
//
// An engine that is full (429, 503) or cannot be connected to is set aside at
// once, and the request may use up all its tries. Any other failure may be the
// request's own: it is tried on one more engine, and an engine is set aside when
// it fails two requests with none served in between. So a request that crashes
// whoever gets it does not move the fleet, and an engine that fails everything
// fast, and has the shortest queue for it, does not draw all requests. What this
// process has run out of, such as descriptors, is held against no engine.
//
// Nobody may hang for ever: an engine has engine_timeout for each silence, a
// client has client_timeout for its request and for each piece of the answer.
//
// # What changes while it runs
//
// The configuration does, and a request goes by the one that was there when it came. What
// would have to begin anew, such as a policy that has learned, is left alone unless it has
// changed itself. An operator may drain engines, which outlasts all of that.
//
// # Why this engine
//
// Each answer names its engine and says why in a line (X-Plimsoll-Pick). explain_every
// logs the whole comparison for one pick in so many, explain_on_request tells it to a
// client that asks for it, and the status page has the last ones, and what the policy
// has learned.
//
// # What it leaves out
//
// TLS for clients, authentication, rate limits, and a map of who has which prefix cached:
// without one, cache_aware picks the least loaded engine.
package gateway
