package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// DefaultMaxRanks bounds the ranks of one engine unless [Client.MaxRanks] says
// otherwise. Real deployments have tens.
const DefaultMaxRanks = 1024

const maxPort = 65535

// ErrPort is the error of an [Endpoint] whose port would be above 65535. Its
// rank is advertised like any other, and since it can never report, its worker
// is never taken for complete.
var ErrPort = errors.New("discovery: rank's port is above 65535")

// Advertisement is what an engine's /server_info says about its load sockets.
type Advertisement struct {
	// Publishes says that the engine publishes its load, on Endpoints.
	Publishes bool
	// Endpoints has one element per advertised rank, in order of rank, also for
	// a rank that cannot be dialled. It is empty unless Publishes.
	Endpoints []Endpoint

	// Reason says in words why the engine does not publish; empty if it does.
	Reason string
	// Broken says that Reason is a mistake in the answer (a port of -1) and not
	// the absence of a feature: somebody should look at that engine.
	Broken bool

	// Ranks is the number of data-parallel ranks the engine has, also where it
	// does not publish their load; 0 where it did not say.
	Ranks int

	// Notes are oddities that changed nothing but where to dial, such as an
	// advertised host that is not allowed.
	Notes []string
}

// Endpoint is the load socket of one rank.
type Endpoint struct {
	Rank int
	Addr string // tcp://host:port, IPv6 hosts in brackets; empty if Err is not nil
	Err  error  // why the rank cannot be dialled: ErrPort
}

// sameSockets reports whether two advertisements mean the same sockets, so that
// nothing needs to be dialled anew.
func (a Advertisement) sameSockets(b Advertisement) bool {
	return a.Publishes == b.Publishes && slices.Equal(a.Endpoints, b.Endpoints)
}

// serverInfoRules is what reading an answer takes from the caller.
type serverInfoRules struct {
	host     string // of the engine's URL, without brackets
	allow    func(host string) bool
	maxRanks int
}

// kvEvents is what is read of the block of that name, not yet judged.
type kvEvents struct{ dpSize, loadBase, host, publishers json.RawMessage }

// parseServerInfo reads the body of /server_info.
//
// The block is described by sglang.srt.runtime_context,
// describe_kv_events_publisher. Only what is needed for the load sockets is
// read, field by field: a block_size of an unexpected type says nothing about
// the load ports and must not cost them. Keys are matched exactly, since the
// rest of the answer is the engine's whole command line with keys of all kinds.
//
// An error means that the body is no answer: errShape, wrapped, or errCutOff.
func parseServerInfo(body []byte, r serverInfoRules) (Advertisement, error) {
	info, err := objectIn(body)
	if err != nil {
		return Advertisement{}, err
	}
	var events json.RawMessage
	for key, value := range members(info) {
		if string(key) == "kv_events" {
			events = value
		}
	}
	if absent(events) {
		return Advertisement{Reason: "no kv_events block in /server_info"}, nil
	}
	if events[0] != '{' {
		return Advertisement{}, fmt.Errorf("%w: kv_events is %s, not an object", errShape, kindOf(events))
	}
	var block kvEvents
	for key, value := range members(events) {
		switch string(key) {
		case "dp_size":
			block.dpSize = value
		case "load_endpoint_port_base":
			block.loadBase = value
		case "endpoint_host":
			block.host = value
		case "publishers":
			block.publishers = value
		}
	}

	ranks, err := rankCount(block.dpSize, r.maxRanks)
	if err != nil {
		return Advertisement{Reason: err.Error(), Broken: true}, nil
	}
	if absent(block.loadBase) {
		return Advertisement{Reason: "no load_endpoint_port_base in kv_events", Ranks: ranks}, nil
	}
	base, err := integer(block.loadBase)
	if err == nil && (base < 1 || base > maxPort) {
		err = fmt.Errorf("%d is outside 1..%d", base, maxPort)
	}
	if err != nil {
		return Advertisement{Reason: "load_endpoint_port_base: " + err.Error(), Broken: true, Ranks: ranks}, nil
	}

	ad := Advertisement{Publishes: true, Ranks: ranks, Endpoints: make([]Endpoint, ranks)}
	hosts := ad.rankHosts(block, r)
	for rank := range ad.Endpoints {
		e := Endpoint{Rank: rank}
		if port := int(base) + rank; port <= maxPort {
			e.Addr = endpoint(hosts[rank], port)
		} else {
			e.Err = ErrPort
		}
		ad.Endpoints[rank] = e
	}
	return ad, nil
}

// rankHosts returns the host at which to dial each rank.
//
// The entries of publishers are endpoints of KV events, which are other
// sockets: of theirs, only the host is used. It says on which node of a
// multi-node engine the rank's scheduler runs, and the load socket of a rank is
// bound by the same process. The load port stays base + rank, whatever port the
// entry has. An entry that cannot be read, names a rank that is not advertised
// or contradicts another one leaves its rank at the engine's host.
func (a *Advertisement) rankHosts(block kvEvents, r serverInfoRules) []string {
	note := func(format string, args ...any) {
		const most = 8
		if len(a.Notes) == most {
			return
		}
		if s := fmt.Sprintf(format, args...); !slices.Contains(a.Notes, s) {
			a.Notes = append(a.Notes, s)
		}
	}
	pick := func(advertised string) string {
		host, why := dialHost(r.host, advertised, r.allow)
		if why != "" {
			note("%s", why)
		}
		return host
	}

	all := r.host
	if raw := block.host; !absent(raw) {
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			note("endpoint_host is %s, using %s", kindOf(raw), r.host)
		} else {
			all = pick(s)
		}
	}
	hosts := make([]string, len(a.Endpoints))
	for i := range hosts {
		hosts[i] = all
	}

	if absent(block.publishers) {
		return hosts
	}
	if block.publishers[0] != '[' {
		note("publishers is %s, ignored", kindOf(block.publishers))
		return hosts
	}
	named := make(map[int64]string, len(hosts))
	i := -1
	for entry := range elements(block.publishers) {
		if i++; i == r.maxRanks {
			note("publishers has more than %d entries, the rest is ignored", i)
			break
		}
		if entry[0] != '{' {
			note("publishers[%d] is %s, ignored", i, kindOf(entry))
			continue
		}
		var rankOf, endpoint json.RawMessage
		for key, value := range members(entry) {
			switch string(key) {
			case "dp_rank":
				rankOf = value
			case "endpoint":
				endpoint = value
			}
		}
		rank, err := integer(rankOf)
		if err != nil || rank < 0 || rank >= int64(len(hosts)) {
			note("publishers[%d] names no advertised rank, ignored", i)
			continue
		}
		var addr string
		if err := json.Unmarshal(endpoint, &addr); err != nil {
			note("publishers[%d] has no endpoint, ignored", i)
			continue
		}
		host, ok := endpointHost(addr)
		if !ok {
			note("publishers[%d]: %q is not tcp://host:port, ignored", i, clip(addr))
			continue
		}
		host = pick(host)
		if before, twice := named[rank]; twice && before != host {
			note("publishers names rank %d twice, using %s", rank, all)
			host = all
		}
		named[rank] = host
		hosts[rank] = host
	}
	return hosts
}

// endpointHost returns the host of a tcp://host:port endpoint, with the brackets
// of an IPv6 host off. The port is not looked at.
func endpointHost(addr string) (string, bool) {
	rest, ok := strings.CutPrefix(addr, "tcp://")
	if !ok {
		return "", false
	}
	i := strings.LastIndexByte(rest, ':')
	if i <= 0 {
		return "", false
	}
	host := rest[:i]
	if strings.Contains(host, ":") && host == unbracketed(host) {
		return "", false // "tcp://::1:5557": nobody can say where the port starts
	}
	return unbracketed(host), true
}

// rankCount reads dp_size: 0, null or absent mean one rank.
func rankCount(raw json.RawMessage, most int) (int, error) {
	if absent(raw) {
		return 1, nil
	}
	n, err := integer(raw)
	switch {
	case err != nil:
		return 0, fmt.Errorf("dp_size: %w", err)
	case n < 0:
		return 0, fmt.Errorf("dp_size: %d is negative", n)
	case n > int64(most):
		return 0, fmt.Errorf("dp_size: %d is above the bound of %d ranks", n, most)
	}
	return max(int(n), 1), nil
}

// numberError is what is wrong with a number. reason is a label for counters,
// the same as package snapshot's for the same fault.
type numberError struct{ reason, text string }

func (e *numberError) Error() string { return e.text }

func badNumber(reason, format string, args ...any) error {
	return &numberError{reason, fmt.Sprintf(format, args...)}
}

// number reads the text of a JSON number.
func number(raw json.RawMessage) (string, error) {
	s := string(bytes.TrimSpace(raw))
	if s == "" {
		return "", badNumber("type", "missing")
	}
	if s[0] != '-' && (s[0] < '0' || s[0] > '9') {
		return "", badNumber("type", "%s, not a number", kindOf(raw))
	}
	return s, nil
}

// integer reads a JSON number that is one. JSON does not tell 5559 from 5559.0,
// so neither do we; 5559.5, "5559" and 1e99 are refused in words.
func integer(raw json.RawMessage) (int64, error) {
	s, err := number(raw)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil {
		return n, nil
	}
	f, ferr := strconv.ParseFloat(s, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), errors.Is(ferr, strconv.ErrRange), f < -1<<63, f >= 1<<63:
		return 0, badNumber("out_of_range", "%s is out of range", clip(s))
	case ferr != nil:
		return 0, badNumber("type", "%s is not a number", clip(s))
	case f != math.Trunc(f):
		return 0, badNumber("not_integer", "%s is not an integer", clip(s))
	}
	return int64(f), nil
}

// absent reports whether a field is not there, or null.
func absent(raw json.RawMessage) bool { return raw == nil || isNull(raw) }

func isNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }

// kindOf names the type of a JSON value for a message.
func kindOf(raw []byte) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "empty"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}
