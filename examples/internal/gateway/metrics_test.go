package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestMetricsCountWhatClientsGot(t *testing.T) {
	g := start(t, Config{Policy: "round_robin", Workers: []string{
		backend(t, func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "poison") {
				w.WriteHeader(500)
				return
			}
			io.WriteString(w, "answer")
		}),
	}})
	text(t, g.post(t, `{"prompt":"hello","stream":true}`))
	text(t, g.post(t, `{"prompt":"hello"}`))
	text(t, g.post(t, `{"prompt":"poison"}`))
	g.settled(t)
	for _, w := range g.table.Workers() {
		w.SetHealthy(false)
	}
	text(t, g.post(t, `{"prompt":"hello"}`))

	var body string
	waitFor(t, "the last request to be counted", func() bool {
		_, body = get(t, g.admin+"/metrics")
		return strings.Contains(body, `plimsoll_gateway_requests_total{code="503"} 1`)
	})
	for _, want := range []string{
		`plimsoll_gateway_requests_total{code="200"} 2`,
		`plimsoll_gateway_requests_total{code="500"} 1`,
		`plimsoll_gateway_failed_attempts_total 1`,
		`plimsoll_gateway_ready 0`,
		`plimsoll_failed_picks_total 1`,
		`plimsoll_picks_total{basis="none",policy="round_robin",reason="turn"} 3`,
		`plimsoll_first_token_seconds_count 1`, // of the only one that was streamed
		`plimsoll_pick_duration_seconds_count 5`,
		`plimsoll_workers 1`,
		`plimsoll_subscriber_messages_total 0`,
		`plimsoll_source_workers{source="static"} 1`,
		`go_goroutines`,
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no %s", want)
		}
	}
	if c := g.Counts(); c.Requests != 4 || c.Failures != 1 || c.Picks["round_robin"]["none"] != 3 {
		t.Errorf("counted %+v", c)
	}
}
