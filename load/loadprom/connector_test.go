package loadprom

import (
	"errors"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/snapshot"
)

func reserve(t *testing.T, c *load.Connector, id string) load.Reservation {
	t.Helper()
	r, err := c.Reserve(id, 10)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAConnector(t *testing.T) {
	table, _ := newTestTable()
	conn := connect(t, table, "group")
	r := reserve(t, conn, "batch") // all idle: of rank 0 or 1, at random
	rank := r.Rank()
	reserve(t, conn, "release").Done()
	reserve(t, conn, "abort").Abort()
	if _, err := conn.Reserve("batch", 1); err == nil {
		t.Fatal("an id was reserved twice")
	}
	b := load.Batch{
		Rank: rank, Finished: [][]byte{[]byte("batch"), []byte("never heard of")},
		Load: load.Report{Running: 1}, HasLoad: true,
	}
	for _, b := range []load.Batch{b, {Rank: rank}, {Rank: 7, Load: b.Load, HasLoad: true}} {
		_ = conn.Observe(b)
	}
	_ = conn.Observe(load.Batch{Rank: rank, Err: snapshot.ErrTruncated})
	got := scrape(t, New(table, Config{Connectors: func() []*load.Connector { return []*load.Connector{conn} }}))
	got.of("connector", "ended").check(t, `
		plimsoll_connector_ended_requests_total{by="batch",worker="group"} 1
		plimsoll_connector_ended_requests_total{by="release",worker="group"} 1
		plimsoll_connector_ended_requests_total{by="abort",worker="group"} 1
		plimsoll_connector_ended_requests_total{by="failure",worker="group"} 0
	`)
	st := conn.Status()
	for name, n := range map[string]uint64{
		"requests": st.Reserved, "refused_requests": st.Duplicates, "unknown_ends": st.Unknown,
		"batches": st.Batches, "loadless_batches": st.WithoutLoad,
	} {
		if n == 0 {
			t.Errorf("the test has made no %s", name)
		}
		if told := got["plimsoll_connector_"+name+`_total{worker="group"}`]; told != float64(n) {
			t.Errorf("%v %s are told, of %d", told, name, n)
		}
	}
	if n := len(got.of("connector_dropped")); n != len(st.Dropped) || n < 2 {
		t.Errorf("%d reasons of %v", n, st.Dropped)
	}
	for _, name := range []string{"score", "silenced"} {
		if n := len(got.of("connector_rank_", name)); n != 2 {
			t.Errorf("%d ranks have a %s", n, name)
		}
	}
}

// A group that died is followed by one of the same id.
func TestOnlyTheConnectorOfTheWorkerThatIsThereIsTold(t *testing.T) {
	table, _ := newTestTable()
	old := connect(t, table, "group")
	reserve(t, old, "a")
	old.Fail(errors.New("died"))
	table.Remove(old.Worker())
	stranger := connect(t, load.NewTable(load.Config{}), "group")
	now := connect(t, table, "group")
	c := New(table, Config{Connectors: func() []*load.Connector { return []*load.Connector{old, stranger, now, now} }})
	scrape(t, c).of("connector_requests").check(t, `plimsoll_connector_requests_total{worker="group"} 0`)

	table.Remove(now.Worker())
	scrape(t, c).of("connector").checkNone(t)
	scrape(t, New(table, Config{})).of("connector").checkNone(t)
}

func TestRanksOfConnectorsAreBounded(t *testing.T) {
	table, _ := newTestTable()
	conn := connect(t, table, "group")
	config := Config{Connectors: func() []*load.Connector { return []*load.Connector{conn} }, MaxRanks: 1}
	if n := len(scrape(t, New(table, config)).of("connector_rank_")); n != 2 {
		t.Errorf("%d series of ranks, want 2 of one", n)
	}
	config.MaxWorkers = -1
	scrape(t, New(table, config)).of("connector").checkNone(t)
}

func TestEndpoints(t *testing.T) {
	table, _ := newTestTable()
	endpoints := []EndpointCounts{{"tcp://10.0.0.2:5558", 7, 0}, {"tcp://10.0.0.1:5558", 4, 1}, {"tcp://10.0.0.1:5558", 1, 2}}
	config := Config{Endpoints: func() []EndpointCounts { return endpoints }}
	scrape(t, New(table, config)).of("endpoint").check(t, `
		plimsoll_endpoint_messages_total{endpoint="tcp://10.0.0.1:5558"} 5
		plimsoll_endpoint_messages_total{endpoint="tcp://10.0.0.2:5558"} 7
		plimsoll_endpoint_reconnects_total{endpoint="tcp://10.0.0.1:5558"} 3
		plimsoll_endpoint_reconnects_total{endpoint="tcp://10.0.0.2:5558"} 0
		plimsoll_omitted_endpoints 0
	`)

	config.MaxRanks = 1
	scrape(t, New(table, config)).of("endpoint").check(t, `
		plimsoll_endpoint_messages_total{endpoint="tcp://10.0.0.1:5558"} 5
		plimsoll_endpoint_reconnects_total{endpoint="tcp://10.0.0.1:5558"} 3
		plimsoll_omitted_endpoints 1
	`)

	// One that has gone takes its series with it.
	config.MaxRanks, endpoints = 0, endpoints[:1]
	if n := len(scrape(t, New(table, config)).of("10.0.0.1")); n != 0 {
		t.Errorf("%d series are left", n)
	}
	scrape(t, New(table, Config{})).of("endpoint").checkNone(t)
}
