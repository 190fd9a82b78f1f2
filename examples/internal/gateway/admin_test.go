package gateway

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load/loadhttp"
)

func TestOperatorsSeeWhatIsGoingOn(t *testing.T) {
	_, urls := engines(t)
	g := start(t, Config{Workers: urls, ExplainEvery: 1})
	waitFor(t, "all engines to be trusted", g.trusted)
	text(t, g.post(t, `{"prompt":"hello","stream":true,"max_tokens":1}`))
	g.settled(t)

	// The page is an interval old at most.
	var page loadhttp.Status
	waitFor(t, "the page to show the pick", func() bool {
		g.getJSON(t, "/status/status.json", &page)
		return len(page.Picks) == 1 && page.Fleet.Trusted == 2
	})
	if page.Policy != "least_work" || page.Learned == nil || !page.Workers[0].Speed.IsKnown() || page.Picks[0].Reason != "least_waiting" {
		t.Errorf("the page shows %+v", page)
	}
	var st struct {
		Ready       bool
		Fleet       struct{ Workers []any }
		LoadSockets struct{ Messages int } `json:"load_sockets"`
	}
	g.getJSON(t, "/gateway.json", &st)
	if !st.Ready || len(st.Fleet.Workers) != 2 || st.LoadSockets.Messages == 0 {
		t.Errorf("the gateway is %+v", st)
	}
	if _, body := get(t, g.admin+"/metrics"); strings.Count(body, "\nplimsoll_endpoint_messages_total{") != 4 {
		t.Errorf("the load sockets of two engines of two ranks are not told of")
	}
	status, body := get(t, g.admin+"/")
	if status != http.StatusOK || !strings.Contains(body, "<title>") {
		t.Errorf("from / one comes to %d %.100s", status, body)
	}
}

// They are for operators, and clients have a listener of their own.
func TestClientsAreNotServedWhatIsForOperators(t *testing.T) {
	g := alone(t, Config{})
	for _, path := range []string{"/", "/status/", "/status/status.json", "/gateway.json", "/metrics"} {
		answer := httptest.NewRecorder()
		g.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		if answer.Code != http.StatusNotFound {
			t.Errorf("%s: got %d", path, answer.Code)
		}
	}
}

func TestThePageSaysWhyAnEngineIsOut(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }))
	defer s.Close()
	g := start(t, Config{Workers: []string{s.URL}, ProbeInterval: Duration(10 * time.Millisecond)})
	waitFor(t, "the reason", func() bool {
		var page loadhttp.Status
		g.getJSON(t, "/status/status.json", &page)
		return len(page.Workers) == 1 && strings.Contains(page.Workers[0].Reason, "times in a row, the last with: /health says 500")
	})
}
