package epp

import (
	"encoding/json"
	"net/http"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// Names of the protocol; see package comment.
const (
	DestinationKey  = "x-gateway-destination-endpoint" // of the header, and in Namespace
	Namespace       = "envoy.lb"
	SubsetKey       = "x-gateway-destination-endpoint-subset"
	SubsetNamespace = "envoy.lb.subset_hint"
	ServedKey       = "x-gateway-destination-endpoint-served" // in Namespace
)

// rankHeader tells an SGLang engine which of its data-parallel ranks is to take a request.
const rankHeader = "x-data-parallel-rank"

// maxChunk is the most that Envoy's documentation recommends for one piece of a body.
const maxChunk = 64 << 10

func one(r *proc.ProcessingResponse) []*proc.ProcessingResponse {
	return []*proc.ProcessingResponse{r}
}

// headersDone, bodyDone and trailersDone let a part of a request, or of its answer, pass.

func headersDone(request bool) *proc.ProcessingResponse {
	h := &proc.HeadersResponse{Response: &proc.CommonResponse{}}
	if request {
		return &proc.ProcessingResponse{Response: &proc.ProcessingResponse_RequestHeaders{RequestHeaders: h}}
	}
	return &proc.ProcessingResponse{Response: &proc.ProcessingResponse_ResponseHeaders{ResponseHeaders: h}}
}

func bodyDone(request bool) *proc.ProcessingResponse {
	return bodyResponse(request, &proc.CommonResponse{})
}

func bodyResponse(request bool, r *proc.CommonResponse) *proc.ProcessingResponse {
	b := &proc.BodyResponse{Response: r}
	if request {
		return &proc.ProcessingResponse{Response: &proc.ProcessingResponse_RequestBody{RequestBody: b}}
	}
	return &proc.ProcessingResponse{Response: &proc.ProcessingResponse_ResponseBody{ResponseBody: b}}
}

func trailersDone(request bool) *proc.ProcessingResponse {
	t := &proc.TrailersResponse{}
	if request {
		return &proc.ProcessingResponse{Response: &proc.ProcessingResponse_RequestTrailers{RequestTrailers: t}}
	}
	return &proc.ProcessingResponse{Response: &proc.ProcessingResponse_ResponseTrailers{ResponseTrailers: t}}
}

// chunks appends a body in pieces. An empty one is a piece too if it is the last.
func chunks(to []*proc.ProcessingResponse, request bool, body []byte, end bool) []*proc.ProcessingResponse {
	for {
		n := min(len(body), maxChunk)
		last := n == len(body)
		if n > 0 || end {
			to = append(to, bodyResponse(request, &proc.CommonResponse{BodyMutation: &proc.BodyMutation{
				Mutation: &proc.BodyMutation_StreamedResponse{StreamedResponse: &proc.StreamedBodyResponse{
					Body: body[:n], EndOfStream: last && end,
				}},
			}}))
		}
		if last {
			return to
		}
		body = body[n:]
	}
}

// withDestination adds the picked endpoint to a headers or body response: as a header and
// as dynamic metadata, since some data planes read one and some the other.
func withDestination(r *proc.ProcessingResponse, pick selector.Pick) *proc.ProcessingResponse {
	endpoint := pick.Worker.ID()
	mutation := &proc.HeaderMutation{SetHeaders: []*core.HeaderValueOption{set(DestinationKey, endpoint)}}
	if pick.Rank != load.NoRank {
		mutation.SetHeaders = append(mutation.SetHeaders, set(rankHeader, strconv.Itoa(pick.Rank)))
	}
	common := r.GetRequestHeaders().GetResponse()
	if common == nil {
		common = r.GetRequestBody().GetResponse()
	}
	common.HeaderMutation = mutation
	r.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{
		Namespace: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			DestinationKey: structpb.NewStringValue(endpoint),
		}}),
	}}
	return r
}

// set replaces a header. Not only sets: a client that sends the destination itself does not
// choose it.
func set(key, value string) *core.HeaderValueOption {
	return &core.HeaderValueOption{
		Header:       &core.HeaderValue{Key: key, RawValue: []byte(value)},
		AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// refuse answers the client in the form in which OpenAI's API tells errors.
func refuse(code int, message string) *proc.ProcessingResponse {
	kind := map[int]string{http.StatusServiceUnavailable: "no_endpoint", http.StatusTooManyRequests: "overloaded"}[code]
	type apiError struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    string `json:"code"`
	}
	body, _ := json.Marshal(map[string]apiError{"error": {message, "server_error", kind}})
	return &proc.ProcessingResponse{Response: &proc.ProcessingResponse_ImmediateResponse{ImmediateResponse: &proc.ImmediateResponse{
		Status:  &typev3.HttpStatus{Code: typev3.StatusCode(code)},
		Headers: &proc.HeaderMutation{SetHeaders: []*core.HeaderValueOption{set("content-type", "application/json"), set("retry-after", "1")}},
		Body:    body,
		Details: "plimsoll_" + kind,
	}}}
}

// header returns the value of a header, which Envoy puts into one of two fields.
func header(h *proc.HttpHeaders, key string) string {
	for _, v := range h.GetHeaders().GetHeaders() {
		if v.Key == key {
			if len(v.RawValue) > 0 {
				return string(v.RawValue)
			}
			return v.Value
		}
	}
	return ""
}
