package epp

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	mode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	proc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	none     = mode.ProcessingMode_NONE
	streamed = mode.ProcessingMode_STREAMED
	buffered = mode.ProcessingMode_BUFFERED
	duplex   = mode.ProcessingMode_FULL_DUPLEX_STREAMED
)

// endpoints are those of the table of a served picker.
var endpoints = []string{"10.0.0.1:30000", "10.0.0.2:30000"}

// served is a picker that serves on loopback.
type served struct {
	t       *testing.T
	table   *load.Table
	picker  *Picker
	conn    *grpc.ClientConn
	workers []*load.Worker
}

func serve(t *testing.T, change func(*Config)) *served {
	t.Helper()
	s := &served{t: t, table: load.NewTable(load.Config{})}
	for _, e := range endpoints {
		s.workers = append(s.workers, s.table.Add(e, "http://"+e))
	}
	c := Config{Table: s.table, Selector: selector.New(s.table, selector.Config{})}
	if change != nil {
		change(&c)
	}
	s.picker = New(c)
	server := grpc.NewServer(s.picker.ServerOptions()...)
	s.picker.Register(server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	s.conn, err = grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.conn.Close()
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// envoy is one stream, spoken as Envoy does.
type envoy struct {
	s      *served
	stream proc.ExternalProcessor_ProcessClient
	leave  func()

	config *proc.ProtocolConfiguration // until it has been sent
	hint   *core.Metadata
}

func (s *served) open(request, response mode.ProcessingMode_BodySendMode) *envoy {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(cancel)
	stream, err := proc.NewExternalProcessorClient(s.conn).Process(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	return &envoy{s: s, stream: stream, leave: cancel, config: &proc.ProtocolConfiguration{RequestBodyMode: request, ResponseBodyMode: response}}
}

func (e *envoy) send(m *proc.ProcessingRequest) {
	e.s.t.Helper()
	m.ProtocolConfig, e.config = e.config, nil
	if m.MetadataContext == nil {
		m.MetadataContext = e.hint
	}
	if err := e.stream.Send(m); err != nil {
		e.s.t.Fatal(err)
	}
}

func (e *envoy) receive() *proc.ProcessingResponse {
	e.s.t.Helper()
	r, err := e.stream.Recv()
	if err != nil {
		e.s.t.Fatal(err)
	}
	return r
}

// fails expects the stream to end with an error of that code.
func (e *envoy) fails(code codes.Code) {
	e.s.t.Helper()
	if r, err := e.stream.Recv(); status.Code(err) != code {
		e.s.t.Errorf("got %v, %v; want code %v", r, err, code)
	}
}

// close ends the stream as Envoy does when all is over.
func (e *envoy) close() {
	e.s.t.Helper()
	if err := e.stream.CloseSend(); err != nil {
		e.s.t.Fatal(err)
	}
	if r, err := e.stream.Recv(); err != io.EOF {
		e.s.t.Errorf("got %v, %v; want the end of the stream", r, err)
	}
}

func headers(pairs ...string) *proc.HttpHeaders {
	h := &proc.HttpHeaders{Headers: &core.HeaderMap{}}
	for i := 0; i < len(pairs); i += 2 {
		h.Headers.Headers = append(h.Headers.Headers, &core.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return h
}

func (e *envoy) requestHeaders(end bool) {
	e.s.t.Helper()
	h := headers(":method", "POST", ":path", "/v1/chat/completions", "x-request-id", "1")
	h.EndOfStream = end
	e.send(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_RequestHeaders{RequestHeaders: h}})
}

func (e *envoy) requestBody(body string, end bool) {
	e.s.t.Helper()
	e.send(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_RequestBody{RequestBody: &proc.HttpBody{Body: []byte(body), EndOfStream: end}}})
}

func (e *envoy) requestTrailers() {
	e.s.t.Helper()
	e.send(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_RequestTrailers{RequestTrailers: &proc.HttpTrailers{}}})
}

func (e *envoy) responseHeaders(status string, metadata *core.Metadata) {
	e.s.t.Helper()
	e.send(&proc.ProcessingRequest{MetadataContext: metadata, Request: &proc.ProcessingRequest_ResponseHeaders{ResponseHeaders: headers(":status", status)}})
	if r := e.receive(); r.GetResponseHeaders() == nil {
		e.s.t.Errorf("response headers were answered with %v", r)
	}
}

func (e *envoy) responseBody(body string, end bool) *proc.ProcessingResponse {
	e.s.t.Helper()
	e.send(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_ResponseBody{ResponseBody: &proc.HttpBody{Body: []byte(body), EndOfStream: end}}})
	r := e.receive()
	if r.GetResponseBody() == nil {
		e.s.t.Errorf("response body was answered with %v", r)
	}
	return r
}

// destination returns where a headers or body response sends the request, and checks that
// header and metadata agree on it.
func (s *served) destination(r *proc.ProcessingResponse) string {
	s.t.Helper()
	common := r.GetRequestHeaders().GetResponse()
	if common == nil {
		common = r.GetRequestBody().GetResponse()
	}
	var set []string
	for _, h := range common.GetHeaderMutation().GetSetHeaders() {
		if h.Header.Key == DestinationKey {
			if h.AppendAction != core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
				s.t.Error("a client can send a destination of its own")
			}
			set = append(set, string(h.Header.RawValue))
		}
	}
	metadata := r.GetDynamicMetadata().GetFields()[Namespace].GetStructValue().GetFields()[DestinationKey].GetStringValue()
	if len(set) != 1 || set[0] != metadata {
		s.t.Fatalf("destinations %q, in metadata %q, in %v", set, metadata, r)
	}
	return metadata
}

// on returns the worker of an endpoint.
func (s *served) on(endpoint string) *load.Worker {
	s.t.Helper()
	w, ok := s.table.Worker(endpoint)
	if !ok {
		s.t.Fatalf("there is no worker %q", endpoint)
	}
	return w
}

// idle waits until nothing is in the books, and checks how many picks there were.
func (s *served) idle(picks uint64) {
	s.t.Helper()
	var all uint64
	for _, w := range s.workers {
		for deadline := time.Now().Add(time.Minute); w.InFlight() != 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				s.t.Fatalf("%s has %d in flight for a minute", w.ID(), w.InFlight())
			}
		}
		if n := w.Status().Leaked; n > 0 {
			s.t.Errorf("%d leaked", n)
		}
		all += w.Status().Picked
	}
	if all != picks {
		s.t.Errorf("%d picks, want %d", all, picks)
	}
}

func metadata(namespace, key string, value any) *core.Metadata {
	v, err := structpb.NewStruct(map[string]any{key: value})
	if err != nil {
		panic(err)
	}
	return &core.Metadata{FilterMetadata: map[string]*structpb.Struct{namespace: v}}
}

const body = `{"model": "m", "stream": true, "messages": [{"role": "user", "content": "hello"}]}`

func TestFullDuplexRequestIsHeldUntilItIsKnown(t *testing.T) {
	s := serve(t, nil)
	e := s.open(duplex, duplex)
	e.requestHeaders(false)
	e.requestBody(body[:10], false)
	e.requestBody(body[10:], true)

	w := s.on(s.destination(e.receive())) // headers come first
	if n := w.Status().PendingTokens; n != 10 {
		t.Errorf("%d prompt tokens are pending, want 10", n)
	}
	chunk := e.receive().GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
	if string(chunk.GetBody()) != body || !chunk.GetEndOfStream() {
		t.Errorf("the body passes as %v", chunk)
	}
	e.requestBody(body[10:], true) // which some Envoys say twice

	e.responseHeaders("200", nil)
	if s := w.Status(); s.InFlight != 1 || s.Unstarted != 1 {
		t.Errorf("before the first token: %d in flight, %d unstarted", s.InFlight, s.Unstarted)
	}
	r := e.responseBody("data: 1\n\n", false).GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse()
	if string(r.GetBody()) != "data: 1\n\n" || r.GetEndOfStream() {
		t.Errorf("the answer passes as %v", r)
	}
	if s := w.Status(); s.InFlight != 1 || s.Unstarted != 0 {
		t.Errorf("after it: %d in flight, %d unstarted", s.InFlight, s.Unstarted)
	}
	r = e.responseBody("", true).GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse()
	if r == nil || !r.EndOfStream {
		t.Errorf("the end of the answer passes as %v", r)
	}
	if n := w.InFlight(); n != 0 {
		t.Errorf("%d in flight after the answer", n)
	}
	e.close()
	s.idle(1)
}

func TestLargeBodyPassesInSmallPieces(t *testing.T) {
	s := serve(t, func(c *Config) { c.MaxBody = 200_000 })
	for _, size := range []int{150_000, 250_000} { // held to its end, and not
		e := s.open(duplex, none)
		e.requestHeaders(false)
		sent, got := strings.Repeat("x", size), ""
		const piece = 50_000
		for i := 0; i < size; i += piece {
			e.requestBody(sent[i:i+piece], i+piece == size)
		}
		s.destination(e.receive())
		for {
			chunk := e.receive().GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
			if len(chunk.GetBody()) > 64<<10 {
				t.Errorf("a piece of %d bytes", len(chunk.Body))
			}
			if got += string(chunk.GetBody()); chunk.GetEndOfStream() {
				break
			}
		}
		if got != sent {
			t.Errorf("%d bytes passed of %d", len(got), size)
		}
		e.close()
	}
	s.idle(2)
}

func TestTrailersEndARequest(t *testing.T) {
	s := serve(t, nil)
	e := s.open(duplex, duplex)
	e.requestHeaders(false)
	e.requestBody(body, false)
	e.requestTrailers()
	w := s.on(s.destination(e.receive()))
	chunk := e.receive().GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
	if string(chunk.GetBody()) != body || chunk.GetEndOfStream() {
		t.Errorf("the body passes as %v, and the trailers are the end", chunk)
	}
	if r := e.receive(); r.GetRequestTrailers() == nil {
		t.Errorf("trailers were answered with %v", r)
	}
	e.responseHeaders("200", nil)
	e.responseBody("hello", false)
	e.send(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_ResponseTrailers{ResponseTrailers: &proc.HttpTrailers{}}})
	if r := e.receive(); r.GetResponseTrailers() == nil {
		t.Errorf("trailers were answered with %v", r)
	}
	if n := w.InFlight(); n != 0 {
		t.Errorf("%d in flight after the trailers", n)
	}
	e.close()
	s.idle(1)
}

func TestBufferedRequestIsPickedByItsBody(t *testing.T) {
	s := serve(t, nil)
	e := s.open(buffered, streamed)
	e.requestHeaders(false)
	if r := e.receive(); r.GetRequestHeaders().GetResponse().GetHeaderMutation() != nil || r.DynamicMetadata != nil {
		t.Errorf("picked by the headers: %v", r) // Envoy waits for an answer before it sends the body
	}
	e.requestBody(body, true)
	r := e.receive()
	if r.GetRequestBody() == nil || r.GetRequestBody().GetResponse().GetBodyMutation() != nil {
		t.Errorf("the body was answered with %v", r)
	}
	w := s.on(s.destination(r))
	if n := w.Status().PendingTokens; n != 10 {
		t.Errorf("%d prompt tokens are pending, want 10", n)
	}
	e.responseHeaders("200", nil)
	if r := e.responseBody("hello", true); r.GetResponseBody().GetResponse().GetBodyMutation() != nil {
		t.Errorf("a streamed body was changed: %v", r)
	}
	e.close()
	s.idle(1)
}

// What Envoy buffers comes in one message, which gRPC by itself bounds at 4 MiB.
func TestBufferedBodyMayBeAsLargeAsAnyOther(t *testing.T) {
	s := serve(t, nil)
	for picks, size := range []int{5 << 20, 16 << 20} {
		e := s.open(buffered, streamed)
		e.requestHeaders(false)
		e.receive()
		e.requestBody(`{"prompt": "`+strings.Repeat("x", size-14)+`"}`, true)
		w := s.on(s.destination(e.receive()))
		if tokens := w.Status().PendingTokens; tokens < int64(size)/5 {
			t.Errorf("%d bytes are taken for %d tokens", size, tokens)
		}
		e.close()
		s.idle(uint64(picks + 1))
	}
}

func TestRequestWithoutABodyIsPickedAtOnce(t *testing.T) {
	s := serve(t, nil)
	for _, tt := range []struct {
		mode mode.ProcessingMode_BodySendMode
		end  bool
	}{{duplex, true}, {buffered, true}, {none, false}, {streamed, false}} {
		e := s.open(tt.mode, duplex)
		e.requestHeaders(tt.end)
		s.destination(e.receive())
		if tt.mode == streamed { // nothing to be learned from it any more
			e.requestBody(body, true)
			if r := e.receive(); r.GetRequestBody() == nil || r.GetRequestBody().GetResponse().GetBodyMutation() != nil {
				t.Errorf("the body was answered with %v", r)
			}
		}
		e.close()
	}
	s.idle(4)
}

func TestModeThatEnvoyDoesNotTellIsTheConfiguredOne(t *testing.T) {
	s := serve(t, func(c *Config) { c.BodyMode = duplex })
	e := s.open(none, none)
	e.config = nil
	e.requestHeaders(false)
	e.requestBody(body, true)
	s.destination(e.receive())
	e.receive()
	e.close()
	s.idle(1)
}

func TestClientsThatLeaveAreReleased(t *testing.T) {
	s := serve(t, nil)
	held := s.open(duplex, duplex) // before there is a pick
	held.requestHeaders(false)
	held.leave()
	waiting := s.open(duplex, duplex) // before the answer
	waiting.requestHeaders(true)
	s.destination(waiting.receive())
	waiting.leave()
	reading := s.open(duplex, duplex) // within it
	reading.requestHeaders(true)
	s.destination(reading.receive())
	reading.responseHeaders("200", nil)
	reading.responseBody("data", false)
	reading.leave()
	s.idle(2)
}

func TestSubsetRestrictsThePick(t *testing.T) {
	s := serve(t, nil)
	hint := func(v any) *core.Metadata { return metadata(SubsetNamespace, SubsetKey, v) }
	for _, tt := range []struct {
		name string
		hint *core.Metadata
		want string // "": none
	}{
		{"a list", hint([]any{"10.9.9.9:1", endpoints[1]}), endpoints[1]},
		{"a text", hint(endpoints[1] + " , 10.9.9.9:1"), endpoints[1]},
		{"an empty list", hint([]any{}), ""},
		{"strangers", hint([]any{"10.9.9.9:1"}), ""},
		{"a list of something else", hint([]any{1, nil}), ""},
		{"something else", hint(true), ""},
	} {
		for range 3 { // would be the other one at some time
			e := s.open(duplex, duplex)
			e.hint = tt.hint
			e.requestHeaders(true)
			r := e.receive()
			if tt.want == "" {
				if code := r.GetImmediateResponse().GetStatus().GetCode(); code != http.StatusServiceUnavailable {
					t.Errorf("%s: got %v, want 503", tt.name, r)
				}
			} else if got := s.destination(r); got != tt.want {
				t.Errorf("%s: sent to %s", tt.name, got)
			}
			e.close()
		}
	}
	s.idle(6)
}

func TestWithoutAnEndpointTheClientIsTold(t *testing.T) {
	s := serve(t, nil)
	for _, w := range s.workers {
		w.SetHealthy(false)
	}
	for _, m := range []mode.ProcessingMode_BodySendMode{duplex, buffered} {
		e := s.open(m, duplex)
		e.requestHeaders(false)
		if m == buffered {
			e.receive()
		}
		e.requestBody(body, true)
		r := e.receive().GetImmediateResponse()
		if r.GetStatus().GetCode() != http.StatusServiceUnavailable || !strings.Contains(string(r.GetBody()), "no_endpoint") {
			t.Errorf("mode %v: got %v", m, r)
		}
		e.close()
	}
	s.idle(0)
}

func TestRequestThatWouldWaitTooLongIsDropped(t *testing.T) {
	s := serve(t, func(c *Config) { c.MaxWait = time.Nanosecond })
	for _, w := range s.workers {
		defer w.Reserve(load.NoRank, 100_000).Done()
	}
	e := s.open(duplex, duplex)
	e.requestHeaders(true)
	if r := e.receive(); r.GetImmediateResponse().GetStatus().GetCode() != http.StatusTooManyRequests {
		t.Errorf("got %v, want 429", r)
	}
	e.close()
	for _, w := range s.workers {
		if n := w.InFlight(); n != 1 {
			t.Errorf("%d in flight on %s, want that of before", n, w.ID())
		}
	}
}

func TestWhoHasServedTheRequestHasItInTheBooks(t *testing.T) {
	s := serve(t, nil)
	e := s.open(duplex, duplex)
	e.requestHeaders(true)
	picked := s.on(s.destination(e.receive()))
	other := s.workers[0]
	if other == picked {
		other = s.workers[1]
	}
	e.responseHeaders("200", metadata(Namespace, ServedKey, other.ID()))
	if picked.InFlight() != 0 || other.InFlight() != 1 {
		t.Errorf("%d in flight on the picked one, %d on the one that serves", picked.InFlight(), other.InFlight())
	}
	e.responseBody("hello", true)
	e.close()
	s.idle(2)

	e = s.open(duplex, duplex)
	e.requestHeaders(true)
	s.destination(e.receive())
	e.responseHeaders("200", metadata(Namespace, ServedKey, "10.9.9.9:1")) // a stranger
	s.idle(3)
	e.responseBody("hello", true)
	e.close()
}

func TestAnswerToWhatWasNotSentOnPasses(t *testing.T) {
	s := serve(t, nil)
	e := s.open(duplex, duplex)
	e.responseHeaders("401", nil) // by a filter before this one
	e.responseBody("who are you?", true)
	e.close()
	s.idle(0)
}

func TestNonsenseEndsTheStream(t *testing.T) {
	s := serve(t, nil)
	e := s.open(duplex, duplex)
	e.send(&proc.ProcessingRequest{})
	e.fails(codes.InvalidArgument)

	e = s.open(duplex, duplex)
	e.requestBody(body, true)
	e.fails(codes.InvalidArgument)

	e = s.open(duplex, duplex)
	e.requestTrailers()
	e.fails(codes.InvalidArgument)

	e = s.open(duplex, duplex)
	e.requestHeaders(true)
	s.destination(e.receive())
	e.requestHeaders(true)
	e.fails(codes.InvalidArgument)

	e = s.open(duplex, duplex)
	e.send(&proc.ProcessingRequest{ObservabilityMode: true, Request: &proc.ProcessingRequest_RequestHeaders{RequestHeaders: headers()}})
	e.fails(codes.InvalidArgument)

	e = s.open(buffered, duplex)
	e.requestHeaders(false)
	e.receive()
	e.requestTrailers()
	e.fails(codes.InvalidArgument)
	s.idle(1)
}

func TestBodyThatIsNoJSONIsTheEnginesToRefuse(t *testing.T) {
	s := serve(t, nil)
	e := s.open(duplex, duplex)
	e.requestHeaders(false)
	e.requestBody(`{"prompt": `, true)
	s.destination(e.receive())
	e.receive()
	e.responseHeaders("400", nil)
	e.responseBody("what?", true)
	e.close()
	s.idle(1)
}

func TestHealthIsThatOfTheTable(t *testing.T) {
	s := serve(t, nil)
	client := healthpb.NewHealthClient(s.conn)
	const serving, not = healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING
	check := func(service string, want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		r, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || r.Status != want {
			t.Errorf("%q is %v, %v; want %v", service, r.GetStatus(), err, want)
		}
	}
	ready := []string{"", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"}
	for _, service := range ready {
		check(service, serving)
	}
	for _, w := range s.workers {
		w.SetHealthy(false)
	}
	for _, service := range ready {
		check(service, not)
	}
	check("liveness", serving)
	for _, w := range s.workers {
		w.SetHealthy(true)
	}
	s.picker.Drain()
	for _, service := range ready {
		check(service, not)
	}
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "x"}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown service: %v", err)
	}
}

func TestEndpointIsAnAddress(t *testing.T) {
	for url, want := range map[string]string{
		"http://10.0.0.1:30000":     "10.0.0.1:30000",
		"http://10.0.0.1/":          "10.0.0.1:80",
		"https://10.0.0.1":          "10.0.0.1:443",
		"http://[2001:DB8::1]:1":    "[2001:db8::1]:1",
		"http://engine:30000":       "",
		"http://10.0.0.1:1/v1":      "",
		"http://user@10.0.0.1:1":    "",
		"10.0.0.1:30000":            "",
		"http://10.0.0.1:30000?a=b": "",
	} {
		got, err := Endpoint(url)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", url, got, err)
		}
	}
}
