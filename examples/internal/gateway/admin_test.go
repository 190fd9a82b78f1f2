package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/load/loadhttp"
)

func TestOperatorsSeeWhatIsGoingOn(t *testing.T) {
	_, urls := engines(t)
	g := start(t, Config{Workers: urls, ExplainEvery: 1})
	waitFor(t, "all engines to be trusted", g.trusted)
	text(t, g.post(t, `{"prompt":"hello","stream":true,"max_tokens":1}`))
	g.settled(t)

	// The page is an interval old at most.
	var page loadhttp.Status
	waitFor(t, "the page to show the pick", func() bool {
		g.getJSON(t, "/status/status.json", &page)
		return len(page.Picks) == 1 && page.Fleet.Trusted == 2
	})
	if page.Policy != "least_work" || page.Learned == nil || !page.Workers[0].Speed.IsKnown() || page.Picks[0].Reason != "least_waiting" {
		t.Errorf("the page shows %+v", page)
	}
	var st struct {
		Ready       bool
		Fleet       struct{ Workers []any }
		LoadSockets struct{ Messages int } `json:"load_sockets"`
	}
	g.getJSON(t, "/gateway.json", &st)
	if !st.Ready || len(st.Fleet.Workers) != 2 || st.LoadSockets.Messages == 0 {
		t.Errorf("the gateway is %+v", st)
	}
	if _, body := get(t, g.admin+"/metrics"); strings.Count(body, "\nplimsoll_endpoint_messages_total{") != 4 {
		t.Errorf("the load sockets of two engines of two ranks are not told of")
	}
	status, body := get(t, g.admin+"/")
	if status != http.StatusOK || !strings.Contains(body, "<title>") {
		t.Errorf("from / one comes to %d %.100s", status, body)
	}
}

// They are for operators, and clients have a listener of their own.
func TestClientsAreNotServedWhatIsForOperators(t *testing.T) {
	g := alone(t, Config{})
	for _, path := range []string{"/", "/status/", "/status/status.json", "/gateway.json", "/metrics"} {
		answer := httptest.NewRecorder()
		g.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		if answer.Code != http.StatusNotFound {
			t.Errorf("%s: got %d", path, answer.Code)
		}
	}
}

// A page of anybody's, in the browser of an operator, can have its own name resolve to
// 127.0.0.1, and would be told everything.
func TestOperatorsAskForThisMachineByNoNameOfOthers(t *testing.T) {
	g := start(t, Config{Workers: []string{backend(t, nil)}})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(g.admin, "http://"))
	for host, want := range map[string]int{
		"127.0.0.1:" + port: 200, "localhost:" + port: 200, "LOCALHOST": 200, "[::1]:" + port: 200, "gateway.localhost:9090": 200,
		"evil.example:" + port: 421, "evil.example": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example": 421, "evillocalhost": 421,
	} {
		req, err := http.NewRequest(http.MethodGet, g.admin+"/gateway.json", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: got %d, want %d", host, res.StatusCode, want)
		}
	}
}

// Where it listens for other machines, they know it by names that it does not know.
func TestOperatorsElsewhereUseAnyName(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1": true, "::1": true, "127.0.1.1": true,
		"0.0.0.0": false, "::": false, "10.0.0.5": false,
	} {
		if got := onlyHere(&net.TCPAddr{IP: net.ParseIP(address)}); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}

func TestNobodyHoldsTheAdminListenerUp(t *testing.T) {
	g := start(t, Config{Workers: []string{backend(t, nil)}, ClientTimeout: Duration(50 * time.Millisecond)})
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.admin, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, "POST /drain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 403") {
		t.Errorf("got %q, and then %v", got, err)
	}
	// Whoever looks at the page may do so for longer than that.
	res, err := http.Get(g.admin + "/status/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	events := bufio.NewScanner(res.Body)
	events.Buffer(nil, 1<<20)
	for n := 0; n < 3 && events.Scan(); {
		if strings.HasPrefix(events.Text(), "data: ") {
			n++
		}
	}
	if err := events.Err(); err != nil {
		t.Errorf("the page ends: %v", err)
	}
}

func TestThePageSaysWhyAnEngineIsOut(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }))
	defer s.Close()
	g := start(t, Config{Workers: []string{s.URL}, ProbeInterval: Duration(10 * time.Millisecond)})
	waitFor(t, "the reason", func() bool {
		var page loadhttp.Status
		g.getJSON(t, "/status/status.json", &page)
		return len(page.Workers) == 1 && strings.Contains(page.Workers[0].Reason, "times in a row, the last with: /health says 500")
	})
}
