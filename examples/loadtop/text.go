package main

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/plimsoll-go/plimsoll/load"
)

// clean makes text that came from elsewhere harmless: an engine's answer may hold what
// would move the cursor or rename the window.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// fit makes text as wide as told, by cutting it or filling it up.
func fit(s string, width int) string {
	if width <= 0 {
		return ""
	}
	s = ansi.Truncate(s, width, "…")
	return s + strings.Repeat(" ", width-ansi.StringWidth(s))
}

// short is a name without what all have in common, cut in the middle if it has to be: engines
// on one host differ at the end, hosts at the beginning.
func short(name string, width int) string {
	name = strings.TrimPrefix(name, "http://")
	if over := ansi.StringWidth(name) - width; over > 0 && width > 4 {
		head := (width - 1) / 2
		return ansi.Truncate(name, head, "") + "…" + ansi.TruncateLeft(name, head+over+1, "")
	}
	return name
}

// right is fit for what stands at the right of its column.
func right(s string, width int) string {
	if width <= 0 {
		return ""
	}
	s = ansi.Truncate(s, width, "…")
	return strings.Repeat(" ", width-ansi.StringWidth(s)) + s
}

// count writes a number in at most five characters.
func count(n int64) string {
	if n < 10_000 {
		return fmt.Sprint(n)
	}
	v := float64(n)
	for _, unit := range "kMGTPE" {
		v /= 1000
		if v < 9.95 {
			return fmt.Sprintf("%.1f%c", v, unit)
		}
		if v < 999.5 {
			return fmt.Sprintf("%.0f%c", v, unit)
		}
	}
	return "lots"
}

// unknown stands for a number that is not known.
const unknown = "?"

func maybeCount(m load.Maybe[int64]) string {
	if n, ok := m.Get(); ok {
		return count(n)
	}
	return unknown
}

func maybeShare(m load.Maybe[float64]) string {
	if v, ok := m.Get(); ok {
		return fmt.Sprintf("%.0f%%", 100*v)
	}
	return unknown
}

// maybeAge writes seconds in at most five characters.
func maybeAge(m load.Maybe[float64]) string {
	v, ok := m.Get()
	switch {
	case !ok:
		return unknown
	case v < 9.95:
		return fmt.Sprintf("%.1fs", v)
	case v < 99.5:
		return fmt.Sprintf("%.0fs", v)
	case v < 99.5*60:
		return fmt.Sprintf("%.0fm", v/60)
	case v < 99.5*3600:
		return fmt.Sprintf("%.0fh", v/3600)
	}
	return fmt.Sprintf("%sd", count(int64(v/86400)))
}

// cells is how many of so many cells a part of the whole takes: none only if it is 0.
func cells(part, whole int64, width int) int {
	if part <= 0 || whole <= 0 || width <= 0 {
		return 0
	}
	return max(int(min(float64(part)/float64(whole), 1)*float64(width)+.5), 1)
}

// bar draws what runs and what waits, of the deepest there is.
func bar(running, waiting, deepest int64, width int) (runs, waits, rest string) {
	depth := add(running, waiting)
	all := cells(depth, deepest, width)
	w := 0
	if waiting > 0 {
		w = min(max(cells(waiting, depth, all), 1), all)
		if running > 0 && w == all && all > 1 {
			w--
		}
	}
	return strings.Repeat("█", all-w), strings.Repeat("▒", w), strings.Repeat(" ", max(width-all, 0))
}

var sparks = []rune("▁▂▃▄▅▆▇█")

// spark draws a history, the newest at the right: nothing where there was none yet, and a
// dot where it was not known.
func spark(h []load.Maybe[int64], deepest int64, width int) string {
	if width <= 0 {
		return ""
	}
	h = h[max(0, len(h)-width):]
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", width-len(h)))
	for _, m := range h {
		n, known := m.Get()
		switch {
		case !known:
			b.WriteRune('·')
		case deepest <= 0:
			b.WriteRune(sparks[0])
		default:
			b.WriteRune(sparks[min(int(min(float64(n)/float64(deepest), 1)*float64(len(sparks))), len(sparks)-1)])
		}
	}
	return b.String()
}
