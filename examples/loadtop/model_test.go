package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
)

// screen is a model with a picture that the test can change.
type screen struct {
	*model
	t     *testing.T
	shown picture
}

func newScreen(t *testing.T, workers ...load.WorkerStatus) *screen {
	t.Helper()
	s := &screen{t: t, shown: picture{Time: time.Unix(1000, 0), Workers: workers}}
	s.model = newModel(func() picture { return s.shown }, options{every: time.Second})
	s.lookAgain()
	return s
}

func (s *screen) lookAgain() {
	s.t.Helper()
	if _, cmd := s.Update(lookMsg{}); cmd == nil {
		s.t.Fatal("it does not look again")
	}
}

var keys = map[string]tea.KeyPressMsg{
	"up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown}, "pgdown": {Code: tea.KeyPgDown}, "home": {Code: tea.KeyHome}, "end": {Code: tea.KeyEnd},
	"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "backspace": {Code: tea.KeyBackspace}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl},
}

// press presses keys and reports whether the last one ended the program.
func (s *screen) press(names ...string) (quit bool) {
	s.t.Helper()
	for _, name := range names {
		msg, ok := keys[name]
		if !ok {
			r := []rune(name)[0]
			msg = tea.KeyPressMsg{Code: r, Text: name}
		}
		if msg.String() != name {
			s.t.Fatalf("key %q is %q", name, msg.String())
		}
		_, cmd := s.Update(msg)
		quit = cmd != nil
	}
	return quit
}

// text is what is on the screen, without colours.
func (s *screen) text() string { return ansi.Strip(s.View().Content) }

func (s *screen) has(parts ...string) {
	s.t.Helper()
	for _, part := range parts {
		if !strings.Contains(s.text(), part) {
			s.t.Errorf("no %q on the screen:\n%s", part, s.text())
		}
	}
}

func (s *screen) hasNot(parts ...string) {
	s.t.Helper()
	for _, part := range parts {
		if strings.Contains(s.text(), part) {
			s.t.Errorf("%q is on the screen:\n%s", part, s.text())
		}
	}
}

func silent(id string) load.WorkerStatus {
	return load.WorkerStatus{ID: id, Why: load.NoAnswer, Reason: "connection refused"}
}

func TestTheScreen(t *testing.T) {
	busy := reported("http://10.0.0.1:30000", load.Report{Running: 6, Waiting: 2, WaitingTokens: n(12_345), KVUsage: f(.5)})
	idle := reported("http://10.0.0.2:30000", load.Report{})
	s := newScreen(t, idle, busy, silent("http://10.0.0.3:30000"))
	s.shown.Workers = []load.WorkerStatus{reported("http://10.0.0.2:30000", load.Report{Running: 4}), busy, silent("http://10.0.0.3:30000")}
	s.lookAgain()
	want := strings.Split(strings.Trim(`
loadtop  3 engines, 2 known  running 10  waiting 2  by worst
  ENGINE▼        LOAD                RUN  WAIT TOKENS   KV   AGE         HISTORY
> 10.0.0.3:30000 connection refused                            ?              ··
  10.0.0.1:30000 █████████████▒▒▒▒     6     2    12k  50%  0.2s              ██
  10.0.0.2:30000 █████████             4     0      ?    ?  0.2s              ▁▅
`, "\n"), "\n")
	got := strings.Split(s.text(), "\n")
	for i := range want {
		if strings.TrimRight(got[i], " ") != want[i] {
			t.Errorf("line %d\n%q, want\n%q", i, got[i], want[i])
		}
	}
	if len(got) != 24 || !strings.HasPrefix(got[23], "q quit") {
		t.Errorf("%d lines, the last %q", len(got), got[len(got)-1])
	}
	if v := s.View(); !v.AltScreen {
		t.Error("it does not leave the terminal as it was")
	}
}

func TestNothingToShow(t *testing.T) {
	s := newScreen(t)
	s.has("no engines")
	s.press("up", "down", "enter", "s", "end")
	s.shown.Fleet.Sources = []discovery.SourceStatus{{Source: "file x", Problem: "no such file"}}
	s.lookAgain()
	s.has("file x: no such file")
	s.shown.Workers = []load.WorkerStatus{reported("a", load.Report{})}
	s.shown.Fleet.Refused = []discovery.Refusal{{Worker: "b", Reason: "taken"}}
	s.lookAgain()
	s.has("> a", "1 refused")
}

func TestWhatIsChosenStaysChosen(t *testing.T) {
	depths := func(a, b, c int64) []load.WorkerStatus {
		return []load.WorkerStatus{reported("a", load.Report{Running: a}), reported("b", load.Report{Running: b}), reported("c", load.Report{Running: c})}
	}
	s := newScreen(t, depths(3, 2, 1)...)
	s.has("> a")
	s.shown.Workers = depths(1, 2, 3)
	s.lookAgain()
	s.has("> c") // the first, as long as nobody has moved
	s.press("down")
	s.has("> b")
	s.shown.Workers = depths(1, 3, 2)
	s.lookAgain()
	s.press("up")
	s.has("> b") // which is the first now
	s.press("end")
	s.has("> a")
	s.press("home")
	s.has("> b")
	s.shown.Workers = depths(1, 3, 2)[:1]
	s.lookAgain()
	s.has("> a") // since b is gone
}

func TestALongListScrolls(t *testing.T) {
	var workers []load.WorkerStatus
	for i := range 1000 {
		workers = append(workers, reported(fmt.Sprintf("engine-%04d", i), load.Report{Running: int64(1000 - i)}))
	}
	s := newScreen(t, workers...)
	s.has("> engine-0000", "engine-0020")
	s.hasNot("engine-0021")
	for range 30 {
		s.press("down")
	}
	s.has("> engine-0030", "engine-0010")
	s.hasNot("engine-0009", "engine-0031")
	s.press("pgdown")
	s.has("> engine-0051")
	s.press("end")
	s.has("> engine-0999", "engine-0979")
	s.press("r")
	s.has("> engine-0999", "reversed")
	s.Update(tea.WindowSizeMsg{Width: 80, Height: 8})
	s.has("> engine-0999")
	if got := strings.Count(s.text(), "engine-"); got != 5 {
		t.Errorf("%d engines in 8 lines", got)
	}
}

func TestSorting(t *testing.T) {
	s := newScreen(t,
		reported("a", load.Report{Running: 9, KVUsage: f(.1)}),
		reported("b", load.Report{Waiting: 1, KVUsage: f(.9)}),
		silent("c"))
	first := func() string {
		line := strings.Split(s.text(), "\n")[2]
		return strings.Fields(strings.TrimLeft(line, "> "))[0]
	}
	for _, want := range []struct{ by, first string }{
		{"worst", "c"}, {"depth", "a"}, {"wait", "b"}, {"tokens", "a"}, {"kv", "b"}, {"age", "a"}, {"name", "a"}, {"worst", "c"},
	} {
		s.has("by " + want.by)
		if got := first(); got != want.first {
			t.Errorf("by %s: %s is the first, want %s", want.by, got, want.first)
		}
		s.press("s")
	}
	s.press("S", "S", "r")
	s.has("by name reversed")
	if got := first(); got != "c" {
		t.Errorf("by name reversed: %s", got)
	}
}

func TestFiltering(t *testing.T) {
	s := newScreen(t, reported("blue-1", load.Report{}), reported("blue-2", load.Report{}), silent("red-1"))
	s.press("/", "B", "l", "q") // q does not quit here
	s.has("filter: Blq█", "no engine has")
	s.press("backspace")
	s.has("blue-1", "blue-2")
	s.hasNot("red-1")
	s.press("enter")
	s.has(`filter "Bl"`, "> blue-1")
	s.press("esc")
	s.has("red-1")
	s.press("/", "r", "e", "f", "u", "s", "e", "d", "enter")
	s.has("> red-1") // for what is wrong with it
	s.hasNot("blue")
	s.press("/", "esc")
	s.has("blue-1")
	s.press("/", "backspace", "backspace")
	s.has("blue-1")
	if !s.press("ctrl+c") {
		t.Error("there is no way out of the filter")
	}
}

func TestPausing(t *testing.T) {
	s := newScreen(t, reported("a", load.Report{Running: 1}))
	s.press("p")
	s.shown.Workers = []load.WorkerStatus{reported("a", load.Report{Running: 77})}
	s.lookAgain()
	s.has("paused")
	s.hasNot("77")
	s.press("p")
	s.lookAgain()
	s.has("77")
}

func TestTheRanksOfOne(t *testing.T) {
	w := reported("http://10.0.0.1:30000", load.Report{Running: 3}, load.Report{})
	w.Trusted, w.Why, w.Reason = false, load.Stale, "stale: rank 1 of 2 (7.2s old)"
	w.Ranks[1].Fresh = false
	w.Ranks[1].Dropped, w.Ranks[1].LastDrop = map[string]uint64{"truncated": 3, "tag": 1}, "ends too early"
	w.Ranks[0].Reports, w.Ranks[0].Flawed = 100, 2
	s := newScreen(t, silent("an other one"), w)
	s.shown.Fleet.Workers = []discovery.WorkerStatus{{
		ID: w.ID, Outcome: discovery.OutcomePublishes, LastAsk: time.Unix(990, 0), Failures: 4, Error: "no route to host", Notes: []string{"host not allowed"},
		Endpoints: []discovery.EndpointStatus{{Rank: 0, Addr: "tcp://10.0.0.1:5558", Heard: time.Unix(999, 0)}, {Rank: 1, Addr: "tcp://10.0.0.1:5559", Error: "limit"}},
		Poll:      discovery.PollStatus{Active: true, Polls: 7, Last: time.Unix(998, 0), Error: "status 500"},
	}}
	s.lookAgain()
	s.press("enter")
	s.hasNot("stale") // that is the other one
	s.press("esc", "down", "enter")
	s.has("http://10.0.0.1:30000", "stale: rank 1 of 2 (7.2s old)", "rank 0", "rank 1",
		"asked 10s ago: publishes", "4 failures in a row: no route to host", "host not allowed",
		"polled 2.0s ago, 7 times: status 500",
		"tcp://10.0.0.1:5558, heard 1.0s ago", "tcp://10.0.0.1:5559, heard never: limit",
		"dropped 1 tag, 3 truncated; last: ends too early", "2 of 100 reports had a number that cannot be")

	s.Update(tea.WindowSizeMsg{Width: 80, Height: 6})
	s.hasNot("heard")
	s.press("end")
	s.has("2 of 100")
	s.press("home")
	s.has("stale: rank")
	s.press("esc")
	s.has("ENGINE")

	s.press("enter")
	s.shown.Workers = s.shown.Workers[:1]
	s.lookAgain()
	s.has("ENGINE", "> an other one") // it is gone, and there is nothing of it to show
}

func TestHelpAndQuitting(t *testing.T) {
	s := newScreen(t, reported("a", load.Report{}))
	if s.press("?") {
		t.Error("help ends the program")
	}
	s.has("any key goes back")
	s.Update(tea.WindowSizeMsg{Width: 10, Height: 24})
	s.text()
	s.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	s.has("inference engines") // nothing of it was lost
	s.press("x")
	s.has("> a")
	for _, key := range []string{"q", "ctrl+c"} {
		if !s.press(key) {
			t.Errorf("%s does not end the program", key)
		}
	}
}

// No line is wider than the terminal and none too many, whatever the terminal and whatever
// engines call themselves.
func TestEverySize(t *testing.T) {
	hostile := reported("http://\x1b[2J\x07名前\u202e"+strings.Repeat("x", 300), load.Report{Running: 1<<63 - 1, Waiting: 1<<63 - 1, WaitingTokens: n(1<<63 - 1), KVUsage: f(1)})
	hostile.Ranks[0].LastDrop = "\x1b]0;title\x07" + strings.Repeat("y", 500)
	hostile.Ranks[0].Dropped = map[string]uint64{"\x1b[31m": 1}
	dark := silent("\xff")
	dark.Reason = "\x1b[31mred\n\n\n" + strings.Repeat("z ", 300)
	s := newScreen(t, hostile, dark, reported("c", make([]load.Report, 40)...))
	s.shown.Fleet.Workers = []discovery.WorkerStatus{{ID: hostile.ID, Error: "\x1b[2J" + strings.Repeat("e", 300)}, {ID: "\xff"}, {ID: "c"}}
	for range 100 {
		s.lookAgain()
	}
	views := [][]string{{}, {"enter"}, {"esc", "down", "enter"}, {"esc", "down", "enter"}, {"end"}, {"esc", "/", "名"}, {"esc", "?"}}
	for _, view := range views {
		s.press(view...)
		for _, w := range []int{0, 1, 2, 3, 5, 8, 12, 20, 30, 40, 50, 56, 57, 58, 59, 60, 70, 79, 80, 81, 130} {
			for _, h := range []int{0, 1, 2, 3, 5, 24, 60} {
				s.Update(tea.WindowSizeMsg{Width: w, Height: h})
				content := s.View().Content
				lines := strings.Split(content, "\n")
				if len(lines) > max(h, 1) {
					t.Fatalf("%d lines in %dx%d", len(lines), w, h)
				}
				for _, line := range lines {
					if got := ansi.StringWidth(line); got > w {
						t.Fatalf("%d wide in %dx%d: %q", got, w, h, line)
					}
				}
				if strings.ContainsAny(ansi.Strip(content), "\x07\x1b\u202e") || strings.Contains(content, "\x1b[2J") {
					t.Fatalf("something else than colours in %q", content)
				}
			}
		}
	}
}

// The whole program, on a terminal that is none.
func TestTheProgramRuns(t *testing.T) {
	looked := make(chan struct{}, 100)
	m := newModel(func() picture {
		select {
		case looked <- struct{}{}:
		default:
		}
		return picture{Workers: []load.WorkerStatus{reported("a", load.Report{Running: 1})}}
	}, options{every: time.Millisecond})
	keyboard, _ := io.Pipe()
	defer keyboard.Close()
	p := tea.NewProgram(m, tea.WithInput(keyboard), tea.WithOutput(io.Discard), tea.WithWindowSize(80, 24), tea.WithContext(t.Context()), tea.WithoutSignals())
	done := make(chan error, 1)
	go func() {
		_, err := p.Run()
		done <- err
	}()
	for range 3 {
		<-looked
	}
	p.Send(tea.KeyPressMsg{Code: 'q', Text: "q"})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(m.past["a"]) < 2 {
		t.Errorf("it looked, and remembers %v", m.past)
	}
}
