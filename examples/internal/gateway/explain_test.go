package gateway

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func explainedRequest(ctx context.Context) *http.Request {
	r := request(ctx, `{"prompt":"hello, hello"}`)
	r.Header.Set(explainHeader, "1")
	return r
}

func TestOnlyThoseWhoMayAndAskAreToldOfTheFleet(t *testing.T) {
	for _, test := range []struct{ allowed, asked bool }{{true, true}, {true, false}, {false, true}} {
		g := alone(t, Config{ExplainOnRequest: test.allowed})
		engine := backend(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(explainHeader, "forged") })
		for i := range 20 {
			g.table.Add(fmt.Sprint("engine-", i), engine)
		}
		r := explainedRequest(t.Context())
		if !test.asked {
			r.Header.Del(explainHeader)
		}
		answer, _ := serve(g, r)
		lines := answer.Header()[explainHeader]
		if test.allowed != test.asked {
			if lines != nil {
				t.Errorf("allowed %v, asked %v: got %q", test.allowed, test.asked, lines)
			}
			continue
		}
		if len(lines) != explained || lines[0] != "least_work: least_waiting, prompt of 3 tokens" ||
			!strings.HasPrefix(lines[1], "* "+answer.Header().Get(workerHeader)+": load 0") || !strings.Contains(lines[7], "prompt_tokens (3)") {
			t.Errorf("got %q", lines)
		}
	}
}

func TestExplanationOfNoPick(t *testing.T) {
	g := alone(t, Config{ExplainOnRequest: true})
	g.table.Add("engine", "http://engine").SetHealthy(false)
	answer, _ := serve(g, explainedRequest(t.Context()))
	lines := strings.Join(answer.Header()[explainHeader], "\n")
	if answer.Code != http.StatusServiceUnavailable || !strings.Contains(lines, "none of 1 workers is healthy") || !strings.Contains(lines, "not_healthy: 1") {
		t.Errorf("got %d, explained by %q", answer.Code, lines)
	}
}

// The pick that the client is told of is the one that the explanation is of.
func TestExplanationAfterARetry(t *testing.T) {
	g := alone(t, Config{ExplainOnRequest: true, Policy: "round_robin"})
	for i, status := range []int{500, 200} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		t.Cleanup(s.Close)
		g.table.Add(fmt.Sprint("engine-", i), s.URL)
	}
	retried := false
	for range 2 {
		answer, _ := serve(g, explainedRequest(t.Context()))
		lines := strings.Join(answer.Header()[explainHeader], "\n")
		if !strings.Contains(lines, "* engine-1") {
			t.Errorf("got %q", lines)
		}
		retried = retried || strings.Contains(lines, "excluded: 1")
	}
	if !retried {
		t.Error("no explanation says that an engine was tried before")
	}
}

func TestEachPickIsLoggedThatIsToBeExplained(t *testing.T) {
	var log bytes.Buffer
	pick := func(c Config, n int) string {
		t.Helper()
		log.Reset()
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		g := alone(t, c)
		g.table.Add("engine", "")
		for range n {
			p, err := g.pick(&call{r: request(t.Context(), `{}`), id: "r1", config: g.config.Load()})
			if err != nil {
				t.Fatal(err)
			}
			p.Done()
		}
		return log.String()
	}
	if got := pick(Config{ExplainEvery: 1}, 3); strings.Count(got, "explanation.reason=least_waiting") != 3 || strings.Count(got, "id=r1") != 3 {
		t.Errorf("logged %s", got)
	}
	if got := pick(Config{}, 20_000); got != "" {
		t.Errorf("logged by default: %s", got)
	}
}
