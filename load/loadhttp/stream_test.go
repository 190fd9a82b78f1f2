package loadhttp

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

func TestAViewerGetsEverythingAndThenWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, table := newTest(t, Config{Title: "gw-1", History: 4})
		a, feed := worker(t, table, "a", 3, 1)
		worker(t, table, "b", 2, 0)
		worker(t, table, "d", 1, 0)
		advance(time.Second)

		v := watch(t, h)
		defer v.leave()
		u := v.update()
		if u.Whole == nil || rowIDs(u) != "[a b d]" {
			t.Fatalf("first comes %+v, want everything", u)
		}
		if w := u.Whole; w.Title != "gw-1" || w.Window != 3600000 || w.Interval != 1000 || w.Samples != 4 || len(w.Advice) != len(states) {
			t.Errorf("with it comes %+v", w)
		}
		if got := fmt.Sprint(u.Whole.History); got != "[[-1 4] [-1 2] [-1 1]]" {
			t.Errorf("the histories are %v", got)
		}

		// Time passes and nothing is new. The page takes lists for lists.
		advance(time.Second)
		if raw := string(v.bytes()); strings.Contains(raw, ":null,\"whole") || !strings.HasSuffix(raw, `"rows":[],"picks":[],"events":[]}`+"\n\n") {
			t.Errorf("of an interval without news comes %s", raw[strings.LastIndex(raw, "data: "):])
		}
		if u = v.update(); u.Whole != nil || rowIDs(u) != "[]" || len(u.Events) != 0 {
			t.Errorf("of an interval without news comes %+v", u)
		}

		put(t, feed, 0, load.Report{Running: 5})
		worker(t, table, "c", 0, 0)
		old, _ := table.Worker("d")
		table.Remove(old)
		advance(time.Second)
		u = v.update()
		if u.Whole != nil || rowIDs(u) != "[a c]" || !slices.Equal(u.Gone, []string{"d"}) {
			t.Errorf("comes %+v, want the rows a and c, and that d is gone", u)
		}
		if u.Rows[0].Running != load.Known[int64](5) || u.Rows[0].Depth != load.Known[int64](5) {
			t.Errorf("the row of a is %+v", u.Rows[0])
		}
		if len(u.Events) != 2 {
			t.Errorf("the events are %+v, want that c was added and d removed", u.Events)
		}

		a.Reserve(load.NoRank, 10).Done()
		advance(time.Second)
		if u = v.update(); rowIDs(u) != "[a]" || u.Rows[0].Rate == 0 || u.Rows[0].Share != 1 {
			t.Errorf("after a pick comes %+v", u)
		}
	})
}

func TestAViewerWhoMissesAnUpdateGetsEverythingAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, table := newTest(t, Config{})
		worker(t, table, "a", 3, 1)
		advance(time.Second)
		slow, fast := watch(t, h), watch(t, h)
		defer slow.leave()
		defer fast.leave()
		slow.update()
		fast.update()

		free := slow.stick()
		for range 3 {
			worker(t, table, fmt.Sprint("w", table.View().Known()), 1, 0)
			advance(time.Second)
			if u := fast.update(); u.Whole != nil || len(u.Rows) != 1 {
				t.Fatalf("who keeps up gets %+v", u)
			}
		}
		free()
		list := slow.updates()
		if len(list) != 2 || list[0].Whole != nil || list[1].Whole == nil || len(list[1].Rows) != 4 {
			t.Errorf("who was stuck gets %+v, want what it was stuck with, and then everything", list)
		}
	})
}

func TestWhatIsShownIsMadeOncePerIntervalForAllAndForNobodyNotAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, table := newTest(t, Config{})
		worker(t, table, "a", 3, 1)
		made := func() (now, before *picture) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.now, h.before
		}
		advance(10 * time.Second)
		if now, before := made(); now != nil || before != nil {
			t.Error("nobody looks and something was made to be looked at")
		}

		viewers := []*viewer{watch(t, h), watch(t, h), watch(t, h, "Accept-Encoding", "gzip")}
		for range 3 {
			advance(time.Second)
			now, _ := made()
			h.mu.Lock()
			news := now.news
			h.mu.Unlock()
			seq := now.seq
			for range 3 {
				if p, _, _ := h.next(seq - 1); p != news {
					t.Error("what is new was encoded more than once")
				}
			}
		}
		if a, b := viewers[0].bytes(), viewers[1].bytes(); string(a) != string(b) {
			t.Error("two viewers were sent different things")
		}
		if zipped := viewers[2]; zipped.header.Get("Content-Encoding") != "gzip" || string(unzipped(t, zipped.bytes())) != string(viewers[0].bytes()) {
			t.Error("who takes gzip was sent something else")
		}

		for _, v := range viewers {
			v.leave()
		}
		advance(2 * time.Second)
		if now, before := made(); now != nil || before != nil {
			t.Error("everybody has left and something is still made")
		}
	})
}

func TestViewersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newTest(t, Config{Viewers: 2})
		a, b := watch(t, h), watch(t, h)
		c := watch(t, h)
		<-c.ended
		if c.code != http.StatusServiceUnavailable || c.header.Get("Retry-After") == "" {
			t.Errorf("the third of two viewers gets %d", c.code)
		}
		a.leave()
		d := watch(t, h)
		if len(d.updates()) != 1 {
			t.Error("a viewer has left and another is not let in")
		}
		b.leave()
		d.leave()
	})
}

func TestCloseEndsStreamsAndServesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, table := newTest(t, Config{})
		worker(t, table, "a", 3, 1)
		advance(time.Second)
		v := watch(t, h)
		h.Close()
		<-v.ended
		h.Close() // again
		if s := status(t, h, ""); len(s.Workers) != 1 {
			t.Errorf("after Close there are %d workers", len(s.Workers))
		}
	})
}

// pipes is a listener whose connections are in memory, so that their deadlines are in the
// time of a bubble.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	close    func()
}

func listen() *pipes {
	p := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.accepted <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close()
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// A stream goes on for longer than the server gives to whole answers, and who has left is
// found out.
func TestAStreamOutlastsTheLimitsOfItsServer(t *testing.T) {
	for name, start := range map[string]func(*httptest.Server){
		"HTTP/1.1": (*httptest.Server).Start,
		"HTTP/2.0": func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Also when it says nothing for longer than a viewer may take.
				const interval = 2 * writeWithin
				h, table := newTest(t, Config{Interval: interval})
				worker(t, table, "a", 3, 1)
				server := httptest.NewUnstartedServer(h)
				server.Listener.Close()
				l := listen()
				server.Listener = l
				server.Config.WriteTimeout = 5 * time.Second
				server.Config.ReadTimeout = 5 * time.Second
				start(server)
				defer server.Close()
				client := server.Client()
				client.Transport.(*http.Transport).DialContext = l.dial
				resp, err := client.Get(server.URL + "/stream")
				if err != nil {
					t.Fatal(err)
				}
				if resp.Proto != name {
					t.Errorf("it is %s", resp.Proto)
				}
				var b [4096]byte
				for n := 0; n < 5; {
					got, err := resp.Body.Read(b[:])
					if err != nil {
						t.Fatalf("the stream ends: %v", err)
					}
					n += strings.Count(string(b[:got]), "data: ")
				}
				resp.Body.Close()
				advance(interval)
				h.mu.Lock()
				defer h.mu.Unlock()
				if h.viewers != 0 {
					t.Error("who has left is still written to")
				}
			})
		})
	}
}

func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"":                         false,
		"gzip":                     true,
		"deflate, gzip;q=1.0, *":   true,
		"br, GZIP ; q=0.5":         true,
		"gzip;q=0":                 false,
		"gzip; q=0.000, br":        false,
		"x-gzip, deflate":          false,
		"gzip, deflate, br, zstd ": true,
	} {
		r := httptest.NewRequest(http.MethodGet, "/stream", nil)
		r.Header.Set("Accept-Encoding", header)
		if got := acceptsGzip(r); got != want {
			t.Errorf("%q: %v", header, got)
		}
	}
}
