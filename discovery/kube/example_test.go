package kube_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/discovery/kube"
)

func ExampleSource() {
	// What the control plane makes of a Service and its pod.
	name, number := "http", int32(30000)
	client := fake.NewClientset(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "inference", Name: "engines-x7k2p",
			Labels: map[string]string{discoveryv1.LabelServiceName: "engines"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.0.0.1"},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "inference", Name: "engine-0"},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &number}},
	})

	source := &kube.Source{
		Client:    client.DiscoveryV1(), // in a cluster, of kubernetes.NewForConfig(rest.InClusterConfig())
		Namespace: "inference",
		Service:   "engines",
		Port:      "http",
	}
	// A program hands it to a discovery.Fleet as its Source. This one looks at the first set.
	ctx, cancel := context.WithCancel(context.Background())
	err := source.Run(ctx, func(set []discovery.Worker) {
		for _, w := range set {
			fmt.Println(w.ID, "at", w.URL)
		}
		cancel()
	})
	fmt.Println(err)
	// Output:
	// inference/engine-0:30000 at http://10.0.0.1:30000
	// context canceled
}
