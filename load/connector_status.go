package load

import (
	"errors"
	"maps"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// ConnectorStatus is all that a person may want to know of one connector. What it
// has in common with other workers is in the WorkerStatus.
type ConnectorStatus struct {
	Worker   string `json:"worker"`
	Shared   bool   `json:"shared"`
	Dead     string `json:"dead"`      // why; empty while it lives
	InFlight int    `json:"in_flight"` // requests

	Reserved   uint64 `json:"reserved"`   // requests since it was made; of these, besides those in flight:
	Finished   uint64 `json:"finished"`   // ended by a batch
	Released   uint64 `json:"released"`   // by the host
	Aborted    uint64 `json:"aborted"`    // by the host, for a client that gave up
	Failed     uint64 `json:"failed"`     // by Fail
	Duplicates uint64 `json:"duplicates"` // reservations refused
	Unknown    uint64 `json:"unknown"`    // ids that batches ended and that were not in flight

	Batches     uint64            `json:"batches"`      // taken
	WithoutLoad uint64            `json:"without_load"` // of those
	Dropped     map[string]uint64 `json:"dropped"`      // messages, or the loads of some, not taken, by reason
	LastDrop    string            `json:"last_drop"`    // the newest drop's error

	Ranks []ConnectorRankStatus `json:"ranks"`
}

// ConnectorRankStatus is one rank as the next Reserve sees it.
type ConnectorRankStatus struct {
	Rank     int     `json:"rank"`
	InFlight int64   `json:"in_flight"`
	Score    float64 `json:"score"` // RankScore, or an estimate where nothing fresh is known

	// The engine's last word; unknown before any. The report in the WorkerStatus
	// reads 0 where the rank is quiet.
	Running Maybe[int64]   `json:"running"`
	Waiting Maybe[int64]   `json:"waiting"`
	KVUsage Maybe[float64] `json:"kv_usage"`

	Quiet    bool   `json:"quiet"`    // that word is overruled until the next batch, because no request of ours was left there
	Silenced uint64 `json:"silenced"` // times that it was
}

// connectorStats is guarded by Connector.mu.
type connectorStats struct {
	Reserved, Finished, Released, Aborted, Failed, Duplicates, Unknown, Batches, WithoutLoad uint64

	dropped  map[string]uint64
	lastDrop error
}

// drop counts why a message was not taken. A message about nothing is no drop.
func (s *connectorStats) drop(err error) {
	if err == nil {
		return
	}
	if s.dropped == nil {
		s.dropped = make(map[string]uint64)
	}
	s.dropped[dropReason(err)]++
	s.lastDrop = err
}

func dropReason(err error) string {
	for _, r := range [...]struct {
		err    error
		reason string
	}{
		{ErrNoRank, "no_rank"}, {ErrBadReport, "bad_report"}, {ErrGone, "gone"},
		{ErrOutranked, "outranked"}, {ErrSuperseded, "superseded"},
	} {
		if errors.Is(err, r.err) {
			return r.reason
		}
	}
	return snapshot.Reason(err)
}

// Status returns the status of the connector.
func (c *Connector) Status() ConnectorStatus {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.stats
	st := ConnectorStatus{
		Worker: c.worker.id, Shared: c.shared, InFlight: len(c.requests),
		Reserved: s.Reserved, Finished: s.Finished, Released: s.Released, Aborted: s.Aborted, Failed: s.Failed,
		Duplicates: s.Duplicates, Unknown: s.Unknown,
		Batches: s.Batches, WithoutLoad: s.WithoutLoad, Dropped: maps.Clone(s.dropped),
	}
	if c.dead != nil {
		st.Dead = c.dead.Error()
	}
	if s.lastDrop != nil {
		st.LastDrop = s.lastDrop.Error()
	}
	unheard := c.unheardLocked(now)
	for i := range c.ranks {
		r := &c.ranks[i]
		rs := ConnectorRankStatus{Rank: i, InFlight: c.inFlight(i), Score: c.scoreLocked(i, now, unheard), Silenced: r.silenced}
		if r.reported {
			rs.Running, rs.Waiting, rs.KVUsage = Known(r.running), Known(r.waiting), r.report.KVUsage
			rs.Quiet = r.report.quiet
		}
		st.Ranks = append(st.Ranks, rs)
	}
	return st
}
