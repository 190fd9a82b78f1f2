package pickhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
	"github.com/plimsoll-go/plimsoll/selector/pickhttp"
)

// A request that was written is in the engine's next report, and counts no more on top.
func ExampleTrace() {
	engine := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer engine.Close()
	table := load.NewTable(load.Config{})
	worker := table.Add("engine-0", engine.URL)

	pick, err := selector.New(table, selector.Config{}).Pick(selector.Request{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pick.Done()
	req, err := http.NewRequestWithContext(pickhttp.Trace(context.Background(), pick), "GET", pick.Worker.URL(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := engine.Client().Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()

	worker.Put(0, load.Report{Running: 1})
	fmt.Println(worker.Status().InFlight, "in flight, of which the report lacks", worker.Status().SinceReport)
	// Output: 1 in flight, of which the report lacks 0
}
