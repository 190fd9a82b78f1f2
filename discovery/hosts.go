package discovery

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// ErrURL is what every error about a worker's URL wraps.
var ErrURL = errors.New("discovery: not a worker URL")

// maxName bounds the URL of a worker, and its id: both are in every log line.
const maxName = 1 << 10

// CheckURL reports what is wrong with the URL of an engine, as ErrURL, for hosts
// that want to tell at once what a Fleet would say in its status and its log.
func CheckURL(raw string) error {
	_, err := parseWorkerURL(raw)
	return err
}

// parseWorkerURL reads the URL of an engine: http or https, a host, and
// optionally a port, a path prefix and user information. The result is
// normal: two spellings of one engine give one string (see urlKey).
func parseWorkerURL(raw string) (*url.URL, error) {
	bad := func(why string) (*url.URL, error) {
		return nil, fmt.Errorf("%w: %q: %s", ErrURL, clipTo(redact(raw), maxName), why)
	}
	if len(raw) > maxName {
		return bad(fmt.Sprintf("%d bytes are above the bound of %d", len(raw), maxName))
	}
	u, err := url.Parse(strings.TrimSpace(raw))
	switch {
	case err != nil && !strings.Contains(raw, "://"):
		// "10.0.0.1:30000" is by far the most common slip, and the parser's own
		// words for it ("first path segment ...") help nobody.
		return bad("want http://host:port or https://host:port")
	case err != nil:
		return bad(parseFault(raw, err))
	case u.Scheme != "http" && u.Scheme != "https":
		return bad("want http://host:port or https://host:port")
	case u.Opaque != "" || u.Host == "":
		return bad("no host")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return bad("a worker URL has neither query nor fragment")
	}
	host, ok := cleanHost(u.Hostname())
	if !ok {
		return bad("host is neither an IP address nor a host name in ASCII")
	}
	port := u.Port()
	if port != "" {
		n, err := strconv.Atoi(port)
		if err != nil || n < 1 || n > 65535 {
			return bad("port is outside 1..65535")
		}
		if port = strconv.Itoa(n); (u.Scheme == "http" && n == 80) || (u.Scheme == "https" && n == 443) {
			port = ""
		}
	}
	if u.Host = bracketed(host); port != "" {
		u.Host = net.JoinHostPort(host, port)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = strings.TrimRight(u.RawPath, "/")
	return u, nil
}

// parseFault is the parser's complaint. Its text may quote a piece of the URL
// that belongs to a password, so it is passed on only where there is none.
func parseFault(raw string, err error) string {
	if strings.Contains(raw, "@") {
		return "malformed"
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	if strings.Count(raw, ":") > 2 && !strings.Contains(raw, "[") {
		return err.Error() + " (an IPv6 host needs brackets)"
	}
	return err.Error()
}

// redact cuts user information out of a URL that need not be well-formed. It
// cuts up to the last @, since an unescaped password may hold one itself.
func redact(raw string) string {
	at := strings.LastIndexByte(raw, '@')
	if at < 0 {
		return raw
	}
	start := 0
	if i := strings.Index(raw, "//"); i >= 0 && i < at {
		start = i + len("//")
	}
	return raw[:start] + raw[at+1:]
}

// urlKey is the URL without user information: what identifies an engine, and
// what may be logged.
func urlKey(u *url.URL) string {
	bare := *u
	bare.User = nil
	return bare.String()
}

// cleanHost brings a host without brackets into one spelling: addresses in
// their shortest form, names in lower case. It refuses anything that could mean
// something else inside a transport's endpoint ("a;b" has two addresses to
// ZeroMQ, "a:1" a port).
func cleanHost(host string) (string, bool) {
	if addr, err := netip.ParseAddr(host); err == nil {
		if zone := addr.Zone(); zone != "" && !plain(zone) {
			return "", false
		}
		return addr.Unmap().String(), true
	}
	if host == "" || !plain(host) {
		return "", false
	}
	return strings.ToLower(host), true
}

// plain reports whether s holds only what host and interface names consist of.
func plain(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return true
}

// bracketed puts an IPv6 address into brackets, as it stands in a URL, with the
// percent sign of a zone escaped by url.URL itself.
func bracketed(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// unbracketed strips the brackets that an engine puts around an IPv6 host, once.
func unbracketed(host string) string {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if inner, ok := strings.CutSuffix(inner, "]"); ok {
			return inner
		}
	}
	return host
}

// endpoint is the address that a load socket is dialled at. A zone stays as it
// is: an endpoint is no URL and knows no escapes.
func endpoint(host string, port int) string {
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// dialHost applies the host rule to a host out of an engine's answer. A
// wildcard (what the engine bound, not where it is), nothing, and the URL's own
// host in any spelling give the URL's host. Another machine's is taken only
// where allow says so: an engine must not be able to point us at hosts of its
// choice. note says what was advertised and not used, and why.
func dialHost(own, advertised string, allow func(host string) bool) (host, note string) {
	h := unbracketed(strings.TrimSpace(advertised))
	if h == "" || h == "*" {
		return own, ""
	}
	clean, ok := cleanHost(h)
	if !ok {
		return own, fmt.Sprintf("advertised host %q is not a host, using %s", clip(advertised), own)
	}
	if clean == own {
		return own, ""
	}
	if addr, err := netip.ParseAddr(clean); err == nil && addr.WithZone("").IsUnspecified() {
		return own, ""
	}
	if allow != nil && allow(clean) {
		return clean, ""
	}
	return own, fmt.Sprintf("advertised host %s is not allowed, using %s", clip(clean), own)
}

// AllowHosts returns a function for [Client.AllowHost] that allows the given
// hosts: host names (compared without case), IP addresses, and address ranges
// such as "10.0.0.0/8". A name stands for itself only: an advertised address is
// never looked up. A list entry that is none of these is an error.
func AllowHosts(hosts ...string) (func(host string) bool, error) {
	exact := make(map[string]bool, len(hosts))
	var ranges []netip.Prefix
	for _, h := range hosts {
		if strings.Contains(h, "/") {
			p, err := netip.ParsePrefix(h)
			if err != nil {
				return nil, fmt.Errorf("discovery: allowed host %q: %w", h, err)
			}
			ranges = append(ranges, p.Masked())
			continue
		}
		clean, ok := cleanHost(unbracketed(h))
		if !ok {
			return nil, fmt.Errorf("discovery: allowed host %q is neither an IP address nor a host name", h)
		}
		exact[clean] = true
	}
	return func(host string) bool {
		clean, ok := cleanHost(unbracketed(host))
		if !ok {
			return false
		}
		if exact[clean] {
			return true
		}
		addr, err := netip.ParseAddr(clean)
		if err != nil {
			return false
		}
		for _, p := range ranges {
			if p.Contains(addr.WithZone("")) {
				return true
			}
		}
		return false
	}, nil
}

// clip keeps what an engine said short enough for a log line.
func clip(s string) string { return clipTo(s, 64) }

func clipTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
