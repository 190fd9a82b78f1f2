package loadhttp

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

// picture is all that is shown of one sample. It is made when the first viewer asks,
// and does not change; what is encoded of it is, as it is asked for, with Handler.mu
// held.
type picture struct {
	seq    uint64
	status Status
	tracks []*track // of status.Workers

	lastPick, lastEvent uint64

	rows      [][]byte // of status.Workers, encoded
	all, news *packet  // see stream.go
}

// publishLocked makes the newest sample the one that is shown.
func (h *Handler) publishLocked() {
	h.before = h.now
	if h.viewers == 0 {
		h.before = nil
	}
	h.now = nil
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *Handler) pictureLocked() *picture {
	if h.now == nil {
		h.now = h.newPictureLocked()
	}
	return h.now
}

func (h *Handler) newPictureLocked() *picture {
	p := &picture{seq: h.seq, tracks: h.sortedLocked()}
	s := &p.status
	*s = Status{
		Title: h.config.Title, At: time.Now(), Since: h.began,
		Window: h.table.Window(), Interval: h.config.Interval,
		Workers: make([]Worker, len(p.tracks)),
	}
	s.Picks, p.lastPick = h.picks.since(0)
	s.Events, p.lastEvent = h.events.since(0)
	speeds := h.learned(s)

	f := &s.Fleet
	f.Workers, f.States = len(p.tracks), make(map[string]int)
	for _, t := range p.tracks {
		f.PickRate += t.rate
	}
	var depth float64
	for i, t := range p.tracks {
		w := &s.Workers[i]
		w.describe(t, f.PickRate)
		if w.State == stateUnhealthy {
			w.Reason = joined(h.whyOut(t.w), w.Reason)
		}
		if speed, ok := speeds[w.ID]; ok && finite(speed.Speed) {
			w.Speed = load.Known(speed.Speed)
		}
		f.States[w.State]++
		f.InFlight += w.InFlight
		if w.State == stateTrusted {
			f.Trusted++
			f.Running += w.Running.Or(0)
			f.Waiting += w.Waiting.Or(0)
			depth += float64(w.DepthNow.Or(0))
		}
	}
	if f.Trusted > 0 {
		f.MeanDepth = depth / float64(f.Trusted)
	}
	for i, t := range p.tracks {
		w := &s.Workers[i]
		dropping := t.dropping(w.Ranks, s.At)
		if w.State != stateTrusted {
			continue
		}
		w.Notes = notes(w, f, s.Window, speeds[w.ID].Requests, dropping)
		if len(w.Notes) > 0 {
			w.Level = Warn
			f.Attention++
		}
	}
	s.Headline, s.Level = headline(f, s.Workers)
	if h.config.Notice != nil {
		if notice := h.config.Notice(); notice != "" {
			s.Headline += " " + notice
			if Warn.worse(s.Level) {
				s.Level = Warn
			}
		}
	}
	return p
}

// whyOut returns what the host says of a worker that it has taken out.
func (h *Handler) whyOut(w *load.Worker) string {
	if h.config.WhyOut == nil {
		return ""
	}
	return h.config.WhyOut(w.ID())
}

// joined is both of two reasons, where there are two.
func joined(a, b string) string {
	if a != "" && b != "" {
		return a + "; " + b
	}
	return a + b
}

// learned fills in what the policy knows, and returns what it knows of each worker.
func (h *Handler) learned(s *Status) map[string]selector.WorkerSpeed {
	if h.config.Policy == nil {
		if len(s.Picks) > 0 {
			s.Policy = s.Picks[0].Policy
		}
		return nil
	}
	policy := h.config.Policy()
	if policy == nil {
		return nil
	}
	s.Policy = policy.Name()
	learner, ok := policy.(selector.Learner)
	if !ok {
		return nil
	}
	learned := learner.Learned()
	speeds := make(map[string]selector.WorkerSpeed, len(learned.Speeds))
	for _, speed := range learned.Speeds {
		speeds[speed.Worker] = speed
	}
	learned.Speeds = nil
	for _, x := range []float64{learned.Prompt, learned.Replicas, learned.Others, learned.Away} {
		if !finite(x) {
			return speeds
		}
	}
	s.Learned = &learned
	return speeds
}

func (w *Worker) describe(t *track, fleetRate float64) {
	w.WorkerStatus, w.read = t.w.Status(), time.Now()
	w.State = stateOf(w.Healthy, w.Aside, w.Why)
	w.Level, w.Advice = adviceFor(w.State)
	w.PickRate = t.rate
	if fleetRate > 0 {
		w.Share = t.rate / fleetRate
	}
	var running, waiting, tokens int64
	var usage float64
	var reports, tokensKnown, usageKnown bool
	for i := range w.Ranks {
		r := w.Ranks[i].Report
		if r == nil {
			continue
		}
		reports = true
		running, waiting = add(running, r.Running), add(waiting, r.Waiting)
		if n, ok := r.WaitingTokens.Get(); ok {
			tokens, tokensKnown = add(tokens, n), true
		}
		if u, ok := kvUsage(r); ok {
			usage, usageKnown = max(usage, u), true
		}
	}
	if reports {
		w.Running, w.Waiting = load.Known(running), load.Known(waiting)
	}
	if tokensKnown {
		w.WaitingTokens = load.Known(tokens)
	}
	if usageKnown {
		w.KVUsage = load.Known(usage)
	}
	w.DepthNow = depthNow(&w.WorkerStatus)
}

func kvUsage(r *load.Report) (float64, bool) {
	if usage, ok := r.KVUsage.Get(); ok {
		return usage, true
	}
	used, ok := r.KVUsed.Get()
	capacity, also := r.KVCapacity.Get()
	if !ok || !also || capacity == 0 {
		return 0, false
	}
	return float64(used) / float64(capacity), true
}

// add adds counts, which are not negative, and stops at the largest.
func add(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// dropping reports whether messages of the worker were dropped of late. What was dropped
// while nobody looked may be long ago.
func (t *track) dropping(ranks []load.RankStatus, now time.Time) bool {
	var drops uint64
	for i := range ranks {
		for _, n := range ranks[i].Dropped {
			drops += n
		}
	}
	if drops > t.drops && now.Sub(t.counted) < dropsRecent {
		t.dropped = now
	}
	t.drops, t.counted = drops, now
	return !t.dropped.IsZero() && now.Sub(t.dropped) < dropsRecent
}

// withHistoryLocked returns a copy of workers of the newest picture with their history.
func (h *Handler) withHistoryLocked(workers []Worker) []Worker {
	of := make(map[string]*track, len(workers))
	for _, t := range h.now.tracks {
		of[t.w.ID()] = t
	}
	out := make([]Worker, len(workers))
	copy(out, workers)
	for i := range out {
		out[i].History = h.historyLocked(of[out[i].ID])
	}
	return out
}

// MarshalJSON encodes what is unknown as null.
func (s History) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 4*len(s)+2)
	b = append(b, '[')
	for i, n := range s {
		if i > 0 {
			b = append(b, ',')
		}
		if n == unknown {
			b = append(b, "null"...)
		} else {
			b = strconv.AppendInt(b, int64(n), 10)
		}
	}
	return append(b, ']'), nil
}

// UnmarshalJSON decodes what MarshalJSON encodes.
func (s *History) UnmarshalJSON(b []byte) error {
	var list []*int32
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&list); err != nil {
		return err
	}
	*s = make(History, len(list))
	for i, n := range list {
		(*s)[i] = unknown
		if n != nil {
			(*s)[i] = *n
		}
	}
	return nil
}
