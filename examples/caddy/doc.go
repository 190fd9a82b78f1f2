// Package plimsoll makes Caddy's reverse proxy choose engines by the load that they
// publish. It is a Caddy module of four parts:
//
//	http.reverse_proxy.upstreams.plimsoll            which engines there are
//	http.reverse_proxy.selection_policies.plimsoll   which of them gets a request
//	http.handlers.plimsoll                           what only a handler sees of a request
//	http.handlers.plimsoll_status                    the status page
//
// They meet in a fleet, by its name: a table, the subscriber that fills it, and the
// selectors that pick from it. README.md has a Caddyfile to copy.
//
// # Life of a request
//
// The handler reads the body, for the length of the prompt and whether the answer is
// streamed. Then Caddy's proxy asks the policy for an upstream, again for each retry.
// An attempt is a pick of its own:
//
//   - it is marked as dispatched when the request has been written, by a trace in the
//     context of the proxied request;
//   - its first token is the first byte of the answer that passes the handler;
//   - it is done when the context of the client's request ends, which net/http sees to
//     when the answer is complete, the client has left or a handler has panicked; or when
//     the proxy asks again, since then the attempt has failed.
//
// Without the handler all is counted right, but nothing is known of prompts and first
// tokens, and an engine that fails without being tried again is not set aside.
//
// # Reloads
//
// A fleet outlives the configuration that made it if the next one names it too. So the
// books, the reports and what a policy has learned stay, requests in flight among them.
// Its engines become those of the newest configuration, and are those of the one before
// again if the newest is refused.
//
// # Concurrency
//
// All of it is safe for concurrent use, as Caddy demands. What is kept of one request
// belongs to the goroutine that serves it.
//
// # What it leaves out
//
// Reporting engines that answer no request are Caddy's to notice: see its passive health
// checks, which the policy heeds. A map of who has which prefix cached is missing, so
// cache_aware picks the least loaded engine. Caddy dials a host and a port: engines
// behind a path prefix, or with credentials in their URL, cannot be workers here.
package plimsoll
