package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// DefaultDNSInterval is how often a DNS name is looked up.
	DefaultDNSInterval = 30 * time.Second
	// dnsTimeout bounds one look-up.
	dnsTimeout = 5 * time.Second
	// dnsRetry is the first pause after a look-up that failed; it doubles up to
	// the interval.
	dnsRetry = time.Second
)

// Resolver looks names up. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

// DNS is a source that looks its workers up under a name, again and again.
//
// Without SRV, every address of Name (A and AAAA) is a worker at Port. A machine
// with an address of either kind would be two workers: set Network to "ip4" or
// "ip6" for a name that has both. With SRV, every target of the SRV records of
// Name is a worker at the record's port; priorities and weights are not used,
// choosing among workers is what this library is for.
//
// A look-up that fails changes nothing: the last set stays, and the problem is
// logged and in the status. That goes for a name that does not exist or has no
// records (NXDOMAIN, NODATA) as well, because a name server that is just being
// restarted says the same, and routing to engines that are gone fails no more
// requests than routing to none. Where a name does lose its records on purpose,
// such as a headless service scaled to zero, set EmptyOnNotFound.
type DNS struct {
	Name string
	Port int    // of every worker; not used with SRV
	SRV  bool   // Name is the name of SRV records, such as _http._tcp.engines.example
	Path string // path prefix of every worker's URL

	Scheme  string // "http" or "https"; empty means http
	Network string // "ip", "ip4" or "ip6"; empty means ip
	Poll    bool   // of every worker

	// Interval is the time between look-ups, give or take a tenth, so that many
	// gateways do not ask in step; 0 means DefaultDNSInterval.
	Interval time.Duration
	// EmptyOnNotFound makes a name that is not found mean that there are no
	// workers.
	EmptyOnNotFound bool

	Resolver Resolver     // nil means net.DefaultResolver
	Logger   *slog.Logger // nil means none

	sourceState
}

// Run implements Source. It fails at once if Name, Port, Scheme or Network make
// no sense.
func (d *DNS) Run(ctx context.Context, emit func([]Worker)) error {
	if err := d.check(); err != nil {
		d.problem(err.Error())
		return err
	}
	interval := d.Interval
	if interval <= 0 {
		interval = DefaultDNSInterval
	}
	var last []Worker
	known := false
	retry := dnsRetry
	for {
		pause := jittered(interval)
		workers, warning, err := d.lookup(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if d.problem(err.Error()) {
				d.log(slog.LevelError, "discovery: look-up failed, keeping the last set", "reason", err)
			}
			pause = min(jittered(retry), pause)
			retry = min(2*retry, interval)
		default:
			retry = dnsRetry
			if known && slices.Equal(workers, last) {
				d.warn(warning)
				break
			}
			known, last = true, workers
			d.emitted(len(workers), nil)
			d.warn(warning)
			d.log(slog.LevelInfo, "discovery: looked up", "workers", len(workers))
			emit(slices.Clone(workers))
		}
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// Status implements StatusSource.
func (d *DNS) Status() []SourceStatus { return d.read("dns " + d.Name) }

func (d *DNS) check() error {
	switch {
	case d.Name == "":
		return errors.New("discovery: DNS: no name")
	case !d.SRV && (d.Port < 1 || d.Port > maxPort):
		return fmt.Errorf("discovery: DNS: port %d is outside 1..%d", d.Port, maxPort)
	case d.Scheme != "" && d.Scheme != "http" && d.Scheme != "https":
		return fmt.Errorf("discovery: DNS: scheme %q is neither http nor https", d.Scheme)
	case d.Network != "" && d.Network != "ip" && d.Network != "ip4" && d.Network != "ip6":
		return fmt.Errorf("discovery: DNS: network %q is none of ip, ip4 and ip6", d.Network)
	}
	return nil
}

// lookup returns the set, sorted and without duplicates. warning is what was
// wrong with a part of the answer.
func (d *DNS) lookup(ctx context.Context) (workers []Worker, warning string, err error) {
	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	var resolver Resolver = net.DefaultResolver
	if d.Resolver != nil {
		resolver = d.Resolver
	}
	if d.SRV {
		workers, warning, err = d.lookupSRV(ctx, resolver)
	} else {
		workers, err = d.lookupAddrs(ctx, resolver)
	}
	var notFound *net.DNSError
	if errors.As(err, &notFound) && notFound.IsNotFound && d.EmptyOnNotFound {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(workers, func(a, b Worker) int { return strings.Compare(a.URL, b.URL) })
	return slices.Compact(workers), warning, nil
}

func (d *DNS) lookupAddrs(ctx context.Context, r Resolver) ([]Worker, error) {
	network := d.Network
	if network == "" {
		network = "ip"
	}
	addrs, err := r.LookupNetIP(ctx, network, d.Name)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, notFound(d.Name)
	}
	if len(addrs) > MaxWorkers {
		return nil, tooMany("addresses")
	}
	workers := make([]Worker, 0, len(addrs))
	for _, a := range addrs {
		// A resolver may return an IPv4 address in its IPv6 form, and then in
		// the other one the next time.
		workers = append(workers, d.worker(a.Unmap().String(), d.Port))
	}
	return workers, nil
}

func (d *DNS) lookupSRV(ctx context.Context, r Resolver) ([]Worker, string, error) {
	_, records, err := r.LookupSRV(ctx, "", "", d.Name)
	if err != nil && len(records) == 0 {
		return nil, "", err
	}
	if len(records) == 0 {
		return nil, "", notFound(d.Name)
	}
	if len(records) > MaxWorkers {
		return nil, "", tooMany("SRV records")
	}
	var warning string
	if err != nil { // some records were malformed; the rest are good
		warning = err.Error()
	}
	var workers []Worker
	for _, rec := range records {
		host, ok := cleanHost(strings.TrimSuffix(rec.Target, "."))
		if rec.Target == "." && len(records) == 1 {
			break // RFC 2782: the service is decidedly not available here
		}
		if !ok || rec.Port == 0 {
			warning = fmt.Sprintf("SRV record %q port %d is no worker", clip(rec.Target), rec.Port)
			continue
		}
		workers = append(workers, d.worker(host, int(rec.Port)))
	}
	if len(workers) == 0 && warning != "" {
		return nil, "", errors.New(warning)
	}
	return workers, warning, nil
}

func (d *DNS) worker(host string, port int) Worker {
	u := url.URL{Scheme: d.Scheme, Host: net.JoinHostPort(host, strconv.Itoa(port)), Path: d.Path}
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	if u.Path != "" && u.Path[0] != '/' {
		u.Path = "/" + u.Path
	}
	return Worker{URL: u.String(), Poll: d.Poll}
}

func (d *DNS) warn(warning string) {
	if d.problem(warning) && warning != "" {
		d.log(slog.LevelWarn, "discovery: part of the answer is of no use", "reason", warning)
	}
}

func (d *DNS) log(level slog.Level, msg string, args ...any) {
	if d.Logger != nil {
		d.Logger.Log(context.Background(), level, msg, append([]any{"name", d.Name}, args...)...)
	}
}

func notFound(name string) error {
	return &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

// jittered returns d, give or take a tenth.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1)
}
