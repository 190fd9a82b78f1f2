package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	typed "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/plimsoll-go/plimsoll/discovery"
)

// settle is how long changes are collected before they are looked at. An endpoint that
// moves from one slice to another is for a moment in neither, and a worker that leaves
// comes back without its books and its reports.
const settle = 100 * time.Millisecond

// ErrConfig is what every error about the fields of a Source wraps.
var ErrConfig = errors.New("kube: Source cannot be run")

// Source is a discovery.Source of the endpoints of a Service. Client, Namespace, and
// Service or Selector are required.
type Source struct {
	Client    typed.EndpointSlicesGetter // such as kubernetes.Clientset.DiscoveryV1()
	Namespace string
	Service   string // name
	// Selector selects by labels instead of by name, or besides. EndpointSlices have the
	// labels of their Service, so that it selects Services.
	Selector string

	// Port of the engines: a name, of a port of the Service, or a number, which every
	// engine then has whatever its Service says, and which is that of the pod.
	// Empty means the only TCP port of the Service.
	Port   string
	Scheme string // "http" or "https"; empty means http
	Path   string // path prefix of every worker's URL
	Poll   bool   // of every worker; see discovery.Worker

	// AddressType is which addresses are taken; empty means those of IPv4, and of IPv6
	// where a Service has no others.
	AddressType discoveryv1.AddressType

	// NotReady makes endpoints that are not ready count as well, as long as they do not
	// terminate. A worker that leaves loses its books, and a probe may fail because an
	// engine is busy; and when nodes lose their control plane, all their pods become not
	// ready and go on serving. Then the host has to find out which engines answer
	// (load.Worker.SetHealthy), since those that still load their model are there too.
	NotReady bool

	Logger *slog.Logger // nil means none

	// No other lock is taken with mu held, and nothing of anybody else's called.
	mu     sync.Mutex
	status discovery.SourceStatus // without Source and Problem
	stats  Stats
	// What is wrong, each kept until the same thing works again: where a list may be had
	// and a watch may not, the one succeeds before each failure of the other.
	listing, watching, set string
}

// Stats counts calls of the API server.
type Stats struct {
	Lists    uint64 `json:"lists"`    // tried
	Watches  uint64 `json:"watches"`  // likewise
	Failures uint64 `json:"failures"` // of both
}

// Status implements discovery.StatusSource.
func (s *Source) Status() []discovery.SourceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status
	st.Source, st.Problem, st.Refused = s.name(), s.problemLocked(), slices.Clone(st.Refused)
	return []discovery.SourceStatus{st}
}

// Stats returns the counters.
func (s *Source) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

func (s *Source) name() string {
	name := "endpointslices " + s.Namespace
	for _, part := range [...]string{s.Service, s.Selector} {
		if part != "" {
			name += "/" + part
		}
	}
	return name
}

func (s *Source) problemLocked() string {
	var all []string
	for _, p := range [...]string{s.listing, s.watching, s.set} {
		if p != "" {
			all = append(all, p)
		}
	}
	return strings.Join(all, "; ")
}

// Run implements discovery.Source. It fails at once if the fields make no sense.
func (s *Source) Run(ctx context.Context, emit func([]discovery.Worker)) error {
	selector, err := s.check()
	if err != nil {
		s.note(func() { s.set = err.Error() })
		return err
	}
	informer := cache.NewSharedIndexInformer(s.calls(selector), &discoveryv1.EndpointSlice{}, 0, nil)
	changed := make(chan struct{}, 1)
	kick := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { kick() },
		UpdateFunc: func(any, any) { kick() },
		DeleteFunc: func(any) { kick() },
	})
	// The calls themselves have told what failed. This one knows of no failed watch that
	// is tried again by itself, and would write to stderr.
	err = errors.Join(err, informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}))
	if err != nil {
		return err
	}

	running, stop := context.WithCancel(klog.NewContext(ctx, s.logr()))
	var wg sync.WaitGroup
	wg.Go(func() { informer.RunWithContext(running) })
	defer wg.Wait()
	defer stop()

	select {
	case <-informer.HasSyncedChecker().Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	known := false
	var last []discovery.Worker
	for {
		if set, ok := s.look(informer.GetStore()); ok && (!known || !slices.Equal(set, last)) {
			known, last = true, set
			s.note(func() { s.status.Emitted = time.Now() })
			s.log(slog.LevelInfo, "discovery: endpoints have changed", "workers", len(set))
			emit(slices.Clone(set))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return ctx.Err()
		}
		select { // before looking: what comes from here on is looked at once more
		case <-changed:
		default:
		}
	}
}

// look makes a set of what the API server has told, and reports whether there is one.
func (s *Source) look(store cache.Store) (set []discovery.Worker, ok bool) {
	var all []*discoveryv1.EndpointSlice
	for _, object := range store.List() {
		all = append(all, object.(*discoveryv1.EndpointSlice))
	}
	l := s.list(all)
	ok = true
	var problem string
	switch {
	case len(l.workers) > discovery.MaxWorkers:
		problem, ok = fmt.Sprintf("more than the bound of %d workers, keeping the last set", discovery.MaxWorkers), false
	case len(l.workers) == 0 && len(l.refused) > 0:
		problem, ok = fmt.Sprintf("no usable endpoint, keeping the last set: %s: %s", l.refused[0].Worker, l.refused[0].Reason), false
	case len(all) == 0:
		problem = "there is no such Service, or it selects nothing"
	}
	var before []discovery.Refusal
	s.note(func() {
		s.set = problem
		before, s.status.Refused = s.status.Refused, l.refused
		if ok {
			s.status.Workers = len(l.workers)
		}
	})
	for _, r := range l.refused {
		if !slices.Contains(before, r) {
			s.log(slog.LevelWarn, "discovery: endpoint refused", "endpoint", r.Worker, "reason", r.Reason)
		}
	}
	return l.workers, ok
}

// note changes what Status tells, and logs the problem if that is another one by it.
func (s *Source) note(change func()) {
	s.mu.Lock()
	before := s.problemLocked()
	change()
	after := s.problemLocked()
	s.mu.Unlock()
	switch {
	case after == before:
	case after == "":
		s.log(slog.LevelInfo, "discovery: source has recovered")
	default:
		s.log(slog.LevelError, "discovery: source has a problem", "reason", after)
	}
}

// check returns what selects the slices.
func (s *Source) check() (selector string, err error) {
	bad := func(format string, args ...any) (string, error) {
		return "", fmt.Errorf("%w: %w", ErrConfig, fmt.Errorf(format, args...))
	}
	switch {
	case s.Client == nil:
		return bad("no Client")
	case s.Namespace == "":
		return bad("no Namespace")
	case s.Service == "" && s.Selector == "":
		return bad("neither Service nor Selector")
	case s.Scheme != "" && s.Scheme != "http" && s.Scheme != "https":
		return bad("scheme %q is neither http nor https", s.Scheme)
	}
	switch s.AddressType {
	case "", discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN:
	default:
		return bad("address type %q is none of IPv4, IPv6 and FQDN", s.AddressType)
	}
	if n, ok := portNumber(s.Port); ok && (n < 1 || n > 65535) {
		return bad("port %d is outside 1..65535", n)
	}
	parsed, err := labels.Parse(s.Selector)
	if err != nil {
		return bad("selector: %w", err)
	}
	if s.Service == "" {
		return parsed.String(), nil
	}
	byName, err := labels.ValidatedSelectorFromSet(labels.Set{discoveryv1.LabelServiceName: s.Service})
	if err != nil {
		return bad("service: %w", err)
	}
	both, _ := byName.Requirements()
	return parsed.Add(both...).String(), nil
}

// logr is where client-go logs.
func (s *Source) logr() logr.Logger {
	if s.Logger == nil {
		return logr.Discard()
	}
	return logr.FromSlogHandler(s.Logger.Handler())
}

func (s *Source) log(level slog.Level, msg string, args ...any) {
	if s.Logger != nil {
		s.Logger.Log(context.Background(), level, msg, append([]any{"source", s.name()}, args...)...)
	}
}
