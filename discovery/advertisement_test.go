package discovery

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func rulesFor(host string) serverInfoRules {
	return serverInfoRules{host: host, maxRanks: DefaultMaxRanks}
}

func addrs(ad Advertisement) (out []string) {
	for _, e := range ad.Endpoints {
		out = append(out, e.Addr)
	}
	return out
}

func TestServerInfoOfARealEngine(t *testing.T) {
	body, err := os.ReadFile("testdata/server_info.json")
	if err != nil {
		t.Fatal(err)
	}
	ad, err := parseServerInfo(body, rulesFor("engine"))
	if err != nil || !ad.Publishes || ad.Ranks != 2 || len(ad.Notes) != 0 {
		t.Fatalf("got %+v, %v", ad, err)
	}
	if got := addrs(ad); !slices.Equal(got, []string{"tcp://engine:5559", "tcp://engine:5560"}) {
		t.Errorf("endpoints %q", got)
	}
}

func TestServerInfoOutcomes(t *testing.T) {
	const base = `"load_endpoint_port_base":5559`
	for _, c := range []struct {
		name, body string
		ranks      int    // of one that publishes
		reason     string // part of it, of one that does not
		broken     bool
		err        error
	}{
		{name: "one rank", body: `{"kv_events":{"dp_size":1,` + base + `}}`, ranks: 1},
		{name: "dp_size absent", body: `{"kv_events":{` + base + `}}`, ranks: 1},
		{name: "dp_size 0", body: `{"kv_events":{"dp_size":0,` + base + `}}`, ranks: 1},
		{name: "dp_size null", body: `{"kv_events":{"dp_size":null,` + base + `}}`, ranks: 1},
		{name: "dp_size at the bound", body: `{"kv_events":{"dp_size":1024,` + base + `}}`, ranks: 1024},
		{name: "whole number written as a float", body: `{"kv_events":{"dp_size":2.0,"load_endpoint_port_base":5.559e3}}`, ranks: 2},
		{name: "load_topic absent", body: `{"kv_events":{"dp_size":2,` + base + `}}`, ranks: 2},
		{name: "block_size a string", body: `{"kv_events":{"block_size":"many","topic":7,"publisher":[],"replay_endpoint_port_base":{},"endpoint_port_base":-1,` + base + `}}`, ranks: 1},
		{name: "block_size null", body: `{"kv_events":{"block_size":null,` + base + `}}`, ranks: 1},
		{name: "unknown keys", body: `{"new":{"a":[1]},"kv_events":{"newer":{},` + base + `}}`, ranks: 1},
		{name: "white space around", body: " \n" + `{"kv_events":{` + base + `}}` + "\n ", ranks: 1},

		{name: "no block", body: `{"dp_size":8}`, reason: "no kv_events block"},
		{name: "block null", body: `{"kv_events":null}`, reason: "no kv_events block"},
		{name: "key in another case is another key", body: `{"KV_EVENTS":{` + base + `}}`, reason: "no kv_events block"},
		{name: "load port absent", body: `{"kv_events":{"dp_size":2,"endpoint_port_base":5557}}`, reason: "no load_endpoint_port_base"},
		{name: "load port null", body: `{"kv_events":{"load_endpoint_port_base":null}}`, reason: "no load_endpoint_port_base"},

		{name: "port 0", body: `{"kv_events":{"load_endpoint_port_base":0}}`, reason: "load_endpoint_port_base: 0 is outside 1..65535", broken: true},
		{name: "port 65536", body: `{"kv_events":{"load_endpoint_port_base":65536}}`, reason: "65536 is outside", broken: true},
		{name: "port -1", body: `{"kv_events":{"load_endpoint_port_base":-1}}`, reason: "-1 is outside", broken: true},
		{name: "port 5559.5", body: `{"kv_events":{"load_endpoint_port_base":5559.5}}`, reason: "5559.5 is not an integer", broken: true},
		{name: "port a string", body: `{"kv_events":{"load_endpoint_port_base":"5559"}}`, reason: "a string, not a number", broken: true},
		{name: "port a boolean", body: `{"kv_events":{"load_endpoint_port_base":true}}`, reason: "a boolean, not a number", broken: true},
		{name: "port an array", body: `{"kv_events":{"load_endpoint_port_base":[5559]}}`, reason: "an array, not a number", broken: true},
		{name: "port 2^63", body: `{"kv_events":{"load_endpoint_port_base":9223372036854775808}}`, reason: "out of range", broken: true},
		{name: "port 1e999", body: `{"kv_events":{"load_endpoint_port_base":1e999}}`, reason: "out of range", broken: true},
		{name: "dp_size -1", body: `{"kv_events":{"dp_size":-1,` + base + `}}`, reason: "dp_size: -1 is negative", broken: true},
		{name: "dp_size 1.5", body: `{"kv_events":{"dp_size":1.5,` + base + `}}`, reason: "dp_size: 1.5 is not an integer", broken: true},
		{name: "dp_size a string", body: `{"kv_events":{"dp_size":"2",` + base + `}}`, reason: "dp_size: a string, not a number", broken: true},
		{name: "dp_size above the bound", body: `{"kv_events":{"dp_size":1025,` + base + `}}`, reason: "dp_size: 1025 is above the bound of 1024", broken: true},
		{name: "dp_size 2^40", body: `{"kv_events":{"dp_size":1099511627776,` + base + `}}`, reason: "above the bound", broken: true},
		{name: "dp_size 1e300", body: `{"kv_events":{"dp_size":1e300,` + base + `}}`, reason: "out of range", broken: true},

		{name: "block a string", body: `{"kv_events":"zmq"}`, err: errShape},
		{name: "block an array", body: `{"kv_events":[]}`, err: errShape},
		{name: "body an array", body: `[]`, err: errShape},
		{name: "body null", body: `null`, err: errShape},
		{name: "body a string", body: `"ok"`, err: errShape},
		{name: "body HTML", body: `<html><body>Not here</body></html>`, err: errShape},
		{name: "body NaN", body: `{"a":NaN}`, err: errShape},
		{name: "two values", body: `{} {}`, err: errShape},
		{name: "something behind", body: `{}x`, err: errShape},
		{name: "empty", body: ``, err: errCutOff},
		{name: "cut off in a key", body: `{"kv_ev`, err: errCutOff},
		{name: "cut off before the end", body: `{"kv_events":{` + base + `}`, err: errCutOff},
	} {
		t.Run(c.name, func(t *testing.T) {
			ad, err := parseServerInfo([]byte(c.body), rulesFor("engine"))
			if !errors.Is(err, c.err) || (err != nil) != (c.err != nil) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if err != nil {
				return
			}
			if ad.Publishes != (c.ranks > 0) || len(ad.Endpoints) != c.ranks || ad.Broken != c.broken {
				t.Fatalf("got %+v", ad)
			}
			if !strings.Contains(ad.Reason, c.reason) || (ad.Reason == "") != ad.Publishes {
				t.Errorf("reason %q, want %q", ad.Reason, c.reason)
			}
		})
	}
}

func TestRanksPastTheLastPortCountButCannotBeDialled(t *testing.T) {
	ad, err := parseServerInfo([]byte(`{"kv_events":{"dp_size":4,"load_endpoint_port_base":65533}}`), rulesFor("engine"))
	if err != nil || !ad.Publishes || len(ad.Endpoints) != 4 {
		t.Fatalf("got %+v, %v", ad, err)
	}
	if got := addrs(ad); !slices.Equal(got, []string{"tcp://engine:65533", "tcp://engine:65534", "tcp://engine:65535", ""}) {
		t.Errorf("endpoints %q", got)
	}
	for _, e := range ad.Endpoints {
		if (e.Err != nil) != (e.Rank == 3) || (e.Err != nil && !errors.Is(e.Err, ErrPort)) {
			t.Errorf("rank %d: error %v", e.Rank, e.Err)
		}
	}
}

func TestIPv6HostsHaveBracketsExactlyOnce(t *testing.T) {
	all := func(string) bool { return true }
	for _, c := range []struct{ url, advertised, want string }{
		{"http://[::1]:30000", "*", "tcp://[::1]:5559"},
		{"http://[::1]:30000", "::", "tcp://[::1]:5559"},
		{"http://[::1]:30000", "[::]", "tcp://[::1]:5559"},
		{"http://[2001:db8::7]", "[2001:db8::5]", "tcp://[2001:db8::5]:5559"},
		{"http://[2001:db8::7]", "2001:db8::5", "tcp://[2001:db8::5]:5559"},
		{"http://[fe80::1%25eth0]:30000", "*", "tcp://[fe80::1%eth0]:5559"},
		{"http://engine:30000", "[2001:db8::5]", "tcp://[2001:db8::5]:5559"},
		{"http://engine:30000", "*", "tcp://engine:5559"},
		{"http://10.0.0.1:30000", "[::]", "tcp://10.0.0.1:5559"},
	} {
		u, err := parseWorkerURL(c.url)
		if err != nil {
			t.Fatal(err)
		}
		body := fmt.Sprintf(`{"kv_events":{"endpoint_host":%q,"load_endpoint_port_base":5559}}`, c.advertised)
		ad, err := parseServerInfo([]byte(body), serverInfoRules{host: u.Hostname(), allow: all, maxRanks: 8})
		if err != nil || ad.Endpoints[0].Addr != c.want {
			t.Errorf("%s advertising %s: %+v, %v, want %s", c.url, c.advertised, ad, err, c.want)
		}
	}
}

func TestAdvertisedForeignHostIsNotDialledUnlessAllowed(t *testing.T) {
	const body = `{"kv_events":{"endpoint_host":"203.0.113.66","dp_size":1,"load_endpoint_port_base":5559}}`
	ad, err := parseServerInfo([]byte(body), rulesFor("engine"))
	if err != nil || ad.Endpoints[0].Addr != "tcp://engine:5559" || len(ad.Notes) != 1 || !strings.Contains(ad.Notes[0], "203.0.113.66 is not allowed") {
		t.Errorf("got %+v, %v", ad, err)
	}
	allow, err := AllowHosts("203.0.113.66")
	if err != nil {
		t.Fatal(err)
	}
	ad, err = parseServerInfo([]byte(body), serverInfoRules{host: "engine", allow: allow, maxRanks: 8})
	if err != nil || ad.Endpoints[0].Addr != "tcp://203.0.113.66:5559" || len(ad.Notes) != 0 {
		t.Errorf("allowed: got %+v, %v", ad, err)
	}
}

func TestPublishersGiveTheHostOfARankAndNothingElse(t *testing.T) {
	allow, err := AllowHosts("10.0.0.0/8", "2001:db8::/32")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, publishers string
		allow            func(string) bool
		want             []string
		notes            int
	}{
		{
			name:       "per rank, allowed",
			publishers: `[{"dp_rank":0,"endpoint":"tcp://10.0.0.1:5557"},{"dp_rank":1,"endpoint":"tcp://[2001:db8::2]:7777"}]`,
			allow:      allow,
			want:       []string{"tcp://10.0.0.1:5559", "tcp://[2001:db8::2]:5560"},
		},
		{
			name:       "per rank, not allowed",
			publishers: `[{"dp_rank":1,"endpoint":"tcp://10.0.0.2:5558"}]`,
			want:       []string{"tcp://engine:5559", "tcp://engine:5560"},
			notes:      1,
		},
		{
			name:       "wildcard",
			publishers: `[{"dp_rank":1,"endpoint":"tcp://*:5558"},{"dp_rank":0,"endpoint":"tcp://[::]:5557"}]`,
			allow:      allow,
			want:       []string{"tcp://engine:5559", "tcp://engine:5560"},
		},
		{
			name:       "more than the advertised ranks",
			publishers: `[{"dp_rank":2,"endpoint":"tcp://10.0.0.2:5558"},{"dp_rank":-1,"endpoint":"tcp://10.0.0.2:5558"},{"dp_rank":"0","endpoint":"tcp://10.0.0.2:5558"}]`,
			allow:      allow,
			want:       []string{"tcp://engine:5559", "tcp://engine:5560"},
			notes:      3,
		},
		{
			name:       "one rank twice at two hosts",
			publishers: `[{"dp_rank":0,"endpoint":"tcp://10.0.0.1:5557"},{"dp_rank":0,"endpoint":"tcp://10.0.0.2:5557"}]`,
			allow:      allow,
			want:       []string{"tcp://engine:5559", "tcp://engine:5560"},
			notes:      1,
		},
		{
			name:       "junk",
			publishers: `[null,7,"tcp://10.0.0.1:1",{},{"dp_rank":0},{"dp_rank":0,"endpoint":"ipc:///tmp/x"},{"dp_rank":1,"endpoint":"tcp://::1:5557"}]`,
			allow:      allow,
			want:       []string{"tcp://engine:5559", "tcp://engine:5560"},
			notes:      7,
		},
		{
			name:       "not an array",
			publishers: `{"0":"tcp://10.0.0.1:5557"}`,
			want:       []string{"tcp://engine:5559", "tcp://engine:5560"},
			notes:      1,
		},
		{name: "null", publishers: `null`, want: []string{"tcp://engine:5559", "tcp://engine:5560"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := `{"kv_events":{"endpoint_host":"*","dp_size":2,"load_endpoint_port_base":5559,"publishers":` + c.publishers + `}}`
			ad, err := parseServerInfo([]byte(body), serverInfoRules{host: "engine", allow: c.allow, maxRanks: 8})
			if err != nil {
				t.Fatal(err)
			}
			if got := addrs(ad); !slices.Equal(got, c.want) || len(ad.Notes) != c.notes {
				t.Errorf("endpoints %q notes %q, want %q and %d notes", got, ad.Notes, c.want, c.notes)
			}
		})
	}
}

func TestOddEndpointHostDoesNotLoseTheLoadFeed(t *testing.T) {
	for _, host := range []string{`7`, `null`, `["a"]`, `{}`, `""`, `"a b"`} {
		body := `{"kv_events":{"endpoint_host":` + host + `,"load_endpoint_port_base":5559}}`
		ad, err := parseServerInfo([]byte(body), rulesFor("engine"))
		if err != nil || !ad.Publishes || ad.Endpoints[0].Addr != "tcp://engine:5559" {
			t.Errorf("endpoint_host %s: %+v, %v", host, ad, err)
		}
	}
}

func FuzzServerInfo(f *testing.F) {
	if body, err := os.ReadFile("testdata/server_info.json"); err == nil {
		f.Add(body)
	}
	f.Add([]byte(`{"kv_events":{"endpoint_host":"[2001:db8::5]","dp_size":4,"load_endpoint_port_base":65533,"publishers":[{"dp_rank":0,"endpoint":"tcp://10.0.0.1:5557"}]}}`))
	f.Add([]byte(`{"kv_events":{"dp_size":1e3,"load_endpoint_port_base":1.0}}`))
	f.Add([]byte(`{"kv_events":{"endpoint_host":"a;b","load_endpoint_port_base":1}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		ad, err := parseServerInfo(body, serverInfoRules{host: "engine", maxRanks: 64, allow: func(string) bool { return true }})
		if err != nil {
			if !errors.Is(err, errShape) && !errors.Is(err, errCutOff) {
				t.Fatalf("error of no kind: %v", err)
			}
			return
		}
		if ad.Publishes != (len(ad.Endpoints) > 0) || ad.Publishes != (ad.Reason == "") || len(ad.Endpoints) > 64 {
			t.Fatalf("contradicts itself: %+v", ad)
		}
		for i, e := range ad.Endpoints {
			if e.Rank != i || (e.Addr == "") != (e.Err != nil) {
				t.Fatalf("endpoint %d: %+v", i, e)
			}
			if e.Err == nil {
				host, ok := endpointHost(e.Addr)
				clean, valid := cleanHost(host)
				if !ok || !valid || clean != host {
					t.Fatalf("endpoint %d: %q cannot be dialled", i, e.Addr)
				}
			}
		}
		// Nothing of an engine's choosing leads away where nothing is allowed.
		ad, err = parseServerInfo(body, serverInfoRules{host: "engine", maxRanks: 64})
		if err != nil {
			t.Fatalf("the answer depends on the hosts allowed: %v", err)
		}
		for _, e := range ad.Endpoints {
			if e.Err == nil && !strings.HasPrefix(e.Addr, "tcp://engine:") {
				t.Fatalf("led to %q", e.Addr)
			}
		}
	})
}
