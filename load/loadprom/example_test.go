package loadprom_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/load/loadprom"
	"github.com/plimsoll-go/plimsoll/selector"
)

// A gateway that tells all there is to tell. One that has a zmqsub.Subscriber sets
// Config.Subscriber too, as ExampleCounts does.
func Example() {
	table := load.NewTable(load.Config{})
	policy := selector.LeastWork(selector.LeastWorkConfig{})
	picker := selector.New(table, selector.Config{Policy: policy})
	fleet := discovery.NewFleet(discovery.Config{Table: table, Source: discovery.Static("http://10.0.0.1:30000")})
	// go fleet.Run(ctx)

	picks, firstToken, pickTime := new(loadprom.Picks), loadprom.NewFirstToken(), loadprom.NewPickDuration()
	registry := prometheus.NewRegistry()
	registry.MustRegister(picks, firstToken, pickTime, loadprom.New(table, loadprom.Config{
		Policy: func() selector.Policy { return policy },
		Fleet:  fleet.Status,
	}))

	handle := func(w http.ResponseWriter) {
		began := time.Now()
		pick, err := picker.Pick(selector.Request{})
		pickTime.Observe(time.Since(began).Seconds())
		if err != nil {
			picks.Failed()
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer pick.Done()
		picks.Observe(pick)
		// The request is sent, and its answer begins.
		pick.FirstToken()
		firstToken.Observe(time.Since(began).Seconds())
	}

	_ = table.Add("http://10.0.0.1:30000", "http://10.0.0.1:30000").Put(0, load.Report{Running: 3, Waiting: 1})
	handle(httptest.NewRecorder())

	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if slices.ContainsFunc([]string{"plimsoll_worker_depth", "plimsoll_picks", "plimsoll_first_token_seconds_count"},
			func(name string) bool { return strings.HasPrefix(line, name) }) {
			fmt.Print(line)
		}
	}
	// Output:
	// plimsoll_first_token_seconds_count 1
	// plimsoll_picks_total{basis="engine",policy="least_work",reason="least_waiting"} 1
	// plimsoll_worker_depth_requests{worker="http://10.0.0.1:30000"} 4
}
