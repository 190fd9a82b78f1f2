package main

import (
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/plimsoll-go/plimsoll/examples/internal/gateway"
	"github.com/plimsoll-go/plimsoll/selector"
)

func newFlags(c *gateway.Config, file *string, level *slog.Level) *flag.FlagSet {
	f := flag.NewFlagSet("gateway", flag.ContinueOnError)
	f.StringVar(file, "config", "", "JSON configuration `file`; flags are stronger than what it says")
	f.StringVar(&c.Listen, "listen", c.Listen, "`address` to serve on")
	f.Func("workers", "`URLs` of engines, separated by commas", func(text string) error {
		c.Workers = strings.Split(text, ",")
		return nil
	})
	f.StringVar(&c.WorkersFile, "workers-file", "", "`file` of engines, one URL a line or a JSON list; read again when it changes")
	f.Func("dns", "`name:port` that stands for the engines, or srv:name", func(text string) (err error) {
		c.DNS, err = parseDNS(text)
		return err
	})
	f.StringVar(&c.Policy, "policy", "", "`policy`: "+strings.Join(selector.PolicyNames(), ", ")+" (default "+selector.PowerOfTwoName+")")
	f.Func("policy-config", "`JSON` object that configures the policy", func(text string) error {
		c.PolicyConfig = json.RawMessage(text)
		return nil
	})
	f.TextVar(&c.Signal, "signal", selector.Calibrated, "what stands in for a missing report: calibrated, mixed or uniform")
	f.TextVar(&c.Freshness, "freshness", gateway.Duration(0), "`duration` for which a report is trusted (default 5s)")
	f.BoolVar(&c.Poll, "poll", false, "poll /v1/loads of engines that offer no load socket")
	f.TextVar(&c.PollInterval, "poll-interval", gateway.Duration(0), "`duration` between polls (default 1s)")
	f.TextVar(&c.ProbeInterval, "probe-interval", gateway.Duration(0), "`duration` between probes of /health (default 2s)")
	f.TextVar(&c.DrainDelay, "drain-delay", gateway.Duration(0), "`duration` between turning unhealthy and accepting nothing new")
	f.TextVar(&c.DrainTimeout, "drain-timeout", gateway.Duration(0), "`duration` that requests get to finish at the end (default 30s)")
	f.IntVar(&c.Tries, "tries", 0, "`engines` that a request is sent to at most (default 3)")
	f.TextVar(level, "log", slog.LevelInfo, "log `level`; debug has a line for every request")
	return f
}

// parseDNS reads name:port, or srv:name.
func parseDNS(text string) (*gateway.DNS, error) {
	if name, ok := strings.CutPrefix(text, "srv:"); ok {
		return &gateway.DNS{Name: name, SRV: true}, nil
	}
	name, port, err := net.SplitHostPort(text)
	if err != nil {
		return nil, errors.New("want name:port or srv:name")
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, errors.New("the port is not a number")
	}
	return &gateway.DNS{Name: name, Port: n}, nil
}
