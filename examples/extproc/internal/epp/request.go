package epp

import (
	"encoding/json"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/plimsoll-go/plimsoll/load"
)

// look estimates how many tokens the prompt of a request has, at four bytes each, and
// says whether the answer is to come in pieces, and of which model. That takes a picture
// for a long prompt; a gateway whose clients send some had better count the text alone.
func look(body []byte) (tokens load.Maybe[int64], stream bool, model string) {
	var request struct {
		Model                   string
		Stream                  bool
		Messages, Prompt, Input json.RawMessage
	}
	if len(body) == 0 || json.Unmarshal(body, &request) != nil {
		return tokens, false, "" // the engine's to complain about
	}
	if n := len(request.Messages) + len(request.Prompt) + len(request.Input); n > 0 {
		tokens = load.Known(int64(n+3) / 4)
	}
	return tokens, request.Stream, request.Model
}

// unstreamed says whether the first byte of the answer comes long after the first token.
// It does in an answer of one piece, unless no tokens are generated at all.
func unstreamed(path string, stream bool) bool {
	path, _, _ = strings.Cut(path, "?")
	for _, end := range []string{"/embeddings", "/rerank", "/score", "/classify"} {
		if strings.HasSuffix(path, end) {
			return false
		}
	}
	return !stream
}

// subset is the endpoints that a request is restricted to. None given and none left are
// different things.
type subset struct {
	given     bool
	endpoints []string
}

// subsetOf reads the hint of a request. One that makes no sense allows nothing: whoever
// has written it meant to restrict something.
func subsetOf(m *core.Metadata) subset {
	hint, given := m.GetFilterMetadata()[SubsetNamespace].GetFields()[SubsetKey]
	s := subset{given: given}
	switch v := hint.GetKind().(type) {
	case *structpb.Value_ListValue:
		for _, e := range v.ListValue.Values {
			s.endpoints = append(s.endpoints, e.GetStringValue())
		}
	case *structpb.Value_StringValue: // as some data planes write a list
		for e := range strings.SplitSeq(v.StringValue, ",") {
			s.endpoints = append(s.endpoints, strings.TrimSpace(e))
		}
	}
	return s
}

// workers returns those of the table. It is never nil, which to a selector means all.
func (s subset) workers(t *load.Table) []*load.Worker {
	list := make([]*load.Worker, 0, len(s.endpoints))
	for _, endpoint := range s.endpoints {
		if w, ok := t.Worker(endpoint); ok {
			list = append(list, w)
		}
	}
	return list
}

// servedBy is the endpoint that Envoy says has served the request; "" if it does not.
func servedBy(m *core.Metadata) string {
	return m.GetFilterMetadata()[Namespace].GetFields()[ServedKey].GetStringValue()
}
