package plimsoll_test

import (
	"context"
	"io"
	"log"
	"net/http"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

// A gateway in front of two engines.
func Example() {
	table := load.NewTable(load.Config{})
	subscriber, err := zmqsub.New(zmqsub.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer subscriber.Close()
	fleet := discovery.NewFleet(discovery.Config{
		Table:      table,
		Source:     discovery.Static("http://10.0.0.1:30000", "http://10.0.0.2:30000"),
		Subscriber: subscriber,
	})
	go fleet.Run(context.Background()) // until its context ends
	picker := selector.New(table, selector.Config{Policy: selector.PowerOfTwo()})

	http.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		pick, err := picker.Pick(selector.Request{})
		if err != nil { // no healthy worker at all; never a missing report
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer pick.Done()                          // also when the client goes away or this handler panics
		resp, err := forward(r, pick.Worker.URL()) // your gateway's own way to send a request
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		pick.FirstToken() // an answer has begun; a gateway that streams marks its first byte
		w.WriteHeader(resp.StatusCode)
		io.Copy(w, resp.Body)
	})
}

func forward(r *http.Request, engine string) (*http.Response, error) {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, engine+r.URL.Path, r.Body)
	if err != nil {
		return nil, err
	}
	out.Header = r.Header.Clone()
	return http.DefaultClient.Do(out)
}
