package gateway

import (
	"bytes"
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
