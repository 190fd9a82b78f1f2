package loadprom_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/load/loadprom"
	"github.com/plimsoll-go/plimsoll/selector"
)

// Picks are counted by the host, which is who knows of them.
func ExamplePicks() {
	table := load.NewTable(load.Config{})
	picker := selector.New(table, selector.Config{Policy: selector.RoundRobin()})
	picks := new(loadprom.Picks)
	pick := func() {
		p, err := picker.Pick(selector.Request{})
		if err != nil {
			picks.Failed()
			return
		}
		defer p.Done()
		picks.Observe(p)
	}
	pick()
	table.Add("a", "")
	pick()
	fmt.Println(testutil.CollectAndCount(picks, "plimsoll_picks_total"), "series of picks,",
		testutil.CollectAndCount(picks, "plimsoll_failed_picks_total"), "of those that failed")
	// Output: 1 series of picks, 1 of those that failed
}

// A group of ranks that the host drives itself, next to the workers that publish.
func ExampleConfig_connectors() {
	table := load.NewTable(load.Config{})
	group, err := load.NewConnector(table.Add("group-0", ""), load.ConnectorConfig{Ranks: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	collector := loadprom.New(table, loadprom.Config{
		Connectors: func() []*load.Connector { return []*load.Connector{group} },
	})
	fmt.Println(testutil.CollectAndCount(collector, "plimsoll_connector_rank_score"), "ranks")
	// Output: 8 ranks
}
