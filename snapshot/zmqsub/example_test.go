//go:build cgo

package zmqsub_test

import (
	"errors"
	"fmt"
	"time"

	zmq "github.com/pebbe/zmq4"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/snapshot"
	"github.com/plimsoll-go/plimsoll/snapshot/zmqsub"
)

// One subscriber listens to all load sockets; each subscription knows which rank it is for.
func ExampleSubscriber() {
	engine, endpoint, err := newEngine()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()

	subscriber, err := zmqsub.New(zmqsub.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer subscriber.Close()

	depths := make(chan int64, 1)
	stop, err := subscriber.Subscribe(endpoint, func(d snapshot.Delivery) {
		if d.Err != nil || d.Reading == nil {
			return // counted by the subscriber
		}
		r := load.FromReading(d.Reading) // copied: the Reading is used again
		select {
		case depths <- r.Running + r.Waiting:
		default: // it must not block
		}
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	// What the engine says before the connection stands is said to nobody.
	for {
		say(engine, snapshot.LoadSnapshot{NumRunningReqs: 17, NumWaitingReqs: 5})
		select {
		case depth := <-depths:
			fmt.Println("depth", depth)
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	// Output: depth 22
}

// newEngine returns a socket like an engine's, on a port of its own.
func newEngine() (engine *zmq.Socket, endpoint string, err error) {
	engine, err = zmq.NewSocket(zmq.PUB)
	if err != nil {
		return nil, "", err
	}
	if err = engine.Bind("tcp://127.0.0.1:*"); err == nil {
		endpoint, err = engine.GetLastEndpoint()
	}
	return engine, endpoint, err
}

func say(engine *zmq.Socket, s snapshot.LoadSnapshot) {
	if _, err := engine.SendMessage(snapshot.Join(nil, "", 0, s.Append(nil))); err != nil {
		fmt.Println(err)
	}
}

// The counts of all subscriptions, and of each that is open.
func ExampleSubscriber_Stats() {
	subscriber, err := zmqsub.New(zmqsub.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer subscriber.Close()
	stop, err := subscriber.Subscribe("tcp://127.0.0.1:9", func(snapshot.Delivery) {})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	stats := subscriber.Stats()
	for _, e := range stats.Endpoints {
		fmt.Println(e.Endpoint, "has brought", e.Messages, "messages, of which", e.TotalDropped(), "were dropped")
	}
	// Output: tcp://127.0.0.1:9 has brought 0 messages, of which 0 were dropped
}

// An engine that binds its load sockets with CURVE is subscribed to with its public key.
func ExampleCurve() {
	keys := map[string]string{"tcp://10.0.0.1:5558": "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"}
	_, err := zmqsub.New(zmqsub.Config{Curve: &zmqsub.Curve{
		ServerKeyOf: func(endpoint string) string { return keys[endpoint] },
	}})
	if errors.Is(err, zmqsub.ErrNoCurve) {
		fmt.Println("libzmq cannot do that here")
	}
}

// What no transport could dial is refused at once.
func ExampleEndpointError() {
	subscriber, err := zmqsub.New(zmqsub.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer subscriber.Close()

	_, err = subscriber.Subscribe("10.0.0.1:5558", func(snapshot.Delivery) {})
	var bad *zmqsub.EndpointError
	fmt.Println(errors.As(err, &bad), errors.Is(err, zmqsub.ErrEndpoint))
	// Output: true true
}
