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
			} else if strings.Contains(string(body), "cut") {
				io.WriteString(w, "half an ")
				http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
			io.WriteString(w, "answer")
		}),
	}})
	text(t, g.post(t, `{"prompt":"hello","stream":true}`))
	text(t, g.post(t, `{"prompt":"hello"}`))
	res, err := http.Post(g.url+"/v1/embeddings", "application/json", strings.NewReader(`{"input":"hello"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text(t, res)
	g.dial(t, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{").Close()
	text(t, g.post(t, `{"prompt":"poison"}`))
	if _, err := io.ReadAll(g.post(t, `{"prompt":"cut"}`).Body); err == nil {
		t.Error("half an answer looks like a whole one")
	}
	g.settled(t)
	for _, w := range g.table.Workers() {
		w.SetHealthy(false)
	}
	text(t, g.post(t, `{"prompt":"hello"}`))

	var body string
	waitFor(t, "the last request to be counted", func() bool {
		_, body = get(t, g.admin+"/metrics")
		return strings.Contains(body, `plimsoll_gateway_requests_total{code="503"} 1`) && strings.Contains(body, `code="none"`)
	})
	for _, want := range []string{
		`plimsoll_gateway_requests_total{code="200"} 3`,
		`plimsoll_gateway_requests_total{code="none"} 1`,
		`plimsoll_gateway_requests_total{code="500"} 1`,
		`plimsoll_gateway_requests_total{code="cut"} 1`,
		`plimsoll_gateway_failed_attempts_total 1`,
		`plimsoll_gateway_ready 0`,
		`plimsoll_failed_picks_total 1`,
		`plimsoll_picks_total{basis="none",policy="round_robin",reason="turn"} 5`,
		`plimsoll_first_token_seconds_count 1`, // of the only one that was streamed
		`plimsoll_pick_duration_seconds_count 7`,
		`plimsoll_workers 1`,
		`plimsoll_subscriber_messages_total 0`,
		`plimsoll_source_workers{source="static"} 1`,
		`go_goroutines`,
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no %s", want)
		}
	}
	if c := g.Counts(); c.Requests != 7 || c.Failures != 1 || c.Picks["round_robin"]["none"] != 5 {
		t.Errorf("counted %+v", c)
	}
}
