package loadhttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/load/loadhttp"
)

// What the page shows, for programs. The same stands as JSON at status.json below the page.
func ExampleHandler_Status() {
	table := load.NewTable(load.Config{})
	table.Add("a", "").Put(0, load.Report{Running: 4, Waiting: 2})
	table.Add("b", "").SetNotPublishing("no kv_events block in /server_info")
	page := loadhttp.New(table, loadhttp.Config{}) // looks at the table now, and then once in an interval
	defer page.Close()

	status := page.Status()
	fmt.Println(status.Fleet.Trusted, "of", status.Fleet.Workers, "trusted")
	for _, w := range status.Workers {
		fmt.Println(w.ID, w.State, w.Level)
	}

	mux := http.NewServeMux()
	mux.Handle("/load/", page)
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest("GET", "/load/status.json", nil))
	fmt.Println(answer.Code, strings.HasPrefix(answer.Header().Get("Content-Type"), "application/json"))
	// Output:
	// 1 of 2 trusted
	// a trusted ok
	// b not_publishing warn
	// 200 true
}
