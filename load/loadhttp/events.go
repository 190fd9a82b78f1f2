package loadhttp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// again is how long an event that happens anew is counted rather than listed:
	// a worker that comes and goes must not push out all else.
	again = 10 * time.Minute
	// many is how many workers the same may happen to in one interval before it is
	// told in one event: a switch that fails takes a rack with it.
	many = 5
)

// events is what happened, the newest last. Guarded by Handler.mu.
type events struct {
	list    []Event
	max     int
	ids     uint64
	changes uint64
}

// add takes in what happened in one interval.
func (e *events) add(now time.Time, news []Event) {
	slices.SortStableFunc(news, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Worker, b.Worker))
	})
	for len(news) > 0 {
		n := 1
		for n < len(news) && news[n].Kind == news[0].Kind {
			n++
		}
		if n > many {
			e.put(now, together(news[:n]))
		} else {
			for _, one := range news[:n] {
				one.Workers = 1
				e.put(now, one)
			}
		}
		news = news[n:]
	}
}

// together makes one event of many of a kind.
func together(same []Event) Event {
	names := make([]string, 0, many)
	for _, one := range same[:many] {
		names = append(names, one.Worker)
	}
	return Event{
		Workers: len(same), Kind: same[0].Kind, Level: same[0].Level,
		Text: fmt.Sprintf("%s: %s and %d more", verbs[same[0].Kind], strings.Join(names, ", "), len(same)-many),
	}
}

func (e *events) put(now time.Time, one Event) {
	e.changes++
	one.change = e.changes
	one.At, one.First, one.Count = now, now, 1
	i := slices.IndexFunc(e.list, func(old Event) bool {
		return one.Worker != "" && old.Worker == one.Worker && old.Kind == one.Kind && old.from == one.from && now.Sub(old.At) < again
	})
	if i >= 0 {
		old := e.list[i]
		one.ID, one.First, one.Count = old.ID, old.First, old.Count+1
		e.list = slices.Delete(e.list, i, i+1)
	} else {
		e.ids++
		one.ID = e.ids
	}
	if len(e.list) == e.max {
		e.list = slices.Delete(e.list, 0, 1)
	}
	e.list = append(e.list, one)
}

// since returns the events that came, or were counted anew, after a change, the
// newest first, and the newest change.
func (e *events) since(change uint64) (list []Event, last uint64) {
	list = []Event{}
	for _, one := range slices.Backward(e.list) {
		if one.change <= change {
			break
		}
		list = append(list, one)
	}
	return list, e.changes
}

// verbs say what happened, by the kind of event.
var verbs = map[string]string{
	"added":          "added",
	"removed":        "removed",
	"replaced":       "added anew, with empty books",
	stateTrusted:     "trusted",
	stateDead:        "the engine died",
	stateUnhealthy:   "taken out of rotation",
	stateAside:       "set aside after a refused or failed request",
	"stale":          "became untrusted: stale",
	"never_reported": "became untrusted: a rank has never reported",
	"booting":        "became untrusted: booting",
	"no_answer":      "became untrusted: no answer",
	"not_publishing": "became untrusted: publishes no load",
	"no_feed":        "became untrusted: nothing feeds it",
}
