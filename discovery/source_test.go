package discovery

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// sink collects what a source emits.
type sink struct {
	mu   sync.Mutex
	sets [][]string
}

func (s *sink) emit(set []Worker) {
	urls := make([]string, len(set))
	for i, w := range set {
		urls[i] = w.URL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sets = append(s.sets, urls)
}

func (s *sink) all() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sets)
}

func (s *sink) expect(t *testing.T, want ...[]string) {
	t.Helper()
	if got := s.all(); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("emitted %q, want %q", got, want)
	}
}

// start runs a source in the test's bubble until the test ends.
func start(t *testing.T, s Source) *sink {
	out := new(sink)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, out.emit) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
	synctest.Wait()
	return out
}

func TestWorkersAreRefusedOneByOne(t *testing.T) {
	targets, refused := admit([]Worker{
		{URL: "http://a:1/"},
		{URL: "b:1"},
		{ID: "c", URL: "http://c:1", Poll: true},
		{URL: "http://user:s3cret@d:0"},
		{ID: "c", URL: "http://e:1"},
		{URL: "HTTP://A:1"},
		{ID: "second name of a", URL: "http://a:1"},
		{},
	})
	var ids []string
	for _, x := range targets {
		ids = append(ids, x.id)
	}
	if !slices.Equal(ids, []string{"http://a:1", "c", "second name of a"}) || !targets[1].poll {
		t.Errorf("admitted %q", ids)
	}
	want := []struct{ worker, reason string }{
		{"b:1", "want http://host:port"},
		{"http://d:0", "port is outside"},
		{"c (http://e:1)", "taken by an earlier worker of the set: c at http://c:1"},
		{"HTTP://A:1", "taken by an earlier worker of the set: http://a:1"},
		{"", "want http://host:port"},
	}
	if len(refused) != len(want) {
		t.Fatalf("refused %+v", refused)
	}
	for i, r := range refused {
		if r.Worker != want[i].worker || !strings.Contains(r.Reason, want[i].reason) {
			t.Errorf("refused %+v, want %+v", r, want[i])
		}
	}
}

func TestStaticEmitsItsSetOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Static("http://a:1", "http://b:1")
		out := start(t, s)
		advance(time.Hour)
		out.expect(t, []string{"http://a:1", "http://b:1"})
		start(t, StaticWorkers(Worker{ID: "c", URL: "http://c:1"})).expect(t, []string{"http://c:1"})
		if st := s.(StatusSource).Status(); len(st) != 1 || st[0].Workers != 2 || st[0].Emitted.IsZero() {
			t.Errorf("status %+v", st)
		}
	})
}

// scripted is a source that a test drives.
type scripted struct {
	sets chan []Worker
	errs chan error
}

func newScripted() *scripted { return &scripted{make(chan []Worker), make(chan error)} }

func (s *scripted) Run(ctx context.Context, emit func([]Worker)) error {
	for {
		select {
		case set := <-s.sets:
			emit(set)
		case err := <-s.errs:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func urls(list ...string) []Worker {
	out := make([]Worker, len(list))
	for i, u := range list {
		out[i].URL = u
	}
	return out
}

func TestMergeIsTheUnionOfTheNewestSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newScripted(), newScripted()
		m := Merge(a, b)
		out := start(t, m)
		a.sets <- urls("http://a:1", "http://both:1", "http://twice:1", "http://twice:1")
		synctest.Wait()
		b.sets <- urls("http://both:1", "http://b:1")
		synctest.Wait()
		a.sets <- urls()
		synctest.Wait()

		// One source that fails keeps its set and does not touch the other.
		b.errs <- errors.New("lost")
		synctest.Wait()
		if st := m.(StatusSource).Status(); len(st) != 2 || st[0].Problem != "" || st[1].Problem != "lost" {
			t.Errorf("status %+v", st)
		}
		a.sets <- urls("http://a:1")
		synctest.Wait()
		advance(time.Second)
		b.sets <- urls("http://b:2") // it was run again
		synctest.Wait()
		out.expect(t,
			[]string{"http://a:1", "http://both:1", "http://twice:1", "http://twice:1"},
			[]string{"http://a:1", "http://both:1", "http://twice:1", "http://twice:1", "http://b:1"},
			[]string{"http://both:1", "http://b:1"},
			[]string{"http://a:1", "http://both:1", "http://b:1"},
			[]string{"http://a:1", "http://b:2"},
		)
		if st := m.(StatusSource).Status(); st[1].Problem != "" {
			t.Errorf("status %+v", st)
		}
	})
}

func TestSourceThatFailsRunsAgainWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		began := time.Now()
		var at []time.Duration
		supervise(ctx, sourceFunc(func(context.Context, func([]Worker)) error {
			at = append(at, time.Since(began))
			return errors.New("no")
		}), func([]Worker) {}, func(error) {})
		want := []time.Duration{0, 1e9, 3e9, 7e9, 15e9, 31e9, 61e9, 91e9}
		if len(at) < len(want) || !slices.Equal(at[:len(want)], want) {
			t.Errorf("ran at %v", at)
		}
	})
}

type sourceFunc func(context.Context, func([]Worker)) error

func (f sourceFunc) Run(ctx context.Context, emit func([]Worker)) error { return f(ctx, emit) }
