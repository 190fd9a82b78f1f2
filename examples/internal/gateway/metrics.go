package gateway

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load/loadprom"
	"github.com/plimsoll-go/plimsoll/selector"
)

// metrics is what /metrics tells: loadprom's of the engines and the picks, the
// gateway's own of requests, and those of the process.
type metrics struct {
	// Counters, apart from all that is looked up in a scrape.
	counters *prometheus.Registry
	requests *prometheus.CounterVec
	failures prometheus.Counter
	picks    loadprom.Picks

	scraped    *prometheus.Registry
	firstToken prometheus.Histogram
	pickTime   prometheus.Histogram
}

const (
	requestsName = "plimsoll_gateway_requests_total"
	failuresName = "plimsoll_gateway_failed_attempts_total"
)

// newMetrics makes the metrics of a gateway whose fleet may be made later.
func newMetrics(g *Gateway) *metrics {
	m := &metrics{
		counters: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: requestsName, Help: "Requests of clients, by the status of the answer; cut: that broke off after its beginning; none: the client left before.",
		}, []string{"code"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: failuresName, Help: "Attempts on an engine that were followed by another one, or by an error.",
		}),
		scraped:    prometheus.NewRegistry(),
		firstToken: loadprom.NewFirstToken(),
		pickTime:   loadprom.NewPickDuration(),
	}
	m.counters.MustRegister(m.requests, m.failures, &m.picks)
	m.scraped.MustRegister(
		m.firstToken, m.pickTime,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		loadprom.New(g.table, loadprom.Config{
			Policy:     g.policy,
			Subscriber: func() loadprom.Counts { return loadprom.Counts(g.LoadSockets().Counts) },
			Endpoints:  g.endpoints,
			Fleet:      func() discovery.Status { return g.fleet.Status() },
		}),
		drainedMetric{g.health}, g.reloads.count,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "plimsoll_gateway_config_refused", Help: "Whether the newest configuration was refused, and one before it is the present one.",
		}, func() float64 { _, err := g.reloads.newest(); return oneIf(err != nil) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "plimsoll_gateway_ready", Help: "Whether /readyz says so.",
		}, func() float64 { return oneIf(g.ready() == nil) }),
	)
	return m
}

// endpoints returns what was counted on each load socket.
func (g *Gateway) endpoints() (counts []loadprom.EndpointCounts) {
	for _, e := range g.LoadSockets().Endpoints {
		counts = append(counts, loadprom.EndpointCounts{Endpoint: e.Endpoint, Messages: e.Messages, Reconnects: e.Reconnects})
	}
	return counts
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(prometheus.Gatherers{m.counters, m.scraped}, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// picked counts what came of a pick that began when c says. That there is no further
// engine to try is no failed pick.
func (m *metrics) picked(c *call, pick selector.Pick, err error) {
	m.pickTime.Observe(time.Since(c.picked).Seconds())
	switch {
	case err == nil:
		m.picks.Observe(pick)
	case len(c.tried) == 0:
		m.picks.Failed()
	}
}

// done counts a request by what its client got.
func (m *metrics) done(c *call) {
	code := strconv.Itoa(c.status)
	switch {
	case c.status == 0:
		code = "none"
	case c.err != nil && c.status < http.StatusBadRequest:
		code = "cut"
	}
	m.requests.WithLabelValues(code).Inc()
}

// Counts are counted since the start of the gateway.
type Counts struct {
	Requests int64
	Failures int64 // attempts that were followed by another one, or by an error

	// Picks counts attempts by policy and by what the pick was based on: engine,
	// estimated, local, or none for a policy that looks at no load.
	Picks map[string]map[string]int64
}

// Counts returns what /metrics has of requests and picks, for a program that has the
// gateway in it.
func (g *Gateway) Counts() Counts {
	families, _ := g.metrics.counters.Gather() // which fails for none of these
	c := Counts{Picks: make(map[string]map[string]int64)}
	for _, f := range families {
		for _, m := range f.Metric {
			n := int64(m.GetCounter().GetValue())
			switch f.GetName() {
			case requestsName:
				c.Requests += n
			case failuresName:
				c.Failures += n
			case "plimsoll_picks_total":
				policy := label(m, "policy")
				if c.Picks[policy] == nil {
					c.Picks[policy] = make(map[string]int64)
				}
				c.Picks[policy][label(m, "basis")] += n
			}
		}
	}
	return c
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
