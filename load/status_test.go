package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheReasonNamesTheRanksThatItIsAbout(t *testing.T) {
	kv := func(capacity int64) Report { return Report{KVCapacity: Known(capacity)} }
	for _, tt := range []struct {
		name string
		make func(t *testing.T, w *Worker, clock *clock)
		why  Why
		want []string // parts of the reason
		not  []string
	}{
		{
			name: "eight ranks advertised and four publishers alive",
			make: func(t *testing.T, w *Worker, _ *clock) {
				f := w.Advertise(8)
				for _, rank := range []int{0, 2, 3, 6} {
					mustPut(t, f, rank, kv(100))
				}
			},
			why:  NeverReported,
			want: []string{"never reported", "rank 1, 4, 5, 7 of 8"},
			not:  []string{"stale", "booting"},
		}, {
			name: "a rank that cannot be dialled counts as advertised",
			make: func(t *testing.T, w *Worker, _ *clock) {
				f := w.Advertise(4)
				for rank := range 3 {
					mustPut(t, f, rank, kv(100))
				}
				f.Drop(3, "undialable", errors.New("port 65536 is out of range"))
			},
			why:  NeverReported,
			want: []string{"rank 3", "port 65536 is out of range", "of 4"},
		}, {
			name: "a rank that has fallen silent, and for how long",
			make: func(t *testing.T, w *Worker, clock *clock) {
				f := w.Advertise(3)
				for rank := range 3 {
					mustPut(t, f, rank, kv(100))
				}
				clock.advance(testWindow)
				mustPut(t, f, 0, kv(100))
				mustPut(t, f, 2, kv(100))
				clock.advance(1500 * time.Millisecond)
			},
			why:  Stale,
			want: []string{"stale", "rank 1 (6.5s old) of 3"},
			not:  []string{"never", "booting"},
		}, {
			name: "ranks that are booting",
			make: func(t *testing.T, w *Worker, _ *clock) {
				f := w.Advertise(3)
				mustPut(t, f, 0, kv(0))
				mustPut(t, f, 1, kv(100))
				mustPut(t, f, 2, kv(0))
			},
			why:  Booting,
			want: []string{"booting", "rank 0, 2 of 3"},
			not:  []string{"never", "stale"},
		}, {
			name: "all three at once",
			make: func(t *testing.T, w *Worker, clock *clock) {
				f := w.Advertise(4)
				mustPut(t, f, 0, kv(100))
				clock.advance(testWindow + time.Second)
				mustPut(t, f, 1, kv(0))
				mustPut(t, f, 2, kv(100))
			},
			why:  NeverReported,
			want: []string{"never reported: rank 3 of 4", "stale: rank 0 (6s old) of 4", "booting (KV capacity 0): rank 1 of 4"},
		}, {
			name: "a host-fed rank that was never put is not missed",
			make: func(t *testing.T, w *Worker, clock *clock) {
				mustPut(t, w, 2, kv(100))
				clock.advance(testWindow + time.Second)
			},
			why:  Stale,
			want: []string{"stale: rank 2 (6s old)"},
			not:  []string{"never"},
		}, {
			name: "nothing known yet",
			make: func(*testing.T, *Worker, *clock) {},
			why:  NoFeed,
			want: []string{"nothing"},
		}, {
			name: "an engine that does not publish",
			make: func(_ *testing.T, w *Worker, _ *clock) { w.SetNotPublishing("no kv_events block") },
			why:  NotPublishing,
			want: []string{"no kv_events block"},
		}, {
			name: "an engine that does not answer",
			make: func(_ *testing.T, w *Worker, _ *clock) { w.SetNoAnswer("connection refused") },
			why:  NoAnswer,
			want: []string{"connection refused"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table, clock := newTestTable()
			w := table.Add("a", "")
			tt.make(t, w, clock)
			wantUntrusted(t, w, tt.why)
			reason := w.Status().Reason
			for _, part := range tt.want {
				if !strings.Contains(reason, part) {
					t.Errorf("the reason is %q, want %q in it", reason, part)
				}
			}
			for _, part := range tt.not {
				if strings.Contains(reason, part) {
					t.Errorf("the reason is %q, with %q in it", reason, part)
				}
			}
		})
	}
}

func TestStatusListsEveryWorkerByID(t *testing.T) {
	table, _ := newTestTable()
	for _, id := range []string{"c", "a", "d", "b"} {
		table.Add(id, "")
	}
	w, _ := table.Worker("d")
	w.SetHealthy(false)
	var list []string
	for _, st := range table.Status() {
		list = append(list, fmt.Sprint(st.ID, st.Healthy))
	}
	if got := strings.Join(list, " "); got != "atrue btrue ctrue dfalse" {
		t.Errorf("the status lists %s", got)
	}
}

func TestMessagesThatWereNotTakenAreCountedByReasonAndRank(t *testing.T) {
	table, clock := newTestTable()
	w, f := advertised(t, table, "a", Report{Running: 1}, Report{Running: 2})
	f.Drop(1, "truncated", errors.New("first"))
	f.Drop(1, "truncated", errors.New("second"))
	f.Drop(1, "frames", errors.New("third"))
	f.Drop(0, "frames", nil)
	clock.advance(time.Second)
	ranks := w.Status().Ranks
	if got := ranks[1]; got.Dropped["truncated"] != 2 || got.Dropped["frames"] != 1 || got.LastDrop != "third" || got.Reports != 1 {
		t.Errorf("rank 1 shows %+v", got)
	}
	if got := ranks[0]; got.Dropped["frames"] != 1 || got.LastDrop != "" {
		t.Errorf("rank 0 shows %+v", got)
	}
	wantTrusted(t, w, 3) // and no load has changed
	ranks[1].Dropped["truncated"] = 99
	if got := w.Status().Ranks[1].Dropped["truncated"]; got != 2 {
		t.Errorf("the status is not the caller's own: %d", got)
	}
}

func TestARankThatNeverReportedShowsForHowLong(t *testing.T) {
	table, clock := newTestTable()
	clock.advance(time.Minute)
	w := table.Add("a", "")
	f := w.Advertise(2)
	clock.advance(3 * time.Second)
	mustPut(t, f, 0, Report{})
	clock.advance(time.Second)
	ranks := w.Status().Ranks
	if got := ranks[1]; got.Report != nil || got.Fresh || got.Age != 4*time.Second {
		t.Errorf("the silent rank is reported %v, fresh %v, for %v", got.Report != nil, got.Fresh, got.Age)
	}
	if got := ranks[0]; got.Report == nil || !got.Fresh || got.Age != time.Second {
		t.Errorf("the other rank is reported %v, fresh %v, for %v", got.Report != nil, got.Fresh, got.Age)
	}
}

func TestTheStatusOfARemovedWorkerIsTheLastThatWasKnown(t *testing.T) {
	table, _ := newTestTable()
	w, _ := advertised(t, table, "a", Report{Running: 3})
	table.Remove(w)
	if st := w.Status(); st.ID != "a" || len(st.Ranks) != 1 || st.Ranks[0].Report.Running != 3 {
		t.Errorf("its status is %+v", st)
	}
	if got := table.Status(); len(got) != 0 {
		t.Errorf("the table's status still has it: %+v", got)
	}
}

func TestStatusIsValidJSONWhateverWasReported(t *testing.T) {
	table, clock := newTestTable()
	nan, inf := Known(math.NaN()), Known(math.Inf(1))
	advertised(t, table, "nan", Report{KVUsage: nan, EngineTime: nan}, Report{KVUsage: inf, EngineTime: inf})
	advertised(t, table, "full", Report{
		Running: math.MaxInt64, Waiting: math.MaxInt64, KVUsed: Known[int64](1), KVCapacity: Known[int64](4),
		KVUsage: Known(0.25), EngineTime: Known(1.5), Seq: Known[int64](0), Source: SourcePoll,
	})
	_, f := advertised(t, table, "odd", Report{KVUsed: Known[int64](9), KVCapacity: Known[int64](4), Source: 99})
	f.Drop(0, "a \"reason\"", errors.New("an \x00 error"))
	mustPut(t, table.Add("hosted", ""), 3, Report{})
	table.Add("silent", "").Advertise(2)
	table.Add("new", "").SetNoAnswer("")
	clock.advance(time.Second)
	reserve(t, f.Worker(), 0, 10)

	b, err := json.Marshal(table.Status())
	if err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	byID := make(map[string]map[string]any)
	for _, w := range list {
		byID[w["id"].(string)] = w
	}
	for _, tt := range []struct {
		id, key string
		want    any
	}{
		{"full", "trusted", true},
		{"full", "why", "trusted"},
		{"full", "reason", ""},
		{"full", "depth", float64(math.MaxInt64)},
		{"full", "age_ns", 1e9},
		{"full", "advertised_ranks", 1.0},
		{"silent", "trusted", false},
		{"silent", "why", "never_reported"},
		{"silent", "depth", nil}, // unknown, and not 0
		{"new", "why", "no_answer"},
		{"odd", "in_flight", 1.0},
		{"odd", "pending_tokens", 10.0},
		{"hosted", "advertised_ranks", 0.0},
	} {
		got, ok := byID[tt.id][tt.key]
		if !ok || got != tt.want {
			t.Errorf("%s of %s is %v (%v), want %v", tt.key, tt.id, got, ok, tt.want)
		}
	}
	if ranks := byID["new"]["ranks"].([]any); len(ranks) != 0 {
		t.Errorf("a worker without ranks has %v", ranks)
	}
	rank := byID["full"]["ranks"].([]any)[0].(map[string]any)
	if rank["fresh"] != true || rank["report"] == nil {
		t.Errorf("a rank of the full worker is %v", rank)
	}
	if never := byID["silent"]["ranks"].([]any)[0].(map[string]any); never["report"] != nil || never["fresh"] != false {
		t.Errorf("a rank of the silent worker is %v", never)
	}
	var back []WorkerStatus
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatalf("the status cannot be read back: %v", err)
	}
	again, err := json.Marshal(back)
	if err != nil || string(again) != string(b) {
		t.Errorf("the status was\n%s\nand after reading it back is\n%s (%v)", b, again, err)
	}
}

// A field that an engine renamed and one that it has nothing to say in look alike
// on the wire. The status names what has never been anything but 0.
func TestFieldThatIsGoneFromTheWireIsNamedAsNeverNonzero(t *testing.T) {
	tab := NewTable(Config{})
	w := tab.Add("a", "")
	f := w.Advertise(1)
	put := func(r Report) {
		t.Helper()
		if err := f.Put(0, r); err != nil {
			t.Fatal(err)
		}
	}
	put(Report{Running: 4, KVUsed: Known[int64](1), KVCapacity: Known[int64](10)})
	put(Report{KVCapacity: Known[int64](10)})
	want := []string{"waiting", "waiting_tokens", "kv_usage", "max_running", "prefill_tokens", "prefill_busy_us"}
	if got := w.Status().Ranks[0].NeverNonzero; !slices.Equal(got, want) {
		t.Errorf("never nonzero: %v, want %v", got, want)
	}
	f = w.Advertise(1)
	put(Report{Waiting: 1})
	if got := w.Status().Ranks[0].NeverNonzero; slices.Contains(got, "waiting") || !slices.Contains(got, "running") {
		t.Errorf("after a new feed, never nonzero: %v", got)
	}
}
