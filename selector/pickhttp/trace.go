// Package pickhttp marks picks by what happens to an HTTP request. It stands apart
// from package selector because net/http/httptrace brings package net, and with it
// cgo, into every program that picks.
package pickhttp

import (
	"context"
	"net/http/httptrace"

	"github.com/plimsoll-go/plimsoll/selector"
)

// Trace returns a context for the HTTP request to the engine that marks the pick
// Dispatched when the request has been written. A pick that is not marked counts
// on top of what the engine reports until its first token, though the report has
// it already: a gateway that neither traces nor marks sees its own requests
// double.
func Trace(ctx context.Context, p selector.Pick) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				p.Dispatched()
			}
		},
	})
}
