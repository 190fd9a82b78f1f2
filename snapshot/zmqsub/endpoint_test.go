package zmqsub

import (
	"errors"
	"strings"
	"testing"
)

func TestEndpointsThatCanBeDialled(t *testing.T) {
	for endpoint, want := range map[string]string{
		"tcp://10.0.0.1:5557":            "tcp://10.0.0.1:5557",
		"tcp://[::1]:30000":              "tcp://[::1]:30000",
		"tcp://[2001:db8::5]:1":          "tcp://[2001:db8::5]:1",
		"tcp://[fe80::1%eth0]:65535":     "tcp://[fe80::1%eth0]:65535",
		"tcp://[::ffff:10.0.0.1]:5557":   "tcp://10.0.0.1:5557",
		"tcp://engine-0.svc.local:05557": "engine-0.svc.local",
		"tcp://localhost:5557":           "localhost",
	} {
		got, err := parseEndpoint(endpoint)
		if err != nil {
			t.Errorf("%s: %v", endpoint, err)
			continue
		}
		text := got.host
		if text == "" {
			text = dialString(got.addr, got.port)
		}
		if text != want {
			t.Errorf("%s: dials %s, want %s", endpoint, text, want)
		}
	}
}

func TestEndpointsThatCannotBeDialledAreRefused(t *testing.T) {
	for _, endpoint := range []string{
		"", "tcp://", "10.0.0.1:5557", "ipc:///tmp/x", "inproc://x", "http://10.0.0.1:5557", "TCP://10.0.0.1:1",
		"tcp://10.0.0.1", "tcp://10.0.0.1:", "tcp://10.0.0.1:0", "tcp://10.0.0.1:65536", "tcp://10.0.0.1:-1",
		"tcp://10.0.0.1:+1", "tcp://10.0.0.1:http", "tcp://10.0.0.1:5557/", "tcp://10.0.0.1:5557 ",
		"tcp://:5557", "tcp://*:5557", "tcp://0.0.0.0:5557", "tcp://[::]:5557", "tcp://::1:5557",
		"tcp://[[::1]]:5557", "tcp://eth0;10.0.0.1:5557", "tcp://host\x00:5557", "tcp://[fe80::1%a;b]:5557",
		"tcp://" + strings.Repeat("a", 254) + ":5557",
	} {
		_, err := parseEndpoint(endpoint)
		var bad *EndpointError
		if !errors.As(err, &bad) || !errors.Is(err, ErrEndpoint) || bad.Endpoint != endpoint || bad.Problem == "" {
			t.Errorf("%q: error %v, want an EndpointError", endpoint, err)
		}
	}
}

func FuzzParseEndpoint(f *testing.F) {
	for _, seed := range []string{"tcp://10.0.0.1:5557", "tcp://[fe80::1%eth0]:1", "tcp://name:65535", "tcp://*:1", "tcp://[::ffff:1.2.3.4]:9"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, endpoint string) {
		got, err := parseEndpoint(endpoint)
		if err != nil {
			if !errors.Is(err, ErrEndpoint) {
				t.Errorf("%q: %v", endpoint, err)
			}
			return
		}
		if got.port == 0 || got.addr.IsValid() == (got.host != "") {
			t.Errorf("%q: %+v", endpoint, got)
		}
		// What is handed to libzmq is safe whatever came in, and means the same.
		if got.addr.IsValid() {
			again, err := parseEndpoint(dialString(got.addr, got.port))
			if err != nil || again != got {
				t.Errorf("%q: %+v, again %+v, %v", endpoint, got, again, err)
			}
		}
	})
}
