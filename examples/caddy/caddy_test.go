package plimsoll

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/plimsoll-go/plimsoll/examples/internal/simengine"
)

// site is a site that proxies to these engines, with more options of reverse_proxy.
func site(urls, policy, more string) string {
	return "plimsoll\nreverse_proxy {\n dynamic plimsoll {\n workers " + urls + "\n }\n lb_policy plimsoll {\n policy " + policy +
		"\n }\n header_down X-Worker {plimsoll.worker}\n header_down X-Pick {plimsoll.pick}\n" + more + "\n}"
}

func TestPicksFollowWhatEnginesPublish(t *testing.T) {
	list, urls, ids := engines(t, 2)
	p := start(t, site(urls, "least_depth", ""))
	trusted(t, ids)

	// Requests that Caddy does not know of.
	var direct sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); direct.Wait() })
	for range 8 {
		direct.Go(func() {
			body := strings.NewReader(`{"prompt": "hello", "max_tokens": 100000}`)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, list[0].URL()+"/v1/completions", body)
			if err != nil {
				t.Error(err)
				return
			}
			if res, err := p.client.Do(req); err == nil {
				res.Body.Close()
			}
		})
	}
	eventually(t, "the first engine to say how busy it is", func() bool {
		depth, ok := status(t, ids[0]).Depth.Get()
		return ok && depth >= 8
	})
	for range 6 {
		if worker, err := p.complete(`{"prompt": "hello"}`); err != nil || worker != ids[1] {
			t.Errorf("served by %s (%v), want the idle one", worker, err)
		}
	}
	idle(t, ids)
}

func TestDeadEngineIsAvoided(t *testing.T) {
	list, urls, ids := engines(t, 2)
	p := start(t, site(urls, "round_robin", "lb_retries 1"))
	known(t, ids)
	list[0].Die()
	for range 6 {
		if worker, err := p.complete(`{"prompt": "hello"}`); err != nil || worker != ids[1] {
			t.Errorf("served by %s (%v), want the living one", worker, err)
		}
	}
	idle(t, ids)
}

func TestRetryReleasesTheAttemptBefore(t *testing.T) {
	list, urls, ids := engines(t, 2)
	p := start(t, site(urls, "round_robin", "lb_retries 1"))
	known(t, ids)
	list[0].Die()
	streams := int64(0)
	for ; status(t, ids[0]).Picked == 0 && !t.Failed(); streams++ { // until one has had its turn at the dead one
		worker, leave := p.stream()
		defer leave()
		if worker != ids[1] {
			t.Errorf("served by %s", worker)
		}
	}
	if dead, living := status(t, ids[0]), status(t, ids[1]); dead.InFlight != 0 || living.InFlight != streams {
		t.Errorf("of %d streams, %d are counted on the living engine and %d on the dead one", streams, living.InFlight, dead.InFlight)
	}
}

func TestRetriedRequestIsSentWhole(t *testing.T) {
	for _, how := range []simengine.Failure{simengine.FailError, simengine.FailCut} {
		t.Run(fmt.Sprint(how), func(t *testing.T) { retriedWhole(t, how) })
	}
}

func retriedWhole(t *testing.T, how simengine.Failure) {
	list, urls, ids := engines(t, 2)
	p := start(t, site(urls, "round_robin",
		"lb_retries 1\nlb_retry_match {\n expression `{rp.status_code} in [429, 500, 503] || {rp.is_transport_error} == true`\n}"))
	known(t, ids)
	if err := list[0].FailNext(1, how); err != nil {
		t.Fatal(err)
	}
	picks := func() uint64 { return status(t, ids[0]).Picked + status(t, ids[1]).Picked }
	for requests := uint64(0); picks() == requests && !t.Failed(); requests++ { // until one was tried twice
		res, err := p.post(t.Context(), `{"prompt": "`+strings.Repeat("word ", 100)+`"}`)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Usage struct {
				Prompt int `json:"prompt_tokens"`
			}
		}
		err = json.NewDecoder(res.Body).Decode(&answer)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || answer.Usage.Prompt < 100 {
			t.Errorf("%s, %d prompt tokens, %v", res.Status, answer.Usage.Prompt, err)
		}
	}
	idle(t, ids)
}

func TestStreamedAnswersPassAtOnceAndClientsThatLeaveAreReleased(t *testing.T) {
	_, urls, ids := engines(t, 1)
	p := start(t, site(urls, "least_work", ""))
	_, leave := p.stream() // its first byte, of an answer without an end
	if s := status(t, ids[0]); s.InFlight != 1 || s.Unstarted != 0 || s.PendingTokens != 0 {
		t.Errorf("%d in flight, of which %d have no first token, with %d prompt tokens", s.InFlight, s.Unstarted, s.PendingTokens)
	}
	leave()
	idle(t, ids)
}

func TestWithoutTheHandlerRequestsAreCountedAllTheSame(t *testing.T) {
	_, urls, ids := engines(t, 1)
	p := start(t, strings.TrimPrefix(site(urls, "least_work", ""), "plimsoll\n"))
	_, leave := p.stream()
	if n := status(t, ids[0]).InFlight; n != 1 {
		t.Errorf("%d in flight, want 1", n)
	}
	leave()
	idle(t, ids)
}

// A tunnel is in flight until either side ends it.
func TestUpgradedConnectionIsCountedUntilItEnds(t *testing.T) {
	engine := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			http.NotFound(w, r)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw)
	}))
	if l, err := net.Listen("tcp", "[::1]:0"); err == nil { // where there is IPv6
		engine.Listener.Close()
		engine.Listener = l
	}
	engine.Start()
	defer engine.Close()
	ids := []string{engine.Listener.Addr().String()}
	p := start(t, site(engine.URL, "least_work", ""))
	known(t, ids)

	client, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	answers := bufio.NewReader(client)
	fmt.Fprintf(client, "GET /v1/realtime HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", p.addr)
	res, err := http.ReadResponse(answers, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res, err)
	}
	fmt.Fprint(client, "hello")
	echo := make([]byte, 5)
	if _, err := io.ReadFull(answers, echo); err != nil || string(echo) != "hello" {
		t.Errorf("echo is %q, %v", echo, err)
	}
	if n := status(t, ids[0]).InFlight; n != 1 {
		t.Errorf("%d in flight", n)
	}
	client.Close()
	idle(t, ids)
	if status(t, ids[0]).Aside {
		t.Error("the engine is set aside, because a client left")
	}
}

func TestTwoSitesOfOneFleetHaveTheirOwnPolicies(t *testing.T) {
	_, urls, ids := engines(t, 2)
	p := start(t, "@other header X-Other *\nhandle @other {\n"+site(urls, "random", "")+"\n}\nhandle {\n"+site(urls, "round_robin", "")+"\n}")
	known(t, ids)
	for _, want := range []string{"random", "round_robin"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.addr+"/v1/completions", strings.NewReader(`{"prompt": "hello"}`))
		if err != nil {
			t.Fatal(err)
		}
		if want == "random" {
			req.Header.Set("X-Other", "yes")
		}
		res, err := p.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if pick := res.Header.Get("X-Pick"); !strings.Contains(pick, "by "+want) {
			t.Errorf("picked %q, want by %s", pick, want)
		}
	}
	if n := len(theFleet(t).uses); n != 2 {
		t.Errorf("%d policies", n)
	}
	idle(t, ids)
}

func TestReloadKeepsTheBooksAndLosesNoRequest(t *testing.T) {
	list, urls, ids := engines(t, 3)
	two := strings.Join(strings.Fields(urls)[:2], " ")
	p := start(t, site(two, "least_work", ""))
	trusted(t, ids[:2])
	before := table(t)

	worker, leave := p.stream()
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := p.complete(`{"prompt": "hello", "max_tokens": 2}`); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}

	loaded := make(chan error) // which is when the old configuration's requests are done
	go func() { loaded <- p.load(site(urls, "least_work", "")) }()
	eventually(t, "requests on the new engine", func() bool {
		w, ok := before.Worker(ids[2])
		return ok && w.Status().Picked > 0
	})
	if n := status(t, worker).InFlight; table(t) != before || n < 1 {
		t.Errorf("%d in flight in the table of before (%t)", n, table(t) == before)
	}
	close(stop)
	clients.Wait()
	leave()
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	idle(t, ids)

	// Engines that are no longer listed get no more requests.
	if err := p.load(site(list[2].URL(), "least_work", "")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the others to be gone", func() bool { return before.View().Known() == 1 })
	if worker, err := p.complete(`{"prompt": "hello"}`); err != nil || worker != ids[2] {
		t.Errorf("served by %s (%v)", worker, err)
	}
}

func TestRefusedConfigurationChangesNothing(t *testing.T) {
	list, urls, ids := engines(t, 2)
	p := start(t, site(urls, "least_work", ""))
	one := site(list[0].URL(), "least_work", "")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, sites := range map[string]string{
		"an address that is taken":       "http://" + p.addr + " {\n" + one + "\n}\nhttp://" + taken.Addr().String() + " {\n respond OK\n}",
		"two fleets of one name":         "http://" + p.addr + " {\n" + one + "\n}\nhttp://other.test:" + port(p.addr) + " {\n" + site(list[1].URL(), "random", "") + "\n}",
		"another token in the same name": "http://" + p.addr + " {\n" + site(list[0].URL()+"\n token secret", "random", "") + "\n}",
	} {
		config, err := adapt(sites)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := caddy.Load(config, true); err == nil {
			t.Errorf("%s: accepted", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
		eventually(t, "both engines", func() bool { return table(t).View().Known() == len(ids) })
		if _, err := p.complete(`{"prompt": "hello"}`); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func port(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

func TestStatusPage(t *testing.T) {
	_, urls, ids := engines(t, 1)
	p := start(t, "handle /load/* {\n plimsoll_status\n}\n"+site(urls, "least_work", ""))
	if _, err := p.complete(`{"prompt": "hello"}`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the page to have the engine", func() bool {
		res, err := p.client.Get("http://" + p.addr + "/load/status.json")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return err == nil && res.StatusCode == http.StatusOK && strings.Contains(string(body), ids[0])
	})
}

func TestConfigurationInJSON(t *testing.T) {
	_, urls, ids := engines(t, 2)
	p := start(t, "respond OK")
	workers, _ := json.Marshal(strings.Fields(urls))
	config := fmt.Sprintf(`{"admin": {"disabled": true}, "logging": {"logs": {"default": {"level": "ERROR"}}}, "apps": {"http": {"servers": {"main": {
		"listen": [%q], "automatic_https": {"disable": true},
		"routes": [{"handle": [
			{"handler": "plimsoll", "max_body": 1000000},
			{"handler": "reverse_proxy",
			 "dynamic_upstreams": {"source": "plimsoll", "fleet": "chat", "workers": %s},
			 "load_balancing": {"selection_policy": {"policy": "plimsoll", "fleet": "chat", "name": "least_depth", "config": {"ties": "rotate"}}},
			 "headers": {"response": {"set": {"X-Worker": ["{plimsoll.worker}"]}}}}
		]}]}}}}}`, p.addr, workers)
	if err := caddy.Load([]byte(config), true); err != nil {
		t.Fatal(err)
	}
	if worker, err := p.complete(`{"prompt": "hello"}`); err != nil || worker != ids[0] && worker != ids[1] {
		t.Errorf("served by %q (%v)", worker, err)
	}
}

func TestMistakesInACaddyfileAreExplained(t *testing.T) {
	for _, tt := range []struct{ site, want string }{
		{"reverse_proxy {\n dynamic plimsoll {\n worker http://a:1\n }\n}", `"worker" is no option of dynamic plimsoll: want workers,`},
		{"reverse_proxy {\n dynamic plimsoll {\n workers\n }\n}", "wrong argument count"},
		{"reverse_proxy {\n dynamic plimsoll a b\n}", "wrong argument count"},
		{"reverse_proxy {\n lb_policy plimsoll {\n policy least_words\n }\n}", `least_words`},
		{"reverse_proxy {\n lb_policy plimsoll {\n policy least_depth `{\"tie\": 1}`\n }\n}", `tie`},
		{"reverse_proxy {\n lb_policy plimsoll {\n polices random\n }\n}", `"polices" is no option of lb_policy plimsoll: want policy`},
		{"plimsoll {\n max_body much\n}", `max_body: "much" is no size`},
		{"plimsoll {\n max_body 0\n}", `max_body: "0" is no size`},
		{"plimsoll {\n max_body 10EB\n}", `max_body: "10EB" is no size`},
		{"plimsoll {\n max_body 1MB\n max_body 2MB\n}", "max_body is given twice"},
		{"reverse_proxy {\n dynamic plimsoll {\n dns a:1\n dns b:1\n }\n}", "dns is given twice"},
		{"reverse_proxy {\n dynamic plimsoll {\n file a b\n }\n}", "wrong argument count"},
		{"reverse_proxy {\n lb_policy plimsoll {\n policy random\n policy round_robin\n }\n}", "policy is given twice"},
		{"plimsoll {\n body 1\n}", `"body" is no option of plimsoll: want max_body`},
		{"reverse_proxy {\n dynamic plimsoll\n}", "no engines: want workers, file or dns"},
		{"reverse_proxy {\n dynamic plimsoll {\n workers 10.0.0.1:30000\n }\n}", "10.0.0.1:30000"},
		{"reverse_proxy {\n dynamic plimsoll {\n workers http://a:1/prefix\n }\n}", "only a host and a port can be dialled"},
		{"reverse_proxy {\n dynamic plimsoll {\n dns engines\n }\n}", `"engines" is no name with a port`},
	} {
		config, err := adapt("http://127.0.0.1:1 {\n" + tt.site + "\n}")
		if err == nil {
			var c caddy.Config
			if err = json.Unmarshal(config, &c); err == nil {
				err = caddy.Validate(&c)
			}
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s\ngives %v\nwant something with %q", tt.site, err, tt.want)
		}
	}
}

func TestCaddyfileOfThisFolder(t *testing.T) {
	file, err := os.ReadFile("Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	config, err := adaptFile(string(file))
	if err != nil {
		t.Fatal(err)
	}
	var c caddy.Config
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&c); err != nil {
		t.Fatal(err)
	}
}

func TestEveryOptionOfACaddyfile(t *testing.T) {
	config, err := adapt("http://127.0.0.1:1 {\n plimsoll {\n max_body 1MB\n }\n" +
		"reverse_proxy {\n dynamic plimsoll chat {\n workers http://a:1 http://b:1\n workers http://c:1\n file /engines\n dns engines:1\n token secret\n poll\n }\n" +
		"lb_policy plimsoll chat {\n policy least_depth `{\"ties\": \"rotate\"}`\n }\n }\n}")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"handler":"plimsoll","max_body":1000000}`,
		`{"dns":"engines:1","file":"/engines","fleet":"chat","poll":true,"source":"plimsoll","token":"secret","workers":["http://a:1","http://b:1","http://c:1"]}`,
		`{"config":{"ties":"rotate"},"fleet":"chat","name":"least_depth","policy":"plimsoll"}`,
	} {
		if !strings.Contains(string(config), want) {
			t.Errorf("no %s in\n%s", want, config)
		}
	}
}
