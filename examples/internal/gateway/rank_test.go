package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
)

func TestTheRankThatAClientAsksFor(t *testing.T) {
	none := load.Maybe[int]{}
	for _, c := range []struct {
		header, body string
		want         load.Maybe[int]
	}{
		{"", `{"prompt":"a"}`, none},
		{"3", `{"prompt":"a"}`, load.Known(3)},
		{"0", `{"routed_dp_rank":2}`, load.Known(0)},
		{"", `{"routed_dp_rank":2,"data_parallel_rank":1}`, load.Known(2)},
		{"", `{"data_parallel_rank":1}`, load.Known(1)},
		{"", `{"routed_dp_rank":null}`, none},
		{"", `{"routed_dp_rank":-1}`, none},
		{"", `{"routed_dp_rank":"2"}`, none},
		{"", `{"routed_dp_rank":2`, none},
		{"-1", `{}`, none},
		{"one", `{"routed_dp_rank":2}`, none},
	} {
		h := http.Header{}
		if c.header != "" {
			h.Set(rankHeader, c.header)
		}
		if got := pinnedRank(h, []byte(c.body)); got != c.want {
			t.Errorf("header %q, body %s: %v, want %v", c.header, c.body, got, c.want)
		}
	}
}

func TestARankThatThePolicyChoosesIsTheOneThatServes(t *testing.T) {
	_, urls := engines(t)
	g := start(t, Config{Workers: urls, Policy: "dp_rank"})
	waitFor(t, "all engines to be trusted", g.trusted)
	ranks := make(map[string]bool)
	for range 8 {
		res := g.post(t, `{"prompt":"hello","max_tokens":1}`)
		_, _ = io.Copy(io.Discard, res.Body)
		rank := res.Header.Get("X-Sim-Rank")
		ranks[res.Header.Get(workerHeader)+rank] = true
		if pick := res.Header.Get(pickHeader); !strings.HasSuffix(pick, "rank "+rank) {
			t.Errorf("served by rank %s, picked %s", rank, pick)
		}
	}
	if len(ranks) != 4 {
		t.Errorf("8 requests one after another went to %v, of 4 idle ranks", ranks)
	}
	for rank := range 2 {
		res := g.post(t, fmt.Sprintf(`{"prompt":"hello","max_tokens":1,"routed_dp_rank":%d}`, rank))
		if got := res.Header.Get("X-Sim-Rank"); got != strconv.Itoa(rank) {
			t.Errorf("pinned to rank %d and served by %s", rank, got)
		}
	}
	g.settled(t)
}
