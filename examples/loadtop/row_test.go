package main

import (
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/discovery"
	"github.com/plimsoll-go/plimsoll/load"
)

func askedOf(id string, polls uint64, failure string) discovery.WorkerStatus {
	return discovery.WorkerStatus{ID: id, Poll: discovery.PollStatus{Active: true, Polls: polls, Error: failure}}
}

func n(v int64) load.Maybe[int64]     { return load.Known(v) }
func f(v float64) load.Maybe[float64] { return load.Known(v) }

// reported is the status of an engine with these fresh reports.
func reported(id string, reports ...load.Report) load.WorkerStatus {
	w := load.WorkerStatus{ID: id, Healthy: true, Trusted: true, Advertised: len(reports)}
	for rank := range reports {
		w.Ranks = append(w.Ranks, load.RankStatus{Rank: rank, Fresh: true, Age: 200 * time.Millisecond, Report: &reports[rank]})
	}
	return w
}

func TestAnEngineIsTheSumOfItsRanks(t *testing.T) {
	w := reported("a",
		load.Report{Running: 3, Waiting: 1, WaitingTokens: n(100), KVUsage: f(.2)},
		load.Report{Running: 1, WaitingTokens: n(5), KVUsage: f(.75)})
	w.Ranks[0].Age = 3 * time.Second
	want := row{key: "a", name: "a", running: 4, waiting: 1, tokens: n(105), kv: f(.75), age: f(3)}
	if got := engineRow(&w); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	w.Ranks[1].Report.WaitingTokens = load.Maybe[int64]{}
	if got := engineRow(&w).tokens; got != (load.Maybe[int64]{}) {
		t.Errorf("the tokens of one of two ranks are %v", got)
	}
}

func TestAnEngineWithAPartMissingHasNoDepth(t *testing.T) {
	w := reported("a", load.Report{Running: 3}, load.Report{Running: 4})
	w.Trusted, w.Why, w.Reason = false, load.Stale, "stale: rank 1"
	w.Ranks[1].Fresh, w.Ranks[1].Age = false, time.Minute
	got := engineRow(&w)
	if got.trouble != "stale: rank 1" || got.depth() != (load.Maybe[int64]{}) || got.age != f(60) {
		t.Errorf("got %+v", got)
	}
	if r := rankRow(&w, 1); r.trouble != "stale" || r.age != f(60) {
		t.Errorf("the stale rank is %+v", r)
	}
	if r := rankRow(&w, 0); r.trouble != "" || r.depth() != n(3) {
		t.Errorf("the other one is %+v", r)
	}
	w.Reason = ""
	if got := engineRow(&w).trouble; got != "stale" {
		t.Errorf("without words for it the trouble is %q", got)
	}
}

func TestWhatIsWrongWithARank(t *testing.T) {
	w := reported("a", load.Report{KVCapacity: n(0)})
	w.Ranks = append(w.Ranks, load.RankStatus{Rank: 1}, load.RankStatus{Rank: 2, LastDrop: "too short\x1b[2J"})
	for i, want := range []string{"booting: its KV capacity is 0", "never reported", "never reported: too short [2J"} {
		if got := rankRow(&w, i).trouble; got != want {
			t.Errorf("rank %d: %q, want %q", i, got, want)
		}
	}
}

func TestOrders(t *testing.T) {
	rows := []row{
		{name: "a", running: 5, waiting: 0, tokens: n(7), kv: f(.1), age: f(.3)},
		{name: "b", running: 1, waiting: 9, kv: f(.9), age: f(.1)},
		{name: "c", trouble: "stale", running: 99, age: f(30)},
		{name: "d", running: 5, waiting: 0, tokens: n(9), age: f(.2)},
		{name: "e", trouble: "no answer"},
	}
	for _, c := range []struct {
		by   order
		want string
		back string
	}{
		{byTrouble, "cebad", "adbce"},
		{byDepth, "badce", "adbce"},
		{byWaiting, "badce", "adbce"},
		{byTokens, "dabce", "adbce"},
		{byKV, "bacde", "abcde"},
		{byAge, "cadbe", "bdace"},
		{byName, "abcde", "edcba"},
	} {
		for _, reverse := range []bool{false, true} {
			want := c.want
			if reverse {
				want = c.back
			}
			got := ""
			sorted(rows, c.by, reverse)
			for _, r := range rows {
				got += r.name
			}
			if got != want {
				t.Errorf("by %v, reverse %v: %s, want %s", c.by, reverse, got, want)
			}
		}
	}
}

func TestThePast(t *testing.T) {
	p := make(past)
	for i := range memory + 5 {
		p.take([]row{{key: "a", running: int64(i)}, {key: "b", trouble: "stale"}})
	}
	if h := p["a"]; len(h) != memory || h[memory-1] != n(memory+4) {
		t.Errorf("%d looks, the newest %v", len(h), h[len(h)-1])
	}
	if h := p["b"]; h[0] != (load.Maybe[int64]{}) {
		t.Errorf("what was not known is %v", h[0])
	}
	if got := p.most(10); got != memory+4 {
		t.Errorf("the deepest was %d", got)
	}
	p.take([]row{{key: "b"}})
	if _, ok := p["a"]; ok || p.most(1) != 0 {
		t.Errorf("who is gone is remembered: %v", p)
	}
}

func TestNumbersAreNarrow(t *testing.T) {
	for v, want := range map[int64]string{0: "0", 9999: "9999", 10_000: "10k", 99_949: "100k", 1_234_567: "1.2M", 999_600: "1.0M", 5e9: "5.0G", 1<<63 - 1: "9.2E"} {
		if got := count(v); got != want {
			t.Errorf("%d is %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0.0s", .26: "0.3s", 9.97: "10s", 99: "99s", 100: "2m", 7200: "2h", 864000: "10d", 1e12: "12M"} {
		if got := maybeAge(f(v)); !strings.HasPrefix(got, want) || len(got) > 5 {
			t.Errorf("%v s are %s, want %s", v, got, want)
		}
	}
	for _, got := range []string{maybeAge(load.Maybe[float64]{}), maybeShare(load.Maybe[float64]{}), maybeCount(load.Maybe[int64]{})} {
		if got != unknown {
			t.Errorf("what is not known is %q", got)
		}
	}
	if got := maybeShare(f(.456)); got != "46%" {
		t.Errorf("0.456 is %s", got)
	}
}

func TestBars(t *testing.T) {
	for _, c := range []struct {
		running, waiting, deepest int64
		want                      string
	}{
		{0, 0, 10, "          "},
		{10, 0, 10, "██████████"},
		{5, 5, 10, "█████▒▒▒▒▒"},
		{0, 10, 10, "▒▒▒▒▒▒▒▒▒▒"},
		{1, 0, 10_000, "█         "},            // there, if little
		{9_000, 1, 10_000, "████████▒ "},        // one that waits is seen
		{1, 9_000, 10_000, "█▒▒▒▒▒▒▒▒ "},        // and one that runs
		{1 << 62, 1 << 61, 1, "███████▒▒▒"},     // more than the deepest
		{1<<63 - 1, 1<<62 - 1, 0, "          "}, // and what would overflow
	} {
		runs, waits, rest := bar(c.running, c.waiting, c.deepest, 10)
		if got := runs + waits + rest; got != c.want {
			t.Errorf("%d and %d of %d: %q, want %q", c.running, c.waiting, c.deepest, got, c.want)
		}
	}
}

func TestSparks(t *testing.T) {
	if got, want := spark([]load.Maybe[int64]{n(99), n(0), {}, n(4), n(8)}, 8, 4), "▁·▅█"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := spark([]load.Maybe[int64]{n(0)}, 0, 3), "  ▁"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestShortNames(t *testing.T) {
	for _, c := range []struct {
		name  string
		width int
		want  string
	}{
		{"http://10.0.0.1:30000", 20, "10.0.0.1:30000"},
		{"https://10.0.0.1:30000", 30, "https://10.0.0.1:30000"},
		{"http://engine-17.default.svc:30000", 16, "engine-…vc:30000"},
		{"http://10.0.0.1:30000", 3, "10.0.0.1:30000"}, // whoever draws it cuts it
	} {
		if got := short(c.name, c.width); got != c.want {
			t.Errorf("%s in %d: %q, want %q", c.name, c.width, got, c.want)
		}
	}
}
