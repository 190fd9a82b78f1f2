package fleetsim

import (
	"math/rand/v2"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/snapshot"
)

// reporter is a rank's publisher of load.
type reporter struct {
	random *rand.Rand
	due    bool   // a report, at the end of the step
	frozen bool   // repeats its first busy report
	first  []byte // that report
}

// wire is what all reports of a run share: one reading, one buffer, and those that
// are on their way.
type wire struct {
	reading snapshot.Reading
	buffer  []byte
	slots   []slot
	unused  []int32
}

// slot is a report on its way to the gateways.
type slot struct {
	rank        *rank
	incarnation int32
	pending     int32 // gateways that it has not reached yet
	report      load.Report
}

// startReporting starts the publisher of a rank whose engine has come up.
func (s *sim) startReporting(r *rank) {
	if len(s.gateways) == 0 || s.config.Reports.Wire == Piggyback {
		return
	}
	if r.reporter.random == nil {
		r.reporter.random = s.random(streamReports + uint64(r.number))
	}
	for _, e := range s.config.Faults.Mute {
		if int(r.engine.index) == e {
			return
		}
	}
	r.reporter.due, r.reporter.first = false, nil
	for _, e := range s.config.Faults.Frozen {
		r.reporter.frozen = r.reporter.frozen || int(r.engine.index) == e
	}
	phase := r.reporter.random.Int64N(int64(s.config.Reports.Period))
	s.agenda.add(s.now+phase, reportDue, r.number, r.engine.incarnation)
}

// reportDue is the publisher's timer. A scheduler that is in the middle of a step
// does not look at it before the end.
func (s *sim) reportDue(r *rank, incarnation int32) {
	switch {
	case r.engine.incarnation != incarnation:
	case r.group.stepping:
		r.reporter.due = true
	default:
		s.publish(r)
	}
}

// stepped is called when a rank has ended a step.
func (s *sim) stepped(r *rank) {
	if r.reporter.due {
		r.reporter.due = false
		s.publish(r)
	}
}

// publish sends a report of a rank to all gateways.
func (s *sim) publish(r *rank) {
	p := &r.reporter
	period := float64(s.config.Reports.Period)
	period *= 1 + s.config.Reports.Jitter*(2*p.random.Float64()-1)
	s.agenda.add(s.now+int64(period), reportDue, r.number, r.engine.incarnation)

	w := &s.wire
	w.buffer = s.encode(r, w.buffer[:0])
	payload := w.buffer
	if p.frozen {
		if p.first == nil && r.requests() > 0 {
			p.first = append(p.first, payload...)
		}
		if p.first != nil {
			payload = p.first
		}
	}
	if err := w.reading.Decode(payload); err != nil {
		panic("fleetsim: own report: " + err.Error())
	}
	i := w.newSlot()
	slot := &w.slots[i]
	slot.rank, slot.incarnation, slot.report = r, r.engine.incarnation, load.FromReading(&w.reading)
	for g := range s.gateways {
		delay := s.network + p.random.Int64N(int64(s.config.Jitter)+1)
		if p.random.Float64() < s.config.Faults.Loss {
			continue
		}
		slot.pending++
		s.agenda.add(s.now+delay, reportSeen, i, int32(g))
	}
	if slot.pending == 0 {
		w.unused = append(w.unused, i)
	}
}

func (w *wire) newSlot() int32 {
	if last := len(w.unused) - 1; last >= 0 {
		i := w.unused[last]
		w.unused = w.unused[:last]
		return i
	}
	w.slots = append(w.slots, slot{})
	return int32(len(w.slots) - 1)
}

func (s *sim) reportSeen(i int32, g *gateway) {
	slot := &s.wire.slots[i]
	if t := &g.targets[slot.rank.engine.index]; t.feed != nil && t.incarnation == slot.incarnation {
		if err := t.feed.Put(slot.rank.index, slot.report); err != nil {
			panic("fleetsim: own report: " + err.Error())
		}
	}
	if slot.pending--; slot.pending == 0 {
		s.wire.unused = append(s.wire.unused, i)
	}
}

// pendingTokens is what SGLang counts as waiting prompt tokens: those of the queue,
// and the rest of a prompt that is computed in chunks. The prompts and the chunk that
// the step under way computes are not among them.
func (r *rank) pendingTokens() int64 { return r.waitingTokens + r.prefillTokens - r.chunkTotal }

// encode appends the report of a rank to dst as an engine sends it.
func (s *sim) encode(r *rank, dst []byte) []byte {
	c := r.config
	running, waiting := int64(len(r.running)), int64(r.waiting.len())
	used := r.kvUsed()
	busy := r.prefillBusy / 1000
	switch s.config.Reports.Wire {
	case LoadStat, LoadStatShort:
		elements := 11
		if s.config.Reports.Wire == LoadStatShort {
			elements = 6
		}
		stat := snapshot.LoadStat{
			Present:           snapshot.StatForm(elements),
			NumRunningReqs:    running,
			NumWaitingReqs:    waiting,
			NumTokens:         used,
			MaxTotalNumTokens: int64(c.KVTokens),
			AttnDPRank:        int64(r.index),
		}
		if elements == 11 {
			stat.NumWaitingUncachedTokens = r.pendingTokens()
			stat.NumTotalTokens = used + r.waitingTokens
			stat.MaxRunningRequests = int64(c.MaxRunning)
			stat.TotalPrefillUncachedTokens = r.prefilled
			stat.TotalPrefillBusyUS = busy
		}
		return stat.Append(dst)
	default:
		snap := snapshot.LoadSnapshot{
			Present:                    computed,
			Timestamp:                  float64(s.now) / 1e9,
			DPRank:                     int64(r.index),
			NumRunningReqs:             running,
			NumWaitingReqs:             waiting,
			NumWaitingUncachedTokens:   r.pendingTokens(),
			NumUsedTokens:              used,
			NumTotalTokens:             used + r.waitingTokens,
			NumActiveTokens:            used + r.waitingTokens,
			MaxTotalNumTokens:          int64(c.KVTokens),
			MaxRunningRequests:         int64(c.MaxRunning),
			TokenUsage:                 float64(used) / float64(c.KVTokens),
			TotalPrefillUncachedTokens: r.prefilled,
			TotalPrefillBusyUS:         busy,
		}
		return snap.Append(dst)
	}
}

// computed are the fields that an engine has a value for, be it 0.
var computed = snapshot.FieldsOf(snapshot.FieldTokenUsage, snapshot.FieldNumWaitingUncachedTokens,
	snapshot.FieldTotalPrefillUncachedTokens, snapshot.FieldTotalPrefillBusyUS)
