//go:build chaos && linux

package chaos

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/selector"
)

// nameServer answers over TCP, so that there can be links to it, with the same
// addresses for every name.
type nameServer struct {
	addr  string
	mu    sync.Mutex
	hosts []string // none: there is no such name
}

func startNameServer(t *testing.T) *nameServer {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(newHost(), "5301"))
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{addr: l.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				stop := context.AfterFunc(t.Context(), func() { c.Close() })
				defer stop()
				defer c.Close()
				for s.answer(c) == nil {
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return s
}

func (s *nameServer) set(hosts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts = hosts
}

func (s *nameServer) answer(c net.Conn) error {
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return err
	}
	question := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(c, question); err != nil {
		return err
	}
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return err
	}
	if len(m.Questions) != 1 {
		return errors.New("not one question")
	}
	q := m.Questions[0]
	m.Header.Response, m.Header.Authoritative, m.Header.RecursionAvailable = true, true, true
	m.Additionals = nil
	s.mu.Lock()
	if len(s.hosts) == 0 {
		m.Header.RCode = dnsmessage.RCodeNameError
	}
	for _, host := range s.hosts {
		if q.Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: netip.MustParseAddr(host).As4()},
			})
		}
	}
	s.mu.Unlock()
	answer, err := m.Pack()
	if err != nil {
		return err
	}
	_, err = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
	return err
}

// resolver asks the name server behind a link.
func resolver(l *link) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", l.addr)
		if err == nil {
			// The resolver leaves a goroutine reading when its context has ended.
			context.AfterFunc(ctx, func() { c.Close() })
		}
		return c, err
	}}
}

func TestNameServersThatFailInEveryWayChangeNothing(t *testing.T) {
	leavesNothing(t)
	names := startNameServer(t)
	a, b, late := startEngine(t, engineConfig{}), startEngine(t, engineConfig{}), startEngine(t, engineConfig{})
	names.set(a.host, b.host)
	var gateways []*gateway
	var links []*link
	for range faults {
		l := newLink(t, net.JoinHostPort(newHost(), "5300"), names.addr)
		g := startGateway(t, gatewayConfig{source: &discovery.DNS{
			Name: "engines.example.", Port: httpPort, Network: "ip4", Interval: window / 2, Resolver: resolver(l),
		}}, a, b)
		gateways, links = append(gateways, g), append(links, l)
	}
	var clients []*traffic
	for i, f := range faults {
		g := gateways[i]
		g.knows(late)
		g.trusts(a, b)
		clients = append(clients, g.startTraffic(1))
		f.inject(links[i])
	}
	names.set(late.host, a.host)
	for i, g := range gateways {
		eventually(t, "the failure of the name server to show, whose link "+faults[i].name, func() error {
			st := g.fleet.Status().Sources[0]
			if st.Problem == "" {
				return fmt.Errorf("%+v", st)
			}
			return nil
		})
		if n := g.table.View().Len(); n != 2 {
			t.Errorf("%s: %d workers are left", faults[i].name, n)
		}
		g.trusts(a, b)
	}
	for i, g := range gateways {
		links[i].heal()
		g.trusts(a, late)
		eventually(t, "the one to be gone that is no longer named", func() error {
			if _, there := g.table.Worker(b.url); there {
				return errors.New("it is there")
			}
			return nil
		})
	}
	names.set() // NXDOMAIN is no list
	for i, g := range gateways {
		eventually(t, "the missing name to show", func() error {
			st := g.fleet.Status().Sources[0]
			if st.Problem == "" {
				return fmt.Errorf("%+v", st)
			}
			return nil
		})
		g.trusts(a, late)
		clients[i].end(a, b, late)
	}
}

// Both ask the same name server, each over a link of its own, in its own time. The
// name leaves out who is not ready, so at first it has neither of them.
func TestTwoReplicasThatRestartTogetherPickAllTheWhile(t *testing.T) {
	leavesNothing(t)
	names := startNameServer(t)
	var engines []*engine
	for range 4 {
		engines = append(engines, startEngine(t, engineConfig{}))
	}
	type replica struct {
		*gateway
		link  *link
		host  string
		peers *discovery.Peers
		stop  func()
	}
	start := func(host string) *replica {
		l := newLink(t, net.JoinHostPort(newHost(), "5300"), names.addr)
		p := &discovery.Peers{
			Source: &discovery.DNS{Name: "gateways.example.", Port: 8080, Network: "ip4", Interval: window / 5, EmptyOnNotFound: true, Resolver: resolver(l)},
			Self:   host, Logger: slog.New(slog.DiscardHandler),
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() {
			if err := p.Run(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
		stop := sync.OnceFunc(func() {
			cancel()
			running.Wait()
		})
		t.Cleanup(stop)
		g := startGateway(t, gatewayConfig{selector: selector.Config{Peers: p.Replica}}, engines...)
		return &replica{g, l, host, p, stop}
	}
	other := newHost()
	var both []*replica
	for range 2 {
		both = append(both, start(newHost()))
	}
	slices.SortFunc(both, func(a, b *replica) int { return strings.Compare(a.host, b.host) })
	all := []*traffic{both[0].startTraffic(2), both[1].startTraffic(2)}
	place := func(want ...string) {
		t.Helper()
		for i, r := range both {
			eventually(t, fmt.Sprintf("replica %d to be %s", i, want[i]), func() error {
				k, n := r.peers.Replica()
				if k < 0 || n > 0 && k >= n {
					t.Fatalf("replica %d of %d", k, n)
				}
				if got := fmt.Sprint(k, " of ", n); got != want[i] {
					return fmt.Errorf("it is %s: %+v", got, r.peers.Status())
				}
				return nil
			})
		}
	}
	place("0 of 1", "0 of 1") // each counts itself, and the name has nobody
	names.set(both[0].host)
	place("0 of 1", "1 of 2")
	names.set(both[1].host, both[0].host)
	place("0 of 2", "1 of 2")
	both[0].link.reset()
	both[1].link.refuse()
	names.set(both[0].host, both[1].host, other)
	for _, r := range both {
		eventually(t, "the failure to show", func() error {
			if st := r.peers.Status(); st.Sources[0].Problem == "" {
				return fmt.Errorf("%+v", st)
			}
			return nil
		})
	}
	place("0 of 2", "1 of 2") // what it knew stays
	for _, r := range both {
		r.link.heal()
	}
	eventually(t, "three replicas", func() error {
		for _, r := range both {
			if _, n := r.peers.Replica(); n != 3 {
				return fmt.Errorf("%d", n)
			}
		}
		return nil
	})
	for i, tr := range all {
		both[i].trusts(engines...)
		tr.end(engines...)
		both[i].stop()
	}
}
