package epp

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"time"

	mode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	proc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// Config configures a Picker.
type Config struct {
	// Table has the workers. Their IDs are their endpoints; see Named.
	Table    *load.Table
	Selector *selector.Selector

	// MaxBody is how much of a request is held and read. In the mode FULL_DUPLEX_STREAMED
	// the worker of a larger one is picked without knowing its prompt. In the buffered
	// modes Envoy's own bound must not be above it. 0 means 16 MiB.
	MaxBody int
	// MaxWait drops a request, with 429, that would wait for longer than this, as far as the
	// policy can tell. 0 means never.
	MaxWait time.Duration
	// BodyMode is assumed of requests and responses where Envoy does not say it
	// (protocol_config). The zero value is NONE: no body is waited for.
	BodyMode mode.ProcessingMode_BodySendMode

	Logger *slog.Logger // nil means none
}

// Picker is the external processor.
type Picker struct {
	proc.UnimplementedExternalProcessorServer
	config Config
	health health
}

// New returns a picker.
func New(c Config) *Picker {
	if c.MaxBody == 0 {
		c.MaxBody = 16 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Picker{config: c, health: health{table: c.Table}}
}

// ServerOptions are what a server needs that the picker is registered with. In the buffered
// modes a body comes in one message, which gRPC bounds at 4 MiB unless it is told.
func (p *Picker) ServerOptions() []grpc.ServerOption {
	const headers = 1 << 20
	return []grpc.ServerOption{grpc.MaxRecvMsgSize(p.config.MaxBody + headers)}
}

// Register adds the processor and its health to a server.
func (p *Picker) Register(s grpc.ServiceRegistrar) {
	proc.RegisterExternalProcessorServer(s, p)
	healthpb.RegisterHealthServer(s, &p.health)
}

// Drain makes the health service say that no more requests should come here.
func (p *Picker) Drain() { p.health.draining.Store(true) }

// Process serves one request of a client. Envoy sends a message for each part of it and of
// its answer, and ends the stream with it.
func (p *Picker) Process(stream proc.ExternalProcessor_ProcessServer) error {
	x := &exchange{picker: p, began: time.Now()}
	// However this ends, the request is no longer on its engine.
	defer x.end()
	for {
		message, err := stream.Recv()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err // the client has left, or Envoy has
		}
		answers, err := x.handle(message)
		if err != nil {
			p.config.Logger.Warn("bad message", "error", err)
			return status.Error(codes.InvalidArgument, err.Error())
		}
		for _, answer := range answers {
			if err := stream.Send(answer); err != nil {
				return err
			}
			if answer.GetImmediateResponse() != nil {
				return nil // there is no more to say
			}
		}
		x.sent()
	}
}

// Named returns a source of the same workers with their endpoints, ip:port, as IDs. What
// has none is left out: an endpoint is an address and has no path.
func Named(s discovery.Source, logger *slog.Logger) discovery.Source {
	return named{s, logger}
}

type named struct {
	discovery.Source
	logger *slog.Logger
}

func (n named) Run(ctx context.Context, emit func([]discovery.Worker)) error {
	return n.Source.Run(ctx, func(set []discovery.Worker) {
		out := make([]discovery.Worker, 0, len(set))
		for _, w := range set {
			endpoint, err := Endpoint(w.URL)
			if err != nil {
				n.logger.Warn("worker left out", "error", err)
				continue
			}
			w.ID = endpoint
			out = append(out, w)
		}
		emit(out)
	})
}

// Endpoint returns the ip:port of a worker's URL.
func Endpoint(worker string) (string, error) {
	if err := discovery.CheckURL(worker); err != nil {
		return "", err
	}
	u, err := url.Parse(worker)
	if err != nil {
		return "", err
	}
	if u.User != nil || u.Path != "" && u.Path != "/" {
		return "", fmt.Errorf("worker %s: an endpoint has no path and no user", u.Redacted())
	}
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return "", fmt.Errorf("worker %s: Envoy needs the address of an endpoint, not a name: %w", u.Redacted(), err)
	}
	return net.JoinHostPort(ip.String(), port), nil
}
