package plimsoll_test

import (
	"context"
	"log"
	"log/slog"
	"maps"
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
		Logger:     slog.Default(),
	})
	go fleet.Run(context.Background()) // until its context ends
	picker := selector.New(table, selector.Config{Policy: selector.PowerOfTwo()})
	http.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		pick, err := picker.Pick(selector.Request{})
		if err != nil { // no healthy worker at all; never a missing report
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer pick.Done() // also when the client goes away or this handler panics
		resp, err := forward(pick.Trace(r.Context()), r, pick.Worker.URL())
		if err != nil {
			pick.Worker.SetAside() // an engine that fails fast looks idle
			http.Error(w, "engine failed", http.StatusBadGateway)
			return
		}
		stream(w, resp, pick.FirstToken)
	})
}

// forward is your gateway's own way to send a request to an engine.
func forward(ctx context.Context, r *http.Request, engine string) (*http.Response, error) {
	out, err := http.NewRequestWithContext(ctx, r.Method, engine+r.URL.Path, r.Body)
	if err != nil {
		return nil, err
	}
	out.Header = r.Header.Clone()
	return http.DefaultClient.Do(out)
}

// stream passes an answer on, each piece as it comes.
func stream(w http.ResponseWriter, resp *http.Response, first func()) {
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			first() // only the first call counts
			w.Write(buf[:n])
			http.NewResponseController(w).Flush()
		}
		if err != nil {
			return
		}
	}
}
