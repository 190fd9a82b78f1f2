// Package kube finds workers in Kubernetes: a [discovery.Source] over the
// EndpointSlices of a Service. It is a module of its own, since client-go is heavy.
//
//	config, err := rest.InClusterConfig()
//	...
//	client, err := kubernetes.NewForConfig(config)
//	...
//	source := &kube.Source{Client: client.DiscoveryV1(), Namespace: "inference", Service: "engines", Port: "http"}
//
// Next to [discovery.DNS] with a headless service, which needs no permission, it tells
// within a fraction of a second what a name server tells within its time to live, it
// knows the name of each pod, and an API server that is away is not taken for a
// service without pods.
//
// The replicas of a gateway are found in the same way, by their own Service: a Source
// serves a [discovery.Peers] as well.
//
// # What counts
//
// An endpoint counts while it is ready and does not terminate. One that terminates
// gets no new picks from then on, though it still serves; the requests that it has
// are not touched: a Fleet takes it from the table, and what is in flight there
// finishes in the books of the worker that it was. So is one that is not ready, unless
// [Source.NotReady] says otherwise.
//
// All slices of a Service together are its list. An endpoint in two of them is one
// worker, and since a controller that moves endpoints from one slice to another writes
// one after the other, changes are looked at together, a tenth of a second after the
// first.
//
// Of a Service with addresses of both families, the IPv4 ones are taken, unless
// [Source.AddressType] says otherwise: a pod is not two workers.
//
// # What is kept
//
// An API server that cannot be reached or that denies permission changes nothing: the
// last list stays, the calls are tried again, and the problem is logged and in the
// status. A list that the API server does tell is believed, also an empty one. Only if
// there are endpoints of which none can be used, as with a port name that no slice
// has, the last list stays as well.
//
// # Permissions
//
// It lists and watches EndpointSlices in one namespace, and needs a Role there:
//
//	rules:
//	- apiGroups: [discovery.k8s.io]
//	  resources: [endpointslices]
//	  verbs: [list, watch]
//
// Permissions cannot be narrowed to one Service: its slices have generated names.
// The folder examples/kube has manifests.
//
// # Concurrency
//
// A Source is run by one Fleet, or one Peers, at a time; Status and Stats may be called
// at any time. While it runs, an informer of client-go has some goroutines and one
// watch; what client-go logs goes to the Source's logger.
//
// # What it does not do
//
// It writes nothing, looks at no pods or nodes, and checks no health. Zones and nodes of
// endpoints are not passed on: a [discovery.Worker] has no place for them.
package kube
