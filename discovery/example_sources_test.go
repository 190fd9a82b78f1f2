package discovery_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/plimsoll-go/plimsoll/discovery"
)

// firstSet runs a source until it has emitted, in the place of a Fleet.
func firstSet(s discovery.Source) {
	ctx, cancel := context.WithCancel(context.Background())
	_ = s.Run(ctx, func(set []discovery.Worker) {
		for _, w := range set {
			fmt.Println(w.ID, w.URL)
		}
		cancel()
	})
}

// A list that is edited while the gateway runs.
func ExampleFile() {
	folder, err := os.MkdirTemp("", "engines")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "engines.json")
	list := `["http://10.0.0.1:30000", {"id": "b", "url": "http://10.0.0.2:30000"}]`
	if err := os.WriteFile(path, []byte(list), 0o600); err != nil {
		fmt.Println(err)
		return
	}

	firstSet(&discovery.File{Path: path})
	// Output:
	//  http://10.0.0.1:30000
	// b http://10.0.0.2:30000
}

// nameServer stands for one.
type nameServer struct{}

func (nameServer) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1")}, nil
}

func (nameServer) LookupSRV(context.Context, string, string, string) (string, []*net.SRV, error) {
	return "", nil, nil
}

// Every address of a name is an engine, such as the pods of a headless service.
func ExampleDNS() {
	firstSet(&discovery.DNS{
		Name:     "engines.inference.svc.cluster.local",
		Port:     30000,
		Resolver: nameServer{}, // without it, the system's
	})
	// Output:
	//  http://10.0.0.1:30000
	//  http://10.0.0.2:30000
}

// Engines that are listed, and those behind a name.
func ExampleMerge() {
	source := discovery.Merge(discovery.Static("http://10.0.0.9:30000"), &discovery.DNS{Name: "engines.example", Port: 30000, Resolver: nameServer{}})
	fmt.Println(len(source.(discovery.StatusSource).Status()), "sources")
	// Output: 2 sources
}

// A mistake in a list is told to whoever makes it.
func ExampleCheckURL() {
	fmt.Println(discovery.CheckURL("http://10.0.0.1:30000"))
	fmt.Println(discovery.CheckURL("10.0.0.1:30000"))
	// Output:
	// <nil>
	// discovery: not a worker URL: "10.0.0.1:30000": want http://host:port or https://host:port
}
