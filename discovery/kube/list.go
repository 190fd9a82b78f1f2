package kube

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/plimsoll-go/plimsoll/discovery"
)

// list is what a set of slices comes to.
type list struct {
	workers []discovery.Worker // sorted, each URL once
	refused []discovery.Refusal
}

func (s *Source) list(all []*discoveryv1.EndpointSlice) list {
	slices.SortFunc(all, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	hasIPv4 := make(map[string]bool) // services
	for _, slice := range all {
		if slice.AddressType == discoveryv1.AddressTypeIPv4 {
			hasIPv4[serviceOf(slice)] = true
		}
	}
	var l list
	for _, slice := range all {
		// A slice without endpoints counts: while a Service grows, its slice of the one
		// family comes before that of the other.
		wanted := s.AddressType
		if wanted == "" {
			wanted = discoveryv1.AddressTypeIPv6
			if hasIPv4[serviceOf(slice)] {
				wanted = discoveryv1.AddressTypeIPv4
			}
		}
		if slice.AddressType == wanted {
			s.add(&l, slice)
		}
	}
	// By URL first. Where two pods have the same, as when a new one has just got the
	// address of an old one, whichever it is has to be the same one each time.
	slices.SortFunc(l.workers, func(a, b discovery.Worker) int {
		return cmp.Or(strings.Compare(a.URL, b.URL), strings.Compare(a.ID, b.ID))
	})
	l.workers = slices.CompactFunc(l.workers, func(a, b discovery.Worker) bool { return a.URL == b.URL })
	return l
}

// add adds the endpoints of one slice that count.
func (s *Source) add(l *list, slice *discoveryv1.EndpointSlice) {
	refuse := func(what string, reason string) {
		l.refused = append(l.refused, discovery.Refusal{Worker: what, Reason: reason})
	}
	endpoints := slices.DeleteFunc(slices.Clone(slice.Endpoints), func(e discoveryv1.Endpoint) bool { return !s.counts(e.Conditions) })
	if len(endpoints) == 0 {
		return
	}
	port, err := s.port(slice.Ports)
	if err != nil {
		refuse("slice "+slice.Namespace+"/"+slice.Name, err.Error())
		return
	}
	for _, e := range endpoints {
		if len(e.Addresses) == 0 {
			refuse("an endpoint of slice "+slice.Namespace+"/"+slice.Name, "no address")
			continue
		}
		w := s.worker(slice.Namespace, e.TargetRef, net.JoinHostPort(e.Addresses[0], port), port)
		if err := discovery.CheckURL(w.URL); err != nil {
			refuse(w.URL, strings.TrimPrefix(err.Error(), "discovery: "))
			continue
		}
		l.workers = append(l.workers, w)
	}
}

// counts reports whether an endpoint may be picked. What is not said of it is taken to
// be well, as the API has it.
func (s *Source) counts(c discoveryv1.EndpointConditions) bool {
	terminating := c.Terminating != nil && *c.Terminating
	notReady := c.Ready != nil && !*c.Ready
	return !terminating && (s.NotReady || !notReady)
}

// port returns the number of the port that is asked for.
func (s *Source) port(ports []discoveryv1.EndpointPort) (string, error) {
	if _, ok := portNumber(s.Port); ok {
		return s.Port, nil
	}
	var found []int32
	for _, p := range ports {
		tcp := p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP
		named := s.Port == "" || p.Name != nil && *p.Name == s.Port
		if p.Port != nil && tcp && named {
			found = append(found, *p.Port)
		}
	}
	switch {
	case len(found) == 1:
		return strconv.Itoa(int(found[0])), nil
	case s.Port != "":
		return "", fmt.Errorf("no TCP port named %q", s.Port)
	}
	return "", fmt.Errorf("%d TCP ports, and none is asked for", len(found))
}

// worker makes a worker of an endpoint. Its id is the pod's name, so that the next pod with
// the same address is another worker; and the port's, for pods with several engines.
func (s *Source) worker(namespace string, of *corev1.ObjectReference, host, port string) discovery.Worker {
	u := url.URL{Scheme: cmp.Or(s.Scheme, "http"), Host: host, Path: s.Path}
	if u.Path != "" && u.Path[0] != '/' {
		u.Path = "/" + u.Path
	}
	w := discovery.Worker{URL: u.String(), Poll: s.Poll}
	if of != nil && of.Kind == "Pod" && of.Name != "" {
		w.ID = cmp.Or(of.Namespace, namespace) + "/" + of.Name + ":" + port
	}
	return w
}

func serviceOf(slice *discoveryv1.EndpointSlice) string {
	return slice.Labels[discoveryv1.LabelServiceName]
}

func portNumber(port string) (n int, ok bool) {
	n, err := strconv.Atoi(port)
	return n, err == nil
}
