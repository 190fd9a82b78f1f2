package gateway

import (
	"bytes"
	"context"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestDrainLetsRequestsFinish(t *testing.T) {
	arrived, finish := make(chan struct{}), make(chan struct{})
	g := start(t, Config{Workers: []string{backend(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "first, ")
		http.NewResponseController(w).Flush()
		close(arrived)
		<-finish
		io.WriteString(w, "last")
	})}})
	res := g.post(t, `{"prompt":"hello"}`)
	<-arrived
	g.drain()

	// The handler is asked directly: the door may be shut already.
	waitFor(t, "health to turn", func() bool {
		rec := httptest.NewRecorder()
		g.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return rec.Code == http.StatusServiceUnavailable
	})
	waitFor(t, "the door to shut", func() bool {
		res, err := http.Get(g.url + "/readyz")
		if err == nil {
			res.Body.Close()
		}
		return err != nil
	})
	close(finish)
	if got := text(t, res); got != "first, last" {
		t.Errorf("got %q", got)
	}
	if err := <-g.ended; err != nil {
		t.Error(err)
	}
	g.settled(t)
}

// slowly is a log that takes its time.
type slowly struct{ slog.Handler }

func (s slowly) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "request" {
		time.Sleep(50 * time.Millisecond)
	}
	return s.Handler.Handle(ctx, r)
}

// What is cut at the end is told so where it can be, and it is all over when Serve returns.
func TestWhatIsCutAtTheEndIsToldSo(t *testing.T) {
	arrived := make(chan struct{}, 2)
	var out bytes.Buffer
	g := start(t, Config{
		DrainTimeout: Duration(20 * time.Millisecond),
		Logger:       slog.New(slowly{slog.NewJSONHandler(&out, nil)}),
		Workers: []string{backend(t, func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "stream") {
				io.WriteString(w, "first, ")
				http.NewResponseController(w).Flush()
			}
			arrived <- struct{}{}
			<-r.Context().Done()
		})},
	})
	stream := g.post(t, `{"prompt":"hello","stream":true}`)
	waiting := make(chan *http.Response, 1)
	go func() {
		res, err := g.tryPost(t.Context(), `{"prompt":"hello"}`)
		if err != nil {
			t.Error(err)
		}
		waiting <- res
	}()
	<-arrived
	<-arrived
	g.drain()
	if err := <-g.ended; err != nil {
		t.Error(err)
	}
	for _, w := range g.table.Status() {
		if w.InFlight != 0 || w.Picked != 2 {
			t.Errorf("%d in flight of %d picks", w.InFlight, w.Picked)
		}
	}
	lines := logged(t, &out)
	if len(lines) != 2 {
		t.Fatalf("logged %v", lines)
	}
	for _, line := range lines {
		if s, _ := line["error"].(string); !strings.Contains(s, errEnds.Error()) {
			t.Errorf("the log has the error %q", s)
		}
	}
	if got, err := io.ReadAll(stream.Body); err == nil {
		t.Errorf("%q looks like a whole answer", got)
	}
	if res := <-waiting; res != nil {
		defer res.Body.Close()
		if got := text(t, res); res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || !strings.Contains(got, errEnds.Error()) {
			t.Errorf("got %d %q", res.StatusCode, got)
		}
	}
}

func TestDrainIsBounded(t *testing.T) {
	arrived := make(chan struct{})
	g := start(t, Config{
		DrainTimeout: Duration(20 * time.Millisecond),
		Workers: []string{backend(t, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "first, ")
			http.NewResponseController(w).Flush()
			close(arrived)
			<-r.Context().Done()
		})},
	})
	res := g.post(t, `{"prompt":"hello"}`)
	<-arrived
	g.drain()
	if got, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("%q looks like a whole answer", got)
	}
	if err := <-g.ended; err != nil {
		t.Error(err)
	}
	g.settled(t)
}

// Two members of one name are whichever of them a reader of the log likes.
func TestWhatTheServerComplainsOfIsOneLine(t *testing.T) {
	var out bytes.Buffer
	log.New(serverLog{slog.New(slog.NewJSONHandler(&out, nil))}, "", 0).Print("http: it broke")
	if got := out.String(); strings.Count(got, `"msg":`) != 1 || !strings.Contains(got, `"http: it broke"`) {
		t.Errorf("got %s", got)
	}
}
