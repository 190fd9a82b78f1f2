package load_test

import (
	"fmt"

	"github.com/plimsoll-go/plimsoll/load"
)

// A host with a transport of its own feeds the table itself.
func ExampleTable() {
	table := load.NewTable(load.Config{})
	worker := table.Add("engine-1", "http://10.0.0.1:30000")
	feed := worker.Advertise(2) // it publishes on two ranks

	feed.Put(0, load.Report{Running: 5, Waiting: 1})
	fmt.Println(worker.Status().Why, "-", worker.Status().Reason)

	feed.Put(1, load.Report{Running: 3, Waiting: 2, KVUsage: load.Known(0.25)})
	fmt.Println(worker.Status().Why, "- depth", worker.Status().Depth)

	ticket := worker.Reserve(load.NoRank, 1200) // what a pick does
	entry, _ := table.View().Find(worker)
	depth, _ := entry.DepthNow()
	fmt.Println("with the request that no report has counted yet:", depth)
	ticket.Done()
	fmt.Println("in flight at the end:", worker.InFlight())
	// Output:
	// never_reported - never reported: rank 1 of 2
	// trusted - depth 11
	// with the request that no report has counted yet: 12
	// in flight at the end: 0
}
