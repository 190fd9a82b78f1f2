package discovery_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/snapshot"
)

// oneMessage stands for a subscriber: every load socket says one thing, and the
// channel tells that it has.
type oneMessage chan string

func (said oneMessage) Subscribe(endpoint string, deliver func(snapshot.Delivery)) (stop func(), err error) {
	r := snapshot.Reading{Kind: snapshot.KindLoadSnapshot}
	r.Snapshot.NumRunningReqs, r.Snapshot.NumWaitingReqs = 5, 1
	deliver(snapshot.Delivery{Received: time.Now(), Reading: &r})
	said <- endpoint
	return func() {}, nil
}

func Example() {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"kv_events":{"endpoint_host":"*","dp_size":2,"load_endpoint_port_base":5559}}`)
	}))
	defer engine.Close()

	said := make(oneMessage, 2)
	table := load.NewTable(load.Config{})
	fleet := discovery.NewFleet(discovery.Config{
		Table:      table,
		Source:     discovery.Static(engine.URL, "engine without a scheme"),
		Subscriber: said, // zmqsub.New in earnest
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- fleet.Run(ctx) }()

	// A program goes on to serve requests here. This one waits until both ranks
	// have reported.
	<-said
	<-said
	worker := table.Status()[0]
	fmt.Println("depth", worker.Depth, "of", worker.Advertised, "ranks")
	fmt.Println("refused:", fleet.Status().Refused[0].Worker)

	cancel()
	fmt.Println(<-done)
	// Output:
	// depth 12 of 2 ranks
	// refused: engine without a scheme
	// <nil>
}

func ExampleClient_ServerInfo() {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"kv_events":{"endpoint_host":"0.0.0.0","dp_size":3,"load_endpoint_port_base":65534}}`)
	}))
	defer engine.Close()

	client := &discovery.Client{HTTP: engine.Client()}
	ad, err := client.ServerInfo(context.Background(), engine.URL)
	if err != nil {
		fmt.Println("could not tell:", err)
		return
	}
	if !ad.Publishes {
		fmt.Println("does not publish:", ad.Reason)
		return
	}
	for _, e := range ad.Endpoints {
		fmt.Println(e.Rank, e.Addr, e.Err)
	}
	// Output:
	// 0 tcp://127.0.0.1:65534 <nil>
	// 1 tcp://127.0.0.1:65535 <nil>
	// 2  discovery: rank's port is above 65535
}

func ExamplePeers() {
	peers := &discovery.Peers{
		// In a cluster, the name of the gateway's own headless service:
		//	&discovery.DNS{Name: "gateway.default.svc.cluster.local", Port: 8080}
		Source: discovery.Static("http://10.0.0.7:8080", "http://10.0.0.5:8080", "http://10.0.0.6:8080"),
		Self:   "10.0.0.6", // os.Getenv("POD_IP"), from the downward API
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- peers.Run(ctx) }()

	// A program goes on to serve requests here, without a slice until there is a list.
	// This one waits for it.
	for peers.Status().Place == discovery.PlaceUnknown {
		time.Sleep(time.Millisecond)
	}
	replica, replicas := peers.Replica()
	fmt.Println("replica", replica, "of", replicas)
	fmt.Println(peers.Status().Place, "as", peers.Status().Self)

	cancel()
	fmt.Println(<-done)
	// Output:
	// replica 1 of 3
	// listed as 10.0.0.6:8080
	// <nil>
}
