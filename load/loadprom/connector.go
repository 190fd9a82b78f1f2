package loadprom

import (
	"strconv"

	dto "github.com/prometheus/client_model/go"

	"github.com/plimsoll-go/plimsoll/load"
)

var (
	connectorReserved   = counter("plimsoll_connector_requests_total", "Requests that ranks were reserved for.", "worker")
	connectorEnded      = counter("plimsoll_connector_ended_requests_total", "Requests that are not in flight any more, by what ended them.", "worker", "by")
	connectorDuplicates = counter("plimsoll_connector_refused_requests_total", "Reservations that were refused, because their id was in flight.", "worker")
	connectorUnknown    = counter("plimsoll_connector_unknown_ends_total", "Ids that batches ended and that were not in flight.", "worker")
	connectorBatches    = counter("plimsoll_connector_batches_total", "Output batches taken.", "worker")
	connectorLoadless   = counter("plimsoll_connector_loadless_batches_total", "Output batches taken that told no load.", "worker")
	connectorDropped    = counter("plimsoll_connector_dropped_messages_total", "Messages, or the loads of some, that were not taken, by the reason.", "worker", "reason")
	connectorScore      = gauge("plimsoll_connector_rank_score", "What the next reservation compares the rank by.", "worker", "rank")
	connectorSilenced   = counter("plimsoll_connector_rank_silenced_total", "Times that the rank's last word was overruled, because no request was left there.", "worker", "rank")

	connectorFamilies = []*family{
		connectorReserved, connectorEnded, connectorDuplicates, connectorUnknown,
		connectorBatches, connectorLoadless, connectorDropped, connectorScore, connectorSilenced,
	}
)

// connectors tells of those whose workers are in the table and have series. A group that died
// and the one that took its place have the same id: the worker that is there now decides.
func (c *Collector) connectors(to sink, all []*load.Connector, labels workerLabels, ranks int) {
	told := make(map[*load.Worker]bool, len(all))
	for _, conn := range all {
		w := conn.Worker()
		label := labels[w.ID()]
		if there, ok := c.table.Worker(w.ID()); !ok || there != w || label == nil || told[w] {
			continue
		}
		told[w] = true
		c.connector(to, conn.Status(), label, ranks)
	}
}

func (c *Collector) connector(to sink, st load.ConnectorStatus, worker *dto.LabelPair, ranks int) {
	put(to, connectorReserved, st.Reserved, worker)
	for _, end := range [...]struct {
		by string
		n  uint64
	}{{"batch", st.Finished}, {"release", st.Released}, {"abort", st.Aborted}, {"failure", st.Failed}} {
		put(to, connectorEnded, end.n, pair("by", end.by), worker)
	}
	put(to, connectorDuplicates, st.Duplicates, worker)
	put(to, connectorUnknown, st.Unknown, worker)
	put(to, connectorBatches, st.Batches, worker)
	put(to, connectorLoadless, st.WithoutLoad, worker)
	for reason, n := range c.byReason(st.Dropped) {
		put(to, connectorDropped, n, pair("reason", reason), worker)
	}
	for _, r := range st.Ranks[:min(len(st.Ranks), ranks)] {
		rank := pair("rank", strconv.Itoa(r.Rank))
		put(to, connectorScore, r.Score, rank, worker)
		put(to, connectorSilenced, r.Silenced, rank, worker)
	}
}
