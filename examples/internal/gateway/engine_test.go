package gateway

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
)

// engines starts one simulated engine for each wire, much faster than real ones.
func engines(t *testing.T) (list []*simengine.Engine, urls []string) {
	t.Helper()
	for _, wire := range []simengine.Wire{simengine.WireLoadStat, simengine.WireLoadSnapshot} {
		e, err := simengine.Start(simengine.Config{Ranks: 2, Wire: wire, TimeScale: 20, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		list, urls = append(list, e), append(urls, e.URL())
	}
	return list, urls
}

func (r *running) trusted() bool {
	workers, _, _ := r.table.View().Trusted()
	return workers == len(r.table.Status())
}

func TestPicksAreMadeOnWhatEnginesPublish(t *testing.T) {
	_, urls := engines(t)
	g := start(t, Config{Workers: urls, Policy: "least_depth"})
	waitFor(t, "all engines to be trusted", g.trusted)
	const requests = 20
	for i := range requests {
		res := g.post(t, fmt.Sprintf(`{"prompt":"hello %d","stream":true,"max_tokens":5}`, i))
		if got := text(t, res); !strings.HasSuffix(got, "data: [DONE]\n\n") {
			t.Errorf("got %d %q", res.StatusCode, got)
		}
		if pick := res.Header.Get(pickHeader); !strings.Contains(pick, "(engine)") {
			t.Errorf("picked %s", pick)
		}
	}
	g.settled(t)
	if err := g.SetPolicy("least_request", nil); err != nil {
		t.Fatal(err)
	}
	text(t, g.post(t, `{"prompt":"hello"}`))
	picks := g.Counts().Picks
	if picks["least_depth"]["engine"] != requests || picks["least_request"]["local"] != 1 {
		t.Errorf("counted picks %v", picks)
	}
}

func TestEngineThatDiesIsLeftOutUntilItIsBack(t *testing.T) {
	list, urls := engines(t)
	g := start(t, Config{Workers: urls, Policy: "round_robin", ProbeInterval: Duration(10 * time.Millisecond)})
	waitFor(t, "all engines to be trusted", g.trusted)
	send := func(n int) {
		t.Helper()
		for range n {
			res := g.post(t, `{"prompt":"hello"}`)
			if got := text(t, res); res.StatusCode != http.StatusOK {
				t.Errorf("got %d %q", res.StatusCode, got)
			}
		}
	}
	list[0].Die()
	send(6) // nobody notices
	down := g.worker(t, urls[0])
	waitFor(t, "probes to notice", func() bool { return !down.Status().Healthy })
	before := down.Status().Picked
	send(6)
	if n := down.Status().Picked; n != before {
		t.Errorf("%d picks of an engine that is down", n-before)
	}
	if err := list[0].Restart(0); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the engine to be back", func() bool {
		st := down.Status()
		return st.Healthy && !st.Aside
	})
	send(2)
	if n := down.Status().Picked; n != before+1 {
		t.Errorf("%d picks after it came back, want 1", n-before)
	}
	g.settled(t)
}

func TestEngineThatIsCutInTheMiddleCutsTheClient(t *testing.T) {
	e, err := simengine.Start(simengine.Config{TimeScale: 0.1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	g := start(t, Config{Workers: []string{e.URL()}})
	res := g.post(t, `{"prompt":"hello","stream":true,"max_tokens":100000}`)
	if _, err := io.ReadFull(res.Body, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	e.Die()
	if _, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Error("half an answer looks like a whole one")
	}
	g.settled(t)
}

// An engine that fails every request at once has no queue, says so in each of its
// reports, and would be the first choice for every request.
func TestEngineThatFailsFastDoesNotDrawEveryRequest(t *testing.T) {
	list, urls := engines(t)
	g := start(t, Config{Workers: urls, Policy: "least_depth", ProbeInterval: Duration(time.Hour)})
	waitFor(t, "all engines to be trusted", g.trusted)
	if err := list[0].FailNext(1_000_000, simengine.FailError); err != nil {
		t.Fatal(err)
	}
	reports := func() (n uint64) {
		for _, rank := range g.worker(t, urls[0]).Status().Ranks {
			n += rank.Reports
		}
		return n
	}
	before := reports()
	const requests = 100
	for range requests {
		res := g.post(t, `{"prompt":"hello"}`)
		if got := text(t, res); res.StatusCode != http.StatusOK {
			t.Errorf("got %d %q", res.StatusCode, got)
		}
	}
	g.settled(t)
	// The first failure may be the request's own. After the second, a report brings
	// it back for one more try.
	if tries, most := g.worker(t, urls[0]).Status().Picked, 2+reports()-before; tries > most || tries > requests/2 {
		t.Errorf("the failing engine was tried %d times, want at most %d", tries, most)
	}
}
