package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
)

var _ discovery.StatusSource = (*Source)(nil)

func TestSetFollowsTheSlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, &Source{Port: "http"}, slice("s", pod("a", "10.0.0.1")))
		c.wantURLs("http://10.0.0.1:30000")
		if id := c.emitted()[0][0].ID; id != "inference/a:30000" {
			t.Errorf("id is %q", id)
		}

		c.put(slice("s", pod("a", "10.0.0.1"), pod("b", "10.0.0.2")))
		advance(settle)
		c.wantURLs("http://10.0.0.1:30000", "http://10.0.0.2:30000")

		c.put(slice("s", pod("a", "10.0.0.1"), with(conditions(false, true, true), pod("b", "10.0.0.2"))))
		advance(settle)
		c.wantURLs("http://10.0.0.1:30000")

		c.put(ports(slice("s", pod("a", "10.0.0.1")), port("http", 31000)))
		advance(settle)
		c.wantURLs("http://10.0.0.1:31000")

		st := c.status()
		if st.Source != "endpointslices inference/engines" || st.Workers != 1 || st.Problem != "" || !st.Emitted.Equal(time.Now()) {
			t.Errorf("status is %+v", st)
		}
		if n := len(c.emitted()); n != 4 {
			t.Errorf("%d sets were emitted, want 4", n)
		}
	})
}

func TestChangesThatMakeNoDifferenceAreNotEmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, &Source{}, slice("s", pod("a", "10.0.0.1")))
		other := slice("s", pod("a", "10.0.0.1"))
		other.Annotations = map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": "now"}
		c.put(other)
		c.put(slice("t", with(conditions(false, false, false), pod("b", "10.0.0.2"))))
		advance(time.Minute)
		if n := len(c.emitted()); n != 1 {
			t.Errorf("%d sets were emitted, want 1", n)
		}
	})
}

func TestEndpointThatMovesFromSliceToSliceStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, &Source{}, slice("s", pod("a", "10.0.0.1"), pod("b", "10.0.0.2")))
		// Split, with b in neither for a moment.
		c.put(slice("s", pod("a", "10.0.0.1")))
		advance(50 * time.Millisecond)
		c.put(slice("t", pod("b", "10.0.0.2")))
		advance(settle)
		// Merged, with both in two for a while.
		c.put(slice("t", pod("b", "10.0.0.2"), pod("a", "10.0.0.1")))
		advance(time.Second)
		c.delete("s")
		advance(time.Second)
		c.wantURLs("http://10.0.0.1:30000", "http://10.0.0.2:30000")
		if sets := c.emitted(); len(sets) != 1 {
			t.Errorf("%d sets were emitted, want 1: %v", len(sets), sets)
		}
	})
}

func TestEmptyListIsBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, &Source{}, slice("s", pod("a", "10.0.0.1")))
		c.put(slice("s")) // scaled to zero
		advance(settle)
		c.wantURLs()
		if st := c.status(); st.Problem != "" || st.Workers != 0 {
			t.Errorf("status is %+v", st)
		}

		c.delete("s") // and the Service deleted
		advance(settle)
		c.wantURLs()
		if st := c.status(); !strings.Contains(st.Problem, "no such Service") {
			t.Errorf("problem is %q", st.Problem)
		}

		c.put(slice("s", pod("b", "10.0.0.2")))
		advance(settle)
		c.wantURLs("http://10.0.0.2:30000")
		if st := c.status(); st.Problem != "" {
			t.Errorf("problem is still %q", st.Problem)
		}
	})
}

func TestServiceThatDoesNotExistHasNoWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := of("others", discoveryv1.AddressTypeIPv4, slice("s", pod("a", "10.0.0.1")))
		elsewhere := slice("s", pod("a", "10.0.0.1"))
		elsewhere.Namespace = "elsewhere"
		c := start(t, &Source{}, other, elsewhere)
		c.wantURLs()
		if st := c.status(); !strings.Contains(st.Problem, "no such Service") {
			t.Errorf("problem is %q", st.Problem)
		}
	})
}

func TestServicesBySelector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		labelled := func(service string, s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
			s.Labels["app"] = "engine"
			return of(service, discoveryv1.AddressTypeIPv4, s)
		}
		c := start(t, &Source{Selector: "app in (engine)"},
			labelled("one", slice("s", pod("a", "10.0.0.1"))), labelled("other", slice("t", pod("b", "10.0.0.2"))),
			slice("u", pod("c", "10.0.0.3")))
		c.wantURLs("http://10.0.0.1:30000", "http://10.0.0.2:30000")
	})
}

func TestSelectorAndNameBothCount(t *testing.T) {
	s := &Source{Client: fake.NewClientset().DiscoveryV1(), Namespace: "inference", Service: "engines", Selector: "app=engine"}
	got, err := s.check()
	if err != nil || got != "app=engine,kubernetes.io/service-name=engines" {
		t.Errorf("selector is %q, %v", got, err)
	}
}

func TestPortThatNoSliceHasKeepsTheSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, &Source{Port: "http"}, slice("s", pod("a", "10.0.0.1")))
		c.put(ports(slice("s", pod("a", "10.0.0.1")), port("web", 30000)))
		advance(settle)
		c.wantURLs("http://10.0.0.1:30000")
		st := c.status()
		if !strings.Contains(st.Problem, "keeping the last set") || len(st.Refused) != 1 || st.Workers != 1 {
			t.Errorf("status is %+v", st)
		}
		if !strings.Contains(c.logged.String(), `no TCP port named \"http\"`) {
			t.Errorf("log: %s", c.logged)
		}
		c.put(slice("s", pod("b", "10.0.0.2")))
		advance(settle)
		c.wantURLs("http://10.0.0.2:30000")
		if st := c.status(); st.Problem != "" || len(st.Refused) != 0 {
			t.Errorf("status is %+v", st)
		}
	})
}

func TestMoreEndpointsThanTheBoundKeepTheSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, &Source{}, slice("s", pod("a", "10.0.0.1")))
		for n := 0; n <= discovery.MaxWorkers; n += 1000 {
			var pods []discoveryv1.Endpoint
			for i := range 1000 {
				pods = append(pods, pod("b", fmt.Sprintf("10.1.%d.%d", (n+i)/250, (n+i)%250)))
			}
			c.put(slice(fmt.Sprint("t", n), pods...))
		}
		advance(time.Second)
		c.wantURLs("http://10.0.0.1:30000")
		if st := c.status(); !strings.Contains(st.Problem, "bound of 16384") {
			t.Errorf("problem is %q", st.Problem)
		}
	})
}

// outage makes calls of one kind fail as long as there is an error.
type outage struct{ err atomic.Pointer[error] }

func (o *outage) set(err error) { o.err.Store(&err) }
func (o *outage) end()          { o.err.Store(nil) }

func (o *outage) of(c *cluster, verb string) *outage {
	c.client.PrependReactor(verb, "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		if err := o.err.Load(); err != nil {
			return true, nil, *err
		}
		return false, nil, nil
	})
	return o
}

// watches has the API server's watches in hand.
type watches struct {
	outage
	mu   sync.Mutex
	open []*watch.RaceFreeFakeWatcher
}

func (w *watches) of(c *cluster) *watches {
	c.client.PrependWatchReactor("endpointslices", func(action clienttesting.Action) (bool, watch.Interface, error) {
		if err := w.err.Load(); err != nil {
			return true, nil, *err
		}
		real, err := c.client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		out := watch.NewRaceFreeFake()
		go func() {
			defer real.Stop()
			for {
				select {
				case e, ok := <-real.ResultChan():
					if !ok || out.IsStopped() {
						return
					}
					out.Action(e.Type, e.Object)
				case <-c.t.Context().Done():
					return
				}
			}
		}()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open = append(w.open, out)
		return true, out, nil
	})
	return w
}

// cut ends all watches; the API server may say why.
func (w *watches) cut(why runtime.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, open := range w.open {
		if why != nil {
			open.Error(why)
		} else {
			open.Stop()
		}
	}
	w.open = nil
}

var refused = &netError{"connection refused", syscall.ECONNREFUSED}

type netError struct {
	text string
	syscall.Errno
}

func (e *netError) Error() string { return e.text }
func (e *netError) Unwrap() error { return e.Errno }

func TestOutageOfTheAPIServerKeepsTheSet(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
	}{
		{"refuses connections", refused},
		{"does not answer", context.DeadlineExceeded},
		{"is overloaded", apierrors.NewTooManyRequests("later", 1)},
		{"fails", apierrors.NewInternalError(errors.New("etcd has no leader"))},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := prepare(t, &Source{}, slice("s", pod("a", "10.0.0.1")))
				w, lists := new(watches).of(c), new(outage).of(c, "list")
				c.run()
				c.wantURLs("http://10.0.0.1:30000")

				w.set(test.err)
				lists.set(test.err)
				w.cut(nil)
				advance(10 * time.Minute)
				if sets := c.emitted(); len(sets) != 1 {
					t.Fatalf("sets are %v", sets)
				}
				st, n := c.status(), c.source.Stats()
				if !strings.Contains(st.Problem, test.err.Error()) || st.Workers != 1 {
					t.Errorf("status is %+v", st)
				}
				if n.Failures < 10 || n.Failures > 2000 {
					t.Errorf("of %+v in ten minutes", n)
				}
				if logged := strings.Count(c.logged.String(), "source has a problem"); logged > 3 {
					t.Errorf("a problem that lasts was logged %d times", logged)
				}

				c.put(slice("s", pod("a", "10.0.0.1"), pod("b", "10.0.0.2"))) // nobody hears of it
				w.end()
				lists.end()
				advance(2 * time.Minute)
				if test.err == error(refused) || apierrors.IsTooManyRequests(test.err) {
					// The watch goes on where it ended, and the fake one does not tell
					// what came meanwhile. An API server that has forgotten says so.
					w.cut(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
					advance(2 * time.Minute)
				}
				c.wantURLs("http://10.0.0.1:30000", "http://10.0.0.2:30000")
				if st := c.status(); st.Problem != "" {
					t.Errorf("problem is still %q", st.Problem)
				}
				if !strings.Contains(c.logged.String(), "recovered") {
					t.Errorf("log: %s", c.logged)
				}
			})
		})
	}
}

func TestOutageAtTheBeginningEmitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prepare(t, &Source{}, slice("s", pod("a", "10.0.0.1")))
		lists := new(outage).of(c, "list")
		lists.set(refused)
		c.run()
		advance(10 * time.Minute)
		if sets := c.emitted(); len(sets) != 0 {
			t.Fatalf("sets are %v", sets)
		}
		if st := c.status(); !strings.Contains(st.Problem, "connection refused") || !st.Emitted.IsZero() {
			t.Errorf("status is %+v", st)
		}
		lists.end()
		advance(2 * time.Minute)
		c.wantURLs("http://10.0.0.1:30000")
	})
}

func forbidden(verb string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}, "", fmt.Errorf("User %q cannot %s", "gateway", verb))
}

func TestDeniedPermissionIsToldAndKeepsTheSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prepare(t, &Source{}, slice("s", pod("a", "10.0.0.1")))
		lists := new(outage).of(c, "list")
		lists.set(forbidden("list"))
		c.run()
		advance(time.Hour)
		if sets := c.emitted(); len(sets) != 0 {
			t.Fatalf("sets are %v", sets)
		}
		if st := c.status(); !strings.Contains(st.Problem, "cannot list") {
			t.Errorf("problem is %q", st.Problem)
		}
	})
}

// The list succeeds before each watch that fails.
func TestPermissionToListAloneIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prepare(t, &Source{}, slice("s", pod("a", "10.0.0.1")))
		w := new(watches).of(c)
		w.set(forbidden("watch"))
		c.run()
		advance(time.Hour)
		c.wantURLs("http://10.0.0.1:30000")
		if st := c.status(); !strings.Contains(st.Problem, "cannot watch") {
			t.Errorf("problem is %q", st.Problem)
		}
		if logged := strings.Count(c.logged.String(), "source has a problem"); logged != 1 {
			t.Errorf("logged %d times", logged)
		}
		if n := c.source.Stats(); n.Lists < 2 || n.Watches < 2 || n.Failures != n.Watches {
			t.Errorf("stats are %+v", n)
		}
	})
}

// An API server that has forgotten where a watch was has everything listed again. What
// went meanwhile has gone, and the rest has never been away.
func TestListThatIsHadAgainReplacesTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prepare(t, &Source{}, slice("s", pod("a", "10.0.0.1"), pod("b", "10.0.0.2")))
		w := new(watches).of(c)
		c.run()
		w.set(refused)
		w.cut(nil)
		advance(time.Second)
		c.delete("s")
		c.put(slice("t", pod("b", "10.0.0.2"), pod("c", "10.0.0.3")))
		w.set(apierrors.NewResourceExpired("too old resource version"))
		advance(time.Minute)
		w.end()
		advance(time.Minute)
		c.wantURLs("http://10.0.0.2:30000", "http://10.0.0.3:30000")
		for _, set := range c.emitted() {
			found := false
			for _, worker := range set {
				found = found || worker.URL == "http://10.0.0.2:30000"
			}
			if !found {
				t.Errorf("b is not in %v", set)
			}
		}
	})
}

func TestSourceThatIsRunAgainEmitsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prepare(t, &Source{}, slice("s", pod("a", "10.0.0.1")))
		for n := range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- c.source.Run(ctx, c.emit) }()
			advance(time.Second)
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if got := len(c.emitted()); got != n+1 {
				t.Errorf("%d sets after %d runs", got, n+1)
			}
		}
	})
}

func TestWhatMakesNoSenseIsRefusedAtOnce(t *testing.T) {
	client := fake.NewClientset().DiscoveryV1()
	for want, s := range map[string]*Source{
		"no Client":                   {Namespace: "n", Service: "s"},
		"no Namespace":                {Client: client, Service: "s"},
		"neither Service nor Sel":     {Client: client, Namespace: "n"},
		"service: ":                   {Client: client, Namespace: "n", Service: "a/b"},
		"selector: ":                  {Client: client, Namespace: "n", Selector: "in in in"},
		"neither http nor https":      {Client: client, Namespace: "n", Service: "s", Scheme: "ftp"},
		"port 65536 is outside":       {Client: client, Namespace: "n", Service: "s", Port: "65536"},
		"port 0 is outside":           {Client: client, Namespace: "n", Service: "s", Port: "0"},
		"none of IPv4, IPv6 and FQDN": {Client: client, Namespace: "n", Service: "s", AddressType: "ipv4"},
	} {
		err := s.Run(t.Context(), func([]discovery.Worker) { t.Error("emitted") })
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
		if p := s.Status()[0].Problem; !strings.Contains(p, want) {
			t.Errorf("problem is %q", p)
		}
	}
}

// A pod that terminates is not torn from under its requests.
func TestFleetLetsRequestsOfTerminatingPodsFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prepare(t, &Source{}, slice("s", pod("a", "10.0.0.1"), pod("b", "10.0.0.2")))
		table := load.NewTable(load.Config{})
		fleet := discovery.NewFleet(discovery.Config{Table: table, Source: c.source}) // nobody to listen, nobody is asked
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- fleet.Run(ctx) }()
		advance(time.Second)
		view := table.View()
		if view.Len() != 2 {
			t.Fatalf("%d workers in the table", view.Len())
		}
		a := view.At(0).Worker()
		ticket := a.Reserve(load.NoRank, 0)
		c.put(slice("s", with(conditions(false, true, true), pod("a", "10.0.0.1")), pod("b", "10.0.0.2")))
		advance(settle)
		if n := table.View().Len(); n != 1 {
			t.Errorf("%d workers may be picked, want 1", n)
		}
		if n := a.Status().InFlight; n != 1 {
			t.Errorf("in flight is %d, want 1", n)
		}
		ticket.Done()
		if n := a.Status().InFlight; n != 0 {
			t.Errorf("in flight is %d at the end", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestPeersFindThemselvesByTheirService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prepare(t, &Source{Service: "gateway", Port: "http"},
			of("gateway", discoveryv1.AddressTypeIPv4, slice("s", pod("x", "10.0.0.7"), pod("y", "10.0.0.5"))))
		peers := &discovery.Peers{Source: c.source, Self: "10.0.0.7"}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- peers.Run(ctx) }()
		advance(time.Second)
		if replica, replicas := peers.Replica(); replica != 1 || replicas != 2 {
			t.Errorf("replica %d of %d, want 1 of 2", replica, replicas)
		}
		c.put(of("gateway", discoveryv1.AddressTypeIPv4, slice("s", pod("x", "10.0.0.7"), pod("y", "10.0.0.5"), pod("z", "10.0.0.6"))))
		advance(time.Second)
		if replica, replicas := peers.Replica(); replica != 2 || replicas != 3 {
			t.Errorf("replica %d of %d, want 2 of 3", replica, replicas)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// For the race detector, and for what comes out in the end.
func TestSlicesThatChangeAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, &Source{Port: "http"}, slice("s0"), slice("s1"), slice("s2"), slice("s3"))
		var wg sync.WaitGroup
		for n := range 4 {
			wg.Go(func() {
				for i := range 20 {
					c.put(slice(fmt.Sprint("s", n), pod(fmt.Sprint("p", n), fmt.Sprintf("10.0.%d.%d", n, i))))
					time.Sleep(time.Duration(n+1) * time.Millisecond)
				}
			})
		}
		wg.Go(func() {
			for range 100 {
				c.source.Status()
				c.source.Stats()
				time.Sleep(time.Millisecond)
			}
		})
		wg.Wait()
		advance(2 * settle)
		c.wantURLs("http://10.0.0.19:30000", "http://10.0.1.19:30000", "http://10.0.2.19:30000", "http://10.0.3.19:30000")
		if n := len(c.emitted()); n > 4 {
			t.Errorf("%d sets were emitted within a tenth of a second", n)
		}
	})
}
