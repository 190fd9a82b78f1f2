package loadhttp

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/plimsoll-go/plimsoll/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// advance lets time pass in the bubble of a synctest, and everything that then happens
// happen.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// newTest returns a handler that the test closes, and its table.
func newTest(t *testing.T, c Config) (*Handler, *load.Table) {
	t.Helper()
	table := load.NewTable(load.Config{Window: time.Hour})
	h := New(table, c)
	t.Cleanup(h.Close)
	return h, table
}

// worker adds a worker of one rank with a report.
func worker(t *testing.T, table *load.Table, id string, running, waiting int64) (*load.Worker, *load.Feed) {
	t.Helper()
	w := table.Add(id, "")
	f := w.Advertise(1)
	put(t, f, 0, load.Report{Running: running, Waiting: waiting, KVUsage: load.Known(0.5), Source: load.SourcePush})
	return w, f
}

func put(t *testing.T, f *load.Feed, rank int, r load.Report) {
	t.Helper()
	if err := f.Put(rank, r); err != nil {
		t.Fatal(err)
	}
}

func get(h http.Handler, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func status(t *testing.T, h http.Handler, query string) Status {
	t.Helper()
	w := get(h, "/status.json"+query)
	if w.Code != http.StatusOK {
		t.Fatalf("status.json%s: %d", query, w.Code)
	}
	var s Status
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	return s
}

// viewer reads the stream, as a connection that takes what it is given, or nothing
// while it is stuck.
type viewer struct {
	t      *testing.T
	header http.Header
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{}

	mu    sync.Mutex
	code  int
	body  bytes.Buffer
	read  int // events
	stuck chan struct{}
}

func watch(t *testing.T, h http.Handler, header ...string) *viewer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	v := &viewer{t: t, header: make(http.Header), ctx: ctx, cancel: cancel, ended: make(chan struct{})}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/stream", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	go func() {
		defer close(v.ended)
		h.ServeHTTP(v, r)
	}()
	synctest.Wait()
	return v
}

func (v *viewer) Header() http.Header { return v.header }

func (v *viewer) WriteHeader(code int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.code = code
}

func (v *viewer) Write(b []byte) (int, error) {
	v.mu.Lock()
	stuck := v.stuck
	v.mu.Unlock()
	if stuck != nil {
		select {
		case <-stuck:
		case <-v.ctx.Done():
			return 0, v.ctx.Err()
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.body.Write(b)
}

func (v *viewer) Flush() {}

func (v *viewer) leave() {
	v.cancel()
	<-v.ended
}

// stick keeps the connection from taking anything until the returned function is
// called.
func (v *viewer) stick() (free func()) {
	c := make(chan struct{})
	v.mu.Lock()
	v.stuck = c
	v.mu.Unlock()
	return func() {
		v.mu.Lock()
		v.stuck = nil
		v.mu.Unlock()
		close(c)
		synctest.Wait()
	}
}

func (v *viewer) bytes() []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	return bytes.Clone(v.body.Bytes())
}

// seen is an update as the page sees it.
type seen struct {
	At       int64
	Level    Level
	Headline string
	Policy   string
	Fleet    Fleet
	Rows     []row
	Gone     []string
	Picks    []Explained
	Events   []Event
	Learned  json.RawMessage
	Whole    *whole
}

// updates returns what has come since it was last called.
func (v *viewer) updates() (list []seen) {
	v.t.Helper()
	body := v.bytes()
	if v.header.Get("Content-Encoding") == "gzip" {
		body = unzipped(v.t, body)
	}
	events := strings.Split(string(body), "\n\n")
	if last := events[len(events)-1]; last != "" {
		v.t.Fatalf("the stream ends within an event: %.100q", last)
	}
	events = events[:len(events)-1]
	for _, e := range events[v.read:] {
		data, ok := strings.CutPrefix(e, "data: ")
		if !ok || strings.ContainsAny(data, "\r\n") {
			v.t.Fatalf("an event that is not one line of data: %.100q", e)
		}
		var u seen
		if err := json.Unmarshal([]byte(data), &u); err != nil {
			v.t.Fatalf("%v in %s", err, data)
		}
		list = append(list, u)
	}
	v.read = len(events)
	return list
}

// update returns the one update that has come since.
func (v *viewer) update() seen {
	v.t.Helper()
	list := v.updates()
	if len(list) != 1 {
		v.t.Fatalf("%d updates have come, want 1", len(list))
	}
	return list[0]
}

// unzipped unpacks what has come of a stream that has not ended.
func unzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := out.ReadFrom(z); err == nil || !strings.Contains(err.Error(), "unexpected EOF") {
		t.Fatalf("unpacking ends with %v", err)
	}
	return out.Bytes()
}

func rowIDs(u seen) string {
	var ids []string
	for _, r := range u.Rows {
		ids = append(ids, r.ID)
	}
	return fmt.Sprint(ids)
}
