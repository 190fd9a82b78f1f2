package pickhttp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// A report that comes while the engine is at work has the request, and it must
// not be counted on top of that.
func TestRequestThatWasWrittenIsNotCountedOnTopOfAReport(t *testing.T) {
	table := load.NewTable(load.Config{})
	worker := table.Add("a", "")
	feed := worker.Advertise(1)
	since := func() int64 {
		if err := feed.Put(0, load.Report{Running: 1}); err != nil {
			t.Fatal(err)
		}
		return worker.Status().SinceReport
	}
	engine := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if n := since(); n != 0 {
			t.Errorf("the report leaves out %d requests, want 0: it was written", n)
		}
	}))
	defer engine.Close()

	pick, err := selector.New(table, selector.Config{}).Pick(selector.Request{})
	if err != nil {
		t.Fatal(err)
	}
	defer pick.Done()
	if n := since(); n != 1 {
		t.Errorf("the report leaves out %d requests, want 1: it was not written yet", n)
	}
	req, err := http.NewRequestWithContext(Trace(context.Background(), pick), http.MethodGet, engine.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
}

func TestRequestThatCouldNotBeWrittenStaysUncounted(t *testing.T) {
	table := load.NewTable(load.Config{})
	worker := table.Add("a", "")
	pick, err := selector.New(table, selector.Config{}).Pick(selector.Request{})
	if err != nil {
		t.Fatal(err)
	}
	defer pick.Done()
	dead := httptest.NewServer(nil)
	dead.Close()
	req, err := http.NewRequestWithContext(Trace(context.Background(), pick), http.MethodGet, dead.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := http.DefaultClient.Do(req); err == nil {
		t.Fatal("a closed server answers")
	}
	worker.Put(0, load.Report{})
	if n := worker.Status().SinceReport; n != 1 {
		t.Errorf("the report leaves out %d requests, want 1", n)
	}
}
