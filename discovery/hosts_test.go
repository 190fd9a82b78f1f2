package discovery

import (
	"errors"
	"strings"
	"testing"
)

func TestWorkerURLsHaveOneSpelling(t *testing.T) {
	for _, c := range []struct{ in, key, host string }{
		{"http://10.0.0.1:30000", "http://10.0.0.1:30000", "10.0.0.1"},
		{"  http://10.0.0.1:30000/\n", "http://10.0.0.1:30000", "10.0.0.1"},
		{"HTTP://Engine-1.Example:30000", "http://engine-1.example:30000", "engine-1.example"},
		{"http://engine:80", "http://engine", "engine"},
		{"https://engine:443/", "https://engine", "engine"},
		{"https://engine:80", "https://engine:80", "engine"},
		{"http://engine:030000", "http://engine:30000", "engine"},
		{"http://engine:", "http://engine", "engine"},
		{"http://engine/models/a/", "http://engine/models/a", "engine"},
		{"http://engine/models%2Fa//", "http://engine/models%2Fa", "engine"},
		{"http://user:s3cret@engine:1", "http://engine:1", "engine"},
		{"http://[::1]:30000", "http://[::1]:30000", "::1"},
		{"http://[0:0:0:0:0:0:0:1]:30000", "http://[::1]:30000", "::1"},
		{"http://[2001:DB8::5]", "http://[2001:db8::5]", "2001:db8::5"},
		{"http://[::ffff:10.0.0.1]:1", "http://10.0.0.1:1", "10.0.0.1"},
		{"http://[fe80::1%25eth0]:30000", "http://[fe80::1%25eth0]:30000", "fe80::1%eth0"},
		{"http://engine_1:1", "http://engine_1:1", "engine_1"},
	} {
		u, err := parseWorkerURL(c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		if urlKey(u) != c.key || u.Hostname() != c.host {
			t.Errorf("%q: key %q host %q, want %q and %q", c.in, urlKey(u), u.Hostname(), c.key, c.host)
		}
		again, err := parseWorkerURL(u.String())
		if err != nil || again.String() != u.String() {
			t.Errorf("%q: reading %q again gives %v, %v", c.in, u, again, err)
		}
	}
}

func TestBadWorkerURLsAreRefusedInWords(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", "want http://host:port"},
		{"10.0.0.1:30000", "want http://host:port"},
		{"engine:30000", "want http://host:port"},
		{"ftp://engine", "want http://host:port"},
		{"tcp://engine:5557", "want http://host:port"},
		{"http://", "no host"},
		{"http://:30000", "neither an IP address nor a host name"},
		{"http://::1:30000", "needs brackets"},
		{"http://[[::1]]:30000", "IP-literal"},
		{"http://*:30000", "neither an IP address nor a host name"},
		{"http://a;b:30000", "neither an IP address nor a host name"},
		{"http://bücher.example", "neither an IP address nor a host name"},
		{"http://engine:0", "outside 1..65535"},
		{"http://engine:65536", "outside 1..65535"},
		{"http://engine:99999999999999999999", "outside 1..65535"},
		{"http://engine:http", "invalid port"},
		{"http://engine?a=b", "neither query nor fragment"},
		{"http://engine#a", "neither query nor fragment"},
		{"http://eng ine", "invalid character"},
	} {
		_, err := parseWorkerURL(c.in)
		if !errors.Is(err, ErrURL) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want one with %q", c.in, err, c.want)
		}
	}
}

func TestPasswordsInURLsAreNeverShown(t *testing.T) {
	for _, in := range []string{
		"http://user:s3cret@engine:99999",
		"http://user:s3cret@engine?x=1",
		"http://user:s3cret@",
		"http://user:s3cret@[::1",
		"http://user:s3c%ret@engine",
		"http://user:pre@s3cret@engine:1/ x#y",
		"user:s3cret@engine",
		"s3cret@engine",
	} {
		_, err := parseWorkerURL(in)
		if err == nil {
			continue
		}
		if strings.Contains(err.Error(), "s3c") {
			t.Errorf("%q: error shows the password: %v", in, err)
		}
	}
}

func TestHostRule(t *testing.T) {
	allowed, err := AllowHosts("10.0.0.0/8", "Node-2.example", "[2001:db8::5]", "fe80::/10")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		own, advertised string
		allow           func(string) bool
		want            string
		noted           bool
	}{
		{"engine", "", nil, "engine", false},
		{"engine", "*", nil, "engine", false},
		{"engine", "0.0.0.0", nil, "engine", false},
		{"engine", "::", nil, "engine", false},
		{"engine", "[::]", nil, "engine", false},
		{"engine", "0:0::0", nil, "engine", false},
		{"engine", "0.0.0.0", allowed, "engine", false},
		{"::1", "[::]", nil, "::1", false},
		{"fe80::1%eth0", "*", nil, "fe80::1%eth0", false},

		{"engine", "ENGINE", nil, "engine", false},
		{"::1", "[0:0:0:0:0:0:0:1]", nil, "::1", false},
		{"10.0.0.1", "[::ffff:10.0.0.1]", nil, "10.0.0.1", false},
		{"2001:db8::5", "[2001:DB8::5]", nil, "2001:db8::5", false},

		{"engine", "10.0.0.9", nil, "engine", true},
		{"engine", "169.254.169.254", allowed, "engine", true},
		{"engine", "evil.example", allowed, "engine", true},
		{"engine", "[2001:db8::5]", nil, "engine", true},

		{"engine", "10.0.0.9", allowed, "10.0.0.9", false},
		{"engine", "[::ffff:10.0.0.9]", allowed, "10.0.0.9", false},
		{"engine", "node-2.EXAMPLE", allowed, "node-2.example", false},
		{"engine", "[2001:db8::5]", allowed, "2001:db8::5", false},
		{"engine", "2001:db8::5", allowed, "2001:db8::5", false},
		{"engine", "[fe80::1%eth0]", allowed, "fe80::1%eth0", false},

		{"engine", "10.0.0.9;10.0.0.8", func(string) bool { return true }, "engine", true},
		{"engine", "10.0.0.9:1", func(string) bool { return true }, "engine", true},
		{"engine", "[[::1]]", func(string) bool { return true }, "engine", true},
		{"engine", "a/b", func(string) bool { return true }, "engine", true},
	} {
		got, note := dialHost(c.own, c.advertised, c.allow)
		if got != c.want || (note != "") != c.noted {
			t.Errorf("own %q, advertised %q: %q (note %q), want %q", c.own, c.advertised, got, note, c.want)
		}
	}
}

func TestAllowHostsRefusesWhatIsNoHost(t *testing.T) {
	for _, bad := range []string{"", "10.0.0.0/99", "http://engine", "a b", "*"} {
		if _, err := AllowHosts(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	allow, err := AllowHosts()
	if err != nil || allow("engine") {
		t.Errorf("an empty list allows a host, or fails: %v", err)
	}
}
