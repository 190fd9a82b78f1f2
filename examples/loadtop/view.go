package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
)

// chrome is the lines around the list: what it is about, the head of the table, the keys.
const chrome = 3

var (
	strong = ansi.NewStyle().Bold()
	faint  = ansi.NewStyle().Faint()
	good   = ansi.NewStyle().ForegroundColor(ansi.Green)
	middle = ansi.NewStyle().ForegroundColor(ansi.Yellow)
	bad    = ansi.NewStyle().ForegroundColor(ansi.Red)
	chosen = ansi.NewStyle().Reverse(true)
)

func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "loadtop"
	return v
}

// lines is the whole screen, of which no line is wider and which is not higher than it.
func (m *model) lines() []string {
	var lines []string
	switch {
	case m.help:
		lines = slices.Clone(helpLines)
	case m.inside:
		lines = m.inView()
	default:
		lines = m.listView()
	}
	lines = lines[:min(len(lines), max(m.height, 0))]
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], max(m.width, 0), "")
	}
	return lines
}

func (m *model) listView() []string {
	rows := m.rows()
	l := m.layout(rows)
	lines := []string{m.title(), strong.Styled(l.head(m.order, m.reverse))}
	deepest := int64(1)
	for i := range rows {
		deepest = max(deepest, rows[i].depth().Or(0))
	}
	scale := max(m.past.most(l.past), 1)
	for i := m.top; i < min(m.top+m.space(), len(rows)); i++ {
		lines = append(lines, l.line(&rows[i], deepest, scale, m.past[rows[i].key], rows[i].key == m.chosen))
	}
	if len(rows) == 0 {
		lines = append(lines, "  "+m.nothing())
	}
	return m.fill(lines, m.keys("q quit  ↑↓ choose  enter ranks  s sort  r reverse  / filter  p pause  ? help"))
}

// nothing says why the list is empty.
func (m *model) nothing() string {
	if m.filter != "" {
		return "no engine has " + fmt.Sprintf("%q", m.filter) + " in its name or its trouble (esc shows all)"
	}
	for _, s := range m.picture.Fleet.Sources {
		if s.Problem != "" {
			return bad.Styled(clean(s.Source + ": " + s.Problem))
		}
	}
	return "no engines"
}

// fill puts the keys into the last line of the screen.
func (m *model) fill(lines []string, keys string) []string {
	lines = lines[:min(len(lines), max(m.height-1, 0))]
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	return append(lines, keys)
}

func (m *model) keys(usual string) string {
	if m.typing {
		return "filter: " + m.filter + "█  " + faint.Styled("enter keeps it, esc shows all")
	}
	return faint.Styled(usual)
}

func (m *model) title() string {
	trusted, running, waiting := 0, int64(0), int64(0)
	for i := range m.picture.Workers {
		if w := &m.picture.Workers[i]; w.Trusted {
			r := engineRow(w)
			trusted, running, waiting = trusted+1, add(running, r.running), add(waiting, r.waiting)
		}
	}
	all := len(m.picture.Workers)
	known := good
	if trusted < all {
		known = bad
	}
	engines := "engines"
	if all == 1 {
		engines = "engine"
	}
	s := strong.Styled("loadtop") + fmt.Sprintf("  %d %s, ", all, engines) + known.Styled(fmt.Sprintf("%d known", trusted)) +
		fmt.Sprintf("  running %s  waiting %s  by %s", count(running), count(waiting), m.order)
	if m.reverse {
		s += " reversed"
	}
	if n := len(m.picture.Fleet.Refused); n > 0 {
		s += "  " + bad.Styled(fmt.Sprintf("%d refused", n))
	}
	if m.filter != "" && !m.typing {
		s += "  " + middle.Styled(fmt.Sprintf("filter %q", m.filter))
	}
	if m.paused {
		s += "  " + middle.Styled("paused")
	}
	return s
}

// layout is how wide the columns are that give way.
type layout struct{ name, bar, past int }

// What does not give way, each with the blank before it.
const (
	runWide, waitWide, tokensWide, kvWide, ageWide = 6, 6, 7, 5, 6

	fixed = runWide + waitWide + tokensWide + kvWide + ageWide
)

// layout gives names what they need, up to two fifths, and shares the rest out.
func (m *model) layout(rows []row) layout {
	longest := 8
	for i := range rows {
		longest = max(longest, ansi.StringWidth(short(rows[i].name, 1000)))
	}
	left := m.width - fixed
	l := layout{name: min(longest+2, max(left*2/5, 16))}
	left -= l.name
	if left >= 8 {
		l.bar = min(left/2, 40)
		l.past = min(left-l.bar-2, memory)
	}
	return l
}

func (l layout) head(o order, reverse bool) string {
	mark := func(title string, by ...order) string {
		if !slices.Contains(by, o) {
			return title
		}
		if reverse != (o == byName) {
			return title + "▲"
		}
		return title + "▼"
	}
	s := fit("  "+mark("ENGINE", byName, byTrouble), l.name)
	if l.bar > 0 {
		s += " " + fit(mark("LOAD", byDepth), l.bar)
	}
	s += right("RUN", runWide) + right(mark("WAIT", byWaiting), waitWide) + right(mark("TOKENS", byTokens), tokensWide) +
		right(mark("KV", byKV), kvWide) + right(mark("AGE", byAge), ageWide)
	if l.past > 0 {
		s += " " + right("HISTORY", l.past)
	}
	return s
}

// line draws a row. Colours come after the widths.
func (l layout) line(r *row, deepest, scale int64, h []load.Maybe[int64], isChosen bool) string {
	s := fit("  "+short(r.name, l.name-2), l.name)
	if isChosen {
		s = chosen.Styled(fit("> "+short(r.name, l.name-2), l.name))
	}
	age := right(maybeAge(r.age), ageWide)
	if r.trouble != "" {
		width := fixed - ageWide - 1
		if l.bar > 0 {
			width += l.bar + 1
		}
		s += " " + bad.Styled(fit(r.trouble, width)) + bad.Styled(age)
	} else {
		if l.bar > 0 {
			runs, waits, rest := bar(r.running, r.waiting, deepest, l.bar)
			s += " " + good.Styled(runs) + middle.Styled(waits) + rest
		}
		s += right(count(r.running), runWide)
		s += coloured(right(count(r.waiting), waitWide), r.waiting > 0, middle)
		s += right(maybeCount(r.tokens), tokensWide)
		s += coloured(right(maybeShare(r.kv), kvWide), r.kv.Or(0) >= .9, bad)
		s += age
	}
	if l.past > 0 {
		s += " " + spark(h, scale, l.past)
	}
	return s
}

func coloured(s string, is bool, style ansi.Style) string {
	if is {
		return style.Styled(s)
	}
	return s
}

// inView shows one engine.
func (m *model) inView() []string {
	text := m.ranksView(m.width)
	from := min(m.below, len(text))
	lines := append([]string{m.title()}, text[from:min(from+m.space()+1, len(text))]...)
	return m.fill(lines, m.keys("q quit  ↑↓ scroll  esc back  p pause  ? help"))
}

// ranksView is all there is to tell of the chosen engine.
func (m *model) ranksView(width int) []string {
	w := m.engine()
	if w == nil {
		return nil
	}
	rows := make([]row, len(w.Ranks))
	deepest, scale := int64(1), int64(1)
	for i := range w.Ranks {
		rows[i] = rankRow(w, i)
		deepest = max(deepest, rows[i].depth().Or(0))
		for _, d := range m.past[rows[i].key] {
			scale = max(scale, d.Or(0))
		}
	}
	lines := []string{strong.Styled(clean(w.ID))}
	if w.Trusted {
		lines[0] += "  " + good.Styled("known")
	} else {
		lines = append(lines, wrapped(bad, engineRow(w).trouble, width)...)
	}
	l := m.layout(rows)
	lines = append(lines, "", strong.Styled(strings.Replace(l.head(-1, false), "ENGINE", "RANK  ", 1)))
	for i := range rows {
		lines = append(lines, l.line(&rows[i], deepest, scale, m.past[rows[i].key], false))
	}
	lines = append(lines, "")
	for i := range m.picture.Fleet.Workers {
		if a := &m.picture.Fleet.Workers[i]; a.ID == w.ID {
			lines = append(lines, m.asked(a, width)...)
		}
	}
	for i := range w.Ranks {
		lines = append(lines, oddities(&w.Ranks[i], width)...)
	}
	return lines
}

// asked tells what discovery knows of an engine.
func (m *model) asked(a *discovery.WorkerStatus, width int) []string {
	ago := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return maybeAge(load.Known(max(m.picture.Time.Sub(t).Seconds(), 0))) + " ago"
	}
	says := strings.ReplaceAll(a.Outcome.String(), "_", " ")
	if a.Reason != "" {
		says += ": " + a.Reason
	}
	lines := wrapped(ansi.NewStyle(), clean(fmt.Sprintf("/server_info  asked %s: %s", ago(a.LastAsk), says)), width)
	if a.Error != "" {
		lines = append(lines, wrapped(bad, clean(fmt.Sprintf("              %d failures in a row: %s", a.Failures, a.Error)), width)...)
	}
	for _, note := range a.Notes {
		lines = append(lines, wrapped(middle, clean("              "+note), width)...)
	}
	if a.Poll.Active {
		text, style := fmt.Sprintf("/v1/loads     polled %s, %s times", ago(a.Poll.Last), count(int64(a.Poll.Polls))), ansi.NewStyle()
		if a.Poll.Error != "" {
			text, style = text+": "+a.Poll.Error, bad
		}
		lines = append(lines, wrapped(style, clean(text), width)...)
	}
	for _, e := range a.Endpoints {
		text, style := fmt.Sprintf("rank %-4d     %s, heard %s", e.Rank, e.Addr, ago(e.Heard)), ansi.NewStyle()
		if e.Error != "" {
			text, style = text+": "+e.Error, bad
		}
		lines = append(lines, wrapped(style, clean(text), width)...)
	}
	return lines
}

// oddities tells what was wrong with what a rank sent.
func oddities(r *load.RankStatus, width int) []string {
	var lines []string
	name := fmt.Sprintf("rank %-4d     ", r.Rank)
	if len(r.Dropped) > 0 {
		var counts []string
		for _, reason := range slices.Sorted(maps.Keys(r.Dropped)) {
			counts = append(counts, fmt.Sprintf("%s %s", count(int64(r.Dropped[reason])), reason))
		}
		lines = append(lines, wrapped(middle, clean(name+"dropped "+strings.Join(counts, ", ")+"; last: "+r.LastDrop), width)...)
	}
	if r.Flawed > 0 {
		lines = append(lines, wrapped(middle, fmt.Sprintf("%s%s of %s reports had a number that cannot be", name, count(int64(r.Flawed)), count(int64(r.Reports))), width)...)
	}
	return lines
}

// wrapped breaks a text into lines, which are coloured one by one.
func wrapped(style ansi.Style, text string, width int) []string {
	lines := strings.Split(ansi.Wrap(text, max(width, 20), ""), "\n")
	for i := range lines {
		if len(style) > 0 {
			lines[i] = style.Styled(lines[i])
		}
	}
	return lines
}

var helpLines = []string{
	strong.Styled("loadtop") + "  the load of inference engines, by their own reports",
	"",
	"  ↑ ↓ j k          choose an engine; pgup, pgdown, home, end too",
	"  enter            its ranks, and what is wrong with them; esc goes back",
	"  s S              sort by the next column, or the one before",
	"  r                the other way round",
	"  /                show those that have a text in their name or their trouble",
	"  p                pause",
	"  q                quit",
	"",
	"  LOAD             requests at the engine: " + good.Styled("█ running") + ", " + middle.Styled("▒ waiting"),
	"  RUN WAIT         the same in numbers, everybody's, not only yours",
	"  TOKENS           prompt tokens that wait to be computed",
	"  KV               share of the KV cache in use, of the fullest rank",
	"  AGE              of the oldest rank's newest report",
	"  HISTORY          of RUN and WAIT together; · where it was not known",
	"  ?                in a column: this engine does not tell",
	"",
	"  An engine in red is one whose load is not known, and why: a rank is silent, say,",
	"  and the sum of the others would look like less than there is.",
	"",
	faint.Styled("any key goes back"),
}
