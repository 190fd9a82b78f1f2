package gateway

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-go/plimsoll/discovery"
)

func TestPeersThatMakeNoSenseAreRefused(t *testing.T) {
	list := []string{"http://10.0.0.5:8080", "http://10.0.0.6:8080"}
	for want, p := range map[string]Peers{
		`peers: list: discovery: not a worker URL: "10.0.0.5:8080": want http://host:port`: {List: []string{"10.0.0.5:8080"}},
		"peers: dns: name is missing":                                       {DNS: &DNS{Port: 8080}},
		"peers: dns: port is 0, want 1":                                     {DNS: &DNS{Name: "gateway"}},
		`peers: dns: network is "tcp"`:                                      {DNS: &DNS{Name: "gateway", Port: 8080, Network: "tcp"}},
		`peers: self: discovery: not the host of a replica: "0.0.0.0:8080"`: {List: list, Self: "0.0.0.0:8080"},
		`peers: self is "10.0.0.5", and there is no list, file or dns`:      {Self: "10.0.0.5"},
		"peers: replica is 3 of 3":                                          {Replica: 3, Replicas: 3},
		"peers: replica is -1 of 3":                                         {Replica: -1, Replicas: 3},
		"peers: replica is 1 of 0":                                          {Replica: 1},
		"peers: replica is 0 of -1":                                         {Replicas: -1},
		"peers: replica and replicas exclude":                               {File: "replicas", Replicas: 3},
	} {
		c := Config{Workers: []string{"http://10.0.0.1:30000"}, Peers: p}
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want only something with %q", err, want)
		}
	}
	for _, p := range []Peers{
		{},
		{Replicas: 1},
		{Replica: 2, Replicas: 3},
		{List: list},
		{List: list, File: "replicas", DNS: &DNS{Name: "gateway", Port: 8080, Network: "ip6"}, Self: "10.0.0.5"},
	} {
		c := Config{Workers: []string{"http://10.0.0.1:30000"}, Peers: p}
		if err := c.Validate(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestEachReplicaPrefersASliceOfItsOwn(t *testing.T) {
	var workers []string
	for range 4 {
		workers = append(workers, backend(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }))
	}
	slices.Sort(workers) // as slices are cut
	file := filepath.Join(t.TempDir(), "replicas")
	if err := os.WriteFile(file, []byte("http://10.0.0.6:8080\nhttp://10.0.0.5:8080\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	list := []string{"http://10.0.0.6:8080", "http://10.0.0.5:8080"}
	for _, c := range []struct {
		name   string
		peers  func(replica int) Peers
		listed bool
	}{
		{"fixed", func(replica int) Peers { return Peers{Replica: replica, Replicas: 2} }, false},
		{"listed", func(replica int) Peers { return Peers{List: list, Self: fmt.Sprintf("10.0.0.%d", 5+replica)} }, true},
		{"in a file", func(replica int) Peers { return Peers{File: file, Self: fmt.Sprintf("10.0.0.%d:8080", 5+replica)} }, true},
	} {
		for replica := range 2 {
			t.Run(fmt.Sprint(c.name, ", replica ", replica), func(t *testing.T) {
				g := start(t, Config{Workers: workers, Peers: c.peers(replica)})
				waitFor(t, "the place", func() bool { _, replicas := g.replica(); return replicas == 2 })
				own := workers[2*replica : 2*replica+2]
				for i := range 20 {
					res := g.post(t, `{"prompt":"hello"}`)
					if got := res.Header.Get(workerHeader); text(t, res) != "{}" || !slices.Contains(own, got) {
						t.Errorf("request %d went to %s, want one of %s", i, got, own)
					}
				}
				g.settled(t)

				st := g.Status().Peers
				if !c.listed {
					if st != nil {
						t.Errorf("status %+v", st)
					}
					return
				}
				if st.Place != discovery.PlaceListed || st.Replica != replica || st.Replicas != 2 || st.Problem != "" {
					t.Errorf("status %+v", st)
				}
				var shown struct{ Peers map[string]any }
				if g.getJSON(t, "/gateway.json", &shown); shown.Peers["place"] != "listed" || shown.Peers["self"] != st.Self {
					t.Errorf("shown is %v", shown)
				}
			})
		}
	}
}

// A gateway that cannot tell which of the replicas it is serves all the same.
func TestWithoutAPlaceThereIsNoSlice(t *testing.T) {
	var workers []string
	for range 4 {
		workers = append(workers, backend(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }))
	}
	for name, p := range map[string]Peers{
		"no peers":             {},
		"not in the list":      {List: []string{"http://gateway-0.example:8080", "http://gateway-1.example:8080"}},
		"no list yet":          {File: filepath.Join(t.TempDir(), "none")},
		"twice in the list":    {List: []string{"http://127.0.0.1:8080", "http://127.0.0.1:8081"}},
		"the list is nonsense": {File: nonsense(t)},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, Config{Workers: workers, Peers: p, Logger: slog.New(slog.DiscardHandler)})
			seen := make(map[string]bool)
			waitFor(t, "every engine to be picked", func() bool {
				res := g.post(t, `{"prompt":"hello"}`)
				text(t, res)
				seen[res.Header.Get(workerHeader)] = true
				return len(seen) == len(workers)
			})
			if replica, replicas := g.replica(); replica != 0 || replicas != 0 {
				t.Errorf("replica %d of %d", replica, replicas)
			}
			g.settled(t)
		})
	}
}

func nonsense(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nonsense")
	if err := os.WriteFile(path, []byte("gateway-0\ngateway-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
