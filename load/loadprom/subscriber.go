package loadprom

var (
	subMessages   = counter("plimsoll_subscriber_messages_total", "Messages received on load sockets.")
	subDelivered  = counter("plimsoll_subscriber_delivered_messages_total", "Messages that were decoded and handed on.")
	subSuperseded = counter("plimsoll_subscriber_superseded_messages_total", "Messages that were not looked at, because a newer one was there.")
	subDropped    = counter("plimsoll_subscriber_dropped_messages_total", "Messages that were no report, by the reason.", "reason")
	subReconnects = counter("plimsoll_subscriber_reconnects_total", "Fresh connections because of silence.")

	subscriberFamilies = []*family{subMessages, subDelivered, subSuperseded, subDropped, subReconnects}
)

func (c *Collector) subscriber(to sink, n Counts) {
	put(to, subMessages, n.Messages)
	put(to, subDelivered, n.Delivered)
	put(to, subSuperseded, n.Superseded)
	put(to, subReconnects, n.Reconnects)
	dropped := make(map[string]uint64)
	for reason, n := range n.Dropped {
		dropped[c.reasons.label(reason)] += n
	}
	for reason, n := range dropped {
		put(to, subDropped, n, pair("reason", reason))
	}
}
