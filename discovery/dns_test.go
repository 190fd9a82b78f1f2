package discovery

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeResolver answers what a test last set, and notes when it was asked.
type fakeResolver struct {
	mu      sync.Mutex
	addrs   []string
	srv     []*net.SRV
	err     error
	hang    bool
	network string
	at      []time.Time
}

func (r *fakeResolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	r.mu.Lock()
	r.at, r.network = append(r.at, time.Now()), network
	hang := r.hang
	r.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []netip.Addr
	for _, a := range r.addrs {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, r.err
}

func (r *fakeResolver) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *fakeResolver) LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = append(r.at, time.Now())
	if service != "" || proto != "" || name != "_http._tcp.engines.example" {
		return "", nil, errors.New("asked for " + service + proto + name)
	}
	return name, r.srv, r.err
}

func TestDNSAddressesAreSortedWorkersWithoutDuplicates(t *testing.T) {
	for _, c := range []struct {
		name  string
		dns   *DNS
		addrs []string
		want  []string
	}{
		{"IPv4", &DNS{Port: 30000}, []string{"10.0.0.2", "10.0.0.1", "::ffff:10.0.0.2"}, []string{"http://10.0.0.1:30000", "http://10.0.0.2:30000"}},
		{"IPv6", &DNS{Port: 30000, Network: "ip6"}, []string{"2001:db8::5", "fe80::1%eth0"}, []string{"http://[2001:db8::5]:30000", "http://[fe80::1%25eth0]:30000"}},
		{"TLS and a path", &DNS{Port: 443, Scheme: "https", Path: "models/a"}, []string{"10.0.0.1"}, []string{"https://10.0.0.1:443/models/a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &fakeResolver{addrs: c.addrs}
				c.dns.Name, c.dns.Resolver = "engines.example", r
				start(t, c.dns).expect(t, c.want)
				if _, refused := admit(urls(c.want...)); len(refused) != 0 {
					t.Errorf("emits what is refused: %+v", refused)
				}
				if want := max(c.dns.Network, "ip"); r.network != want {
					t.Errorf("network %q, want %q", r.network, want)
				}
			})
		})
	}
}

func TestDNSServiceRecords(t *testing.T) {
	for _, c := range []struct {
		name    string
		records []*net.SRV
		err     error
		want    [][]string
		problem string
	}{
		{
			name:    "targets",
			records: []*net.SRV{{Target: "b.example.", Port: 30001, Priority: 1}, {Target: "A.example.", Port: 30000}, {Target: "a.example.", Port: 30000, Weight: 7}},
			want:    [][]string{{"http://a.example:30000", "http://b.example:30001"}},
		},
		{
			name:    "some records malformed",
			records: []*net.SRV{{Target: "a.example.", Port: 1}},
			err:     &net.DNSError{Err: "DNS response contained records which contain invalid names"},
			want:    [][]string{{"http://a.example:1"}},
			problem: "invalid names",
		},
		{
			name:    "port 0 and a bad name",
			records: []*net.SRV{{Target: "a.example.", Port: 1}, {Target: "b.example.", Port: 0}, {Target: "c;d.", Port: 1}},
			want:    [][]string{{"http://a.example:1"}},
			problem: "no worker",
		},
		{name: "service not available here", records: []*net.SRV{{Target: ".", Port: 0}}, want: [][]string{{}}},
		{name: "nothing usable", records: []*net.SRV{{Target: "b.example.", Port: 0}}, problem: "no worker"},
		{name: "no records", problem: "no such host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &DNS{Name: "_http._tcp.engines.example", SRV: true, Resolver: &fakeResolver{srv: c.records, err: c.err}}
				start(t, d).expect(t, c.want...)
				if p := d.Status()[0].Problem; !strings.Contains(p, c.problem) || (c.problem == "") != (p == "") {
					t.Errorf("problem %q, want %q", p, c.problem)
				}
			})
		})
	}
}

func TestDNSFailureKeepsTheLastSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeResolver{addrs: []string{"10.0.0.1"}}
		d := &DNS{Name: "engines.example", Port: 1, Interval: 10 * time.Second, Resolver: r}
		out := start(t, d)
		next := func(change func()) {
			r.set(change)
			advance(20 * time.Second) // a look-up that hangs, and the longest pause after it
		}
		first := []string{"http://10.0.0.1:1"}
		next(func() {})
		out.expect(t, first) // unchanged is not emitted again
		next(func() { r.err = errors.New("server misbehaving") })
		out.expect(t, first)
		if p := d.Status()[0]; p.Problem != "server misbehaving" || p.Workers != 1 {
			t.Errorf("status %+v", p)
		}
		next(func() { r.err = notFound("engines.example") })
		next(func() { r.err, r.addrs = nil, nil }) // NODATA in another guise
		next(func() { r.hang = true })
		out.expect(t, first)
		next(func() { r.hang, r.addrs = false, []string{"10.0.0.1"} })
		out.expect(t, first)
		if p := d.Status()[0]; p.Problem != "" {
			t.Errorf("status %+v", p)
		}
		next(func() { r.addrs = []string{"10.0.0.1", "10.0.0.2"} })
		out.expect(t, first, []string{"http://10.0.0.1:1", "http://10.0.0.2:1"})
	})
}

func TestDNSNotFoundMeansNobodyWhereThatIsSwitchedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeResolver{addrs: []string{"10.0.0.1"}}
		d := &DNS{Name: "engines.example", Port: 1, EmptyOnNotFound: true, Resolver: r}
		out := start(t, d)
		r.set(func() { r.err = errors.New("server misbehaving") })
		advance(time.Minute)
		r.set(func() { r.err = notFound("engines.example") })
		advance(time.Minute)
		out.expect(t, []string{"http://10.0.0.1:1"}, []string{})
	})
}

func TestDNSIsAskedAtTheIntervalWithJitterAndSoonerAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeResolver{addrs: []string{"10.0.0.1"}}
		start(t, &DNS{Name: "engines.example", Port: 1, Interval: 10 * time.Second, Resolver: r})
		advance(200 * time.Second)
		gaps := make(map[time.Duration]bool)
		for i := 1; i < len(r.at); i++ {
			gap := r.at[i].Sub(r.at[i-1])
			gaps[gap] = true
			if gap < 9*time.Second || gap > 11*time.Second {
				t.Errorf("gap %v", gap)
			}
		}
		if len(gaps) < 5 {
			t.Errorf("no jitter: %v", gaps)
		}

		r.set(func() { r.err, r.at = errors.New("no"), nil })
		advance(50 * time.Second)
		for i, most := range []time.Duration{1, 2, 4, 8} {
			if gap := r.at[i+1].Sub(r.at[i]); gap > most*1100*time.Millisecond {
				t.Errorf("failure %d: asked again after %v", i+1, gap)
			}
		}
	})
}

func TestDNSThatMakesNoSenseFailsAtOnce(t *testing.T) {
	for _, d := range []*DNS{
		{Port: 1},
		{Name: "a"},
		{Name: "a", Port: 65536},
		{Name: "a", Port: 1, Scheme: "tcp"},
		{Name: "a", Port: 1, Network: "tcp"},
	} {
		if err := d.Run(t.Context(), func([]Worker) { t.Error("emitted") }); err == nil || d.Status()[0].Problem != err.Error() {
			t.Errorf("got %v, status %+v", err, d.Status())
		}
	}
}
