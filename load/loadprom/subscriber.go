package loadprom

import (
	"maps"
	"slices"
)

var (
	subMessages   = counter("plimsoll_subscriber_messages_total", "Messages received on load sockets.")
	subDelivered  = counter("plimsoll_subscriber_delivered_messages_total", "Messages that were decoded and handed on.")
	subSuperseded = counter("plimsoll_subscriber_superseded_messages_total", "Messages that were not looked at, because a newer one was there.")
	subDropped    = counter("plimsoll_subscriber_dropped_messages_total", "Messages that were no report, by the reason.", "reason")
	subReconnects = counter("plimsoll_subscriber_reconnects_total", "Fresh connections because of silence.")

	subscriberFamilies = []*family{subMessages, subDelivered, subSuperseded, subDropped, subReconnects}

	endpointMessages   = counter("plimsoll_endpoint_messages_total", "Messages received on the load socket, since it was subscribed.", "endpoint")
	endpointReconnects = counter("plimsoll_endpoint_reconnects_total", "Fresh connections to the load socket because of silence, since it was subscribed.", "endpoint")
	omittedEndpoints   = gauge("plimsoll_omitted_endpoints", "Load sockets that have no series of their own, because there are too many.")

	endpointFamilies = []*family{endpointMessages, endpointReconnects, omittedEndpoints}
)

func (c *Collector) subscriber(to sink, n Counts) {
	put(to, subMessages, n.Messages)
	put(to, subDelivered, n.Delivered)
	put(to, subSuperseded, n.Superseded)
	put(to, subReconnects, n.Reconnects)
	for reason, n := range c.byReason(n.Dropped) {
		put(to, subDropped, n, pair("reason", reason))
	}
}

// byReason has the counts by the reasons that there is room for.
func (c *Collector) byReason(dropped map[string]uint64) map[string]uint64 {
	bounded := make(map[string]uint64, len(dropped))
	for reason, n := range dropped {
		bounded[c.reasons.label(reason)] += n
	}
	return bounded
}

// putEndpoints tells of the first by name, most at most. Two subscriptions to one endpoint
// are one series.
func putEndpoints(to sink, all []EndpointCounts, most int) {
	counts := make(map[string]EndpointCounts, len(all))
	for _, e := range all {
		of := counts[e.Endpoint]
		counts[e.Endpoint] = EndpointCounts{e.Endpoint, of.Messages + e.Messages, of.Reconnects + e.Reconnects}
	}
	endpoints := slices.Sorted(maps.Keys(counts))
	told := endpoints[:min(len(endpoints), max(most, 0))]
	for _, endpoint := range told {
		label, of := pair("endpoint", labelOf(endpoint)), counts[endpoint]
		put(to, endpointMessages, of.Messages, label)
		put(to, endpointReconnects, of.Reconnects, label)
	}
	put(to, omittedEndpoints, len(endpoints)-len(told))
}
