package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output keeps what is logged.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func TestPickerServesUntilItIsEnded(t *testing.T) {
	engine, err := simengine.Start(simengine.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()

	ctx, end := context.WithCancel(t.Context())
	defer end()
	var log output
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-listen", "127.0.0.1:0", "-status", "127.0.0.1:0", "-workers", engine.URL(), "-v"}, &log)
	}()
	address := func() string {
		if m := regexp.MustCompile(`msg=serving address=(\S+)`).FindStringSubmatch(log.String()); m != nil {
			return m[1]
		}
		return ""
	}
	eventually(t, "the address", func() bool { return address() != "" })
	conn, err := grpc.NewClient(address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	eventually(t, "the picker to be ready", func() bool {
		r, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "readiness"})
		return err == nil && r.Status == healthpb.HealthCheckResponse_SERVING
	})

	stream, err := proc.NewExternalProcessorClient(conn).Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&proc.ProcessingRequest{Request: &proc.ProcessingRequest_RequestHeaders{RequestHeaders: &proc.HttpHeaders{
		Headers:     &core.HeaderMap{Headers: []*core.HeaderValue{{Key: ":method", RawValue: []byte("GET")}, {Key: ":path", RawValue: []byte("/v1/models")}}},
		EndOfStream: true,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	set := r.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders()
	if len(set) != 1 || "http://"+string(set[0].Header.RawValue) != engine.URL() {
		t.Errorf("sent to %v", set)
	}

	end() // while a request is in flight, which is waited for
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("the stream ends with %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// server takes for ever to stop gracefully.
type server struct {
	asked   time.Duration // when it was asked to
	stopped chan struct{}
	began   time.Time
}

func (s *server) GracefulStop() {
	s.asked = time.Since(s.began)
	<-s.stopped
}

func (s *server) Stop() { close(s.stopped) }

func TestServerGoesOnUntilItsHealthIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{stopped: make(chan struct{}), began: time.Now()}
		stop(s, 5*time.Second, 30*time.Second)
		if ended := time.Since(s.began); s.asked != 5*time.Second || ended != 35*time.Second {
			t.Errorf("asked to stop after %v, stopped after %v", s.asked, ended)
		}
	})
}

func TestMistakesInFlagsAreExplained(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	const workers = "-workers=http://127.0.0.1:1"
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "no engines"},
		{[]string{"-workers", "http://engine:30000"}, "needs the address"},
		{[]string{"-dns", "engines"}, "-dns"},
		{[]string{"-dns", "engines:http"}, "-dns"},
		{[]string{workers, "-policy", "least_words"}, "least_words"},
		{[]string{workers, "-body-mode", "WHOLE"}, "WHOLE"},
		{[]string{workers, "-tls-cert", "/none"}, "/none"},
		{[]string{workers, "more"}, "more"},
		{[]string{workers, "-listen", taken.Addr().String()}, "in use"},
		{[]string{workers, "-listen", "127.0.0.1:0", "-status", taken.Addr().String()}, "in use"},
	} {
		if err := run(t.Context(), tt.args, io.Discard); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v", tt.args, err)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}
