package gateway

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"
)

// Headers of W3C Trace Context.
const (
	traceParentHeader = "Traceparent"
	traceStateHeader  = "Tracestate"
)

// trace is the trace that a request is part of. The gateway records no spans, so what the
// client sent is passed on as it is: with a span of ours as its parent, an engine's would
// hang on one that no tracing backend has ever seen. For the same reason no trace is begun
// here where there is none: not being sampled, it would keep engines from sampling.
type trace struct {
	id     string // empty: there is none
	parent string // traceparent
	anew   bool   // the client's could not be read, and so its tracestate is void
}

// traceOf reads the trace of a request. A traceparent that is none is replaced by the
// beginning of another trace, as the specification has it.
func traceOf(h http.Header) trace {
	values := h[traceParentHeader]
	switch {
	case len(values) == 0:
		return trace{}
	case len(values) == 1 && validParent(values[0]):
		return trace{id: values[0][3:35], parent: values[0]}
	}
	var b [24]byte
	_, _ = rand.Read(b[:])
	id, span := hex.EncodeToString(b[:16]), hex.EncodeToString(b[16:])
	return trace{id: id, parent: "00-" + id + "-" + span + "-00", anew: true} // not sampled
}

// validParent reports whether a traceparent can be read: version, trace id, parent id and
// flags, in lower-case hex. A version that is newer than 00 may have more behind them.
func validParent(v string) bool {
	if len(v) < 55 || v[2] != '-' || v[35] != '-' || v[52] != '-' {
		return false
	}
	version, id, span, flags := v[:2], v[3:35], v[36:52], v[53:55]
	for _, part := range []string{version, id, span, flags} {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return false
		}
	}
	if version == "ff" || strings.Trim(id, "0") == "" || strings.Trim(span, "0") == "" {
		return false
	}
	return len(v) == 55 || version != "00" && v[55] == '-'
}

// set has a request to an engine belong to the trace.
func (t trace) set(h http.Header) {
	if t.parent != "" {
		h.Set(traceParentHeader, t.parent)
	}
	if t.parent == "" || t.anew {
		h.Del(traceStateHeader) // which means nothing without the parent that it came with
	}
}
