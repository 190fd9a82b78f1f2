package load_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// What an engine does not say is unknown, which is another thing than 0.
func ExampleMaybe() {
	report := load.Report{Running: 3, KVUsage: load.Known(0.25)}
	if usage, ok := report.KVUsage.Get(); ok {
		fmt.Println("KV usage", usage)
	}
	fmt.Println("waiting tokens", report.WaitingTokens, "or, if a number is wanted,", report.WaitingTokens.Or(0))
	text, _ := json.Marshal(report.WaitingTokens)
	fmt.Println(string(text))
	// Output:
	// KV usage 0.25
	// waiting tokens unknown or, if a number is wanted, 0
	// null
}

// A Feed is what one advertisement of a worker brings. It dies with the next one, so that
// nothing that comes late is ever taken for news.
func ExampleFeed() {
	table := load.NewTable(load.Config{})
	worker := table.Add("engine-0", "http://10.0.0.1:30000")

	old := worker.Advertise(1)
	old.Put(0, load.Report{Running: 9})

	feed := worker.Advertise(2) // the engine is back with two ranks
	fmt.Println(old.Put(0, load.Report{Running: 9}))
	fmt.Println(errors.Is(feed.Put(2, load.Report{}), load.ErrNoRank))
	feed.Drop(1, "truncated", errors.New("payload ends too early"))

	status := worker.Status()
	fmt.Println(status.Why, "-", status.Reason)
	fmt.Println(status.Ranks[1].Dropped)
	// Output:
	// load: worker or feed is gone
	// true
	// never_reported - never reported: rank 0, 1 (last message dropped: payload ends too early) of 2
	// map[truncated:1]
}

// A View is one moment of the table: whatever it says of its workers goes together.
func ExampleView() {
	now := time.Unix(1_900_000_000, 0)
	table := load.NewTable(load.Config{Window: 5 * time.Second, Clock: func() time.Time { return now }})
	table.Add("a", "").Put(0, load.Report{Running: 4, Waiting: 2})
	table.Add("b", "")
	table.Add("c", "").SetHealthy(false)

	now = now.Add(time.Second)
	view := table.View()
	fmt.Println(view.Len(), "may be picked, of", view.Known())
	for i := range view.Len() {
		if e := view.At(i); e.Trusted() {
			fmt.Println(e.Worker().ID(), "depth", e.Depth(), "told", view.Age(e), "ago")
		} else {
			fmt.Println(e.Worker().ID(), e.Why())
		}
	}
	now = now.Add(time.Minute)
	e, _ := table.View().Find(view.At(0).Worker())
	fmt.Println(e.Worker().ID(), e.Why())
	// Output:
	// 2 may be picked, of 3
	// a depth 6 told 1s ago
	// b no_feed
	// a stale
}

// A Ticket is one request in the books of its worker, from its pick to its end.
func ExampleTicket() {
	worker := load.NewTable(load.Config{}).Add("engine-0", "")
	show := func(what string) {
		own := worker.Own()
		fmt.Printf("%s: %d in flight, %d without a first token, %d prompt tokens to go\n", what, own.InFlight, own.Unstarted, own.PendingTokens)
	}

	ticket := worker.Reserve(load.NoRank, 1200)
	defer ticket.Done() // for the client that leaves, too: only the first one counts
	show("picked")
	ticket.Dispatched() // the engine's next report counts it
	ticket.FirstToken()
	show("answering")
	ticket.Done()
	show("done")
	// Output:
	// picked: 1 in flight, 1 without a first token, 1200 prompt tokens to go
	// answering: 1 in flight, 0 without a first token, 0 prompt tokens to go
	// done: 0 in flight, 0 without a first token, 0 prompt tokens to go
}

// An engine that has just failed a request looks idle, and would be picked at once.
func ExampleWorker_SetAside() {
	table := load.NewTable(load.Config{})
	a, b := table.Add("a", ""), table.Add("b", "")
	a.SetAside()
	fmt.Println(a.Status().Aside, b.Status().Aside)

	a.Put(0, load.Report{Running: 1}) // it is back
	fmt.Println(a.Status().Aside)
	// Output:
	// true false
	// false
}
