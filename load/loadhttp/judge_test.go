package loadhttp

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

func TestEveryStateHasALevelAndSaysWhatToDo(t *testing.T) {
	known := make(map[string]bool)
	for _, s := range states {
		known[s.name] = true
		if (s.advice == "") != (s.level == OK) || s.words == "" || verbs[s.name] == "" {
			t.Errorf("%s: level %s, words %q, advice %q, verb %q", s.name, s.level, s.words, s.advice, verbs[s.name])
		}
	}
	for why := load.Trusted; why <= load.Dead; why++ {
		if !known[why.String()] {
			t.Errorf("nothing is said of %v", why)
		}
	}
	if why := (load.Dead + 1).String(); why != "unknown" {
		t.Errorf("there is a reason %s that this test does not know", why)
	}
	if level, _ := adviceFor("unheard_of"); level != Warn {
		t.Errorf("a state that is not known is %s", level)
	}
}

func TestTheStateIsTheFirstThingInTheWay(t *testing.T) {
	for _, tt := range []struct {
		healthy, aside bool
		why            load.Why
		want           string
	}{
		{true, false, load.Trusted, "trusted"},
		{true, false, load.Booting, "booting"},
		{true, true, load.Trusted, "set_aside"},
		{true, true, load.Stale, "set_aside"},
		{false, true, load.Stale, "unhealthy"},
		{false, false, load.Trusted, "unhealthy"},
		{false, true, load.Dead, "dead"},
	} {
		if got := stateOf(tt.healthy, tt.aside, tt.why); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

func TestWhatIsWorthALookAboutATrustedWorker(t *testing.T) {
	const window = 5 * time.Second
	fleet := &Fleet{Trusted: 3, MeanDepth: 10}
	fine := func() *Worker {
		w := &Worker{DepthNow: load.Known[int64](28), Speed: load.Known(0.67), KVUsage: load.Known(0.949)}
		w.Depth, w.Age, w.InFlight, w.SinceReport = load.Known[int64](0), window*3/4, 5, 2
		return w
	}
	for _, tt := range []struct {
		name   string
		change func(w *Worker, f *Fleet)
		want   string
	}{
		{"at every limit", func(*Worker, *Fleet) {}, ""},
		{"deep", func(w *Worker, _ *Fleet) { w.DepthNow = load.Known[int64](29) }, "deep: 2.9 times as deep as the average worker"},
		{"deep, of two", func(w *Worker, f *Fleet) { w.DepthNow, f.Trusted = load.Known[int64](99), 2 }, ""},
		{"slow", func(w *Worker, _ *Fleet) { w.Speed = load.Known(0.5) }, "slow: first tokens take 2 times as long as on the average worker"},
		{"of no known speed", func(w *Worker, _ *Fleet) { w.Speed = load.Maybe[float64]{} }, ""},
		{"of no speed", func(w *Worker, _ *Fleet) { w.Speed = load.Known(0.0) }, "slow: first tokens take 1e+03 times as long as on the average worker"},
		{"full", func(w *Worker, _ *Fleet) { w.KVUsage = load.Known(0.95) }, "kv_full: KV cache is 95 % full: requests wait for room"},
		{"late", func(w *Worker, _ *Fleet) { w.Age += 100 * time.Millisecond }, "late: last report is 3.9s old, and counts until 5s"},
		{"late, and all ours", func(w *Worker, _ *Fleet) { w.Age, w.Owned = time.Hour, true }, ""},
		{"blind", func(w *Worker, _ *Fleet) { w.SinceReport = 1 }, "blind: reports no request at all, and 4 of ours are there"},
		{"all at once", func(w *Worker, _ *Fleet) {
			w.DepthNow, w.Speed, w.KVUsage, w.Age = load.Known[int64](60), load.Known(0.1), load.Known(1.0), window
		}, "deep slow kv_full late"},
	} {
		w, f := fine(), *fleet
		tt.change(w, &f)
		got := notes(w, &f, window, sureOfSpeed, false)
		var text string
		if len(got) == 1 {
			text = got[0].Name + ": " + got[0].Text
		} else {
			var names []string
			for _, n := range got {
				names = append(names, n.Name)
			}
			text = strings.Join(names, " ")
		}
		if text != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, text, tt.want)
		}
	}
	slow := fine()
	slow.Speed = load.Known(0.1)
	if got := notes(slow, fleet, window, sureOfSpeed-1, false); got != nil {
		t.Errorf("a speed that is not sure yet: %v", got)
	}
}

func TestTheHeadlineSaysWhatIsWrongAndWhere(t *testing.T) {
	for _, tt := range []struct {
		states map[string]int
		look   int
		want   string
		level  Level
	}{
		{nil, 0, "There are no workers: nothing can be picked.", Bad},
		{map[string]int{"trusted": 1}, 0, "The one worker is trusted.", OK},
		{map[string]int{"trusted": 40}, 0, "All 40 workers are trusted.", OK},
		{map[string]int{"trusted": 40}, 2, "All 40 workers are trusted; 2 trusted and worth a look.", Warn},
		{map[string]int{"trusted": 2}, 1, "All 2 workers are trusted; 1 trusted and worth a look (trusted-0: deep).", Warn},
		{map[string]int{"trusted": 3, "stale": 1}, 0, "1 of 4 workers: 1 stale (stale-0).", Bad},
		{map[string]int{"trusted": 3, "unhealthy": 2, "booting": 1}, 0, "3 of 6 workers: 2 out of rotation, 1 booting (booting-0).", Out},
		{map[string]int{"set_aside": 1}, 0, "1 of 1 worker: 1 set aside.", Warn},
		{map[string]int{"dead": 1, "stale": 30, "no_answer": 2, "trusted": 7}, 1,
			"33 of 40 workers: 1 dead (dead-0), 30 stale, 2 without an answer; 1 trusted and worth a look (trusted-0: deep).", Bad},
	} {
		f := &Fleet{States: tt.states, Attention: tt.look}
		var workers []Worker
		for state, n := range tt.states {
			for i := range n {
				w := Worker{State: state}
				w.ID = fmt.Sprintf("%s-%d", state, i)
				if state == "trusted" && i < tt.look {
					w.Notes = []Note{{"deep", ""}}
				}
				workers = append(workers, w)
			}
			f.Workers += n
		}
		if got, level := headline(f, workers); got != tt.want || level != tt.level {
			t.Errorf("%v: %s, %q, want %s, %q", tt.states, level, got, tt.level, tt.want)
		}
	}
}

func TestDropsAreNewsOnlyWhileSomebodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, table := newTest(t, Config{})
		_, f := worker(t, table, "a", 1, 0)
		drop := func() { f.Drop(0, "decode", errors.New("running is -1")) }
		named := func() string {
			put(t, f, 0, load.Report{Running: 1})
			advance(time.Second)
			var names []string
			for _, n := range status(t, h, "").Workers[0].Notes {
				names = append(names, n.Name)
			}
			return strings.Join(names, " ")
		}
		drop()
		if got := named(); got != "" {
			t.Errorf("what was dropped before anybody looked: %q", got)
		}
		drop()
		if got := named(); got != "dropping" {
			t.Errorf("what was dropped since the last look: %q", got)
		}
		advance(dropsRecent - 2*time.Second)
		if got := named(); got != "dropping" {
			t.Errorf("a minute less a second later: %q", got)
		}
		if got := named(); got != "" {
			t.Errorf("a minute later: %q", got)
		}
		drop()
		advance(dropsRecent)
		if got := named(); got != "" {
			t.Errorf("what was dropped at some time since a look long ago: %q", got)
		}
	})
}

func TestWithoutAPolicyTheNameIsThatOfTheLastPick(t *testing.T) {
	h, table := newTest(t, Config{})
	worker(t, table, "a", 1, 0)
	h.sample()
	if s := status(t, h, ""); s.Policy != "" || s.Learned != nil {
		t.Errorf("without a pick it is %q, learned %v", s.Policy, s.Learned)
	}
	picker := selector.New(table, selector.Config{Policy: selector.RoundRobin(), Explain: h.Explain, ExplainEvery: 1})
	pick, err := picker.Pick(selector.Request{})
	if err != nil {
		t.Fatal(err)
	}
	pick.Done()
	h.sample()
	if s := status(t, h, ""); s.Policy != "round_robin" {
		t.Errorf("after a pick it is %q", s.Policy)
	}
}
