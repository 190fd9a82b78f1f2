package selector

import (
	"context"
	"net/http/httptrace"
)

// Trace returns a context for the HTTP request to the engine that marks the pick
// Dispatched when the request has been written. A pick that is not marked counts
// on top of what the engine reports until its first token, though the report has
// it already: a gateway that neither traces nor marks sees its own requests
// double.
func (p Pick) Trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				p.Dispatched()
			}
		},
	})
}
