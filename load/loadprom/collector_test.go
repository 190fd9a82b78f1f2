package loadprom

import (
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/selector"
)

func TestAWorkerWithAllThereIs(t *testing.T) {
	table, clock := newTestTable()
	w, feed := reporting(t, table, "a",
		load.Report{
			Running: 3, Waiting: 2, WaitingTokens: load.Known[int64](700), MaxRunning: load.Known[int64](256),
			KVUsage: load.Known(.25), PrefillTokens: load.Known[int64](9000), PrefillBusyUS: load.Known[int64](1_500_000),
		},
		load.Report{Running: 1, KVUsed: load.Known[int64](30), KVCapacity: load.Known[int64](40)},
	)
	clock.advance(2 * time.Second)
	mustPut(t, feed, 1, load.Report{Running: 1, KVUsed: load.Known[int64](30), KVCapacity: load.Known[int64](40), KVUsage: load.Known(7.)})
	feed.Drop(0, "truncated", errors.New("short"))
	feed.Drop(1, "truncated", errors.New("short"))
	feed.Drop(1, "seq_size", errors.New("no number"))
	clock.advance(time.Second)

	started := w.Reserve(1, 100)
	started.FirstToken()
	sent := w.Reserve(load.NoRank, 50)
	sent.Dispatched()
	defer started.Done()
	defer sent.Done()
	w.Reserve(load.NoRank, 1).Done()

	scrape(t, New(table, Config{})).check(t, `
		plimsoll_workers 1
		plimsoll_trusted_workers 1
		plimsoll_untrusted_workers{reason="booting"} 0
		plimsoll_untrusted_workers{reason="dead"} 0
		plimsoll_untrusted_workers{reason="never_reported"} 0
		plimsoll_untrusted_workers{reason="no_answer"} 0
		plimsoll_untrusted_workers{reason="no_feed"} 0
		plimsoll_untrusted_workers{reason="not_publishing"} 0
		plimsoll_untrusted_workers{reason="stale"} 0
		plimsoll_report_window_seconds 5
		plimsoll_omitted_workers 0
		plimsoll_omitted_ranks 0

		plimsoll_worker_healthy{worker="a"} 1
		plimsoll_worker_set_aside{worker="a"} 0
		plimsoll_worker_trusted{worker="a"} 1
		plimsoll_worker_untrusted{reason="booting",worker="a"} 0
		plimsoll_worker_untrusted{reason="dead",worker="a"} 0
		plimsoll_worker_untrusted{reason="never_reported",worker="a"} 0
		plimsoll_worker_untrusted{reason="no_answer",worker="a"} 0
		plimsoll_worker_untrusted{reason="no_feed",worker="a"} 0
		plimsoll_worker_untrusted{reason="not_publishing",worker="a"} 0
		plimsoll_worker_untrusted{reason="stale",worker="a"} 0
		plimsoll_worker_ranks{worker="a"} 2
		plimsoll_worker_depth_requests{worker="a"} 6
		plimsoll_worker_report_age_seconds{worker="a"} 3
		plimsoll_worker_in_flight_requests{worker="a"} 2
		plimsoll_worker_uncounted_requests{worker="a"} 2
		plimsoll_worker_unstarted_requests{worker="a"} 1
		plimsoll_worker_pending_prompt_tokens{worker="a"} 50
		plimsoll_worker_picks_total{worker="a"} 3
		plimsoll_worker_leaked_picks_total{worker="a"} 0
		plimsoll_worker_reports_total{worker="a"} 3
		plimsoll_worker_flawed_reports_total{worker="a"} 1
		plimsoll_worker_dropped_messages_total{reason="truncated",worker="a"} 2
		plimsoll_worker_dropped_messages_total{reason="seq_size",worker="a"} 1

		plimsoll_rank_running_requests{rank="0",worker="a"} 3
		plimsoll_rank_waiting_requests{rank="0",worker="a"} 2
		plimsoll_rank_waiting_prompt_tokens{rank="0",worker="a"} 700
		plimsoll_rank_max_running_requests{rank="0",worker="a"} 256
		plimsoll_rank_kv_usage_ratio{rank="0",worker="a"} 0.25
		plimsoll_rank_prefill_tokens_total{rank="0",worker="a"} 9000
		plimsoll_rank_prefill_busy_seconds_total{rank="0",worker="a"} 1.5
		plimsoll_rank_report_age_seconds{rank="0",worker="a"} 3
		plimsoll_rank_in_flight_requests{rank="0",worker="a"} 0
		plimsoll_rank_running_requests{rank="1",worker="a"} 1
		plimsoll_rank_waiting_requests{rank="1",worker="a"} 0
		plimsoll_rank_kv_usage_ratio{rank="1",worker="a"} 0.75
		plimsoll_rank_report_age_seconds{rank="1",worker="a"} 1
		plimsoll_rank_in_flight_requests{rank="1",worker="a"} 1
	`)
}

func TestAWorkerOfWhichNothingIsKnown(t *testing.T) {
	table, _ := newTestTable()
	table.Add("a", "")
	got := scrape(t, New(table, Config{}))
	got.of("plimsoll_rank_").checkNone(t)
	for _, absent := range []string{"_depth_", "_age_", "_uncounted_", "_worker_ranks", "_dropped_", "_speed_", "_ask_failures"} {
		got.of(absent).checkNone(t)
	}
	for _, zero := range []string{"in_flight_requests", "unstarted_requests", "pending_prompt_tokens", "picks_total", "reports_total"} {
		got.of("plimsoll_worker_"+zero).check(t, `plimsoll_worker_`+zero+`{worker="a"} 0`)
	}
}

func TestAnEmptyTable(t *testing.T) {
	table, _ := newTestTable()
	got := scrape(t, New(table, Config{}))
	got.of("worker=").checkNone(t)
	got.of("plimsoll_workers").check(t, `plimsoll_workers 0`)
	got.of("plimsoll_trusted_workers").check(t, `plimsoll_trusted_workers 0`)
}

func TestOfAStaleReportOnlyTheAgeIsLeft(t *testing.T) {
	table, clock := newTestTable()
	report := load.Report{
		Running: 3, WaitingTokens: load.Known[int64](7), MaxRunning: load.Known[int64](8), KVUsage: load.Known(.5),
		PrefillTokens: load.Known[int64](1), PrefillBusyUS: load.Known[int64](1),
	}
	_, feed := reporting(t, table, "a", report, report)
	clock.advance(testWindow)
	scrape(t, New(table, Config{})).of("plimsoll_worker_trusted").check(t, `plimsoll_worker_trusted{worker="a"} 1`)

	clock.advance(1)
	mustPut(t, feed, 1, load.Report{Running: 4})
	clock.advance(time.Second - 1)
	got := scrape(t, New(table, Config{}))
	got.of("plimsoll_rank_").check(t, `
		plimsoll_rank_report_age_seconds{rank="0",worker="a"} 6
		plimsoll_rank_in_flight_requests{rank="0",worker="a"} 0
		plimsoll_rank_report_age_seconds{rank="1",worker="a"} 0.999999999
		plimsoll_rank_in_flight_requests{rank="1",worker="a"} 0
		plimsoll_rank_running_requests{rank="1",worker="a"} 4
		plimsoll_rank_waiting_requests{rank="1",worker="a"} 0
	`)
	got.of("depth").checkNone(t)
	got.of("worker_report_age").check(t, `plimsoll_worker_report_age_seconds{worker="a"} 6`)
	got.of("trusted", `"stale"`).check(t, `
		plimsoll_untrusted_workers{reason="stale"} 1
		plimsoll_worker_untrusted{reason="stale",worker="a"} 1
	`)
}

func TestEveryReasonIsTold(t *testing.T) {
	table, clock := newTestTable()
	reporting(t, table, "stale", load.Report{})
	clock.advance(testWindow + 1)
	reporting(t, table, "booting", load.Report{KVCapacity: load.Known[int64](0)})
	reporting(t, table, "trusted", load.Report{})
	table.Add("never_reported", "").Advertise(2)
	table.Add("no_feed", "")
	table.Add("no_answer", "").SetNoAnswer("refused")
	table.Add("not_publishing", "").SetNotPublishing("no load port")
	dead, err := load.NewConnector(table.Add("dead", ""), load.ConnectorConfig{Ranks: 1})
	if err != nil {
		t.Fatal(err)
	}
	dead.Fail(errors.New("it said so"))

	got := scrape(t, New(table, Config{}))
	for _, w := range table.Status() {
		isOne := got.of("plimsoll_worker_untrusted", fmt.Sprintf("worker=%q", w.ID))
		if len(isOne) != len(reasons) {
			t.Errorf("%s has %d of %d reasons", w.ID, len(isOne), len(reasons))
		}
		for name, v := range isOne {
			if want := strings.Contains(name, fmt.Sprintf("reason=%q", w.ID)); want != (v == 1) {
				t.Errorf("%s %v", name, v)
			}
		}
	}
	if len(reasons) != len(table.Status())-1 {
		t.Errorf("%d reasons, and workers for %d", len(reasons), len(table.Status())-1)
	}
	for _, r := range reasons {
		name := fmt.Sprintf("plimsoll_untrusted_workers{reason=%q}", r.why)
		if got[name] != 1 {
			t.Errorf("%s %v", name, got[name])
		}
	}
	got.of("plimsoll_worker_healthy", `"dead"`).check(t, `plimsoll_worker_healthy{worker="dead"} 0`)
}

// An idle rank says nothing, and what it said last is overruled: it has no age to worry about.
func TestAQuietRankHasNoAge(t *testing.T) {
	table, clock := newTestTable()
	c, err := load.NewConnector(table.Add("a", ""), load.ConnectorConfig{Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	for rank, id := range []string{"x", "y"} {
		r, err := c.ReserveRank(id, rank, 0)
		if err != nil {
			t.Fatal(err)
		}
		r.Dispatched()
		if err := c.Observe(load.Batch{Rank: rank, HasLoad: true, Load: load.Report{Running: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Observe(load.Batch{Rank: 1, HasLoad: true, Load: load.Report{Running: 1}, Finished: [][]byte{[]byte("y")}}); err != nil {
		t.Fatal(err)
	}
	clock.advance(time.Hour)
	got := scrape(t, New(table, Config{}))
	got.of("age_seconds").check(t, `
		plimsoll_worker_report_age_seconds{worker="a"} 3600
		plimsoll_rank_report_age_seconds{rank="0",worker="a"} 3600
	`)
	got.of("running").check(t, `
		plimsoll_rank_running_requests{rank="0",worker="a"} 1
		plimsoll_rank_running_requests{rank="1",worker="a"} 0
	`)
	got.of("plimsoll_worker_trusted").check(t, `plimsoll_worker_trusted{worker="a"} 1`)
}

func TestARemovedWorkerHasNoSeries(t *testing.T) {
	table, _ := newTestTable()
	w, feed := reporting(t, table, "a", load.Report{Running: 3})
	reporting(t, table, "b", load.Report{})
	feed.Drop(0, "truncated", errors.New("short"))
	w.Reserve(load.NoRank, 0).Done()
	config := learned(selector.Learned{Speeds: []selector.WorkerSpeed{{Worker: "a", Speed: 2, Requests: 9}, {Worker: "b", Speed: 1, Requests: 9}}})
	c := New(table, config)
	if got := scrape(t, c).of(`worker="a"`); len(got) < 20 || len(got.of("speed")) != 2 {
		t.Fatalf("before its removal it has\n%s", got)
	}

	table.Remove(w)
	scrape(t, c).of(`worker="a"`).checkNone(t) // though the policy has not heard of it

	reporting(t, table, "a", load.Report{})
	got := scrape(t, c)
	got.of("picks_total", `worker="a"`).check(t, `
		plimsoll_worker_picks_total{worker="a"} 0
		plimsoll_worker_leaked_picks_total{worker="a"} 0
	`)
	got.of("dropped").checkNone(t)
}

//go:noinline
func dropPick(w *load.Worker) { w.Reserve(load.NoRank, 0) }

func TestALeakedPickIsCounted(t *testing.T) {
	table, _ := newTestTable()
	w := table.Add("a", "")
	dropPick(w)
	for range 2000 {
		if w.InFlight() == 0 {
			break
		}
		runtime.GC()
		runtime.Gosched()
	}
	scrape(t, New(table, Config{})).of("_picks_total").check(t, `
		plimsoll_worker_picks_total{worker="a"} 1
		plimsoll_worker_leaked_picks_total{worker="a"} 1
	`)
}

func TestAsideAndUnhealthyWorkers(t *testing.T) {
	table, _ := newTestTable()
	table.Add("a", "").SetAside()
	table.Add("b", "").SetHealthy(false)
	got := scrape(t, New(table, Config{}))
	got.of("set_aside").check(t, `
		plimsoll_worker_set_aside{worker="a"} 1
		plimsoll_worker_set_aside{worker="b"} 0
	`)
	got.of("healthy").check(t, `
		plimsoll_worker_healthy{worker="a"} 1
		plimsoll_worker_healthy{worker="b"} 0
	`)
}

// One label that is not UTF-8 fails a whole scrape, and so do two series that are one.
func TestIDsThatNoLabelCanHold(t *testing.T) {
	table, _ := newTestTable()
	long := strings.Repeat("é", maxLabel)
	for _, id := range []string{"", "\xff", "\xfe", long + "1", long + "2", "a\nb\"{}"} {
		reporting(t, table, id, load.Report{})
	}
	got := scrape(t, New(table, Config{})).of("plimsoll_worker_healthy")
	if len(got) != 6 {
		t.Fatalf("of 6 workers there are\n%s", got)
	}
	for name := range got {
		if len(name) > len(`plimsoll_worker_healthy{worker=""}`)+2*maxLabel {
			t.Errorf("%d bytes of label", len(name))
		}
	}
	for _, id := range []string{"a", strings.Repeat("x", maxLabel)} {
		if labelOf(id) != id {
			t.Errorf("%q became %q", id, labelOf(id))
		}
	}
	if got := labelOf(long); len(got) > maxLabel || !regexp.MustCompile(`^é+~[0-9a-f]{16}$`).MatchString(got) {
		t.Errorf("the label is %q", got)
	}
}

// A host may count drops under whatever it likes.
func TestDropReasonsAreBounded(t *testing.T) {
	table, _ := newTestTable()
	_, feed := reporting(t, table, "a", load.Report{})
	c := New(table, Config{Subscriber: func() Counts { return Counts{Dropped: map[string]uint64{"truncated": 3, "it's\xff": 2}} }})
	feed.Drop(0, "truncated", nil)
	scrape(t, c).of("dropped").check(t, `
		plimsoll_worker_dropped_messages_total{reason="truncated",worker="a"} 1
		plimsoll_subscriber_dropped_messages_total{reason="truncated"} 3
		plimsoll_subscriber_dropped_messages_total{reason="other"} 2
	`)
	for i := range 1000 {
		feed.Drop(0, fmt.Sprintf("reason_%d", i), nil)
	}
	got := scrape(t, c).of("worker_dropped")
	if len(got) != c.reasons.most+1 || got[`plimsoll_worker_dropped_messages_total{reason="truncated",worker="a"}`] != 1 {
		t.Errorf("there are %d:\n%s", len(got), got)
	}
	sum := 0.
	for _, v := range got {
		sum += v
	}
	if sum != 1001 {
		t.Errorf("%v drops, want 1001", sum)
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		ranks []int
		most  int
		want  int
	}{
		{nil, 10, 10},
		{[]int{1, 2, 3}, 10, 10},
		{[]int{1, 2, 3}, 6, 6},
		{[]int{1, 2, 3}, 5, 2},
		{[]int{8, 8, 8, 1024}, 100, 76},
		{[]int{1024, 1, 1}, 3, 1},
		{[]int{4, 4}, 1, 0},
		{[]int{4}, -1, 0},
	} {
		workers := make([]load.WorkerStatus, len(c.ranks))
		for i, n := range c.ranks {
			workers[i].Ranks = make([]load.RankStatus, n)
		}
		got := share(workers, c.most)
		if got != c.want {
			t.Errorf("%v of %v: %d each, want %d", c.most, c.ranks, got, c.want)
		}
		sum := 0
		for _, n := range c.ranks {
			sum += min(n, got)
		}
		if sum > max(c.most, 0) {
			t.Errorf("%v of %v: %d all together", c.most, c.ranks, sum)
		}
	}
}

func TestAnEngineWithAThousandRanksTakesNoneFromOthers(t *testing.T) {
	table, _ := newTestTable()
	reporting(t, table, "a", make([]load.Report, 1024)...)
	reporting(t, table, "b", make([]load.Report, 8)...)
	reporting(t, table, "c", make([]load.Report, 8)...)
	got := scrape(t, New(table, Config{MaxRanks: 100, MaxWorkers: 2}))
	for id, want := range map[string]int{"a": 92, "b": 8, "c": 0} {
		if n := len(got.of("rank_running", fmt.Sprintf("worker=%q", id))); n != want {
			t.Errorf("%s has series of %d ranks, want %d", id, n, want)
		}
	}
	got.of("omitted").check(t, `
		plimsoll_omitted_workers 1
		plimsoll_omitted_ranks 940
	`)
	got.of(`"c"`).checkNone(t)
	got.of("plimsoll_workers").check(t, `plimsoll_workers 3`)

	none := scrape(t, New(table, Config{MaxRanks: -1, MaxWorkers: -1}))
	none.of("worker=").checkNone(t)
	none.of("omitted").check(t, `
		plimsoll_omitted_workers 3
		plimsoll_omitted_ranks 1040
	`)
}

// Reports, picks, removals and scrapes, all at once. Each scrape is whole: one that saw a
// worker twice, or half of it, would fail.
func TestConcurrentScrapes(t *testing.T) {
	table := load.NewTable(load.Config{})
	policy := selector.LeastWork(selector.LeastWorkConfig{})
	picker := selector.New(table, selector.Config{Policy: policy})
	picks, firstToken := new(Picks), NewFirstToken()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(picks, firstToken, NewPickDuration(), New(table, Config{Policy: func() selector.Policy { return policy }}))

	var writers, scrapers sync.WaitGroup
	stop := make(chan struct{})
	loop := func(f func(i int)) {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					f(i)
				}
			}
		})
	}
	for worker := range 4 {
		id := fmt.Sprint(worker)
		w, feed := reporting(t, table, id, make([]load.Report, 2)...)
		loop(func(i int) {
			if i%50 == 49 {
				table.Remove(w)
				w = table.Add(id, "")
				feed = w.Advertise(2 + i%3)
			}
			if feed.Put(i%2, load.Report{Running: int64(i)}) != nil {
				feed.Drop(0, "truncated", nil)
			}
		})
	}
	loop(func(int) {
		pick, err := picker.Pick(selector.Request{PromptTokens: load.Known[int64](10)})
		if err != nil {
			picks.Failed()
			return
		}
		picks.Observe(pick)
		pick.FirstToken()
		firstToken.Observe(.1)
		pick.Done()
	})
	for range 4 {
		scrapers.Go(func() {
			for range 50 {
				got, err := registry.Gather()
				if err != nil {
					t.Error(err)
				}
				byName := make(map[string]int)
				for _, f := range got {
					byName[f.GetName()] = len(f.Metric)
				}
				if byName["plimsoll_worker_healthy"] != byName["plimsoll_worker_picks_total"] {
					t.Errorf("%d workers and %d with picks", byName["plimsoll_worker_healthy"], byName["plimsoll_worker_picks_total"])
				}
			}
		})
	}
	scrapers.Wait()
	close(stop)
	writers.Wait()
}

func TestNamesAndHelp(t *testing.T) {
	table, _ := newTestTable()
	problems, err := testutil.CollectAndLint(everything(t, table))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// The list in doc.go is what people read, and it is whole.
func TestTheListOfMetrics(t *testing.T) {
	var want []string
	for name, labels := range known() {
		want = append(want, fmt.Sprint(name, slices.Sorted(slices.Values(labels))))
	}
	slices.Sort(want)
	for file, line := range map[string]string{
		"doc.go":    `(?m)^//\t(plimsoll_\w+)(\{[\w,]+\})? `,
		"README.md": "(?m)^\\| `(plimsoll_\\w+)` \\|[^|]+\\|([^|]*)\\|",
	} {
		var got []string
		for _, found := range regexp.MustCompile(line).FindAllStringSubmatch(read(t, file), -1) {
			labels := strings.FieldsFunc(found[2], func(r rune) bool { return strings.ContainsRune("{,} ", r) })
			slices.Sort(labels)
			got = append(got, fmt.Sprint(found[1], labels))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s has\n%s\nand there are\n%s", file, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// A metric that is never told has a line in the documentation and none anywhere else.
func TestEveryMetricIsTold(t *testing.T) {
	table, _ := newTestTable()
	got := scrape(t, everything(t, table))
	for name := range known() {
		if len(got.of(name)) == 0 {
			t.Errorf("no series of %s", name)
		}
	}
}

func TestTwoTablesInOneRegistry(t *testing.T) {
	table, _ := newTestTable()
	registry := prometheus.NewRegistry()
	for _, fleet := range []string{"a", "b"} {
		prometheus.WrapRegistererWith(prometheus.Labels{"fleet": fleet}, registry).MustRegister(everything(t, table))
	}
	if got, err := testutil.GatherAndCount(registry, "plimsoll_workers"); err != nil || got != 2 {
		t.Errorf("two tables in one registry: %d, %v", got, err)
	}
}
