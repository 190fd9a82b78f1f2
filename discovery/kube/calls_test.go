package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-go/plimsoll/discovery"
)

func TestPermissionThatIsGrantedLaterIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prepare(t, &Source{}, slice("s", pod("a", "10.0.0.1")))
		lists, w := new(outage).of(c, "list"), new(watches).of(c)
		lists.set(forbidden("list"))
		w.set(forbidden("watch"))
		c.run()
		advance(time.Hour)
		lists.end()
		advance(2 * time.Minute)
		c.wantURLs("http://10.0.0.1:30000")
		w.end()
		advance(2 * time.Minute)
		if st := c.status(); st.Problem != "" {
			t.Errorf("problem is still %q", st.Problem)
		}
		c.put(slice("s", pod("a", "10.0.0.1"), pod("b", "10.0.0.2")))
		advance(time.Second)
		c.wantURLs("http://10.0.0.1:30000", "http://10.0.0.2:30000")
	})
}

func TestServiceThatIsMadeAnewHasItsNewPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, &Source{}, slice("s", pod("a", "10.0.0.1")), slice("t", pod("b", "10.0.0.2")))
		c.delete("s")
		c.delete("t")
		advance(time.Second)
		c.wantURLs()
		c.put(slice("u", pod("c", "10.0.0.1")))
		advance(time.Second)
		c.wantURLs("http://10.0.0.1:30000")
		if st := c.status(); st.Problem != "" || st.Workers != 1 {
			t.Errorf("status is %+v", st)
		}
	})
}

func TestThousandsOfEndpointsInSlicesOfAHundred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prepare(t, &Source{})
		all := 0
		for i := range discovery.MaxWorkers / 100 {
			s := slice(fmt.Sprint("s", i))
			for j := range 100 {
				s.Endpoints = append(s.Endpoints, pod(fmt.Sprint("pod-", i, "-", j), fmt.Sprintf("10.0.%d.%d", i, j)))
				all++
			}
			c.put(s)
		}
		c.run()
		advance(time.Second)
		if sets := c.emitted(); len(sets) != 1 || len(sets[0]) != all {
			t.Fatalf("%d sets", len(sets))
		}
	})
}

func TestSourceEndsWhileTheAPIServerKeepsItWaiting(t *testing.T) {
	asked := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-r.Context().Done()
	}))
	defer server.Close()
	client, err := typed.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer client.RESTClient().(*rest.RESTClient).Client.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	s := &Source{Client: client, Namespace: "inference", Service: "engines", Logger: slog.New(slog.DiscardHandler)}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, func([]discovery.Worker) { t.Error("emitted") }) }()
	<-asked
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Errorf("Run returned %v", err)
	}
}

// mute lists nothing until it is asked no longer.
type mute struct{ typed.EndpointSliceInterface }

func (m mute) EndpointSlices(string) typed.EndpointSliceInterface { return m }

func (mute) List(ctx context.Context, _ metav1.ListOptions) (*discoveryv1.EndpointSliceList, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestAPIServerThatNeverAnswersIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prepare(t, &Source{})
		c.source.Client = mute{}
		c.run()
		advance(5 * time.Minute)
		if st := c.status(); !strings.Contains(st.Problem, "deadline") {
			t.Errorf("problem is %q", st.Problem)
		}
		if n := c.source.Stats(); n.Lists < 2 || n.Failures != n.Lists {
			t.Errorf("stats are %+v", n)
		}
	})
}
