package loadhttp

import (
	"fmt"
	"strings"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
)

// States that are not the name of a load.Why, or stand before it.
const (
	stateTrusted   = "trusted"
	stateDead      = "dead"
	stateUnhealthy = "unhealthy"
	stateAside     = "set_aside"
)

// stateOf names the first of the things that keep requests from coming to a worker by
// its report.
func stateOf(healthy, aside bool, why load.Why) string {
	switch {
	case why == load.Dead:
		return stateDead
	case !healthy:
		return stateUnhealthy
	case aside:
		return stateAside
	}
	return why.String()
}

// states has what there is to say of each state, the worst first.
var states = []struct {
	name   string
	level  Level
	words  string // in a headline, after a number of workers
	advice string
}{
	{stateDead, Bad, "dead",
		"The engine is said to have died, and is out of picks for good. Start it anew, and add it anew."},
	{"stale", Bad, "stale",
		"It did report and has fallen silent. Is the process alive, or hanging in a step? Does its load socket still reach this gateway? " +
			"Until it reports again its depth is estimated from own requests."},
	{"never_reported", Bad, "never heard",
		"Its load socket is known and nothing has come from it. Is the port open from here, on the host that it advertises? " +
			"With ranks on several nodes only those on the URL's own host can be reached."},
	{"no_answer", Bad, "without an answer",
		"It could not be asked what it publishes. Is the engine up, and is its HTTP port open from here? It is asked again by itself."},
	{stateUnhealthy, Out, "out of rotation",
		"The host has taken it out: it is drained, or fails its health checks. It gets no requests."},
	{stateAside, Warn, "set aside",
		"It refused or failed a request, and gets none until its next report or for some seconds. If it comes back to this: look into its log."},
	{"booting", Warn, "booting",
		"It has no KV cache yet. If this takes longer than loading the model should: look into its log."},
	{"not_publishing", Warn, "not publishing",
		"It answers and publishes no load: start it with --kv-events-config and --load-publish-endpoint auto, or have it polled."},
	{"no_feed", Warn, "without a feed",
		"Nothing is known of its load yet. It was added just now, or nothing feeds it: is discovery running?"},
	{stateTrusted, OK, "trusted", ""},
}

func adviceFor(state string) (Level, string) {
	for _, s := range states {
		if s.name == state {
			return s.level, s.advice
		}
	}
	return Warn, "" // a load.Why that is newer than this package
}

// Limits past which a trusted worker is worth a look.
const (
	kvFull      = 0.95
	slowSpeed   = 2.0 / 3
	sureOfSpeed = 20 // requests
	deepFactor  = 2  // mean depths
	deepLeast   = 8  // requests above them: a mean of 1 is doubled by chance
	deepAmong   = 3  // trusted workers
	blindLeast  = 4  // requests
	dropsRecent = time.Minute
	// An engine that takes its time for a step is silent meanwhile, and half a window
	// of that is nothing.
	lateAt = 0.75 // of the window
)

// notes says what is remarkable about a trusted worker, the most telling first.
func notes(w *Worker, f *Fleet, window time.Duration, requests float64, dropping bool) (notes []Note) {
	note := func(name, format string, args ...any) {
		notes = append(notes, Note{name, fmt.Sprintf(format, args...)})
	}
	if depth := float64(w.DepthNow.Or(0)); f.Trusted >= deepAmong && depth > deepFactor*f.MeanDepth+deepLeast {
		note("deep", "%.3g times as deep as the average worker", depth/max(f.MeanDepth, 1))
	}
	if speed, ok := w.Speed.Get(); ok && speed < slowSpeed && requests >= sureOfSpeed {
		note("slow", "first tokens take %.3g times as long as on the average worker", 1/max(speed, 1e-3))
	}
	if usage := w.KVUsage.Or(0); usage >= kvFull {
		note("kv_full", "KV cache is %.0f %% full: requests wait for room", 100*usage)
	}
	if !w.Owned && float64(w.Age) > lateAt*float64(window) {
		note("late", "last report is %v old, and counts until %v", w.Age.Round(100*time.Millisecond), window)
	}
	if dropping {
		note("dropping", "some of its messages are dropped: %s", lastDrop(w.Ranks))
	}
	if reported := w.InFlight - w.SinceReport; !w.Owned && w.Depth.Or(1) == 0 && reported >= blindLeast {
		note("blind", "reports no request at all, and %d of ours are there", reported)
	}
	return notes
}

func lastDrop(ranks []load.RankStatus) string {
	for _, r := range ranks {
		if r.LastDrop != "" {
			return fmt.Sprintf("rank %d, %s", r.Rank, r.LastDrop)
		}
	}
	return "see its ranks"
}

// headline says the whole in a sentence or two, and how bad it is.
func headline(f *Fleet, workers []Worker) (string, Level) {
	if f.Workers == 0 {
		return "There are no workers: nothing can be picked.", Bad
	}
	level := OK
	var wrong []string
	var bad int
	for _, s := range states {
		n := f.States[s.name]
		if n == 0 || s.level == OK {
			continue
		}
		bad += n
		if s.level.worse(level) {
			level = s.level
		}
		words := fmt.Sprintf("%d %s", n, s.words)
		if n == 1 && f.Workers > 1 {
			words += " (" + inState(workers, s.name) + ")"
		}
		wrong = append(wrong, words)
	}
	var b strings.Builder
	switch {
	case bad == 0 && f.Workers == 1:
		b.WriteString("The one worker is trusted")
	case bad == 0:
		fmt.Fprintf(&b, "All %d workers are trusted", f.Workers)
	default:
		fmt.Fprintf(&b, "%d of %s: %s", bad, count(f.Workers, "worker"), strings.Join(wrong, ", "))
	}
	if f.Attention > 0 {
		if level == OK {
			level = Warn
		}
		fmt.Fprintf(&b, "; %d trusted and worth a look", f.Attention)
		if f.Attention == 1 {
			for i := range workers {
				if w := &workers[i]; len(w.Notes) > 0 {
					fmt.Fprintf(&b, " (%s: %s)", w.ID, w.Notes[0].Name)
				}
			}
		}
	}
	b.WriteByte('.')
	return b.String(), level
}

func inState(workers []Worker, state string) string {
	for i := range workers {
		if workers[i].State == state {
			return workers[i].ID
		}
	}
	return ""
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
