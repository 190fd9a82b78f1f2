package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// MaxWorkers bounds a set of workers. A larger one is taken for a mistake, in
// whichever source, and changes nothing: the set before it stays.
const MaxWorkers = 16384

// tooMany says that a set is above the bound.
func tooMany(what string) error {
	return fmt.Errorf("more than the bound of %d %s", MaxWorkers, what)
}

// Worker is one engine as a source names it.
type Worker struct {
	// ID names the worker in the table; empty means its URL, in normal form and
	// without user information. IDs are unique in a set. Neither is longer than a
	// kilobyte.
	ID string
	// URL is where the engine is reached: http or https, host, optionally port,
	// path prefix and user information.
	URL string
	// Poll switches on polling of /v1/loads for as long as the engine offers no
	// load socket, or some rank's is silent or cannot be had. What a load socket
	// reports goes before what is polled.
	Poll bool
}

// Source tells which workers there are.
type Source interface {
	// Run calls emit with the complete set of workers, first when it is known
	// and then whenever it changed, until ctx ends. It never emits a delta and
	// never calls emit from two goroutines at once; emit does not block, and may
	// be called with the same set again. An empty set means that there are no
	// workers; a source that does not know emits nothing, and what it emitted
	// before stays.
	//
	// An error before ctx ends makes the caller run the source again later; nil
	// means that the last set is final.
	Run(ctx context.Context, emit func([]Worker)) error
}

// StatusSource is a Source that can say how it is doing. All sources of this
// package are.
type StatusSource interface {
	Source
	Status() []SourceStatus
}

// SourceStatus says how a source is doing.
type SourceStatus struct {
	Source  string    `json:"source"`  // such as "file /etc/engines"
	Workers int       `json:"workers"` // in the newest set
	Emitted time.Time `json:"emitted"` // when that was; zero if there was none yet
	Problem string    `json:"problem"` // what is wrong now; empty if nothing is
	Refused []Refusal `json:"refused"` // entries that the source itself left out
}

// Refusal is one entry that was left out of a set. The others are unaffected.
type Refusal struct {
	Worker string `json:"worker"` // as given, without user information
	Reason string `json:"reason"`
}

// target is a worker whose URL has been read.
type target struct {
	id   string
	url  *url.URL // normal, with user information
	key  string   // the same without
	poll bool
}

// ErrDuplicate is why the second worker of one id is refused.
var ErrDuplicate = errors.New("discovery: id is taken by an earlier worker of the set")

// admit reads a set. What cannot be used is refused by itself; of two workers
// with one id, the first is kept.
func admit(workers []Worker) (targets []*target, refused []Refusal) {
	taken := make(map[string]*target, len(workers))
	for _, w := range workers {
		u, err := parseWorkerURL(w.URL)
		if err != nil {
			refused = append(refused, refusal(w, err))
			continue
		}
		if len(w.ID) > maxName {
			refused = append(refused, refusal(w, fmt.Errorf("id of %d bytes is above the bound of %d", len(w.ID), maxName)))
			continue
		}
		t := &target{id: w.ID, url: u, key: urlKey(u), poll: w.Poll}
		if t.id == "" {
			t.id = t.key
		}
		if first := taken[t.id]; first != nil {
			refused = append(refused, refusal(w, fmt.Errorf("%w: %s at %s", ErrDuplicate, t.id, first.key)))
			continue
		}
		taken[t.id] = t
		targets = append(targets, t)
	}
	return targets, refused
}

func refusal(w Worker, err error) Refusal {
	name := clipTo(redact(w.URL), maxName)
	if w.ID != "" {
		name = clipTo(w.ID, maxName) + " (" + name + ")"
	}
	return Refusal{Worker: name, Reason: strings.TrimPrefix(err.Error(), "discovery: ")}
}

// sourceState is the part of a source that its Status reads.
type sourceState struct {
	// No other lock is taken with mu held, and nothing of anybody else's called.
	mu     sync.Mutex
	status SourceStatus // guarded by mu
}

// emitted notes a new set and reports whether a problem ended with it.
func (s *sourceState) emitted(workers int, refused []Refusal) (recovered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	recovered = s.status.Problem != ""
	s.status.Workers, s.status.Refused, s.status.Problem = workers, refused, ""
	s.status.Emitted = time.Now()
	return recovered
}

// problem notes what is wrong now, or "" for nothing, and reports whether that
// is news: a problem that lasts is logged once.
func (s *sourceState) problem(what string) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = s.status.Problem != what
	s.status.Problem = what
	return news
}

func (s *sourceState) read(source string) []SourceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status
	st.Source, st.Refused = source, slices.Clone(st.Refused)
	return []SourceStatus{st}
}

// supervise runs a source until ctx ends. One that fails runs again, with
// back-off: what it emitted before stays meanwhile.
func supervise(ctx context.Context, s Source, emit func([]Worker), failed func(error)) {
	pause := time.Second
	for {
		began := time.Now()
		err := s.Run(ctx, emit)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			<-ctx.Done()
			return
		}
		failed(err)
		if time.Since(began) > time.Minute {
			pause = time.Second
		}
		if !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, 30*time.Second)
	}
}

// Merge returns a source whose set is the union of what the given sources
// emitted last. One that has not emitted yet holds nobody up, it adds nothing.
// A worker that several sources name in the same way is one worker; where they
// disagree about an id, the first source wins and the Fleet refuses the other.
func Merge(sources ...Source) Source {
	return &merge{sources: sources, problems: make([]string, len(sources))}
}

type merge struct {
	sources []Source

	// No other lock is taken with mu held, and nothing of anybody else's called.
	mu       sync.Mutex
	problems []string // by source, guarded by mu
}

func (m *merge) Run(ctx context.Context, emit func([]Worker)) error {
	var (
		// Also held while emitting, so that sets go out in order: taken before
		// merge.mu and before whatever emit takes (the same of an outer merge;
		// Fleet.mu, Peers.mu).
		mu   sync.Mutex
		sets = make([][]Worker, len(m.sources))
		wg   sync.WaitGroup
	)
	for i, s := range m.sources {
		wg.Go(func() {
			supervise(ctx, s, func(set []Worker) {
				mu.Lock()
				defer mu.Unlock()
				m.failed(i, "")
				sets[i] = slices.Clone(set)
				emit(union(sets))
			}, func(err error) { m.failed(i, err.Error()) })
		})
	}
	wg.Wait()
	return ctx.Err()
}

func (m *merge) failed(i int, problem string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problems[i] = problem
}

func (m *merge) Status() []SourceStatus {
	var out []SourceStatus
	for i, s := range m.sources {
		st := statusOf(s)
		m.mu.Lock()
		if m.problems[i] != "" {
			st[0].Problem = m.problems[i]
		}
		m.mu.Unlock()
		out = append(out, st...)
	}
	return out
}

// statusOf returns at least one status, also of a source that has none.
func statusOf(s Source) []SourceStatus {
	if ss, ok := s.(StatusSource); ok {
		if st := ss.Status(); len(st) > 0 {
			return st
		}
	}
	return []SourceStatus{{Source: fmt.Sprintf("%T", s)}}
}

func union(sets [][]Worker) []Worker {
	var all []Worker
	seen := make(map[Worker]bool)
	for i, set := range sets {
		for _, w := range set {
			// Twice within one set is a mistake to be refused in public.
			if i > 0 && seen[w] {
				continue
			}
			all = append(all, w)
		}
		for _, w := range set {
			seen[w] = true
		}
	}
	return all
}
