package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/selector"
)

func TestConfigErrorsSayWhatIsWrong(t *testing.T) {
	engine := []string{"http://10.0.0.1:30000"}
	for want, c := range map[string]Config{
		"no engines":                         {},
		`not a worker URL: "10.0.0.1:30000"`: {Workers: []string{"10.0.0.1:30000"}},
		`not a worker URL: "ftp://x"`:        {Workers: []string{"ftp://x"}},
		"dns: name is missing":               {DNS: &DNS{Port: 1}},
		"dns: port is 0":                     {DNS: &DNS{Name: "engines"}},
		`dns: scheme is "tcp"`:               {DNS: &DNS{Name: "engines", Port: 1, Scheme: "tcp"}},
		`dns: network is "IP"`:               {DNS: &DNS{Name: "engines", Port: 1, Network: "IP"}},
		"peers: replica is 3 of 3":           {Workers: engine, Peers: Peers{Replica: 3, Replicas: 3}},
		`unknown policy "leastdepth"; did you mean "least_depth"?`:       {Workers: engine, Policy: "leastdepth"},
		"bad policy configuration for cache_aware: match_threshold is 2": {Workers: engine, Policy: "cache_aware", PolicyConfig: []byte(`{"match_threshold":2}`)},
		"freshness is -1s, and must not be negative":                     {Workers: engine, Freshness: Duration(-time.Second)},
		"freshness is 1ms: no engine reports that often":                 {Workers: engine, Freshness: Duration(time.Millisecond)},
		"drain_timeout is -1s":                                           {Workers: engine, DrainTimeout: Duration(-time.Second)},
		`log_format is "xml"`:                                            {Workers: engine, LogFormat: "xml"},
		"api_key holds":                                                  {Workers: engine, APIKey: "key\n"},
		"tries, max_body and explain_every":                              {Workers: engine, ExplainEvery: -1},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want something with %q", err, want)
		}
		if _, err := New(c); err == nil {
			t.Errorf("New takes what is wrong with %q", want)
		}
	}
}

func TestConfigFile(t *testing.T) {
	read := func(content string) (c Config, err error) {
		err = c.Read([]byte(content))
		return c, err
	}
	c, err := read(`{"workers": ["http://10.0.0.1:30000"], "workers_file": "f", "dns": {"name": "engines", "srv": true},
		"policy": "cache_aware", "policy_config": {"balance_abs": 16}, "signal": "uniform", "freshness": "2.5s", "poll": true,
		"peers": {"dns": {"name": "gateway", "port": 8080, "network": "ip4"}, "self": "10.0.0.5"}}`)
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	if c.Freshness != Duration(2500*time.Millisecond) || c.Signal != selector.Uniform || !c.Poll || !c.DNS.SRV ||
		c.Peers.DNS.Network != "ip4" || c.Peers.Self != "10.0.0.5" {
		t.Errorf("got %+v", c)
	}

	c, err = read(`{"engine_timeout": "-1s", "api_key": "key"}`)
	if err != nil || c.APIKey != "key" {
		t.Errorf("got %+v, %v", c, err)
	}
	if c = c.WithDefaults(); c.EngineTimeout < Duration(100*365*24*time.Hour) || c.ClientTimeout != Duration(time.Minute) {
		t.Errorf("got the timeouts %v and %v, want none and 1m", c.EngineTimeout, c.ClientTimeout)
	}

	for content, want := range map[string]string{
		`{"worker": []}`:         `unknown field "worker"`,
		`{"freshness": "fast"}`:  `"fast" is not a duration`,
		`{"freshness": 5}`:       "cannot unmarshal number",
		`{"signal": "both"}`:     `unknown signal "both"`,
		`{"poll": true} {}`:      "more than one value",
		`{"workers": "http://"}`: "cannot unmarshal string",
		`{"poll": `:              "unexpected EOF",
		``:                       "it is empty",
	} {
		if _, err := read(content); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want something with %q", content, err, want)
		}
	}
}

func TestDNSIsLookedUpAsConfigured(t *testing.T) {
	c := DNS{Name: "engines", Port: 30000, SRV: true, Scheme: "https", Network: "ip6", Interval: Duration(time.Minute)}
	d := c.source(nil)
	if d.Name != c.Name || d.Port != c.Port || !d.SRV || d.Scheme != c.Scheme || d.Network != c.Network || d.Interval != time.Minute || d.EmptyOnNotFound {
		t.Errorf("got %+v", d)
	}
}
