//go:build cgo

// What uses a subscriber is not run without cgo, and the other tests are to be.

package loadprom_test

import (
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/load/loadprom"
	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

func ExampleCounts() {
	table := load.NewTable(load.Config{})
	subscriber, err := zmqsub.New(zmqsub.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer subscriber.Close()
	prometheus.MustRegister(loadprom.New(table, loadprom.Config{
		Subscriber: func() loadprom.Counts { return loadprom.Counts(subscriber.Stats().Counts) },
	}))
}

func ExampleEndpointCounts() {
	table := load.NewTable(load.Config{})
	subscriber, err := zmqsub.New(zmqsub.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer subscriber.Close()
	prometheus.MustRegister(loadprom.New(table, loadprom.Config{
		Endpoints: func() (counts []loadprom.EndpointCounts) {
			for _, e := range subscriber.Stats().Endpoints {
				counts = append(counts, loadprom.EndpointCounts{Endpoint: e.Endpoint, Messages: e.Messages, Reconnects: e.Reconnects})
			}
			return counts
		},
	}))
}
