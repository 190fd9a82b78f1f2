package zmqsub

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// target is a parsed endpoint: either an address or a name to look up.
type target struct {
	addr netip.Addr // invalid if host is a name
	host string     // "" if addr is valid
	port uint16
}

// parseEndpoint takes tcp://host:port, where host is an IPv4 address, an IPv6
// address in brackets or a DNS name. Wildcards are addresses to bind, not to
// dial: what they stand for is known to whoever read the advertisement.
func parseEndpoint(endpoint string) (target, error) {
	bad := func(problem string) (target, error) {
		return target{}, &EndpointError{Endpoint: endpoint, Problem: problem}
	}
	rest, ok := strings.CutPrefix(endpoint, "tcp://")
	if !ok {
		return bad("does not start with tcp://")
	}
	host, portText, err := net.SplitHostPort(rest)
	if err != nil {
		return bad("is not host:port")
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		return bad("port is not within 1 to 65535")
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		switch {
		case addr.IsUnspecified():
			return bad("a wildcard address cannot be dialled")
		case addr.Zone() != "" && !isName(addr.Zone()):
			return bad("bad zone")
		}
		return target{addr: addr.Unmap(), port: uint16(port)}, nil
	}
	if !isName(host) {
		return bad("host is neither an IP address nor a name")
	}
	return target{host: host, port: uint16(port)}, nil
}

// isName is deliberately loose about what DNS allows, and strict about what
// libzmq would read as something else (";" splits off a source address, "*" is
// a wildcard, a NUL ends the string).
func isName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_':
		default:
			return false
		}
	}
	return true
}

// dialString is the form that libzmq takes. It never holds a name: libzmq looks
// names up on its I/O thread, where one slow DNS server stops the traffic of
// every socket, and closing the context with it.
func dialString(addr netip.Addr, port uint16) string {
	return "tcp://" + netip.AddrPortFrom(addr, port).String()
}
