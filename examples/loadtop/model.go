package main

import (
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/plimsoll-go/plimsoll/load"
)

// model is what is on the screen. Only the program's own loop touches it.
type model struct {
	look  func() picture
	every time.Duration

	width, height int

	picture picture
	past    past // of engines and of ranks

	order   order
	reverse bool
	filter  string
	typing  bool // the filter
	paused  bool
	help    bool

	chosen string // id of an engine
	moved  bool   // by the user: it stays with the engine, wherever that is sorted to
	top    int    // first line of the list on the screen
	inside bool   // the ranks of the chosen one are shown
	below  int    // lines that are scrolled past there
}

func newModel(look func() picture, o options) *model {
	return &model{look: look, every: o.every, order: o.sort, width: 80, height: 24, past: make(past)}
}

// lookMsg says that it is time to look again.
type lookMsg struct{}

func (m *model) Init() tea.Cmd {
	return func() tea.Msg { return lookMsg{} }
}

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case lookMsg:
		if !m.paused {
			m.take(m.look())
		}
		return m, tea.Tick(m.every, func(time.Time) tea.Msg { return lookMsg{} })
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		if m.key(msg) {
			return m, tea.Quit
		}
	}
	m.settle()
	return m, nil
}

// take makes a picture the one that is shown.
func (m *model) take(p picture) {
	m.picture = p
	rows := engineRows(&p)
	for i := range p.Workers {
		for rank := range p.Workers[i].Ranks {
			rows = append(rows, rankRow(&p.Workers[i], rank))
		}
	}
	m.past.take(rows)
	m.settle()
}

func engineRows(p *picture) []row {
	rows := make([]row, len(p.Workers))
	for i := range p.Workers {
		rows[i] = engineRow(&p.Workers[i])
	}
	return rows
}

// rows are the lines of the list, sorted and filtered.
func (m *model) rows() []row {
	rows := engineRows(&m.picture)
	if m.filter != "" {
		want := strings.ToLower(m.filter)
		kept := rows[:0]
		for _, r := range rows {
			if strings.Contains(strings.ToLower(r.name), want) || strings.Contains(strings.ToLower(r.trouble), want) {
				kept = append(kept, r)
			}
		}
		rows = kept
	}
	sorted(rows, m.order, m.reverse)
	return rows
}

// at returns where the chosen engine stands among the rows, and -1 if it does not.
func (m *model) at(rows []row) int {
	for i := range rows {
		if rows[i].key == m.chosen {
			return i
		}
	}
	return -1
}

// engine returns the status of the chosen engine; nil if there is none.
func (m *model) engine() *load.WorkerStatus {
	for i := range m.picture.Workers {
		if m.picture.Workers[i].ID == m.chosen {
			return &m.picture.Workers[i]
		}
	}
	return nil
}

// settle keeps what is chosen and what is shown among what is there.
func (m *model) settle() {
	if m.inside {
		if m.engine() == nil {
			m.inside = false // it is gone
		}
		m.below = min(max(m.below, 0), max(len(m.ranksView(m.width))-m.space(), 0))
	}
	rows := m.rows()
	if len(rows) == 0 {
		m.top = 0
		return
	}
	at := m.at(rows)
	if at < 0 || !m.moved {
		at = min(max(m.top, 0), len(rows)-1)
		m.chosen = rows[at].key
	}
	space := m.space()
	m.top = min(max(m.top, at-space+1), at)
	m.top = max(min(m.top, len(rows)-space), 0)
}

// space is how many lines the list has.
func (m *model) space() int { return max(m.height-chrome, 1) }

// key acts on a key and reports whether it was the last one.
func (m *model) key(msg tea.KeyPressMsg) (quit bool) {
	key := msg.String()
	if key == "ctrl+c" {
		return true
	}
	if m.typing {
		m.typed(key, msg.Text)
		return false
	}
	if m.help {
		m.help = false
		return key == "q"
	}
	switch key {
	case "q":
		return true
	case "?", "h":
		m.help = true
	case "p", "space":
		m.paused = !m.paused
	case "esc":
		if m.inside {
			m.inside = false
		} else {
			m.filter = ""
		}
	case "enter", "right", "l":
		if m.engine() != nil {
			m.inside, m.moved, m.below = true, true, 0
		}
	case "left", "backspace":
		m.inside = false
	case "s", "S":
		step := 1
		if key == "S" {
			step = len(orders) - 1
		}
		m.order = order((int(m.order) + step) % len(orders))
		m.reverse = false
	case "r":
		m.reverse = !m.reverse
	case "/":
		m.typing, m.inside = true, false
	default:
		m.move(key)
	}
	return false
}

func (m *model) typed(key, text string) {
	switch key {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		_, size := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-size]
	default:
		m.filter += clean(text)
	}
}

// move goes up and down: among the engines, or through the text about one.
func (m *model) move(key string) {
	step := map[string]int{
		"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -m.space(), "pgdown": m.space(),
		"home": -1 << 30, "g": -1 << 30, "end": 1 << 30, "G": 1 << 30,
	}[key]
	if m.inside {
		m.below += step // settle puts it right
		return
	}
	if rows := m.rows(); step != 0 && len(rows) > 0 {
		m.moved = true
		m.chosen = rows[min(max(m.at(rows)+step, 0), len(rows)-1)].key
	}
}
