package discovery

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/snapshot"
)

// polled is an engine that has no load socket and answers polls.
type polled struct {
	mu     sync.Mutex
	info   string
	status int
	loads  string
	delay  time.Duration
	query  string
}

func newPolled(loads ...string) *polled {
	p := &polled{info: `{"kv_events":null}`}
	p.set(loads...)
	return p
}

// set makes the entries the answer to the next polls.
func (p *polled) set(entries ...string) {
	p.answer(200, `{"loads":[`+strings.Join(entries, ",")+`]}`)
}

func (p *polled) answer(status int, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.loads = status, body
}

func (p *polled) serverInfo(body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.info = body
}

func (p *polled) lastQuery() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.query
}

func (p *polled) serve(req *http.Request) (*http.Response, error) {
	p.mu.Lock()
	info, status, loads, delay := p.info, p.status, p.loads, p.delay
	if req.URL.Path == "/v1/loads" {
		p.query = req.URL.RawQuery
	}
	p.mu.Unlock()
	if req.URL.Path != "/v1/loads" {
		if info == "" {
			return respond(500, "")
		}
		return respond(200, info)
	}
	if delay > 0 {
		time.Sleep(delay)
	}
	return respond(status, loads)
}

// rank is an entry of /v1/loads.
func rank(rank, running, waiting int) string {
	return fmt.Sprintf(`{"dp_rank":%d,"num_running_reqs":%d,"num_waiting_reqs":%d,"max_total_num_tokens":1000}`, rank, running, waiting)
}

func polledRig(t *testing.T, p *polled) *rig {
	r := newRig(t, nil)
	r.net.set("a", p.serve)
	r.workers(Worker{URL: idA, Poll: true})
	return r
}

func TestPollingWhereThereIsNoLoadSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, err := os.ReadFile("testdata/loads.json")
		if err != nil {
			t.Fatal(err)
		}
		p := newPolled()
		p.answer(200, string(body))
		r := polledRig(t, p)
		r.trusted(idA, 15)
		if s := r.load(idA).Ranks[0].Report; s.Source != load.SourcePoll || s.Seq.IsKnown() {
			t.Errorf("report %+v", s)
		}
		if q := p.lastQuery(); q != "include=core" {
			t.Errorf("query %q", q)
		}
		advance(time.Minute)
		r.trusted(idA, 15)
		if n := len(r.net.times("a/v1/loads", r.began)); n < 55 || n > 66 {
			t.Errorf("polled %d times in a minute", n)
		}
		s := r.status(idA)
		if s.Outcome != OutcomeDoesNotPublish || !s.Poll.Active || s.Poll.Polls < 55 || s.Poll.Error != "" || !s.Poll.Next.After(s.Poll.Last) {
			t.Errorf("status %+v", s)
		}
	})
}

func TestOnlyWhoIsToBePolledIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		p := newPolled(rank(0, 1, 0))
		r.net.set("a", p.serve)
		r.urls(idA)
		advance(time.Minute)
		if n := len(r.net.times("a/v1/loads", r.began)); n != 0 {
			t.Errorf("polled %d times", n)
		}
		before, _ := r.table.Worker(idA)

		r.workers(Worker{URL: idA, Poll: true}) // switched on
		r.trusted(idA, 1)
		r.urls(idA) // and off
		r.untrusted(idA, load.NotPublishing, "no kv_events block")
		switched := time.Now().Add(1)
		advance(time.Minute)
		if n := len(r.net.times("a/v1/loads", switched)); n != 0 {
			t.Errorf("polled %d times", n)
		}
		if after, _ := r.table.Worker(idA); after != before {
			t.Error("switching made another incarnation")
		}
		if s := r.status(idA); s.Poll.Active {
			t.Errorf("status %+v", s)
		}
	})
}

func TestPollAll(t *testing.T) {
	for _, subscriber := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(c *Config) {
				c.PollAll = true
				if !subscriber {
					c.Subscriber = nil
				}
			})
			r.net.set("a", newPolled(rank(0, 1, 0)).serve)
			r.urls(idA)
			r.trusted(idA, 1)
		})
	}
}

func TestEngineWithALoadSocketIsNotPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(rank(0, 1, 0))
		p.serverInfo(onePublishing)
		r := polledRig(t, p)
		r.keepTalking(time.Minute, "a:5559")
		if n := len(r.net.times("a/v1/loads", r.began)); n != 0 {
			t.Errorf("polled %d times", n)
		}
	})
}

func TestPushTakesOverFromPollAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(rank(0, 50, 0))
		r := polledRig(t, p)
		r.trusted(idA, 50)
		r.sub.onSubscribe = func(string) {
			if r.status(idA).Poll.Active {
				t.Error("a poller may still advertise ranks of its own, and end the feed of the socket")
			}
		}

		p.serverInfo(onePublishing)
		advance(67 * time.Second)
		taken := time.Now()
		r.socket("a:5559").says(1, 0)
		r.keepTalking(time.Minute, "a:5559")
		r.trusted(idA, 1)
		if n := len(r.net.times("a/v1/loads", taken)); n != 0 {
			t.Errorf("polled %d times next to a load socket", n)
		}
		if s := r.status(idA); s.Poll.Active || len(s.Endpoints) != 1 {
			t.Errorf("status %+v", s)
		}

		p.serverInfo(`{"kv_events":null}`)
		advance(34 * time.Second)
		r.trusted(idA, 50)
		if n := r.sub.count(); n != 0 {
			t.Errorf("%d sockets", n)
		}
	})
}

func TestEngineThatCannotBeAskedIsPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(rank(0, 2, 0))
		p.serverInfo("")
		r := polledRig(t, p)
		advance(time.Second)
		r.trusted(idA, 2)
		advance(time.Minute) // asking fails all the while, the polls do not
		r.trusted(idA, 2)
		if s := r.status(idA); s.Outcome != OutcomeCouldNotTell || !s.Poll.Active {
			t.Errorf("status %+v", s)
		}
		r.urls(idA) // switched off: what was polled does not linger
		advance(time.Second)
		r.untrusted(idA, load.NoAnswer, "status 500")
	})
}

func TestAnswersThatAreNoLoadAreNeverLeastLoaded(t *testing.T) {
	for _, c := range []struct {
		name, body string
		why        load.Why
		reason     string
		after      load.Why // once it had reported before
	}{
		{"no ranks", `{"loads":[]}`, load.NoAnswer, "loads is empty", load.Stale},
		{"aggregate alone", `{"aggregate":{"total_running_reqs":0}}`, load.NoAnswer, "loads is empty, not an array", load.Stale},
		{"unknown counts", `{"loads":[{"dp_rank":0,"num_running_reqs":-1,"num_waiting_reqs":-1}]}`, load.NeverReported, "num_running_reqs is unknown", load.Stale},
		{"no counts", `{"loads":[{"dp_rank":0}]}`, load.NeverReported, "num_running_reqs is unknown", load.Stale},
		{"broken counts", `{"loads":[{"dp_rank":0,"num_running_reqs":0,"num_waiting_reqs":-5}]}`, load.NeverReported, "num_waiting_reqs: -5 is negative", load.Stale},
		{"booting", `{"loads":[{"dp_rank":0,"num_running_reqs":0,"num_waiting_reqs":0,"max_total_num_tokens":0}]}`, load.Booting, "rank 0", load.Booting},
		{"huge", strings.Repeat(" ", 1<<20+1), load.NoAnswer, "above the bound", load.Stale},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPolled()
				p.answer(200, c.body)
				r := polledRig(t, p)
				r.untrusted(idA, c.why, c.reason)

				p.set(rank(0, 3, 0))
				advance(33 * time.Second)
				r.trusted(idA, 3)
				p.answer(200, c.body)
				advance(7 * time.Second)
				r.untrusted(idA, c.after, "")
				if d := r.load(idA).Ranks[0].Dropped; (len(d) == 0) != (c.after == load.Booting) {
					t.Errorf("dropped %v", d)
				}
			})
		})
	}
}

func TestNoSuchEndpointIsAskedForAgainSlowly(t *testing.T) {
	for _, status := range []int{404, 405, 501} {
		synctest.Test(t, func(t *testing.T) {
			p := newPolled()
			p.answer(status, "")
			r := polledRig(t, p)
			r.untrusted(idA, load.NotPublishing, fmt.Sprintf("/v1/loads: status %d", status))
			advance(50 * time.Second)
			if n := len(r.net.times("a/v1/loads", r.began)); n != 1 {
				t.Errorf("%d: polled %d times", status, n)
			}
			p.set(rank(0, 1, 0))
			advance(17 * time.Second)
			r.trusted(idA, 1)

			// An endpoint that goes away takes its reports along at once.
			p.answer(status, "")
			advance(2 * time.Second)
			r.untrusted(idA, load.NotPublishing, "/v1/loads")
			advance(2 * time.Minute) // what is said of /server_info does not hide it
			r.untrusted(idA, load.NotPublishing, "/v1/loads")
		})
	}
}

func TestPollsThatFailAreRepeatedWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolled()
		p.answer(500, "")
		r := polledRig(t, p)
		r.untrusted(idA, load.NoAnswer, "/v1/loads: status 500")
		advance(3 * time.Minute)
		if n := len(r.net.times("a/v1/loads", r.began)); n < 8 || n > 12 {
			t.Errorf("polled %d times", n)
		}
		if s := r.status(idA); !strings.Contains(s.Poll.Error, "status 500") {
			t.Errorf("status %+v", s.Poll)
		}
		if n := strings.Count(r.log.String(), "poll failed"); n != 1 {
			t.Errorf("logged %d times", n)
		}

		p.set(rank(0, 1, 0)) // and what has worked once starts over
		advance(35 * time.Second)
		r.trusted(idA, 1)
		p.answer(500, "")
		again := time.Now()
		advance(10 * time.Second)
		if at := r.net.times("a/v1/loads", again); len(at) < 3 {
			t.Errorf("polled at %v", at)
		}
	})
}

func TestRanksGrowAtOnceAndShrinkOnceItIsSure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(rank(0, 1, 0))
		r := polledRig(t, p)
		r.trusted(idA, 1)
		p.set(rank(0, 1, 0), rank(1, 2, 0))
		advance(1100 * time.Millisecond)
		r.trusted(idA, 3)

		// One answer without rank 1 is not yet a smaller engine: the sum of what
		// is left must not pass for the whole.
		p.set(rank(0, 1, 0))
		advance(1100 * time.Millisecond)
		r.trusted(idA, 3)
		p.set(rank(0, 1, 0), rank(1, 2, 0))
		advance(1100 * time.Millisecond)
		p.set(rank(0, 1, 0))
		advance(1100 * time.Millisecond)
		r.trusted(idA, 3)
		advance(3300 * time.Millisecond)
		r.trusted(idA, 1)
		if n := r.load(idA).Advertised; n != 1 {
			t.Errorf("%d ranks", n)
		}
	})
}

func TestFewerRanksThriceInARowAreFewerRanks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole, short := []string{rank(0, 1, 0), rank(1, 2, 0)}, []string{rank(0, 1, 0)}
		p := newPolled(whole...)
		r := polledRig(t, p)
		// next waits for one more poll.
		next := func() {
			for n := r.status(idA).Poll.Polls; r.status(idA).Poll.Polls == n; {
				advance(100 * time.Millisecond)
			}
		}
		ranks := func(want int) {
			t.Helper()
			if n := r.load(idA).Advertised; n != want {
				t.Errorf("%d ranks, want %d", n, want)
			}
		}
		for _, between := range []func(){
			func() { p.set(whole...) },
			func() { p.answer(500, "") }, // says nothing, and least of all the same
		} {
			p.set(short...)
			next()
			next()
			ranks(2)
			between()
			next()
		}
		p.set(short...)
		next()
		next()
		ranks(2)
		next()
		ranks(1)
	})
}

func TestRequestSentWhileAPollIsOnItsWayIsNotInItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(rank(0, 5, 0))
		p.delay = 600 * time.Millisecond
		r := polledRig(t, p)
		w, _ := r.table.Worker(idA)
		before := w.Reserve(load.NoRank, 0)
		defer before.Done()
		before.Dispatched()
		advance(p.delay)
		r.trusted(idA, 5)

		v := r.table.View()
		e, ok := v.Find(w)
		if !ok {
			t.Fatal("not in the view")
		}
		if depth, _ := e.DepthNow(); depth != 6 {
			t.Errorf("depth now %d", depth)
		}
		advance(2 * time.Second) // asked since
		v = r.table.View()
		e, _ = v.Find(w)
		if depth, _ := e.DepthNow(); depth != 5 {
			t.Errorf("depth now %d", depth)
		}
	})
}

// polledPublisher is an engine that advertises load sockets and can be polled.
func polledPublisher(ranks, base int, loads ...string) *polled {
	p := newPolled(loads...)
	p.serverInfo(fmt.Sprintf(`{"kv_events":{"dp_size":%d,"load_endpoint_port_base":%d}}`, ranks, base))
	return p
}

func TestSilentLoadSocketIsFilledInForByPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := polledPublisher(2, 5559, rank(0, 10, 0), rank(1, 20, 0))
		r := polledRig(t, p) // and it failed to bind
		advance(load.DefaultWindow)
		r.untrusted(idA, load.NeverReported, "rank 0, 1 of 2")
		if n := len(r.net.times("a/v1/loads", r.began)); n != 0 {
			t.Errorf("polled %d times before the sockets had their chance", n)
		}
		advance(1)
		r.trusted(idA, 30)

		// One rank speaks: its reports go before what is polled, which is still
		// needed for the other.
		r.keepTalking(20*time.Second, "a:5559")
		r.trusted(idA, 21)
		for i, want := range []load.Source{load.SourcePush, load.SourcePoll} {
			if s := r.load(idA).Ranks[i]; s.Report.Source != want || len(s.Dropped) != 0 {
				t.Errorf("rank %d: %+v, dropped %v", i, s.Report, s.Dropped)
			}
		}
		if s := r.status(idA); s.Outcome != OutcomePublishes || !s.Poll.Active {
			t.Errorf("status %+v", s)
		}

		p.answer(500, "") // loses nothing of the rank that speaks
		r.keepTalking(10*time.Second, "a:5559")
		r.untrusted(idA, load.Stale, "rank 1")
		if a, b := r.load(idA).Ranks[0].Dropped, r.load(idA).Ranks[1].Dropped; len(a) != 0 || b["poll_status"] == 0 {
			t.Errorf("dropped %v and %v", a, b)
		}
		p.set(rank(0, 10, 0), rank(1, 20, 0))

		// Both speak.
		r.socket("a:5560").says(1, 0)
		advance(2 * time.Second)
		spoken := time.Now()
		r.keepTalking(time.Minute, "a:5559", "a:5560")
		r.trusted(idA, 2)
		if n := len(r.net.times("a/v1/loads", spoken)); n != 0 || r.status(idA).Poll.Active {
			t.Errorf("polled %d times", n)
		}

		// One falls silent again.
		r.keepTalking(10*time.Second, "a:5559")
		r.trusted(idA, 21)
		if e := r.sub.events(); !slices.Equal(e, []string{"+a:5559", "+a:5560"}) {
			t.Errorf("sockets %q", e)
		}

		r.urls(idA) // switched off
		switched := time.Now().Add(1)
		r.keepTalking(10*time.Second, "a:5559")
		r.untrusted(idA, load.Stale, "rank 1")
		if n := len(r.net.times("a/v1/loads", switched)); n != 0 {
			t.Errorf("polled %d times", n)
		}
	})
}

func TestRankWithoutALoadSocketIsPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // its port is past the last
		p := polledPublisher(2, 65535, rank(0, 10, 0), rank(1, 20, 0))
		r := polledRig(t, p)
		r.socket("a:65535").says(1, 0)
		r.keepTalking(time.Minute, "a:65535")
		r.trusted(idA, 21)
	})
	synctest.Test(t, func(t *testing.T) { // what comes is of no use
		r := polledRig(t, polledPublisher(1, 5559, rank(0, 10, 0)))
		for range 7 {
			r.socket("a:5559").deliver(snapshot.Delivery{Received: time.Now(), Err: snapshot.ErrTag})
			advance(time.Second)
		}
		r.trusted(idA, 10)
	})
}

func TestPollsThatFillInDoNotDecideWhichRanksThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := polledPublisher(2, 5559, rank(0, 10, 0), rank(1, 20, 0), rank(2, 30, 0))
		r := polledRig(t, p)
		advance(7 * time.Second)
		r.untrusted(idA, load.NeverReported, "/v1/loads has 3 ranks, and 2 are advertised")
		p.set(rank(0, 10, 0))
		advance(7 * time.Second)
		r.untrusted(idA, load.NeverReported, "rank 1")
		if n := r.load(idA).Advertised; n != 2 {
			t.Errorf("%d ranks", n)
		}
		p.answer(404, "") // no such endpoint
		advance(2 * time.Second)
		r.untrusted(idA, load.NeverReported, "/v1/loads")
		r.socket("a:5559").says(1, 0)
		r.socket("a:5560").says(1, 0)
		r.trusted(idA, 2)
	})
	synctest.Test(t, func(t *testing.T) { // until asking has found out
		p := polledPublisher(2, 5559, rank(0, 10, 0), rank(1, 20, 0))
		r := polledRig(t, p)
		advance(7 * time.Second)
		r.trusted(idA, 30)
		p.serverInfo(`{"kv_events":null}`)
		p.set(rank(0, 40, 0))
		advance(40 * time.Second)
		r.trusted(idA, 40)
		if s := r.load(idA); s.Advertised != 1 || r.sub.count() != 0 {
			t.Errorf("%d ranks, %d sockets", s.Advertised, r.sub.count())
		}
	})
}

func TestRankMissingFromTheAnswerKeepsTheWorkerUntrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in the middle
		r := polledRig(t, newPolled(rank(0, 1, 0), rank(2, 1, 0)))
		advance(10 * time.Second)
		r.untrusted(idA, load.NeverReported, "rank 1 of 3")
	})
	synctest.Test(t, func(t *testing.T) { // at the end, where /server_info says how many there are
		p := newPolled(rank(0, 1, 0))
		p.serverInfo(`{"kv_events":{"dp_size":2}}`)
		r := polledRig(t, p)
		advance(10 * time.Second)
		r.untrusted(idA, load.NeverReported, "rank 1 of 2")
		p.set(rank(0, 1, 0), rank(1, 1, 0))
		advance(2 * time.Second)
		r.trusted(idA, 2)
	})
}

func TestReportIsAsOldAsTheRequestForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(rank(0, 1, 0))
		p.delay = 1500 * time.Millisecond
		r := polledRig(t, p)
		advance(1500 * time.Millisecond)
		r.trusted(idA, 1)
		if age := r.load(idA).Age; age != 1500*time.Millisecond {
			t.Errorf("age %v", age)
		}
	})
}

func TestRemovedWorkerIsNotPolledAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(rank(0, 1, 0))
		r := polledRig(t, p)
		r.urls()
		removed := time.Now().Add(1)
		advance(time.Minute)
		if n := r.net.times("a/v1/loads", removed); len(n) != 0 {
			t.Errorf("polled at %v", n)
		}
		if e := r.sub.events(); !slices.Equal(e, nil) {
			t.Errorf("sockets %q", e)
		}
	})
}

func TestRunWaitsForAPollThatCannotBeCalledOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPolled(rank(0, 1, 0))
		p.delay = 3 * time.Second
		r := polledRig(t, p)
		began := time.Now()
		r.stop()
		if took := time.Since(began); took != p.delay {
			t.Errorf("Run returned after %v", took)
		}
	})
}
