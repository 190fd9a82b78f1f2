package epp

import (
	"testing"
	"testing/synctest"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

func TestEngineThatRefusesIsSetAside(t *testing.T) {
	for status, aside := range map[string]bool{"200": false, "400": false, "429": true, "500": false, "502": true, "503": true} {
		synctest.Test(t, func(t *testing.T) { // in which no time passes, so that it stays aside
			table := load.NewTable(load.Config{})
			worker := table.Add("10.0.0.1:30000", "http://10.0.0.1:30000")
			x := &exchange{picker: New(Config{Table: table, Selector: selector.New(table, selector.Config{})})}
			h := headers(":method", "POST")
			h.EndOfStream = true
			if _, err := x.requestHeaders(h, nil); err != nil {
				t.Fatal(err)
			}
			x.responseHeaders(headers(":status", status), nil)
			x.end()
			if s := worker.Status(); s.Aside != aside || s.InFlight != 0 {
				t.Errorf("%s: aside: %t, want %t; %d in flight", status, s.Aside, aside, s.InFlight)
			}
		})
	}
}

func TestEngineThatEnvoyDidNotReachIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := load.NewTable(load.Config{})
		gone := table.Add("10.0.0.1:30000", "http://10.0.0.1:30000")
		x := &exchange{picker: New(Config{Table: table, Selector: selector.New(table, selector.Config{})})}
		h := headers(":method", "POST")
		h.EndOfStream = true
		if _, err := x.requestHeaders(h, nil); err != nil {
			t.Fatal(err)
		}
		other := table.Add("10.0.0.2:30000", "http://10.0.0.2:30000")
		x.responseHeaders(headers(":status", "200"), metadata(Namespace, ServedKey, other.ID()))
		x.end()
		if !gone.Status().Aside || other.Status().Aside {
			t.Errorf("aside: %t the one that was picked, %t the one that served", gone.Status().Aside, other.Status().Aside)
		}
	})
}

func TestEngineThatRefusesIsTheOneThatServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := load.NewTable(load.Config{})
		picked := table.Add("10.0.0.1:30000", "http://10.0.0.1:30000")
		x := &exchange{picker: New(Config{Table: table, Selector: selector.New(table, selector.Config{})})}
		h := headers(":method", "POST")
		h.EndOfStream = true
		if _, err := x.requestHeaders(h, nil); err != nil {
			t.Fatal(err)
		}
		other := table.Add("10.0.0.2:30000", "http://10.0.0.2:30000")
		x.responseHeaders(headers(":status", "503"), metadata(Namespace, ServedKey, other.ID()))
		x.end()
		if !other.Status().Aside || picked.InFlight()+other.InFlight() != 0 {
			t.Errorf("aside: %t; in flight: %d and %d", other.Status().Aside, picked.InFlight(), other.InFlight())
		}
	})
}
