// Command extproc is an endpoint picker for Envoy that picks engines by the load that
// they publish. README.md has the other half, Envoy's configuration.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	mode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/examples/extproc/internal/epp"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/load/loadhttp"
	"github.com/plimsoll-go/plimsoll/selector"
	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "extproc:", err)
		os.Exit(1)
	}
}

// config is what the flags say.
type config struct {
	listen, status    string
	cert, key         string
	workers           string
	file, dns         string
	token             string
	poll              bool
	policy, policyCfg string
	maxWait           time.Duration
	drainDelay, drain time.Duration
	maxBody           int
	bodyMode          string
	verbose           bool
}

func flags(args []string, output io.Writer) (c config, err error) {
	f := flag.NewFlagSet("extproc", flag.ContinueOnError)
	f.SetOutput(output)
	f.StringVar(&c.listen, "listen", "127.0.0.1:9002", "`address` for Envoy")
	f.StringVar(&c.status, "status", "", "`address` of the status page; empty: none. Keep it inside")
	f.StringVar(&c.cert, "tls-cert", "", "`file` with the certificate to show to Envoy; empty: no TLS")
	f.StringVar(&c.key, "tls-key", "", "`file` with its key")
	f.StringVar(&c.workers, "workers", "", "`URLs` of engines, separated by commas: http://10.0.0.1:30000,...")
	f.StringVar(&c.file, "workers-file", "", "`file` that lists engines, read again when it changes")
	f.StringVar(&c.dns, "dns", "", "`name:port` each address of which is an engine")
	f.StringVar(&c.token, "token", os.Getenv("ENGINE_TOKEN"), "`token` that the engines want (SGLang's --api-key); default $ENGINE_TOKEN")
	f.BoolVar(&c.poll, "poll", false, "poll engines that have no load sockets")
	f.StringVar(&c.policy, "policy", selector.LeastWorkName, "`name` of the policy: "+strings.Join(selector.PolicyNames(), ", "))
	f.StringVar(&c.policyCfg, "policy-config", "", "its configuration, as `JSON`")
	f.DurationVar(&c.maxWait, "max-wait", 0, "answer 429 if the shortest queue is longer than this, as least_work expects; 0: never")
	f.IntVar(&c.maxBody, "max-body", 16<<20, "`bytes` of a request that are held to be read")
	f.StringVar(&c.bodyMode, "body-mode", "FULL_DUPLEX_STREAMED", "body `mode` of an Envoy that does not tell its own")
	f.DurationVar(&c.drainDelay, "drain-delay", 0, "how long to go on serving after the health service has said that the end comes")
	f.DurationVar(&c.drain, "drain", 30*time.Second, "how long requests in flight may take after that")
	f.BoolVar(&c.verbose, "v", false, "log every request")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if f.NArg() > 0 {
		return c, fmt.Errorf("what is %q? Flags only", f.Arg(0))
	}
	return c, nil
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, output io.Writer) error {
	c, err := flags(args, output)
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if c.verbose {
		level = slog.LevelDebug
	}
	logger := slog.New(slog.NewTextHandler(output, &slog.HandlerOptions{Level: level}))

	source, err := c.source(logger)
	if err != nil {
		return err
	}
	policy, err := selector.NewPolicy(c.policy, []byte(c.policyCfg))
	if err != nil {
		return err
	}
	bodyMode, ok := mode.ProcessingMode_BodySendMode_value[c.bodyMode]
	if !ok {
		return fmt.Errorf("-body-mode: Envoy knows no %q", c.bodyMode)
	}
	secret := insecure.NewCredentials()
	if c.cert != "" || c.key != "" {
		if secret, err = credentials.NewServerTLSFromFile(c.cert, c.key); err != nil {
			return err
		}
	}

	table := load.NewTable(load.Config{})
	page := loadhttp.New(table, loadhttp.Config{Title: "Endpoint picker", Policy: func() selector.Policy { return policy }})
	defer page.Close()
	picker := epp.New(epp.Config{
		Table:    table,
		Selector: selector.New(table, selector.Config{Policy: policy, Explain: page.Explain}),
		MaxBody:  c.maxBody,
		MaxWait:  c.maxWait,
		BodyMode: mode.ProcessingMode_BodySendMode(bodyMode),
		Logger:   logger,
	})

	wiring := discovery.Config{
		Table:   table,
		Source:  epp.Named(source, logger),
		Client:  &discovery.Client{Token: c.token},
		PollAll: c.poll,
		Logger:  logger,
	}
	switch subscriber, err := zmqsub.New(zmqsub.Config{Logger: logger}); {
	case err == nil:
		defer subscriber.Close()
		wiring.Subscriber = subscriber
	case errors.Is(err, zmqsub.ErrNoCgo) && c.poll:
		logger.Warn("no load sockets in this build, only polling", "error", err)
	default:
		return err
	}

	// The fleet outlives the server: requests that are in flight at the end are still
	// counted on workers that are known.
	var background sync.WaitGroup
	defer background.Wait()
	inside, cancel := context.WithCancel(context.Background())
	defer cancel()
	background.Go(func() {
		if err := discovery.NewFleet(wiring).Run(inside); err != nil {
			logger.Error("fleet ended", "error", err)
		}
	})

	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		return err
	}
	if c.status != "" {
		admin, err := net.Listen("tcp", c.status)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		server := &http.Server{Handler: page, ReadHeaderTimeout: 5 * time.Second}
		background.Go(func() { _ = server.Serve(admin) })
		defer server.Close()
		logger.Info("status page", "address", admin.Addr().String())
	}

	server := grpc.NewServer(append(picker.ServerOptions(), grpc.Creds(secret))...)
	picker.Register(server)
	ctx, end := context.WithCancel(ctx)
	defer end()
	background.Go(func() {
		<-ctx.Done()
		picker.Drain()
		stop(server, c.drainDelay, c.drain)
	})
	logger.Info("serving", "address", listener.Addr().String(), "policy", c.policy)
	return server.Serve(listener) // nil after GracefulStop
}

// stop ends a server: after delay, since whoever asks for its health only now and then goes
// on sending requests until then, and when what is in flight is done, or limit later.
func stop(s interface {
	GracefulStop()
	Stop()
}, delay, limit time.Duration) {
	time.Sleep(delay)
	late := time.AfterFunc(limit, s.Stop)
	defer late.Stop()
	s.GracefulStop()
}

// source is the engines that the flags name.
func (c *config) source(logger *slog.Logger) (discovery.Source, error) {
	var sources []discovery.Source
	if c.workers != "" {
		urls := strings.Split(c.workers, ",")
		for _, u := range urls {
			// What somebody has typed can be told to them at once.
			if _, err := epp.Endpoint(u); err != nil {
				return nil, fmt.Errorf("-workers: %w", err)
			}
		}
		sources = append(sources, discovery.Static(urls...))
	}
	if c.file != "" {
		sources = append(sources, &discovery.File{Path: c.file, Logger: logger})
	}
	if c.dns != "" {
		name, digits, err := net.SplitHostPort(c.dns)
		if err != nil {
			return nil, fmt.Errorf("-dns: %w", err)
		}
		port, err := strconv.Atoi(digits)
		if err != nil {
			return nil, fmt.Errorf("-dns: %w", err)
		}
		sources = append(sources, &discovery.DNS{Name: name, Port: port, Logger: logger})
	}
	switch len(sources) {
	case 0:
		return nil, errors.New("no engines: want -workers, -workers-file or -dns")
	case 1:
		return sources[0], nil
	}
	return discovery.Merge(sources...), nil
}
