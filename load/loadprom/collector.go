package loadprom

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// Defaults of Config.
const (
	DefaultMaxWorkers = 4096
	DefaultMaxRanks   = 8192
)

// Config says what a Collector tells besides what is in the table. The functions are called
// in each scrape, and by several at once where scrapes overlap; nil means that there is
// nothing to tell.
type Config struct {
	// Policy returns the selector's policy. What it goes by is told if it is a
	// selector.Learner. A function, since a host may come to use another policy.
	Policy func() selector.Policy

	// Subscriber returns the counts of the load sockets.
	Subscriber func() Counts

	// Endpoints returns the counts of each load socket that is subscribed now.
	Endpoints func() []EndpointCounts

	// Connectors returns those of the table's workers that the host drives itself.
	Connectors func() []*load.Connector

	// Fleet returns what discovery knows of the workers; [discovery.Fleet.Status] is one.
	Fleet func() discovery.Status

	// MaxWorkers and MaxRanks bound the series: no more workers than that have any of
	// their own, the first by id, and no more ranks, of which every worker has its
	// share, nor more load sockets. How many were left out is told. 0 means the default,
	// less than 0 none.
	MaxWorkers, MaxRanks int
}

// Counts is what zmqsub.Counts has, and a conversion makes the one of the other:
// a host with a subscriber of its own needs no libzmq to import this package.
type Counts struct {
	Messages   uint64            // received
	Delivered  uint64            // decoded and handed on
	Superseded uint64            // a newer one was there at the same time; never decoded
	Dropped    map[string]uint64 // by reason
	Reconnects uint64            // fresh connections because of silence
}

// EndpointCounts are some of the counts of one load socket, as zmqsub.EndpointStats has them.
type EndpointCounts struct {
	Endpoint   string
	Messages   uint64
	Reconnects uint64
}

// Collector is a prometheus.Collector of what is known of the workers in a table. It is
// made of the table anew in each scrape, so that what has gone from there has gone from
// here. See the package comment for its metrics.
type Collector struct {
	table   *load.Table
	config  Config
	reasons names // of drops
}

// New returns a collector of the workers in t.
func New(t *load.Table, c Config) *Collector {
	c.MaxWorkers = cmp.Or(c.MaxWorkers, DefaultMaxWorkers)
	c.MaxRanks = cmp.Or(c.MaxRanks, DefaultMaxRanks)
	return &Collector{table: t, config: c, reasons: names{most: 64}}
}

var (
	workers          = gauge("plimsoll_workers", "Workers in the table.")
	trustedWorkers   = gauge("plimsoll_trusted_workers", "Workers whose reports are trusted.")
	untrustedWorkers = gauge("plimsoll_untrusted_workers", "Workers whose reports are not trusted, by the reason.", "reason")
	reportWindow     = gauge("plimsoll_report_window_seconds", "Age up to which a report is fresh.")
	omittedWorkers   = gauge("plimsoll_omitted_workers", "Workers that have no series of their own, because there are too many.")
	omittedRanks     = gauge("plimsoll_omitted_ranks", "Ranks that have no series of their own, because there are too many.")

	fleetFamilies = []*family{workers, trustedWorkers, untrustedWorkers, reportWindow, omittedWorkers, omittedRanks}
)

// families returns all that a Collector may tell.
func families() []*family {
	return slices.Concat(fleetFamilies, workerFamilies, rankFamilies, learnedFamilies, subscriberFamilies, endpointFamilies, connectorFamilies, discoveryFamilies)
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, f := range families() {
		to <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	status := c.table.Status()
	c.fleet(to, status)

	told := status[:min(len(status), max(c.config.MaxWorkers, 0))]
	ranks := share(told, c.config.MaxRanks)
	omitted := 0
	labels := make(workerLabels, len(told))
	for i := range told {
		w := &told[i]
		labels.add(w.ID)
		c.worker(to, w, labels[w.ID])
		n := min(len(w.Ranks), ranks)
		for rank := range w.Ranks[:n] {
			putRank(to, w, &w.Ranks[rank], labels[w.ID])
		}
		omitted += len(w.Ranks) - n
	}
	for i := range status[len(told):] {
		omitted += len(status[len(told)+i].Ranks)
	}
	put(to, omittedWorkers, len(status)-len(told))
	put(to, omittedRanks, omitted)

	if c.config.Policy != nil {
		if learner, ok := c.config.Policy().(selector.Learner); ok {
			putLearned(to, learner.Learned(), labels)
		}
	}
	if c.config.Subscriber != nil {
		c.subscriber(to, c.config.Subscriber())
	}
	if c.config.Endpoints != nil {
		putEndpoints(to, c.config.Endpoints(), c.config.MaxRanks)
	}
	if c.config.Connectors != nil {
		c.connectors(to, c.config.Connectors(), labels, ranks)
	}
	if c.config.Fleet != nil {
		putDiscovery(to, c.config.Fleet(), labels)
	}
}

func (c *Collector) fleet(to sink, status []load.WorkerStatus) {
	why := make(map[load.Why]int)
	for i := range status {
		why[status[i].Why]++
	}
	put(to, workers, len(status))
	put(to, trustedWorkers, why[load.Trusted])
	for _, r := range reasons {
		put(to, untrustedWorkers, why[r.why], r.label)
	}
	put(to, reportWindow, c.table.Window().Seconds())
}

// share returns how many ranks each of the workers may have series for, so that all
// together have at most most: the largest number that does. A worker with fewer leaves
// what it does not need to the others, and one that claims a thousand takes nothing from them.
func share(workers []load.WorkerStatus, most int) int {
	counts := make([]int, len(workers))
	for i := range workers {
		counts[i] = len(workers[i].Ranks)
	}
	slices.Sort(counts)
	left := max(most, 0)
	for i, n := range counts {
		if each := left / (len(counts) - i); each < n {
			return each
		}
		left -= n
	}
	return max(most, 0)
}
