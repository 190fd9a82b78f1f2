package loadhttp

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// track is what is remembered of one incarnation of a worker. Guarded by Handler.mu.
type track struct {
	w       *load.Worker
	sampled uint64 // the newest sample that it was in

	state string
	since time.Time // of state; zero: since before we looked

	depth  History // a ring: that of sample i at i modulo its length
	picked uint64
	rate   float64 // of picks, per second

	drops            uint64    // messages dropped, when they were last counted
	counted, dropped time.Time // when that was, and when they were seen to rise
}

// rateOver is the time over which the rate of picks is averaged.
const rateOver = 15 * time.Second

// sample takes one sample of everything.
func (h *Handler) sample() {
	workers := h.table.Workers()
	view := h.table.View() // the later one, and so without those that are removed just now
	now := time.Now()

	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.seq == 0
	h.seq++
	elapsed := now.Sub(h.at)
	h.at = now
	var news []Event
	happened := func(w *load.Worker, kind, from, text string) {
		level, _ := adviceFor(kind)
		switch kind {
		case "added", "removed", "replaced":
			level = OK
		}
		news = append(news, Event{Worker: w.ID(), Kind: kind, Level: level, Text: text, from: from})
	}

	newcomers := make(map[string]*track)
	for _, w := range workers {
		t := h.tracks[w]
		isNew := t == nil
		if isNew {
			t = &track{w: w, depth: make(History, h.config.History)}
			for i := range t.depth {
				t.depth[i] = unknown
			}
			h.tracks[w] = t
			newcomers[w.ID()] = t
		}
		t.sampled = h.seq
		state, depth, picked := look(view, w)
		t.depth[h.seq%uint64(len(t.depth))] = depth
		t.count(picked, elapsed, isNew)
		switch {
		case isNew && !first:
			t.since = now // and what it is then goes without saying
		case !isNew && state != t.state:
			reason := ""
			if state == stateUnhealthy {
				reason = h.whyOut(w)
			} else if state != stateTrusted {
				reason = w.Status().Reason
			}
			text := t.changed(state, reason, now)
			t.since = now
			happened(w, state, t.state, text)
		}
		t.state = state
	}
	for w, t := range h.tracks {
		if t.sampled == h.seq {
			continue
		}
		delete(h.tracks, w)
		if newcomers[w.ID()] != nil {
			delete(newcomers, w.ID())
			happened(w, "replaced", "", verbs["replaced"])
		} else {
			happened(w, "removed", "", verbs["removed"])
		}
	}
	if !first {
		for _, t := range newcomers {
			happened(t.w, "added", "", verbs["added"])
		}
	}
	h.events.add(now, news)
	h.publishLocked()
}

// look returns the state of a worker in a view, the depth that a pick would go by, and how
// many picks there have been. It takes no lock unless the worker is out of the view.
func look(v load.View, w *load.Worker) (state string, depth int32, picked uint64) {
	i, ok := v.Position(w)
	if !ok {
		st := w.Status()
		return stateOf(st.Healthy, st.Aside, st.Why), sampled(depthNow(&st)), st.Picked
	}
	e := v.At(i)
	_, seen := e.InFlight()
	var now load.Maybe[int64]
	if e.Trusted() {
		d, _ := e.DepthNow()
		now = load.Known(d)
	}
	return stateOf(true, i >= v.Len(), e.Why()), sampled(now), uint64(seen)
}

func sampled(depth load.Maybe[int64]) int32 { return int32(min(depth.Or(unknown), math.MaxInt32)) }

// depthNow is load.Entry.DepthNow of a status.
func depthNow(st *load.WorkerStatus) load.Maybe[int64] {
	depth, ok := st.Depth.Get()
	if !ok || st.Owned {
		return st.Depth
	}
	return load.Known(add(depth, st.SinceReport))
}

// count takes in how many picks there have been, a time after the last sample.
func (t *track) count(picked uint64, elapsed time.Duration, isNew bool) {
	if !isNew && elapsed > 0 {
		now := float64(picked-t.picked) / elapsed.Seconds()
		t.rate += (now - t.rate) * (1 - math.Exp(-elapsed.Seconds()/rateOver.Seconds()))
	}
	t.picked = picked
}

// changed says what the change to another state is.
func (t *track) changed(state, reason string, now time.Time) string {
	lasted := ""
	if !t.since.IsZero() {
		lasted = fmt.Sprintf(" for %v", now.Sub(t.since).Round(time.Second))
	}
	if state != stateTrusted {
		text := became(state, reason)
		if t.state == stateTrusted || t.state == stateAside || t.state == stateUnhealthy {
			return text
		}
		return strings.Replace(text, "became untrusted", "still untrusted", 1)
	}
	switch t.state {
	case stateUnhealthy:
		return "back in rotation, was out" + lasted
	case stateAside:
		return "gets requests again, was set aside" + lasted
	case "stale":
		return "trusted again, was stale" + lasted
	}
	return "trusted now: every rank reports"
}

// became says that a worker is in a state that is not trusted, and why.
func became(state, reason string) string {
	text, ok := verbs[state]
	if !ok {
		text = "became untrusted: " + state
	}
	switch {
	case reason == "" || state == stateAside:
		return text
	case state == "stale" || state == "never_reported" || state == "booting":
		return "became untrusted: " + reason // which says so itself, and of which ranks
	}
	return text + ": " + reason
}

// historyLocked returns the ring of a track as it was filled, the oldest first, without what
// was before the first sample.
func (h *Handler) historyLocked(t *track) History {
	n := uint64(len(t.depth))
	out := make(History, 0, n)
	for i := h.seq + 1 - min(h.seq, n); i <= h.seq; i++ {
		out = append(out, t.depth[i%n])
	}
	return out
}

// sortedLocked returns the tracks in the order of their workers' ids.
func (h *Handler) sortedLocked() []*track {
	list := make([]*track, 0, len(h.tracks))
	for _, t := range h.tracks {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *track) int { return cmp.Compare(a.w.ID(), b.w.ID()) })
	return list
}
