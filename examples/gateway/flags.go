package main

import (
	"encoding/json"
	"errors"
	"flag"
	"net"
	"strconv"
	"strings"

	"github.com/plimsoll-go/plimsoll/examples/internal/gateway"
	"github.com/plimsoll-go/plimsoll/selector"
)

// newFlags returns flags that write to c, whose present values are the defaults.
// There is none for the engines' API key: a command line is there for all to see.
func newFlags(c *gateway.Config, file *string) *flag.FlagSet {
	f := flag.NewFlagSet("gateway", flag.ContinueOnError)
	f.StringVar(file, "config", "", "JSON configuration `file`; flags are stronger than what it says")
	f.StringVar(&c.Listen, "listen", c.Listen, "`address` to serve clients on")
	f.StringVar(&c.Admin, "admin", c.Admin, "`address` to serve operators on, with the status page and metrics, which clients should not reach; off: none")
	f.StringVar(&c.AdminTokenFile, "admin-token-file", "", "`file` that holds what operators have to know who drain engines; without, the environment's PLIMSOLL_ADMIN_TOKEN, or nobody may")
	f.Func("workers", "`URLs` of engines, separated by commas", func(text string) error {
		c.Workers = strings.Split(text, ",")
		return nil
	})
	f.StringVar(&c.WorkersFile, "workers-file", "", "`file` of engines, one URL a line or a JSON list; read again when it changes")
	f.Func("dns", "`name:port` that stands for the engines, or srv:name", func(text string) (err error) {
		c.DNS, err = parseDNS(text)
		return err
	})
	f.Func("peers", "`URLs` of all replicas of the gateway, separated by commas", func(text string) error {
		c.Peers.List = strings.Split(text, ",")
		return nil
	})
	f.StringVar(&c.Peers.File, "peers-file", "", "`file` of all replicas of the gateway, as -workers-file")
	f.Func("peers-dns", "`name:port` that stands for all replicas of the gateway, or srv:name", func(text string) (err error) {
		c.Peers.DNS, err = parseDNS(text)
		return err
	})
	f.StringVar(&c.Peers.Self, "self", "", "`host` or host:port of this replica, as it is listed; without, the one at an address of this machine")
	f.Func("replica", "which replica of the gateway this one is, as `0/3`, where that never changes", func(text string) (err error) {
		c.Peers.Replica, c.Peers.Replicas, err = parseReplica(text)
		return err
	})
	f.StringVar(&c.Policy, "policy", c.Policy, "`policy`: "+strings.Join(selector.PolicyNames(), ", "))
	f.Func("policy-config", "`JSON` object that configures the policy", func(text string) error {
		c.PolicyConfig = json.RawMessage(text)
		return nil
	})
	f.TextVar(&c.Signal, "signal", c.Signal, "what stands in for a missing report, where the policy does not say: calibrated, mixed or uniform")
	f.IntVar(&c.ExplainEvery, "explain-every", 0, "log how one pick in `n` came about, and show it on the status page; 0: none is logged, one in a thousand shown")
	f.BoolVar(&c.ExplainOnRequest, "explain-on-request", false, "explain the pick to clients that send X-Plimsoll-Explain, which shows them the fleet")
	f.BoolVar(&c.Poll, "poll", false, "poll /v1/loads of engines that offer no load socket")
	duration := func(d *gateway.Duration, name, usage string) { f.TextVar(d, name, *d, usage) }
	duration(&c.Freshness, "freshness", "`duration` for which a report is trusted")
	duration(&c.PollInterval, "poll-interval", "`duration` between polls")
	duration(&c.ProbeInterval, "probe-interval", "`duration` between probes of /health")
	duration(&c.EngineTimeout, "engine-timeout", "`duration` for which an engine may say nothing, before its answer and within it; negative: any")
	duration(&c.ClientTimeout, "client-timeout", "`duration` that a client gets to send its request, and to take each piece of the answer; negative: any")
	duration(&c.DrainDelay, "drain-delay", "`duration` between turning unhealthy and accepting nothing new")
	duration(&c.DrainTimeout, "drain-timeout", "`duration` that requests get to finish at the end")
	f.IntVar(&c.Tries, "tries", c.Tries, "`engines` that a request is sent to at most")
	f.TextVar(&c.LogLevel, "log", c.LogLevel, "log `level`")
	f.StringVar(&c.LogFormat, "log-format", c.LogFormat, "`format` of the log: text or json")
	f.BoolVar(&c.AccessLog, "access-log", false, "log a line for every request, and not only for those that something went wrong with")
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

// parseReplica reads a replica and how many there are, such as 0/3.
func parseReplica(text string) (replica, replicas int, err error) {
	of, count, _ := strings.Cut(text, "/")
	replica, err = strconv.Atoi(of)
	if err == nil {
		replicas, err = strconv.Atoi(count)
	}
	if err != nil || replicas < 1 {
		return 0, 0, errors.New("want replica/replicas, such as 0/3")
	}
	return replica, replicas, nil
}
