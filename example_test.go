package plimsoll_test

import (
	"context"
	"io"
	"log"
	"log/slog"
	"maps"
	"net/http"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
	"github.com/plimsoll-go/plimsoll/selector/pickhttp"
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
		Source: discovery.Static("http://10.0.0.1:30000", "http://10.0.0.2:30000"),
		Table:  table, Subscriber: subscriber, Logger: slog.Default(),
	})
	go fleet.Run(context.Background()) // until its context ends
	picker := selector.New(table, selector.Config{})
	http.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		pick, err := picker.Pick(selector.Request{}) // better: with what is known of its prompt
		if err != nil {                              // no healthy worker at all; never a missing report
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer pick.Done() // also when the client goes away or this handler panics
		resp, err := forward(pickhttp.Trace(r.Context(), pick), r, pick.Worker.URL())
		if err != nil {
			if r.Context().Err() == nil { // it is not the client that left
				pick.Worker.SetAside() // an engine that fails fast looks idle
			}
			http.Error(w, "engine failed", http.StatusBadGateway)
			return
		}
		if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 {
			pick.Worker.SetAside() // so does one that is full, or fails with an answer
		}
		stream(w, resp, pick.FirstToken)
	})
}

// forward is your gateway's own way to send a request to an engine.
func forward(ctx context.Context, r *http.Request, engine string) (*http.Response, error) {
	out, err := http.NewRequestWithContext(ctx, r.Method, engine+r.URL.RequestURI(), r.Body)
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
			if resp.StatusCode < 300 { // a refusal comes at once, and says nothing of the queue
				first() // only the first call counts
			}
			w.Write(buf[:n])
			http.NewResponseController(w).Flush()
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // half an answer must not look like a whole one
		}
	}
}
