package loadprom

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
	"github.com/plimsoll-go/plimsoll/snapshot"
)

const testWindow = 5 * time.Second

// clock is a table's clock that moves only when the test says so.
type clock struct{ elapsed atomic.Int64 }

func (c *clock) now() time.Time {
	return time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(c.elapsed.Load()))
}

func (c *clock) advance(d time.Duration) { c.elapsed.Add(int64(d)) }

func newTestTable() (*load.Table, *clock) {
	c := new(clock)
	return load.NewTable(load.Config{Window: testWindow, Clock: c.now}), c
}

// reporting is a worker with one report for each rank.
func reporting(t testing.TB, table *load.Table, id string, ranks ...load.Report) (*load.Worker, *load.Feed) {
	t.Helper()
	w := table.Add(id, "")
	feed := w.Advertise(len(ranks))
	for rank, r := range ranks {
		mustPut(t, feed, rank, r)
	}
	return w, feed
}

func mustPut(t testing.TB, to interface {
	Put(rank int, r load.Report) error
}, rank int, r load.Report) {
	t.Helper()
	if err := to.Put(rank, r); err != nil {
		t.Fatal(err)
	}
}

// scrape returns all series as a server would see them, by name and labels.
func scrape(t testing.TB, collectors ...prometheus.Collector) series {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectors...)
	got, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(series)
	for _, f := range got {
		for _, m := range f.Metric {
			all[f.GetName()+labelText(m.Label)] = value(m)
		}
	}
	return all
}

func labelText(pairs []*dto.LabelPair) string {
	if len(pairs) == 0 {
		return ""
	}
	var texts []string
	for _, p := range pairs {
		texts = append(texts, fmt.Sprintf("%s=%q", p.GetName(), p.GetValue()))
	}
	return "{" + strings.Join(texts, ",") + "}"
}

func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return float64(m.Histogram.GetSampleCount())
}

type series map[string]float64

// of returns those whose name and labels contain every part.
func (s series) of(parts ...string) series {
	found := maps.Clone(s)
	maps.DeleteFunc(found, func(name string, _ float64) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(name, part) })
	})
	return found
}

func (s series) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s %v\n", name, s[name])
	}
	return b.String()
}

// check compares series with lines such as `name{label="value"} 1`. Blank ones are skipped.
func (s series) check(t *testing.T, lines string) {
	t.Helper()
	var want []string
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line != "" {
			want = append(want, line+"\n")
		}
	}
	slices.Sort(want)
	if got := s.String(); got != strings.Join(want, "") {
		t.Errorf("got\n%swant\n%s", got, strings.Join(want, ""))
	}
}

func (s series) checkNone(t *testing.T) {
	t.Helper()
	if len(s) > 0 {
		t.Errorf("there are\n%s", s)
	}
}

// learner is a policy that says it has learned what the test wants.
type learner struct {
	selector.Policy
	learned selector.Learned
}

func (l *learner) Learned() selector.Learned { return l.learned }

func learned(l selector.Learned) Config {
	return Config{Policy: func() selector.Policy { return &learner{selector.Random(), l} }}
}

// known has the labels of every metric of the package, by name.
func known() map[string][]string {
	all := map[string][]string{firstTokenName: {}, pickDurationName: {}}
	for _, f := range append(families(), pickFamilies...) {
		all[f.name] = f.labels
	}
	return all
}

// together is several collectors as one.
type together []prometheus.Collector

func (all together) Describe(to chan<- *prometheus.Desc) {
	for _, c := range all {
		c.Describe(to)
	}
}

func (all together) Collect(to chan<- prometheus.Metric) {
	for _, c := range all {
		c.Collect(to)
	}
}

// everything is a collector of a table in which there is something to tell by every metric.
func everything(t testing.TB, table *load.Table) prometheus.Collector {
	t.Helper()
	w, feed := reporting(t, table, "a", load.Report{
		Running: 3, Waiting: 2, WaitingTokens: load.Known[int64](700), MaxRunning: load.Known[int64](256), KVUsage: load.Known(.25),
		PrefillTokens: load.Known[int64](9000), PrefillBusyUS: load.Known[int64](1_500_000),
	})
	feed.Drop(0, "truncated", nil)
	c := learned(selector.Learned{Speeds: []selector.WorkerSpeed{{Worker: "a", Speed: .5, Requests: 9}}})
	c.Subscriber = func() Counts { return Counts{Messages: 4, Dropped: map[string]uint64{"truncated": 1}} }
	c.Fleet = func() discovery.Status {
		return discovery.Status{Sources: []discovery.SourceStatus{{Source: "static"}}, Workers: []discovery.WorkerStatus{{ID: "a"}}}
	}
	c.Endpoints = func() []EndpointCounts { return []EndpointCounts{{"tcp://10.0.0.1:5558", 4, 1}} }
	conn := connect(t, table, "group")
	if err := conn.Observe(load.Batch{Err: snapshot.ErrTruncated}); err == nil {
		t.Fatal("a batch that does not decode was taken")
	}
	c.Connectors = func() []*load.Connector { return []*load.Connector{conn} }
	picks, firstToken, pickDuration := new(Picks), NewFirstToken(), NewPickDuration()
	picks.Observe(selector.Pick{Worker: w, Policy: "least_work", Reason: selector.LeastWaiting, Basis: selector.Engine})
	firstToken.Observe(.2)
	pickDuration.Observe(2e-6)
	return together{New(table, c), picks, firstToken, pickDuration}
}

// connect returns a connector of a new worker with two ranks.
func connect(t testing.TB, table *load.Table, id string) *load.Connector {
	t.Helper()
	conn, err := load.NewConnector(table.Add(id, ""), load.ConnectorConfig{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
