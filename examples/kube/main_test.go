package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/discovery/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func slice(addresses ...string) *discoveryv1.EndpointSlice {
	port := int32(30000)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "inference", Name: "engines-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: "engines"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: &port}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

func TestOncePrintsOneList(t *testing.T) {
	s := settings{once: true, source: &kube.Source{
		Client: fake.NewClientset(slice("10.0.0.1")).DiscoveryV1(), Namespace: "inference", Service: "engines",
	}}
	var out strings.Builder
	if err := follow(t.Context(), s, &out); err != nil {
		t.Fatal(err)
	}
	var list []entry
	if err := json.Unmarshal([]byte(out.String()), &list); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(list, []entry{{URL: "http://10.0.0.1:30000"}}) {
		t.Errorf("list is %v", list)
	}
}

func TestFileIsKeptForTheGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		file := filepath.Join(folder, "engines.json")
		client := fake.NewClientset(slice("10.0.0.1"))
		s := settings{write: file, source: &kube.Source{Client: client.DiscoveryV1(), Namespace: "inference", Service: "engines"}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- follow(ctx, s, io.Discard) }()

		// The other side of it.
		var read []discovery.Worker
		sets := 0
		source := &discovery.File{Path: file}
		go func() {
			source.Run(ctx, func(set []discovery.Worker) { read, sets = set, sets+1 })
			done <- nil
		}()
		expect := func(want ...discovery.Worker) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			if !slices.Equal(read, want) || sets == 0 {
				t.Errorf("the gateway has %v, want %v: %+v", read, want, source.Status())
			}
		}
		expect(discovery.Worker{URL: "http://10.0.0.1:30000"})
		for _, change := range []*discoveryv1.EndpointSlice{slice("10.0.0.1", "10.0.0.2"), slice()} {
			if _, err := client.DiscoveryV1().EndpointSlices("inference").Update(ctx, change, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			var want []discovery.Worker
			for _, e := range change.Endpoints {
				want = append(want, discovery.Worker{URL: "http://" + e.Addresses[0] + ":30000"})
			}
			expect(want...)
		}
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
			t.Errorf("in the folder are %v, %v", left, err)
		}
	})
}

func TestListThatCannotBeWrittenIsAnError(t *testing.T) {
	s := settings{write: filepath.Join(t.TempDir(), "missing", "engines.json"), source: &kube.Source{
		Client: fake.NewClientset(slice("10.0.0.1")).DiscoveryV1(), Namespace: "inference", Service: "engines",
	}}
	if err := follow(t.Context(), s, io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
}

func TestFlagsThatMakeNoSense(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	if err := run(t.Context(), []string{"engines"}, io.Discard); err == nil {
		t.Error("an argument is taken")
	}
	if err := run(t.Context(), []string{"-service", "engines", "-kubeconfig", "/does/not/exist"}, io.Discard); err == nil {
		t.Error("a kubeconfig that does not exist is taken")
	}
	var s settings
	s.source = new(kube.Source)
	if err := quiet(newFlags(&s)).Parse([]string{"-h"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("error is %v", err)
	}
}

func TestKubeconfigLeadsToTheCluster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	content := `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": [{"name": "c", "context": {"cluster": "here", "user": "me"}}],
		"clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:1"}}],
		"users": [{"name": "me", "user": {"token": "t"}}]}`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newClient(file); err != nil {
		t.Error(err)
	}
}
