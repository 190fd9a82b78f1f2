package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// at returns the addresses of a machine, for Peers.own.
func at(addrs ...string) func() ([]netip.Addr, error) {
	return func() ([]netip.Addr, error) {
		var out []netip.Addr
		for _, a := range addrs {
			out = append(out, netip.MustParseAddr(a))
		}
		return out, nil
	}
}

// startPeers runs p in the test's bubble until the test ends.
func startPeers(t *testing.T, p *Peers) *Peers {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	synctest.Wait()
	return p
}

func expectPlace(t *testing.T, p *Peers, place Place, replica, replicas int) {
	t.Helper()
	st := p.Status()
	if r, n := p.Replica(); r != replica || n != replicas || st.Replica != r || st.Replicas != n || st.Place != place {
		t.Errorf("replica %d of %d, want %d of %d, %v; status %+v", r, n, replica, replicas, place, st)
	}
	if replicas > 0 && (len(st.Peers) != replicas || st.Peers[replica] != st.Self) || replicas == 0 && st.Self != "" {
		t.Errorf("status is at odds with itself: %+v", st)
	}
}

func TestEveryReplicaHasTheSameOrderOfThem(t *testing.T) {
	for _, c := range []struct {
		name  string
		lists [][]string // spellings of one list
		want  []string
	}{
		{
			"order and duplicates",
			[][]string{
				{"http://10.0.0.1:80", "http://10.0.0.2:80", "http://10.0.0.3:80"},
				{"http://10.0.0.3:80", "http://10.0.0.1:80", "http://10.0.0.2:80"},
				{"http://10.0.0.2:80", "http://10.0.0.3:80", "http://10.0.0.2:80", "http://10.0.0.1:80", "http://10.0.0.1:80"},
			},
			[]string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"},
		},
		{
			"IPv4 in IPv6",
			[][]string{{"http://9.0.0.1:8080", "http://10.0.0.1:8080"}, {"http://[::ffff:9.0.0.1]:8080", "http://[::FFFF:a00:1]:8080"}},
			[]string{"10.0.0.1:8080", "9.0.0.1:8080"},
		},
		{
			"IPv6",
			[][]string{
				{"http://[fe80::a]:8080", "http://[2001:db8::5]:8080"},
				{"http://[2001:DB8:0:0::5]:8080", "http://[FE80:0::A]:8080"},
				{"http://[2001:db8::5]:8080", "http://[fe80::a%25eth0]:8080", "http://[fe80::a%25ens3]:8080"},
			},
			[]string{"[2001:db8::5]:8080", "[fe80::a]:8080"},
		},
		{
			"case and trailing dot",
			[][]string{{"http://a.example:1", "http://b.example:1"}, {"http://B.Example.:1", "http://A.EXAMPLE:1"}, {"http://a.example.:1", "http://b.example:1", "http://a.example:1"}},
			[]string{"a.example:1", "b.example:1"},
		},
		{
			"trailing dot of an address",
			[][]string{{"http://10.0.0.5:1"}, {"http://10.0.0.5.:1"}},
			[]string{"10.0.0.5:1"},
		},
		{
			"default ports",
			[][]string{{"http://a", "https://a", "https://b"}, {"https://b:443", "http://a:80/", "http://a:443"}, {"https://a:080", "https://a", "http://b:443"}},
			[]string{"a:80", "a:443", "b:443"},
		},
		{
			"what is no part of the place",
			[][]string{{"http://a:1", "http://b:2"}, {"http://user:s3cret@b:2/path", "https://a:1/", "http://a:1/other"}},
			[]string{"a:1", "b:2"},
		},
		{
			"ports by number",
			[][]string{{"http://a:900", "http://a:8080", "http://a:10000"}},
			[]string{"a:900", "a:8080", "a:10000"},
		},
		{
			"hosts before ports", // ':' comes after '0' and before 'a'
			[][]string{{"http://10.0.0.50:1", "http://10.0.0.5:2", "http://10.0.0.5:1", "http://gateway:1", "http://gateway-1:1"}},
			[]string{"10.0.0.5:1", "10.0.0.5:2", "10.0.0.50:1", "gateway:1", "gateway-1:1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, list := range c.lists {
				for range 5 {
					rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
					for i, self := range c.want {
						parsed, err := parseSelf(self)
						if err != nil {
							t.Fatal(err)
						}
						l := &lookout{self: parsed}
						l.take(urls(list...))
						st := l.look()
						if !slices.Equal(st.Peers, c.want) || st.Replica != i || st.Replicas != len(c.want) || st.Place != PlaceListed || st.Self != self || st.Problem != "" || st.Refused != nil {
							t.Fatalf("%q: self %s: got %+v", list, self, st)
						}
					}
				}
			}
		})
	}
}

func TestAReplicaFindsItselfInTheList(t *testing.T) {
	list := []string{"http://10.0.0.1:8080", "http://10.0.0.5:8080", "http://10.0.0.5:8081", "http://10.0.0.7:8080", "http://gateway-0.example:8080", "http://[fd00::5]:8080"}
	// in order:       0                       1                       2                       3                       5                                4
	for _, c := range []struct {
		name    string
		self    string
		own     []string
		list    []string
		place   Place
		replica int
		count   int
		problem string
	}{
		{name: "host of one replica", self: "10.0.0.7", place: PlaceListed, replica: 3, count: 6},
		{name: "host and port", self: "10.0.0.5:8081", place: PlaceListed, replica: 2, count: 6},
		{name: "a URL", self: "http://user:s3cret@10.0.0.5:8080/path", place: PlaceListed, replica: 1, count: 6},
		{name: "another spelling", self: " ::ffff:10.0.0.7\n", place: PlaceListed, replica: 3, count: 6},
		{name: "a name", self: "Gateway-0.Example.", place: PlaceListed, replica: 5, count: 6},
		{name: "a name and a port", self: "gateway-0.example.:8080", place: PlaceListed, replica: 5, count: 6},
		{name: "IPv6", self: "fd00:0::5", place: PlaceListed, replica: 4, count: 6},
		{name: "IPv6 in brackets", self: "[fd00::5]", place: PlaceListed, replica: 4, count: 6},
		{name: "IPv6 with port", self: "[FD00::5]:8080", place: PlaceListed, replica: 4, count: 6},
		{name: "IPv6 with zone", self: "fd00::5%eth0", place: PlaceListed, replica: 4, count: 6},
		{name: "own addresses do not matter with Self", self: "10.0.0.7", own: []string{"10.0.0.1"}, place: PlaceListed, replica: 3, count: 6},

		{name: "several on the host", self: "10.0.0.5", place: PlaceAmbiguous, problem: "2 entries are at 10.0.0.5, such as 10.0.0.5:8080 and 10.0.0.5:8081, and Self has no port"},

		{name: "not in the list: first", self: "10.0.0.0", place: PlaceCountedIn, replica: 0, count: 7, problem: "10.0.0.0 is not in the list"},
		{name: "not in the list: between", self: "10.0.0.6:1", place: PlaceCountedIn, replica: 3, count: 7, problem: "10.0.0.6:1 is not in the list"},
		{name: "not in the list: last", self: "http://other.example", place: PlaceCountedIn, replica: 6, count: 7, problem: "other.example:80 is not in the list"},
		{name: "not in the list: another port", self: "10.0.0.7:8081", place: PlaceCountedIn, replica: 4, count: 7, problem: "10.0.0.7:8081 is not"},
		{name: "not in the list: the place without a port is that with it", self: "10.0.0.5", list: []string{"http://10.0.0.50:8080", "http://10.0.0.51:8080"}, place: PlaceCountedIn, replica: 0, count: 3, problem: "not in the list"},
		{name: "alone in the list", self: "10.0.0.5", list: []string{"http://10.0.0.5:8080"}, place: PlaceListed, replica: 0, count: 1},
		{name: "empty list", self: "10.0.0.5", list: []string{}, place: PlaceCountedIn, replica: 0, count: 1, problem: "not in the list"},

		{name: "own address", own: []string{"127.0.0.1", "::1", "10.0.0.7", "fe80::7%eth0"}, place: PlaceListed, replica: 3, count: 6},
		{name: "own address, IPv4 in IPv6", own: []string{"::ffff:10.0.0.7"}, place: PlaceListed, replica: 3, count: 6},
		{name: "own address with zone", own: []string{"fe80::7%eth0"}, list: []string{"http://[fe80::7%25en0]:1", "http://[fe80::8]:1"}, place: PlaceListed, replica: 0, count: 2},
		{name: "two replicas on this machine", own: []string{"10.0.0.5"}, place: PlaceAmbiguous, problem: "2 entries are at addresses of this machine, such as 10.0.0.5:8080 and 10.0.0.5:8081, and Self"},
		{name: "listed by both families", own: []string{"10.0.0.7", "fd00::5"}, place: PlaceAmbiguous, problem: "such as 10.0.0.7:8080 and [fd00::5]:8080"},
		{name: "own address is not in the list", own: []string{"10.0.0.6"}, place: PlaceNotFound, problem: "no entry is at an address of this machine"},
		{name: "no own address", own: []string{}, place: PlaceNotFound, problem: "no entry is at an address of this machine"},
		{name: "empty list without Self", own: []string{"10.0.0.6"}, list: []string{}, place: PlaceNotFound, problem: "no entry is at an address of this machine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.list == nil {
					c.list = list
				}
				p := startPeers(t, &Peers{Source: Static(c.list...), Self: c.self, own: at(c.own...)})
				expectPlace(t, p, c.place, c.replica, c.count)
				if got := p.Status().Problem; !strings.Contains(got, c.problem) || (c.problem == "") != (got == "") {
					t.Errorf("problem %q, want %q", got, c.problem)
				}
				if p.Status().Changed != time.Now() {
					t.Errorf("changed %v", p.Status().Changed)
				}
			})
		})
	}
}

func TestSelfThatCannotBeIsRefusedAtOnce(t *testing.T) {
	for _, c := range []struct{ self, want string }{
		{" ", "neither an IP address nor a host name"},
		{":8080", "neither an IP address nor a host name"},
		{".", "neither an IP address nor a host name"},
		{"*:8080", "neither an IP address nor a host name"},
		{"gate way", "neither an IP address nor a host name"},
		{"10.0.0.5/8", "neither an IP address nor a host name"},
		{"10.0.0.5:0", "port is outside 1..65535"},
		{"10.0.0.5:65536", "port is outside 1..65535"},
		{"10.0.0.5:http", "port is outside 1..65535"},
		{"10.0.0.5:", "port is outside 1..65535"},
		{"0.0.0.0:8080", "all addresses of a machine"}, // what it listens on
		{"[::]:8080", "all addresses of a machine"},
		{"::ffff:0.0.0.0", "all addresses of a machine"},
		{"http://0.0.0.0", "all addresses of a machine"},
		{"ftp://10.0.0.5", "want http://host:port"},
		{"user:s3cret@10.0.0.5:8080", "neither an IP address nor a host name"},
		{"http://user:s3cret@10.0.0.5:0", "port is outside"},
	} {
		p := &Peers{Source: Static(), Self: c.self}
		err := p.Run(t.Context())
		if !errors.Is(err, ErrSelf) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") || strings.Count(err.Error(), "discovery: ") != 1 {
			t.Errorf("%q: got %v, want %q", c.self, err, c.want)
			continue
		}
		if check := CheckSelf(c.self); check == nil || check.Error() != err.Error() {
			t.Errorf("%q: CheckSelf says %v", c.self, check)
		}
		expectPlace(t, p, PlaceUnknown, 0, 0)
		if st := p.Status(); st.Problem != err.Error() {
			t.Errorf("status %+v", st)
		}
	}
	for _, self := range []string{"", "10.0.0.5", "gateway-0.example:8080"} {
		if err := CheckSelf(self); err != nil {
			t.Errorf("%q: %v", self, err)
		}
	}
	p := new(Peers)
	if err := p.Run(t.Context()); err != ErrNoSource || p.Status().Problem != err.Error() {
		t.Errorf("without a source: %v, %+v", err, p.Status())
	}
}

func TestEntriesThatAreNoReplicasAreRefusedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		var log logBuffer
		p := startPeers(t, &Peers{Source: source, Self: "10.0.0.5", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		expectPlace(t, p, PlaceUnknown, 0, 0)
		set := func(list ...string) {
			source.sets <- urls(list...)
			synctest.Wait()
		}

		// As long as there is no good list, nobody takes a bad one for an empty one.
		set("10.0.0.5:8080", "10.0.0.6:8080")
		expectPlace(t, p, PlaceUnknown, 0, 0)
		if st := p.Status(); !strings.Contains(st.Problem, "no usable entry among 2") || len(st.Refused) != 2 {
			t.Errorf("status %+v", st)
		}

		bad := []string{"10.0.0.6:8080", "http://user:s3cret@0.0.0.0:8080", "http://[::]:8080", "http://10.0.0.7:0"}
		set(append(bad, "http://10.0.0.4:8080", "http://10.0.0.5:8080")...)
		expectPlace(t, p, PlaceListed, 1, 2)
		st := p.Status()
		if len(st.Refused) != len(bad) || st.Problem != "" || strings.Contains(log.String(), "s3cret") {
			t.Errorf("status %+v, log %s", st, log.String())
		}
		clear(p.Status().Refused) // the caller's own
		st = p.Status()
		for i, want := range []string{"want http://host:port", "all addresses of a machine", "all addresses of a machine", "port is outside"} {
			if !strings.Contains(st.Refused[i].Reason, want) || strings.Contains(fmt.Sprint(st.Refused[i]), "s3cret") {
				t.Errorf("refused %+v, want %q", st.Refused[i], want)
			}
		}

		set(bad...)
		expectPlace(t, p, PlaceListed, 1, 2)
		if st := p.Status(); !strings.Contains(st.Problem, "no usable entry among 4") {
			t.Errorf("status %+v", st)
		}
		set("http://10.0.0.5:8080", "http://10.0.0.7:0")
		expectPlace(t, p, PlaceListed, 0, 1)
		if st := p.Status(); st.Problem != "" || len(st.Refused) != 1 {
			t.Errorf("status %+v", st)
		}
		for _, r := range bad {
			if n := strings.Count(log.String(), "replica refused\" replica="+redact(r)); n != 1 {
				t.Errorf("%s is logged %d times:\n%s", redact(r), n, log.String())
			}
		}
	})
}

// Lesson 28. The list is that of a headless service: it leaves out who is not ready,
// and each replica looks it up in its own time.
func TestTwoReplicasThatRestartTogetherAreNeverBothWithoutASliceForLongerThanOneRefresh(t *testing.T) {
	const (
		interval = 10 * time.Second
		refresh  = interval + interval/10
	)
	type step struct {
		addrs []string // nobody: the name is not found
		lasts time.Duration
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"nobody is ready at first", []step{{nil, time.Minute}, {[]string{"10.0.0.3"}, time.Minute}, {[]string{"10.0.0.2", "10.0.0.3"}, time.Minute}}},
		{"both become ready at once", []step{{nil, time.Minute}, {[]string{"10.0.0.3", "10.0.0.2"}, time.Minute}}},
		{"the old ones are still in the list", []step{{[]string{"10.0.0.1", "10.0.0.4"}, 5 * time.Second}, {[]string{"10.0.0.1"}, 7 * time.Second}, {nil, 7 * time.Second}, {[]string{"10.0.0.2"}, 7 * time.Second}, {[]string{"10.0.0.3", "10.0.0.2"}, time.Minute}}},
		{"with the addresses that they had", []step{{[]string{"10.0.0.2", "10.0.0.3"}, 5 * time.Second}, {nil, time.Minute}, {[]string{"10.0.0.3", "::ffff:10.0.0.2"}, time.Minute}}},
		{"a third stays", []step{{[]string{"10.0.0.1"}, 25 * time.Second}, {[]string{"10.0.0.3", "10.0.0.1"}, 3 * time.Second}, {[]string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, time.Minute}}},
	} {
		for _, self := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/self=%v", c.name, self), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := new(fakeResolver)
					show := func(addrs []string) {
						r.set(func() {
							r.addrs, r.err = addrs, nil
							if len(addrs) == 0 {
								r.err = notFound("gateway.example")
							}
						})
					}
					show(c.steps[0].addrs)
					var peers []*Peers
					for _, addr := range []string{"10.0.0.2", "10.0.0.3"} {
						p := &Peers{
							Source: &DNS{Name: "gateway.example", Port: 8080, Interval: interval, Resolver: r},
							own:    at("127.0.0.1", addr),
						}
						if self {
							p.Self = addr
						}
						peers = append(peers, startPeers(t, p))
					}

					var both time.Duration // without a slice that is due
					for _, s := range c.steps {
						show(s.addrs)
						for range s.lasts / time.Second {
							advance(time.Second)
							without := 0
							for _, p := range peers {
								replica, replicas := p.Replica()
								if replica < 0 || replica >= replicas && (replica != 0 || replicas != 0) {
									t.Fatalf("replica %d of %d", replica, replicas)
								}
								if replicas == 0 {
									without++
								}
							}
							// A list gives a slice to whom it names, and to whoever has a Self.
							due := slices.Contains(s.addrs, "10.0.0.2") || slices.Contains(s.addrs, "10.0.0.3") ||
								self && peers[0].Status().Place != PlaceUnknown
							if without < 2 || !due {
								both = 0
							} else if both += time.Second; both > refresh {
								t.Fatalf("both without a slice for %v of %v", both, s.addrs)
							}
						}
					}

					n := len(c.steps[len(c.steps)-1].addrs)
					expectPlace(t, peers[0], PlaceListed, n-2, n)
					expectPlace(t, peers[1], PlaceListed, n-1, n)
					if a, b := peers[0].Status().Peers, peers[1].Status().Peers; !slices.Equal(a, b) {
						t.Errorf("lists %q and %q", a, b)
					}
				})
			})
		}
	}
}

func TestReplicasThatAreNotInTheListYetHaveAPlaceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newScripted(), newScripted()
		first := startPeers(t, &Peers{Source: a, Self: "10.0.0.5"})
		second := startPeers(t, &Peers{Source: b, Self: "10.0.0.50:8080"})
		set := func(list ...string) {
			a.sets <- urls(list...)
			b.sets <- urls(list...)
			synctest.Wait()
		}
		set()
		expectPlace(t, first, PlaceCountedIn, 0, 1)
		expectPlace(t, second, PlaceCountedIn, 0, 1)
		set("http://10.0.0.51:8080")
		expectPlace(t, first, PlaceCountedIn, 0, 2)
		expectPlace(t, second, PlaceCountedIn, 0, 2)
		set("http://10.0.0.51:8080", "http://10.0.0.50:8080")
		expectPlace(t, first, PlaceCountedIn, 0, 3)
		expectPlace(t, second, PlaceListed, 0, 2)
		set("http://10.0.0.5:8080", "http://10.0.0.51:8080", "http://10.0.0.50:8080")
		expectPlace(t, first, PlaceListed, 0, 3) // where it has counted itself in
		expectPlace(t, second, PlaceListed, 1, 3)
		set("http://10.0.0.51:8080", "http://10.0.0.50:8080") // drained, and still serving
		expectPlace(t, first, PlaceCountedIn, 0, 3)
		set("http://10.0.0.51:8080", "http://10.0.0.50:8080", "http://10.0.0.52:8080")
		for range 3 { // looking again changes nothing
			expectPlace(t, first, PlaceCountedIn, 0, 4)
			clear(first.Status().Peers) // the caller's own
			advance(ownInterval)
		}
	})
}

func TestAReplicaWithoutAPlaceHasNoneUntilTheListSaysMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		p := startPeers(t, &Peers{Source: source, own: at("10.0.0.5")})
		for _, c := range []struct {
			list              []string
			place             Place
			replica, replicas int
		}{
			{[]string{"http://10.0.0.5:1", "http://10.0.0.6:1"}, PlaceListed, 0, 2},
			{[]string{"http://10.0.0.6:1"}, PlaceNotFound, 0, 0},
			{[]string{"http://10.0.0.4:1", "http://10.0.0.5:1", "http://10.0.0.6:1"}, PlaceListed, 1, 3},
			{[]string{"http://10.0.0.5:1", "http://10.0.0.5:2"}, PlaceAmbiguous, 0, 0},
			{[]string{"http://10.0.0.5:2"}, PlaceListed, 0, 1},
			{[]string{}, PlaceNotFound, 0, 0},
		} {
			source.sets <- urls(c.list...)
			synctest.Wait()
			expectPlace(t, p, c.place, c.replica, c.replicas)
		}
	})
}

func TestAnAddressThatComesLaterThanTheListIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu    sync.Mutex
			addrs []netip.Addr
			fail  error
			asked int
			log   logBuffer
		)
		own := func() ([]netip.Addr, error) {
			mu.Lock()
			defer mu.Unlock()
			asked++
			return addrs, fail
		}
		set := func(err error, list ...netip.Addr) {
			mu.Lock()
			defer mu.Unlock()
			addrs, fail = list, err
		}
		// One without a list does not ask, nor does one with a Self.
		startPeers(t, &Peers{Source: newScripted(), own: own})
		startPeers(t, &Peers{Source: Static("http://10.0.0.5:1"), Self: "10.0.0.5", own: own})
		advance(time.Hour)
		if asked != 0 {
			t.Errorf("asked %d times", asked)
		}

		set(errors.New("no netlink"))
		p := startPeers(t, &Peers{Source: Static("http://10.0.0.4:1", "http://10.0.0.5:1"), own: own, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		expectPlace(t, p, PlaceNotFound, 0, 0)
		if got := p.Status().Problem; !strings.Contains(got, "no netlink") {
			t.Errorf("problem %q", got)
		}
		set(nil)
		advance(time.Hour)
		expectPlace(t, p, PlaceNotFound, 0, 0)
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("%d lines instead of one for each problem:\n%s", n, log.String())
		}
		set(nil, netip.MustParseAddr("10.0.0.5"))
		advance(ownInterval)
		expectPlace(t, p, PlaceListed, 1, 2)
		changed := p.Status().Changed
		if time.Since(changed) > ownInterval {
			t.Errorf("changed %v", changed)
		}
		advance(time.Hour)
		if got := p.Status().Changed; got != changed {
			t.Errorf("changed again: %v", got)
		}
		if n := strings.Count(log.String(), "\n"); n != 3 || !strings.Contains(log.String(), "level=INFO") {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
	})
}

func TestASourceOfReplicasThatFailsKeepsItsLastList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		var log logBuffer
		p := startPeers(t, &Peers{Source: source, Self: "10.0.0.5", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		source.sets <- urls("http://10.0.0.4:1", "http://10.0.0.5:1")
		synctest.Wait()
		for range 5 {
			source.errs <- errors.New("lost")
			advance(time.Minute)
		}
		expectPlace(t, p, PlaceListed, 1, 2)
		if st := p.Status(); st.Problem != "" || len(st.Sources) != 1 || st.Sources[0].Problem != "lost" {
			t.Errorf("status %+v", st)
		}
		if n := strings.Count(log.String(), "error=lost"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		source.sets <- urls("http://10.0.0.5:1")
		synctest.Wait()
		expectPlace(t, p, PlaceListed, 0, 1)
		if st := p.Status(); st.Sources[0].Problem != "" {
			t.Errorf("status %+v", st)
		}
	})
}

func TestPlacesAreLoggedWhenTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := newScripted()
		var log logBuffer
		p := startPeers(t, &Peers{Source: source, Self: "10.0.0.5", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for _, c := range []struct {
			list []string
			want string // "": no line
		}{
			{[]string{}, `level=WARN msg="discovery: place among the replicas of the gateway" place=counted_in self=10.0.0.5 replica=0 replicas=1 problem="10.0.0.5 is not in the list, and counts itself in"`},
			{[]string{"http://10.0.0.5:1"}, `level=INFO msg="discovery: place among the replicas of the gateway" place=listed self=10.0.0.5:1 replica=0 replicas=1 problem=""`},
			{[]string{"http://10.0.0.5:1", "http://10.0.0.5:1"}, ""},
			{[]string{"http://10.0.0.5:1", "http://10.0.0.6:1"}, "place=listed self=10.0.0.5:1 replica=0 replicas=2"},
			{[]string{"http://10.0.0.5:1", "http://10.0.0.7:1"}, ""}, // another machine, the same place
			{[]string{"http://10.0.0.4:1", "http://10.0.0.5:1"}, "place=listed self=10.0.0.5:1 replica=1 replicas=2"},
			{[]string{"http://10.0.0.4:1", "http://10.0.0.5:2"}, "place=listed self=10.0.0.5:2 replica=1 replicas=2"},
			{[]string{"http://10.0.0.5:1", "http://10.0.0.5:2"}, "level=WARN"},
			{[]string{"http://10.0.0.5:1", "http://10.0.0.5:2"}, ""},
		} {
			before, changed := len(log.String()), p.Status().Changed
			advance(time.Second)
			source.sets <- urls(c.list...)
			synctest.Wait()
			line := log.String()[before:]
			if !strings.Contains(line, c.want) || (c.want == "") != (line == "") || strings.Count(line, "\n") > 1 {
				t.Errorf("%q: logged %s, want %s", c.list, line, c.want)
			}
			if moved := p.Status().Changed != changed; moved != (c.want != "") {
				t.Errorf("%q: changed %v, was %v", c.list, p.Status().Changed, changed)
			}
		}
	})
}

func TestReplicasInAFile(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "replicas")
		write := func(content string) {
			t.Helper()
			if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
			advance(time.Second)
		}
		run := func(self string) *Peers {
			return startPeers(t, &Peers{Source: &File{Path: path, Interval: time.Second}, Self: self})
		}
		// Two on one host, as on a developer's machine.
		a, b := run("localhost:8080"), run("localhost:8081")
		advance(time.Second)
		expectPlace(t, a, PlaceUnknown, 0, 0)
		if st := a.Status(); st.Sources[0].Source != "file "+path || st.Sources[0].Problem == "" {
			t.Errorf("status %+v", st)
		}
		write("http://localhost:8081\nhttp://LOCALHOST:8080 # first\n")
		expectPlace(t, a, PlaceListed, 0, 2)
		expectPlace(t, b, PlaceListed, 1, 2)
		write("")
		expectPlace(t, a, PlaceListed, 0, 2)
		expectPlace(t, b, PlaceListed, 1, 2)
		write(`[{"id":"b","url":"http://localhost:8081/"}]`)
		expectPlace(t, a, PlaceCountedIn, 0, 2)
		expectPlace(t, b, PlaceListed, 0, 1)
		write("[]")
		expectPlace(t, a, PlaceCountedIn, 0, 1)
		expectPlace(t, b, PlaceCountedIn, 0, 1)
	})
}

// This machine is found by the addresses that it really has.
func TestReplicasInDNSWithTheAddressesOfThisMachine(t *testing.T) {
	own, err := ownAddrs()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(own, func(a netip.Addr) bool { return a.Unmap().Is4() })
	if i < 0 {
		t.Fatalf("no IPv4 address among %v", own)
	}
	self := own[i].Unmap().String()
	var others []string // whatever this machine has, it does not have these
	for a := netip.MustParseAddr("192.0.2.1"); len(others) < 2; a = a.Next() {
		if !slices.Contains(own, a) && !slices.Contains(own, netip.AddrFrom16(a.As16())) {
			others = append(others, a.String())
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := &fakeResolver{addrs: others}
		p := startPeers(t, &Peers{Source: &DNS{Name: "gateway.example", Port: 8080, Resolver: r}})
		expectPlace(t, p, PlaceNotFound, 0, 0)
		r.set(func() { r.addrs = append([]string{"::ffff:" + self}, others...) })
		advance(time.Minute)
		want := append([]string{self}, others...)
		slices.Sort(want)
		expectPlace(t, p, PlaceListed, slices.Index(want, self), 3)
		r.set(func() { r.err = notFound("gateway.example") })
		advance(time.Minute)
		expectPlace(t, p, PlaceListed, slices.Index(want, self), 3)
		if st := p.Status(); st.Sources[0].Source != "dns gateway.example" || !strings.Contains(st.Sources[0].Problem, "no such host") {
			t.Errorf("status %+v", st)
		}
	})
}

func TestReplicasOfSeveralSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		more := newScripted()
		p := startPeers(t, &Peers{Source: Merge(Static("http://10.0.0.5:1", "http://10.0.0.6:1"), more), Self: "10.0.0.6"})
		expectPlace(t, p, PlaceListed, 1, 2)
		more.sets <- urls("http://10.0.0.4:1", "http://10.0.0.6.:1")
		synctest.Wait()
		expectPlace(t, p, PlaceListed, 2, 3)
		if st := p.Status(); len(st.Sources) != 2 {
			t.Errorf("status %+v", st)
		}
	})
}

// lingering is a source that emits all its sets at once, and takes a second to end.
type lingering struct {
	sets    [][]Worker
	emitted chan struct{}
	ended   bool
}

func (l *lingering) Run(ctx context.Context, emit func([]Worker)) error {
	for _, set := range l.sets {
		emit(set)
		clear(set) // the source's own
	}
	close(l.emitted)
	<-ctx.Done()
	time.Sleep(time.Second)
	l.ended = true
	return ctx.Err()
}

func TestPeersDoNotHoldUpTheirSourceAndOutliveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &lingering{
			sets:    [][]Worker{urls("http://10.0.0.5:1"), urls(), urls("http://10.0.0.4:1"), urls("http://10.0.0.4:1", "http://10.0.0.5:1")},
			emitted: make(chan struct{}),
		}
		p := &Peers{Source: source, own: func() ([]netip.Addr, error) {
			<-source.emitted // looking takes as long as that
			return []netip.Addr{netip.MustParseAddr("10.0.0.5")}, nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		synctest.Wait()
		expectPlace(t, p, PlaceListed, 1, 2)
		cancel()
		if err := <-done; err != nil || !source.ended {
			t.Errorf("Run returned %v; its source has ended: %v", err, source.ended)
		}
	})
}

// hasty is a source that emits as fast as it can: lists of n replicas in which the
// last one is 10.9.9.9.
type hasty struct{}

func (hasty) Run(ctx context.Context, emit func([]Worker)) error {
	for n := 0; ctx.Err() == nil; n = (n + 1) % 20 {
		set := urls("http://10.9.9.9:1")
		for i := range n {
			set = append(set, Worker{URL: fmt.Sprintf("http://10.0.0.%d:1", i)})
		}
		emit(set)
	}
	return ctx.Err()
}

func TestReadersNeverSeeTheIndexOfOneListAndTheCountOfAnother(t *testing.T) {
	p := &Peers{Source: hasty{}, Self: "10.9.9.9"}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			seen := make(map[int]bool)
			for len(seen) < 5 {
				replica, replicas := p.Replica()
				if replicas == 0 && replica == 0 {
					continue
				}
				if replica != replicas-1 {
					t.Errorf("replica %d of %d", replica, replicas)
					return
				}
				if st := p.Status(); st.Replica != st.Replicas-1 || len(st.Peers) != st.Replicas {
					t.Errorf("status %+v", st)
					return
				}
				seen[replicas] = true
			}
		})
	}
	wg.Wait()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run returned %v", err)
	}
	// A gateway that is shutting down still has requests to route.
	if replica, replicas := p.Replica(); replicas == 0 || replica != replicas-1 {
		t.Errorf("replica %d of %d after the end", replica, replicas)
	}
}

func TestAskingForTheReplicaAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peers := startPeers(t, &Peers{Source: Static("http://10.0.0.4:1", "http://10.0.0.5:1"), Self: "10.0.0.5"})
		ask := peers.Replica
		if n := testing.AllocsPerRun(1000, func() {
			if replica, replicas := ask(); replica != 1 || replicas != 2 {
				t.Errorf("replica %d of %d", replica, replicas)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

func TestPlacesHaveNames(t *testing.T) {
	for place, want := range map[Place]string{
		PlaceUnknown: "unknown", PlaceListed: "listed", PlaceCountedIn: "counted_in", PlaceNotFound: "not_found", PlaceAmbiguous: "ambiguous", 99: "unknown",
	} {
		if got, err := place.MarshalText(); string(got) != want || err != nil {
			t.Errorf("%d: %q, %v", place, got, err)
		}
	}
}
