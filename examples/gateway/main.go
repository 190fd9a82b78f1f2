// Command gateway is an OpenAI-compatible reverse proxy that sends each request
// to the inference engine that Plimsoll picks.
//
//	go run ./gateway -workers http://10.0.0.1:30000,http://10.0.0.2:30000
//	curl -s 127.0.0.1:8080/v1/chat/completions -d '{"messages":[{"role":"user","content":"hello"}]}'
//	open http://127.0.0.1:9090/status/
//
// The gateway itself is package internal/gateway; read its doc.go first.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/plimsoll-go/plimsoll/examples/internal/gateway"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process the hard way
	switch err := run(ctx, os.Args[1:], os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends and the gateway has drained.
func run(ctx context.Context, args []string, stderr io.Writer) error {
	config, file, err := parse(args, stderr, os.ReadFile)
	if err != nil {
		return err
	}
	config.Level = new(slog.LevelVar)
	config.Level.Set(config.LogLevel)
	config.Logger = config.NewLogger(stderr, config.Level)
	if err := config.Validate(); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	g, err := gateway.New(config)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", config.Listen)
	if err != nil {
		g.Close()
		return err
	}
	var admin net.Listener
	if config.Admin != "off" {
		if admin, err = net.Listen("tcp", config.Admin); err != nil {
			listener.Close()
			g.Close()
			return fmt.Errorf("admin: %w", err)
		}
		config.Logger.Info("status page", "url", "http://"+admin.Addr().String()+"/status/")
	}
	config.Logger.Info("gateway listens", "address", listener.Addr().String())

	if file != "" && !readable(file) {
		config.Logger.Info("the configuration cannot be read twice, and is not followed", "file", file)
	} else if file != "" {
		hangUp := make(chan os.Signal, 1)
		signal.Notify(hangUp, syscall.SIGHUP)
		defer signal.Stop(hangUp)
		var following sync.WaitGroup
		defer following.Wait()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		following.Go(func() {
			g.Follow(ctx, file, hangUp, func(content []byte) (gateway.Config, error) {
				config, _, err := parse(args, io.Discard, func(string) ([]byte, error) { return content, nil })
				return config, err
			})
		})
	}
	return g.Serve(ctx, listener, admin)
}

// readable reports whether there is more to come of a file, as there is not of
// standard input or a pipe.
func readable(file string) bool {
	info, err := os.Stat(file)
	return err != nil || info.Mode().IsRegular() // a file that is gone comes back
}

// parse reads the configuration file with read, if one is named, and the flags, which are
// stronger.
func parse(args []string, stderr io.Writer, read func(path string) ([]byte, error)) (config gateway.Config, file string, err error) {
	config = gateway.Config{AdminToken: os.Getenv("PLIMSOLL_ADMIN_TOKEN")}.WithDefaults()
	flags := newFlags(&config, &file)
	flags.SetOutput(stderr)
	if err := flags.Parse(args); err != nil {
		return config, file, err
	}
	if flags.NArg() > 0 {
		return config, file, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if file != "" {
		content, err := read(file)
		if err != nil {
			return config, file, err
		}
		if err := config.Read(content); err != nil {
			return config, file, fmt.Errorf("%s: %w", file, err)
		}
		if err := flags.Parse(args); err != nil { // again, over what the file said
			return config, file, err
		}
	}
	return config, file, nil
}
