package kube

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func with(c discoveryv1.EndpointConditions, e discoveryv1.Endpoint) discoveryv1.Endpoint {
	e.Conditions = c
	return e
}

func of(service string, t discoveryv1.AddressType, s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s.Labels[discoveryv1.LabelServiceName] = service
	s.AddressType = t
	return s
}

func ports(s *discoveryv1.EndpointSlice, ports ...discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	s.Ports = ports
	return s
}

func TestWhichEndpointsAreWorkers(t *testing.T) {
	const ipv4, ipv6 = discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6
	udp := corev1.ProtocolUDP
	game := port("game", 7777)
	game.Protocol = &udp
	anonymous := pod("", "10.0.0.9")
	anonymous.TargetRef = nil
	empty := pod("a", "")
	empty.Addresses = nil

	tests := []struct {
		name    string
		source  *Source // nil: without settings
		slices  []*discoveryv1.EndpointSlice
		want    string // ID=URL, in order
		refused string // the reasons
	}{
		{
			name:   "none",
			slices: []*discoveryv1.EndpointSlice{slice("s")},
		}, {
			name:   "ready ones, and of which nothing is said",
			slices: []*discoveryv1.EndpointSlice{slice("s", pod("a", "10.0.0.1"), with(discoveryv1.EndpointConditions{}, pod("b", "10.0.0.2")))},
			want:   "inference/a:30000=http://10.0.0.1:30000 inference/b:30000=http://10.0.0.2:30000",
		}, {
			name:   "not those that are not ready, or terminate",
			slices: []*discoveryv1.EndpointSlice{slice("s", with(conditions(false, false, false), pod("a", "10.0.0.1")), with(conditions(false, true, true), pod("b", "10.0.0.2")), pod("c", "10.0.0.3"))},
			want:   "inference/c:30000=http://10.0.0.3:30000",
		}, {
			name:   "of a Service that publishes what is not ready, not those that terminate",
			slices: []*discoveryv1.EndpointSlice{slice("s", with(conditions(true, false, true), pod("a", "10.0.0.1")))},
		}, {
			name:   "NotReady",
			source: &Source{NotReady: true},
			slices: []*discoveryv1.EndpointSlice{slice("s", with(conditions(false, false, false), pod("a", "10.0.0.1")), with(conditions(false, true, true), pod("b", "10.0.0.2")))},
			want:   "inference/a:30000=http://10.0.0.1:30000",
		}, {
			name:   "in two slices",
			slices: []*discoveryv1.EndpointSlice{slice("s", pod("a", "10.0.0.1")), slice("t", pod("b", "10.0.0.2"), pod("a", "10.0.0.1"))},
			want:   "inference/a:30000=http://10.0.0.1:30000 inference/b:30000=http://10.0.0.2:30000",
		}, {
			name:   "in two slices, of which one is behind",
			slices: []*discoveryv1.EndpointSlice{slice("s", with(conditions(false, false, false), pod("a", "10.0.0.1"))), slice("t", pod("a", "10.0.0.1"))},
			want:   "inference/a:30000=http://10.0.0.1:30000",
		}, {
			name:   "two pods at one address",
			slices: []*discoveryv1.EndpointSlice{slice("s", pod("b", "10.0.0.1")), slice("t", pod("a", "10.0.0.1"))},
			want:   "inference/a:30000=http://10.0.0.1:30000",
		}, {
			name:   "no pod",
			slices: []*discoveryv1.EndpointSlice{slice("s", anonymous)},
			want:   "=http://10.0.0.9:30000",
		}, {
			name:   "of two families",
			slices: []*discoveryv1.EndpointSlice{of("engines", ipv6, slice("s", pod("a", "fd00::1"), pod("b", "fd00::2"))), slice("t", pod("a", "10.0.0.1"))},
			want:   "inference/a:30000=http://10.0.0.1:30000",
		}, {
			name:   "of two families, before the first slice is filled",
			slices: []*discoveryv1.EndpointSlice{of("engines", ipv6, slice("s", pod("a", "fd00::1"))), slice("t")},
		}, {
			name:   "of IPv6 alone",
			slices: []*discoveryv1.EndpointSlice{of("engines", ipv6, slice("s", pod("a", "fd00::1")))},
			want:   "inference/a:30000=http://[fd00::1]:30000",
		}, {
			name:   "of two families, and IPv6 is asked for",
			source: &Source{AddressType: ipv6},
			slices: []*discoveryv1.EndpointSlice{of("engines", ipv6, slice("s", pod("a", "fd00::1"))), slice("t", pod("a", "10.0.0.1"))},
			want:   "inference/a:30000=http://[fd00::1]:30000",
		}, {
			name:   "of two Services with a family each",
			source: &Source{Selector: "app=engine"},
			slices: []*discoveryv1.EndpointSlice{of("one", ipv6, slice("s", pod("a", "fd00::1"))), of("other", ipv4, slice("t", pod("b", "10.0.0.2")))},
			want:   "inference/b:30000=http://10.0.0.2:30000 inference/a:30000=http://[fd00::1]:30000",
		}, {
			name:   "names are no addresses",
			slices: []*discoveryv1.EndpointSlice{of("engines", discoveryv1.AddressTypeFQDN, slice("s", pod("a", "engine.example")))},
		}, {
			name:   "names, where they are asked for",
			source: &Source{AddressType: discoveryv1.AddressTypeFQDN},
			slices: []*discoveryv1.EndpointSlice{of("engines", discoveryv1.AddressTypeFQDN, slice("s", pod("a", "engine.example")))},
			want:   "inference/a:30000=http://engine.example:30000",
		}, {
			name:   "the only TCP port",
			slices: []*discoveryv1.EndpointSlice{ports(slice("s", pod("a", "10.0.0.1")), game, port("", 8000))},
			want:   "inference/a:8000=http://10.0.0.1:8000",
		}, {
			name:    "several ports",
			slices:  []*discoveryv1.EndpointSlice{ports(slice("s", pod("a", "10.0.0.1")), port("http", 30000), port("load", 5558))},
			refused: "2 TCP ports, and none is asked for",
		}, {
			name:    "no port",
			slices:  []*discoveryv1.EndpointSlice{ports(slice("s", pod("a", "10.0.0.1")), discoveryv1.EndpointPort{})},
			refused: "0 TCP ports, and none is asked for",
		}, {
			name:   "a named port, which differs from slice to slice",
			source: &Source{Port: "http"},
			slices: []*discoveryv1.EndpointSlice{slice("s", pod("a", "10.0.0.1")), ports(slice("t", pod("b", "10.0.0.2")), port("load", 5558), port("http", 31000))},
			want:   "inference/a:30000=http://10.0.0.1:30000 inference/b:31000=http://10.0.0.2:31000",
		}, {
			name:    "a named port that only some slices have",
			source:  &Source{Port: "http"},
			slices:  []*discoveryv1.EndpointSlice{slice("s", pod("a", "10.0.0.1")), ports(slice("t", pod("b", "10.0.0.2")), game)},
			want:    "inference/a:30000=http://10.0.0.1:30000",
			refused: `no TCP port named "http"`,
		}, {
			name:    "a named port of another protocol",
			source:  &Source{Port: "game"},
			slices:  []*discoveryv1.EndpointSlice{ports(slice("s", pod("a", "10.0.0.1")), game)},
			refused: `no TCP port named "game"`,
		}, {
			name:   "a numbered port, which the Service need not have",
			source: &Source{Port: "31000"},
			slices: []*discoveryv1.EndpointSlice{ports(slice("s", pod("a", "10.0.0.1")))},
			want:   "inference/a:31000=http://10.0.0.1:31000",
		}, {
			name:   "a slice without a port and without endpoints that count",
			source: &Source{Port: "http"},
			slices: []*discoveryv1.EndpointSlice{ports(slice("s", with(conditions(false, false, false), pod("a", "10.0.0.1"))))},
		}, {
			name:   "scheme and path",
			source: &Source{Scheme: "https", Path: "llm"},
			slices: []*discoveryv1.EndpointSlice{slice("s", pod("a", "10.0.0.1"))},
			want:   "inference/a:30000=https://10.0.0.1:30000/llm",
		}, {
			name:    "what no API server would tell",
			slices:  []*discoveryv1.EndpointSlice{slice("s", empty, pod("b", "a;b"), pod("c", "10.0.0.3"))},
			want:    "inference/c:30000=http://10.0.0.3:30000",
			refused: `no address; not a worker URL: "http://a;b:30000": host is neither an IP address nor a host name in ASCII`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			source := test.source
			if source == nil {
				source = new(Source)
			}
			l := source.list(test.slices)
			var got, reasons []string
			for _, w := range l.workers {
				got = append(got, fmt.Sprintf("%s=%s", w.ID, w.URL))
			}
			for _, r := range l.refused {
				reasons = append(reasons, r.Reason)
			}
			if have := strings.Join(got, " "); have != test.want {
				t.Errorf("workers are %s\nwant %s", have, test.want)
			}
			if have := strings.Join(reasons, "; "); have != test.refused {
				t.Errorf("refused: %s\nwant %s", have, test.refused)
			}
		})
	}
}

func TestPollingIsPassedOn(t *testing.T) {
	l := (&Source{Poll: true}).list([]*discoveryv1.EndpointSlice{slice("s", pod("a", "10.0.0.1"))})
	if !l.workers[0].Poll {
		t.Error("the worker is not polled")
	}
}
