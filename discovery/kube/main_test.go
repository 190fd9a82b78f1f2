package kube

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/plimsoll-go/plimsoll/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is an API server, and a Source that is run against it, in the bubble of a
// synctest.
type cluster struct {
	t      *testing.T
	client *fake.Clientset
	source *Source
	logged *logBuffer

	mu   sync.Mutex
	sets [][]discovery.Worker // emitted, guarded by mu
}

// start runs s until the test ends.
func start(t *testing.T, s *Source, have ...*discoveryv1.EndpointSlice) *cluster {
	t.Helper()
	c := prepare(t, s, have...)
	c.run()
	return c
}

// prepare is start without running s.
func prepare(t *testing.T, s *Source, have ...*discoveryv1.EndpointSlice) *cluster {
	t.Helper()
	c := &cluster{t: t, client: fake.NewClientset(), source: s, logged: new(logBuffer)}
	for _, slice := range have {
		c.put(slice)
	}
	s.Client, s.Namespace = c.client.DiscoveryV1(), "inference"
	s.Logger = slog.New(slog.NewTextHandler(c.logged, nil))
	if s.Service == "" && s.Selector == "" {
		s.Service = "engines"
	}
	return c
}

func (c *cluster) run() {
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan error, 1)
	go func() { done <- c.source.Run(ctx, c.emit) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-done; err != context.Canceled {
			c.t.Errorf("Run returned %v", err)
		}
	})
	advance(0)
}

func (c *cluster) emit(set []discovery.Worker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sets = append(c.sets, set)
}

func (c *cluster) emitted() [][]discovery.Worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([][]discovery.Worker(nil), c.sets...)
}

// put creates or replaces a slice.
func (c *cluster) put(slice *discoveryv1.EndpointSlice) {
	c.t.Helper()
	of := c.client.DiscoveryV1().EndpointSlices(slice.Namespace)
	_, err := of.Get(c.t.Context(), slice.Name, metav1.GetOptions{})
	if err == nil {
		_, err = of.Update(c.t.Context(), slice, metav1.UpdateOptions{})
	} else {
		_, err = of.Create(c.t.Context(), slice, metav1.CreateOptions{})
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) delete(name string) {
	c.t.Helper()
	if err := c.client.DiscoveryV1().EndpointSlices("inference").Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// wantURLs compares the newest set with the given one.
func (c *cluster) wantURLs(want ...string) {
	c.t.Helper()
	sets := c.emitted()
	if len(sets) == 0 {
		c.t.Fatalf("no set was emitted, want %q", want)
	}
	got := []string{}
	for _, w := range sets[len(sets)-1] {
		got = append(got, w.URL)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		c.t.Errorf("workers are %q, want %q", got, want)
	}
}

func (c *cluster) status() discovery.SourceStatus { return c.source.Status()[0] }

// slice returns one of the Service engines with a port named http.
func slice(name string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "inference", Name: name,
			Labels: map[string]string{discoveryv1.LabelServiceName: "engines"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   endpoints,
		Ports:       []discoveryv1.EndpointPort{port("http", 30000)},
	}
}

func port(name string, number int32) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Port: &number}
}

// pod returns a ready endpoint.
func pod(name, address string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses:  []string{address},
		Conditions: conditions(true, true, false),
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "inference", Name: name},
	}
}

func conditions(ready, serving, terminating bool) discoveryv1.EndpointConditions {
	return discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
}

// advance lets time pass in the bubble of a synctest, and everything that then
// happens happen.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// logBuffer keeps what is logged, for a test to read meanwhile.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
