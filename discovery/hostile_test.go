package discovery

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// allocated returns how many bytes f allocates, others' included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// mostPerTry is what one try of one request may allocate in all, as DESIGN.md has
// it. What it holds at one time is less.
const mostPerTry = 8 << 20

// of1MiB repeats a piece of JSON until the whole has as many bytes as are read.
func of1MiB(before, piece, after string) string {
	return before + strings.Repeat(piece, (maxBody-len(before)-len(after))/len(piece)) + after
}

// keys1MiB is an object of as many keys as there is room for.
func keys1MiB(before, after string) string {
	var b strings.Builder
	b.WriteString(before + `{"":0`)
	for i := 0; b.Len() < maxBody-len(after)-20; i++ {
		fmt.Fprintf(&b, `,"%x":0`, i)
	}
	return b.String() + "}" + after
}

// hostileBodies hold as much as is read, of what costs most to look at.
func hostileBodies() map[string]string {
	const block = `{"kv_events":{"load_endpoint_port_base":5559,"dp_size":1024,"publishers":[`
	return map[string]string{
		"many keys":              keys1MiB(`{"kv_events":`, "}"),
		"many publishers":        of1MiB(block, "{},", "0]}}"),
		"publishers of nowhere":  of1MiB(block, `{"dp_rank":0,"endpoint":"tcp://x:1"},`, "0]}}"),
		"a long host":            of1MiB(`{"kv_events":{"load_endpoint_port_base":5559,"dp_size":1024,"endpoint_host":"`, "x", `"}}`),
		"a long number":          of1MiB(`{"kv_events":{"load_endpoint_port_base":`, "1", `}}`),
		"escapes":                of1MiB(`{"kv_events":{"load_endpoint_port_base":5559,"endpoint_host":"`, `\u00e9`, `"}}`),
		"nested deeply":          `{"kv_events":` + strings.Repeat("[", 9990) + strings.Repeat("]", 9990) + "}",
		"nested more deeply":     of1MiB(`{"kv_events":`, "[", ""),
		"many loads":             of1MiB(`{"loads":[`, "0,", "0]}"),
		"as many loads as ranks": `{"loads":[` + strings.Repeat(`{"num_running_reqs":"x`+strings.Repeat("x", 950)+`"},`, DefaultMaxRanks-1) + `{}]}`,
		"cut off":                of1MiB(`{"loads":[`, "0,", ""),
	}
}

func TestHostileBodiesCostBoundedMemory(t *testing.T) {
	for name, body := range hostileBodies() {
		if len(body) > maxBody {
			t.Fatalf("%s: %d bytes are not even read", name, len(body))
		}
		client := &Client{HTTP: &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			resp, err := respond(200, body)
			resp.ContentLength = -1
			return resp, err
		})}}
		var ad Advertisement
		read := func(body []byte) (err error) {
			ad, err = parseServerInfo(body, serverInfoRules{host: "engine", maxRanks: DefaultMaxRanks})
			return err
		}
		if strings.HasPrefix(body, `{"loads"`) {
			read = func(body []byte) error { _, err := parseLoads(body, DefaultMaxRanks); return err }
		}
		n, failure := getMeasured(t, client, "http://engine:30000", read)
		t.Logf("%s: %d KiB", name, n>>10)
		if n > mostPerTry {
			t.Errorf("%s: %d KiB allocated, want at most %d", name, n>>10, mostPerTry>>10)
		}
		said := len(ad.Reason)
		for _, note := range ad.Notes {
			said += len(note)
		}
		if failure != nil {
			said += len(failure.Error())
		}
		if said > 4<<10 {
			t.Errorf("%s: %d bytes of errors and notes", name, said)
		}
	}
}

// getMeasured makes one try and returns what it has allocated.
func getMeasured(t *testing.T, c *Client, url string, read func([]byte) error) (n uint64, failure *RequestError) {
	t.Helper()
	u, err := parseWorkerURL(url)
	if err != nil {
		t.Fatal(err)
	}
	n = allocated(func() { failure = c.get(t.Context(), u, "server_info", "", read) })
	return n, failure
}

// hostileServer writes to each connection what it is given, once it has been
// asked something, and then the second thing over and over.
func hostileServer(t *testing.T, once string, ever []byte) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(time.Minute))
				if _, err := c.Read(make([]byte, 4<<10)); err != nil {
					return
				}
				_, err := io.WriteString(c, once)
				for err == nil && len(ever) > 0 {
					_, err = c.Write(ever)
				}
				io.Copy(io.Discard, c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return "http://" + l.Addr().String()
}

func TestHostileServersCostBoundedMemory(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	z.Write(make([]byte, 8<<20))
	z.Close()
	many := func(s string) []byte { return bytes.Repeat([]byte(s), 64<<10/len(s)) }
	for name, test := range map[string]struct {
		once string
		ever []byte
		kind ErrorKind
	}{
		"a status line without end":    {"HTTP/1.1 200 ", many("x"), KindNetwork},
		"a header line without end":    {"HTTP/1.1 200 OK\r\nX: ", many("x"), KindNetwork},
		"headers without end":          {"HTTP/1.1 200 OK\r\n", many("X: y\r\n"), KindNetwork},
		"hints without end":            {"", many("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"), KindNetwork},
		"a body without end":           {"HTTP/1.1 200 OK\r\n\r\n", many("x"), KindTooLarge},
		"chunks without end":           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", many("40\r\n" + strings.Repeat("x", 64) + "\r\n"), KindTooLarge},
		"chunk extensions without end": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", many("x"), KindCutOff},
		"trailers without end":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", many("X: y\r\n"), KindCutOff},
		"a chunk of 2^62 bytes":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4000000000000000\r\n", many("x"), KindTooLarge},
		"a length of 2^62":             {"HTTP/1.1 200 OK\r\nContent-Length: 4611686018427387904\r\n\r\n", many("x"), KindTooLarge},
		"a length of 2^64":             {"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n", many("x"), KindNetwork},
		"a negative length":            {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", many("x"), KindNetwork},
		"8 MiB in a small gzip":        {fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", bomb.Len(), &bomb), nil, KindTooLarge},
		"an error without end":         {"HTTP/1.1 500 " + strings.Repeat("x", 10_000) + "\r\n\r\n", many("x"), KindStatus},
		"a redirect without end":       {"HTTP/1.1 302 Found\r\nLocation: http://" + strings.Repeat("x", 10_000) + "/\r\n\r\n", many("x"), KindRedirect},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t) // whose timeout is not what shall end it
			n, failure := getMeasured(t, c, hostileServer(t, test.once, test.ever), func(body []byte) error { return nil })
			if failure == nil || failure.Kind != test.kind || len(failure.Error()) > 1000 {
				t.Fatalf("got %.2000v, want %v", failure, test.kind)
			}
			t.Logf("%d KiB: %v", n>>10, failure)
			if n > mostPerTry {
				t.Errorf("%d KiB allocated, want at most %d", n>>10, mostPerTry>>10)
			}
		})
	}
}

// Over HTTP/2 an engine may send before anybody reads.
func TestHTTP2ServerThatSendsAheadCostsBoundedMemory(t *testing.T) {
	chunk := make([]byte, 64<<10)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("asked over %s", r.Proto)
		}
		for err := error(nil); err == nil; {
			_, err = w.Write(chunk)
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	c := newClient(t)
	c.TLS = s.Client().Transport.(*http.Transport).TLSClientConfig
	n, failure := getMeasured(t, c, s.URL, func([]byte) error { return nil })
	if failure == nil || failure.Kind != KindTooLarge || n > mostPerTry {
		t.Errorf("%v after %d KiB", failure, n>>10)
	}
	if b := c.owned.HTTP2; b.MaxReceiveBufferPerConnection > 64<<10 || b.MaxReceiveBufferPerStream > 64<<10 {
		t.Errorf("%+v", b)
	}
}

// Whatever an engine drips, a try ends after its timeout.
func TestAnswersThatDripAreGivenUp(t *testing.T) {
	body := of1MiB(`{"kv_events":`, " ", "null}")
	for name, test := range map[string]struct{ once, drip string }{
		"the status line": {"", "HTTP/1.1 200 OK"},
		"the header":      {"HTTP/1.1 200 OK\r\n", strings.Repeat("X: y\r\n", 1000)},
		"the body":        {fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(body)), body},
		"chunks":          {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", strings.Repeat("1\r\n \r\n", 1000)},
		"hints":           {"", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 1000)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					wg.Go(func() {
						defer conn.Close()
						if _, err := conn.Read(make([]byte, 4<<10)); err != nil {
							return
						}
						_, err := io.WriteString(conn, test.once)
						for i := 0; err == nil && i < len(test.drip); i++ {
							_, err = io.WriteString(conn, test.drip[i:i+1])
							time.Sleep(5 * time.Millisecond)
						}
						io.Copy(io.Discard, conn) // until the client hangs up
					})
				}
			})
			c := newClient(t)
			c.Timeout = 50 * time.Millisecond
			_, err = c.ServerInfo(t.Context(), "http://"+l.Addr().String())
			var re *RequestError
			if !errors.As(err, &re) || re.Kind != KindNetwork || re.Attempts != 3 || !strings.Contains(err.Error(), "no answer within 50ms") {
				t.Errorf("got %v", err)
			}
			c.closeIdle()
			l.Close()
			wg.Wait() // no connection is left open
		})
	}
}

func TestSetsAboveTheBoundChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many := make([]Worker, MaxWorkers+1)
		for i := range many {
			many[i].URL = fmt.Sprintf("http://10.%d.%d.%d:1", i>>16, i>>8&255, i&255)
		}
		r := newRig(t, nil)
		r.net.set("a", answering(200, "{}"))
		r.urls(idA)
		n := allocated(func() {
			r.workers(many...)
			r.workers(many...)
		})
		if workers := r.fleet.Status().Workers; len(workers) != 1 || workers[0].ID != idA {
			t.Errorf("%d workers", len(workers))
		}
		if p := r.fleet.Status().Sources[0].Problem; !strings.Contains(p, "bound of 16384 workers") {
			t.Errorf("problem %q", p)
		}
		if logged := strings.Count(r.log.String(), "16384"); logged != 1 || n > 4<<20 {
			t.Errorf("logged %d times, %d KiB allocated", logged, n>>10)
		}
		r.urls(idA, "http://b:1")
		if st := r.fleet.Status(); len(st.Workers) != 2 || st.Sources[0].Problem != "" {
			t.Errorf("after a set within the bound: %+v", st)
		}
	})
}

// As many as the bound allows are not too many.
func TestSetOfAsManyWorkersAsTheBoundIsTaken(t *testing.T) {
	many := make([]Worker, MaxWorkers)
	for i := range many {
		many[i].URL = fmt.Sprintf("http://10.0.%d.%d:1", i>>8, i&255)
	}
	targets, refused := admit(many)
	if len(targets) != MaxWorkers || len(refused) != 0 {
		t.Errorf("%d taken, %d refused", len(targets), len(refused))
	}
	var text bytes.Buffer
	list := make([]string, len(many))
	for i, w := range many {
		list[i] = w.URL
		text.WriteString(w.URL + "\n")
	}
	jsonText, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range [][]byte{text.Bytes(), jsonText} {
		if workers, refused, err := parseFile(content); err != nil || len(workers) != MaxWorkers || len(refused) != 0 {
			t.Errorf("%.20s: %d workers, %d refused, %v", content, len(workers), len(refused), err)
		}
	}
}

func TestHugeFilesCostBoundedMemory(t *testing.T) {
	const most = 64 << 20
	fill := func(before, piece, after string) []byte {
		return []byte(before + strings.Repeat(piece, (maxFile-len(before)-len(after))/len(piece)) + after)
	}
	for _, test := range []struct {
		name    string
		content []byte
		err     string
	}{
		{"short lines", fill("", "x\n", ""), "bound of 16384 lines"},
		{"as many bad lines as there may be", bytes.Repeat([]byte(strings.Repeat("x", 250)+"\n"), MaxWorkers), "no usable entry among 16384"},
		{"comments", fill("", "#\n", ""), ""},
		{"one line with a password", fill("http://u:", "s3cret", "@a"), "no usable entry among 1"},
		{"as many bad entries as there may be", []byte("[" + strings.Repeat(`{"`+strings.Repeat("x", 60)+`":0},`, MaxWorkers-1) + "0]"), "no usable entry among 16384"},
		{"a long key", fill(`["http://a",{"`, "x", `":0}]`), ""},
		{"a long id", fill(`["http://a",{"url":"http://b","id":"`, "x", `"}]`), ""},
		{"nesting", fill("", "[", ""), "not a JSON list"},
	} {
		var workers []Worker
		var refused []Refusal
		var err error
		n := allocated(func() { workers, refused, err = parseFile(test.content) })
		if (test.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %.200v, want %q", test.name, err, test.err)
		}
		_, more := admit(workers)
		size := 0
		for _, r := range append(refused, more...) {
			size = max(size, len(r.Worker)+len(r.Reason))
		}
		if err != nil {
			size = max(size, len(err.Error()))
		}
		if size > 4*maxName {
			t.Errorf("%s: an error of %d bytes", test.name, size)
		}
		if strings.Contains(fmt.Sprint(err, refused, more), "s3cret") {
			t.Errorf("%s: the password is shown", test.name)
		}
		if n > most {
			t.Errorf("%s: %d MiB allocated, want at most %d", test.name, n>>20, most>>20)
		}
		t.Logf("%s: %d KiB", test.name, n>>10)
	}
}

func TestNamesThatAreTooLongAreRefused(t *testing.T) {
	long := strings.Repeat("x", maxName)
	targets, refused := admit([]Worker{
		{URL: "http://" + long},
		{URL: "http://a/" + long},
		{URL: "http://user:" + long + "@a"},
		{ID: long, URL: "http://a"},
		{ID: long + "x", URL: "http://b"},
	})
	if len(targets) != 1 || targets[0].id != long || len(refused) != 4 {
		t.Fatalf("%d taken, refused %+v", len(targets), refused)
	}
	for _, r := range refused {
		if !strings.Contains(r.Reason, "above the bound of 1024") || strings.Contains(r.Worker+r.Reason, "user") {
			t.Errorf("%.100q: %.200q", r.Worker, r.Reason)
		}
	}
}

// hugeDNS answers with more than any name server can put into a message.
type hugeDNS struct{}

func (hugeDNS) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return make([]netip.Addr, MaxWorkers+1), nil
}

func (hugeDNS) LookupSRV(context.Context, string, string, string) (string, []*net.SRV, error) {
	return "", make([]*net.SRV, MaxWorkers+1), nil
}

func TestDNSAnswersAboveTheBoundChangeNothing(t *testing.T) {
	for name, d := range map[string]*DNS{
		"addresses":   {Name: "engines.example", Port: 30000},
		"SRV records": {Name: "_http._tcp.engines.example", SRV: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			d.Resolver = hugeDNS{}
			out := start(t, d)
			out.expect(t)
			if p := d.Status()[0].Problem; !strings.Contains(p, "bound of 16384 "+name) {
				t.Errorf("%s: problem %q", name, p)
			}
		})
	}
}

// An engine that has others each time costs its sockets, a thousand at most, once
// in a window.
func TestEngineThatKeepsChangingItsSocketsIsAskedMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		answers := 0
		r.net.set("a", func(req *http.Request) (*http.Response, error) {
			answers++
			return publishing(1, 5559+answers%2)(req)
		})
		r.urls(idA)
		for i := range 600 { // it says that it has started anew, all the time
			for _, e := range []string{"a:5559", "a:5560"} {
				if s := r.sub.alive(e); s != nil {
					s.report(int64(600-i), time.Now(), 1, 0)
				}
			}
			advance(100 * time.Millisecond)
		}
		if n := len(r.net.times("a/server_info", r.began)); n < 12 || n > 18 {
			t.Errorf("asked %d times in a minute", n)
		}

		// Once it has settled, a new start is noticed as fast as ever.
		r.net.set("a", publishing(1, 5559))
		advance(r.table.Window() + r.table.Window()/2) // whichever it had last
		r.keepTalking(20*time.Second, "a:5559")
		settled := time.Now()
		r.socket("a:5559").report(0, time.Now(), 1, 0)
		advance(1200 * time.Millisecond)
		if n := len(r.net.times("a/server_info", settled)); n != 1 {
			t.Errorf("asked %d times since", n)
		}
	})
}

// What every worker of a set makes us keep, and its goroutine.
func TestWorkersCostBoundedMemory(t *testing.T) {
	const workers, most = 1000, 32 << 10
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		list := make([]string, workers)
		for i := range list {
			host := fmt.Sprint("worker-", i)
			r.net.set(host, publishing(1, 5559))
			list[i] = "http://" + host + ":1"
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r.urls(list...)
		runtime.GC()
		runtime.ReadMemStats(&after)
		if n := r.sub.count(); n != workers {
			t.Fatalf("%d of %d workers are listened to", n, workers)
		}
		n := (int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)) / workers
		t.Logf("%d bytes a worker", n)
		if n > most {
			t.Errorf("%d bytes a worker, want at most %d", n, most)
		}
	})
}

// What an engine that claims as many ranks as it may makes us keep.
func TestRanksCostBoundedMemory(t *testing.T) {
	const most = 4 << 10 // a rank, without its socket
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.net.set("a", publishing(DefaultMaxRanks, 5559))
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r.urls(idA)
		runtime.GC()
		runtime.ReadMemStats(&after)
		if n := r.sub.count(); n != DefaultMaxRanks {
			t.Fatalf("%d ranks", n)
		}
		n := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / DefaultMaxRanks
		t.Logf("%d bytes a rank", n)
		if n > most {
			t.Errorf("%d bytes a rank, want at most %d", n, most)
		}
	})
}
