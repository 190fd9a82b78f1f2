package loadhttp_test

import (
	"log"
	"net/http"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/load/loadhttp"
	"github.com/plimsoll-go/plimsoll/selector"
)

// The page stands on an address of its own, which clients do not reach.
func Example() {
	table := load.NewTable(load.Config{})
	policy := selector.LeastWork(selector.LeastWorkConfig{})
	page := loadhttp.New(table, loadhttp.Config{
		Title:  "gateway-2",
		Policy: func() selector.Policy { return policy },
	})
	picker := selector.New(table, selector.Config{Policy: policy, Explain: page.Explain})

	mux := http.NewServeMux()
	mux.Handle("/load/", page)
	admin := &http.Server{Addr: "127.0.0.1:9090", Handler: mux}
	admin.RegisterOnShutdown(page.Close) // or the server waits for whoever still looks
	go func() { log.Print(admin.ListenAndServe()) }()

	_ = picker // picks
}
