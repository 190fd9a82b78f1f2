package simengine

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	zmq "github.com/pebbe/zmq4"
	"go.uber.org/goleak"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// standstill is a speed at which nothing finishes while a test looks on.
const standstill = 1e-12

// patience bounds a wait for something that must happen. Nothing is concluded from
// its length.
const patience = time.Minute

// client never reuses connections: an engine that died must not be met through an
// old one.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func start(t *testing.T, config Config) *Engine {
	t.Helper()
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	e, err := Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// fast is an engine that answers as soon as it is scheduled.
func fast(t *testing.T, config Config) *Engine {
	t.Helper()
	config.TimeScale = 10_000
	return start(t, config)
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// response is a whole HTTP response.
type response struct {
	status int
	header http.Header
	body   []byte
}

func (r response) decode(t *testing.T, into any) {
	t.Helper()
	if err := json.Unmarshal(r.body, into); err != nil {
		t.Fatalf("%v in %s", err, r.body)
	}
}

// errorCode returns the code of an error object, after checking its shape.
func (r response) errorCode(t *testing.T) string {
	t.Helper()
	var e struct {
		Error map[string]any `json:"error"`
	}
	r.decode(t, &e)
	for _, key := range []string{"message", "type", "param", "code"} {
		if _, ok := e.Error[key]; !ok {
			t.Errorf("error object without %s: %s", key, r.body)
		}
	}
	code, _ := e.Error["code"].(string)
	return code
}

// do makes a request with a body where there is one; header is "name: value".
func do(ctx context.Context, method, url, body string, header ...string) (response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return response{}, err
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return response{resp.StatusCode, resp.Header, b}, err
}

func get(t *testing.T, url string) response {
	t.Helper()
	r, err := do(testContext(t), http.MethodGet, url, "")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func post(t *testing.T, url, body string, header ...string) response {
	t.Helper()
	r, err := do(testContext(t), http.MethodPost, url, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// events takes a stream of server-sent events apart.
func events(t *testing.T, body []byte) []string {
	t.Helper()
	var data []string
	for event := range bytes.SplitSeq(bytes.TrimSuffix(body, []byte("\n\n")), []byte("\n\n")) {
		d, ok := bytes.CutPrefix(event, []byte("data: "))
		if !ok {
			t.Fatalf("event %q", event)
		}
		data = append(data, string(d))
	}
	return data
}

// inBackground sends a completion request and forgets the answer. The returned
// function makes the client leave, and waits until it has.
func inBackground(t *testing.T, e *Engine, body string) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = do(ctx, http.MethodPost, e.URL()+"/v1/completions", body)
	}()
	leave = func() { cancel(); <-done }
	t.Cleanup(leave)
	return leave
}

// subscription is a SUB socket on the load of one rank.
type subscription struct {
	ctx    *zmq.Context
	socket *zmq.Socket
}

func subscribe(t *testing.T, endpoint string) *subscription {
	t.Helper()
	zctx, err := zmq.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	s, err := zctx.NewSocket(zmq.SUB)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); zctx.Term() })
	for _, err := range []error{s.SetLinger(0), s.SetRcvtimeo(patience), s.SetSubscribe(""), s.Connect(endpoint)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return &subscription{zctx, s}
}

// frames returns the next message as it came.
func (s *subscription) frames(t *testing.T) [][]byte {
	t.Helper()
	f, err := s.socket.RecvMessageBytes(0)
	if err != nil {
		t.Fatalf("no message: %v", err)
	}
	return f
}

// reading is a message that made sense.
type reading struct {
	snapshot.Reading
	topic string
	seq   int64
}

// read takes a message apart the way a subscriber does.
func read(frames [][]byte) (r reading, err error) {
	m, err := snapshot.Split(frames)
	if err != nil {
		return r, err
	}
	r.topic, r.seq = string(m.Topic), m.Seq
	return r, r.Decode(m.Payload)
}

// next returns the next message, which must make sense.
func (s *subscription) next(t *testing.T) reading {
	t.Helper()
	r, err := read(s.frames(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// until reads messages until one is as wanted.
func (s *subscription) until(t *testing.T, wanted func(reading) bool) reading {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		if r := s.next(t); wanted(r) {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatal("the message waited for did not come")
		}
	}
}

// counts returns the running and waiting requests of whichever message it is.
func (r *reading) counts() (running, waiting int64) {
	if r.Kind == snapshot.KindLoadStat {
		return r.Stat.NumRunningReqs, r.Stat.NumWaitingReqs
	}
	return r.Snapshot.NumRunningReqs, r.Snapshot.NumWaitingReqs
}

// untilLoad waits, on the load socket of rank 0, for a number of running and
// waiting requests.
func untilLoad(t *testing.T, e *Engine, running, waiting int64) reading {
	t.Helper()
	return subscribe(t, e.LoadEndpoints()[0]).until(t, func(r reading) bool {
		gotRunning, gotWaiting := r.counts()
		return gotRunning == running && gotWaiting == waiting
	})
}
