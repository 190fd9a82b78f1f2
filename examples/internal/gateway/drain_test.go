package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load/loadhttp"
)

// order sends a drain or an undrain, and returns the answer.
func (r *running) order(t *testing.T, what, token, worker string) (status int, answer map[string]any) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, r.admin+"/"+what+"?worker="+url.QueryEscape(worker), nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
	}
	return res.StatusCode, answer
}

func TestOnlyOperatorsDrain(t *testing.T) {
	engine := backend(t, nil)
	for name, test := range map[string]struct {
		config Config
		token  string
		worker string
		want   int
	}{
		"nobody may":              {Config{}, "", engine, 403},
		"nor with an empty token": {Config{}, " ", engine, 403},
		"no token":                {Config{AdminToken: "secret"}, "", engine, 401},
		"a wrong one":             {Config{AdminToken: "secret"}, "secret2", engine, 401},
		"the right one":           {Config{AdminToken: "secret"}, "secret", engine, 200},
		"another engine":          {Config{AdminToken: "secret"}, "secret", engine + "0", 404},
		"no engine":               {Config{AdminToken: "secret"}, "secret", "", 404},
		"no file":                 {Config{AdminToken: "secret", AdminTokenFile: "/nonexistent"}, "secret", engine, 403},
	} {
		t.Run(name, func(t *testing.T) {
			test.config.Workers = []string{engine}
			g := start(t, test.config)
			for _, what := range []string{"drain", "undrain"} {
				if got, _ := g.order(t, what, test.token, test.worker); got != test.want {
					t.Errorf("%s: got %d, want %d", what, got, test.want)
				}
			}
		})
	}
	path := filepath.Join(t.TempDir(), "token")
	g := start(t, Config{Workers: []string{engine}, AdminTokenFile: path})
	for _, token := range []string{"first", "second"} {
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _ := g.order(t, "drain", token, engine); got != 200 {
			t.Errorf("with the %s token of the file: got %d", token, got)
		}
	}
	if got, _ := get(t, g.admin+"/drain?worker="+url.QueryEscape(engine)); got != http.StatusMethodNotAllowed {
		t.Errorf("GET: got %d", got)
	}
}

func TestADrainedEngineFinishesAndGetsNothingNew(t *testing.T) {
	arrived, finish := make(chan struct{}), make(chan struct{})
	handler := func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "slow") {
			io.WriteString(w, "first, ")
			http.NewResponseController(w).Flush()
			close(arrived)
			<-finish
		}
		io.WriteString(w, "last")
	}
	g := start(t, Config{
		AdminToken: "secret", Policy: "round_robin", ProbeInterval: Duration(10 * time.Millisecond),
		Workers: []string{backend(t, handler), backend(t, handler)},
	})
	res := g.post(t, `{"prompt":"slow"}`)
	<-arrived
	drained := res.Header.Get(workerHeader)
	if status, answer := g.order(t, "drain", "secret", drained); status != 200 || answer["drained"] != true || answer["in_flight"] != 1.0 {
		t.Errorf("got %d %v", status, answer)
	}
	// However it came to be there again.
	send := func() {
		t.Helper()
		for range 10 {
			res := g.post(t, `{"prompt":"hello"}`)
			if got := text(t, res); got != "last" || res.Header.Get(workerHeader) == drained {
				t.Errorf("got %q of %s", got, res.Header.Get(workerHeader))
			}
		}
	}
	send()
	g.health.round(t.Context()) // passes
	send()
	close(finish)
	if got := text(t, res); got != "first, last" {
		t.Errorf("got %q", got)
	}
	g.settled(t)
	if _, answer := g.order(t, "drain", "secret", drained); answer["in_flight"] != 0.0 {
		t.Errorf("got %v", answer)
	}

	waitFor(t, "the page to say why", func() bool {
		var page loadhttp.Status
		g.getJSON(t, "/status/status.json", &page)
		return slices.ContainsFunc(page.Workers, func(w loadhttp.Worker) bool {
			return w.ID == drained && w.State == "unhealthy" && strings.HasPrefix(w.Reason, "drained by an operator")
		})
	})
	if _, body := get(t, g.admin+"/metrics"); !strings.Contains(body, `plimsoll_gateway_worker_drained{worker="`+drained+`"} 1`) {
		t.Error("no metric says so")
	}

	// Its list lacks it for a while, and has it again.
	w := g.worker(t, drained)
	g.table.Remove(w)
	if status, _ := g.order(t, "drain", "secret", drained); status != 200 {
		t.Errorf("without the engine: got %d", status)
	}
	g.table.Add(drained, w.URL())
	send()

	if status, answer := g.order(t, "undrain", "secret", drained); status != 200 || answer["drained"] != false {
		t.Errorf("got %d %v", status, answer)
	}
	for range 2 {
		text(t, g.post(t, `{"prompt":"hello"}`))
	}
	if n := g.worker(t, drained).Status().Picked; n == 0 {
		t.Error("no request after it was put back")
	}
	g.settled(t)
}

// That it is put back says nothing of whether it is up.
func TestADrainedEngineThatIsDownStaysDown(t *testing.T) {
	g := alone(t, Config{})
	w := g.table.Add("engine", "http://engine")
	for range failuresToDown {
		g.health.failed(w, io.ErrUnexpectedEOF)
	}
	g.health.drain("engine", true)
	if why := g.health.whyOut("engine"); why != "drained by an operator" {
		t.Errorf("it is out: %s", why)
	}
	g.health.drain("engine", false)
	if why := g.health.whyOut("engine"); w.Status().Healthy || !strings.Contains(why, "unexpected EOF") {
		t.Errorf("healthy: %v, out: %s", w.Status().Healthy, why)
	}
	g.health.passed(w)
	if why := g.health.whyOut("engine"); !w.Status().Healthy || why != "" {
		t.Errorf("healthy: %v, out: %s", w.Status().Healthy, why)
	}
}
