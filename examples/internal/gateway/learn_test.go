package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// inBubble returns a gateway on the clock of a test, with one engine that takes an hour.
func inBubble(t *testing.T) *Gateway {
	t.Helper()
	g := unwired(t, Config{EngineTimeout: Duration(2 * time.Hour)})
	g.transport.RegisterProtocol("slow", roundTripper(func(r *http.Request) (*http.Response, error) {
		time.Sleep(time.Hour)
		status := http.StatusOK
		if r.Header.Get("Refuse") != "" {
			status = http.StatusBadRequest
		}
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("answer"))}, nil
	}))
	g.table.Add("slow", "slow://engine")
	return g
}

// An answer in one piece must not keep its prompt waiting until the answer is whole.
func TestPromptOfAnUnstreamedAnswerDoesNotWaitForAllOfIt(t *testing.T) {
	for body, pending := range map[string]int64{
		`{"prompt":"hello","stream":true}`: 2,
		`{"prompt":"hello"}`:               0,
		`"hello"`:                          0,
	} {
		synctest.Test(t, func(t *testing.T) {
			g := inBubble(t)
			defer g.Close()
			go serve(g, request(t.Context(), body))
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			// It is with a pick that what has begun meanwhile is looked after.
			pick, err := g.routing.Load().Pick(selector.Request{PromptTokens: load.Known[int64](0)})
			if err != nil {
				t.Fatal(err)
			}
			pick.Done()
			if own := g.table.View().At(0).Own(); own.InFlight != 1 || own.PendingTokens != pending {
				t.Errorf("%s: %d in flight with %d tokens pending, want 1 with %d", body, own.InFlight, own.PendingTokens, pending)
			}
			time.Sleep(time.Hour)
		})
	}
}

// All later picks go by what is learned. A refusal or a list comes at once, and an answer
// in one piece long after its first token: neither says how long a prompt takes.
func TestOnlyFirstTokensAreLearnedAsSuch(t *testing.T) {
	for name, test := range map[string]struct {
		method, path, body   string
		refused              bool
		firstToken, response bool // learned
	}{
		"a stream":       {body: `{"prompt":"hello","stream":true}`, firstToken: true, response: true},
		"an embedding":   {path: "/v1/embeddings", body: `{"input":"hello"}`, firstToken: true, response: true},
		"no stream":      {body: `{"prompt":"hello"}`, response: true},
		"not to be told": {body: "hello", response: true},
		"a refusal":      {body: `{"prompt":"hello","stream":true}`, refused: true},
		"a list":         {method: http.MethodGet, path: "/v1/models"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := inBubble(t)
				defer g.Close()
				r := httptest.NewRequest(orElse(test.method, http.MethodPost), orElse(test.path, "/v1/completions"), strings.NewReader(test.body))
				if test.refused {
					r.Header.Set("Refuse", "yes")
				}
				before := g.learned(t)
				if answer, p := serve(g, r); answer.Body.String() != "answer" || p != nil {
					t.Errorf("got %q, panicked %v", answer.Body, p)
				}
				after := g.learned(t)
				if (after.FirstToken > before.FirstToken) != test.firstToken || (after.Response > before.Response) != test.response {
					t.Errorf("knew %+v, and knows %+v", before, after)
				}
			})
		})
	}
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (g *Gateway) learned(t *testing.T) selector.Learned {
	t.Helper()
	time.Sleep(time.Second) // it shows with the next pick
	pick, err := g.routing.Load().Pick(selector.Request{Unstreamed: true})
	if err != nil {
		t.Fatal(err)
	}
	pick.Done()
	return g.routing.Load().policy.(selector.Learner).Learned()
}
