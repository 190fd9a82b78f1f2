package discovery

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/plimsoll-go/plimsoll/load"
	"github.com/plimsoll-go/plimsoll/snapshot"
)

func TestLoadsOfARealEngine(t *testing.T) {
	body, err := os.ReadFile("testdata/loads.json")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := parseLoads(body, 8)
	if err != nil || len(entries) != 2 {
		t.Fatalf("got %+v, %v", entries, err)
	}
	for i, want := range []load.Report{
		{
			Running: 12, Waiting: 3, WaitingTokens: load.Known[int64](4096),
			KVUsed: load.Known[int64](320768), KVCapacity: load.Known[int64](1283072), KVUsage: load.Known(0.25),
			MaxRunning: load.Known[int64](2048), PrefillTokens: load.Known[int64](900000), PrefillBusyUS: load.Known[int64](45000000),
			EngineTime: load.Known(1769000123.5),
		},
		{
			WaitingTokens: load.Known[int64](0),
			KVUsed:        load.Known[int64](0), KVCapacity: load.Known[int64](1283072), KVUsage: load.Known(0.0),
			MaxRunning: load.Known[int64](2048), PrefillTokens: load.Known[int64](0), PrefillBusyUS: load.Known[int64](0),
			EngineTime: load.Known(1769000123.5),
		},
	} {
		e := entries[i]
		if e.err != nil || e.rank != i {
			t.Errorf("entry %d: rank %d, %v", i, e.rank, e.err)
		}
		if got := load.FromSnapshot(&e.load); got != want {
			t.Errorf("entry %d:\ngot  %+v\nwant %+v", i, got, want)
		}
	}
}

// loadsBody is an answer of one rank that has the given fields besides its
// queue counts. A field of "" is left out.
func loadsBody(fields map[string]string) []byte {
	entry := map[string]json.RawMessage{"dp_rank": []byte("0"), "num_running_reqs": []byte("1"), "num_waiting_reqs": []byte("2")}
	for k, v := range fields {
		if v == "" {
			delete(entry, k)
		} else {
			entry[k] = json.RawMessage(v)
		}
	}
	b, err := json.Marshal(map[string]any{"loads": []any{entry}})
	if err != nil {
		panic(err)
	}
	return b
}

func TestBrokenCountsCostTheEntry(t *testing.T) {
	for _, field := range []string{"num_running_reqs", "num_waiting_reqs", "num_used_tokens", "max_total_num_tokens", "num_prealloc_ready_tokens"} {
		for value, reason := range map[string]string{
			"-2":                  "negative",
			"-1e3":                "negative",
			"2.5":                 "not_integer",
			"9223372036854775808": "out_of_range",
			"1e300":               "out_of_range",
			"1e999":               "out_of_range",
			`"3"`:                 "type",
			`"NaN"`:               "type",
			`"Infinity"`:          "type",
			"true":                "type",
			"[]":                  "type",
			"{}":                  "type",
		} {
			entries, err := parseLoads(loadsBody(map[string]string{field: value}), 8)
			if err != nil || entries[0].err == nil || entries[0].reason != reason || !strings.Contains(entries[0].err.Error(), field) {
				t.Errorf("%s %s: %+v, %v, want %s", field, value, entries, err, reason)
			}
		}
	}
}

func TestUnknownQueueCountsAreNoReport(t *testing.T) {
	for _, field := range []string{"num_running_reqs", "num_waiting_reqs"} {
		for _, value := range []string{"", "null", "-1", "-1.0"} {
			entries, err := parseLoads(loadsBody(map[string]string{field: value}), 8)
			if err != nil || entries[0].err == nil || entries[0].reason != "unknown" {
				t.Errorf("%s %q: %+v, %v", field, value, entries, err)
			}
		}
	}
}

func TestOtherUnknownFieldsAreUnknownAndNotZero(t *testing.T) {
	for _, value := range []string{"", "null", "-1"} {
		fields := make(map[string]string)
		for f := snapshot.FieldTimestamp; f <= snapshot.FieldTotalPrefillBusyUS; f++ {
			switch f {
			case snapshot.FieldDPRank, snapshot.FieldNumRunningReqs, snapshot.FieldNumWaitingReqs:
			default:
				fields[f.String()] = value
			}
		}
		entries, err := parseLoads(loadsBody(fields), 8)
		if err != nil || entries[0].err != nil {
			t.Fatalf("%q: %+v, %v", value, entries, err)
		}
		if got, want := load.FromSnapshot(&entries[0].load), (load.Report{Running: 1, Waiting: 2}); got != want {
			t.Errorf("%q: got %+v", value, got)
		}
	}
}

func TestWholeFloatsAreCounts(t *testing.T) {
	entries, err := parseLoads(loadsBody(map[string]string{"num_running_reqs": "3.0", "num_waiting_reqs": "4e2", "token_usage": "1"}), 8)
	if err != nil || entries[0].err != nil || entries[0].load.NumRunningReqs != 3 || entries[0].load.NumWaitingReqs != 400 || entries[0].load.TokenUsage != 1 {
		t.Errorf("got %+v, %v", entries, err)
	}
}

func TestBadRatiosLeaveTheRestStanding(t *testing.T) {
	for _, value := range []string{`"NaN"`, "-0.5", "1e999", "[]"} {
		entries, err := parseLoads(loadsBody(map[string]string{"token_usage": value}), 8)
		if err != nil || entries[0].err != nil || !entries[0].load.Refused.Has(snapshot.FieldTokenUsage) {
			t.Errorf("%s: %+v, %v", value, entries, err)
			continue
		}
		if r := load.FromSnapshot(&entries[0].load); r.Running != 1 || r.KVUsage.IsKnown() || r.Flaws != load.FlawField {
			t.Errorf("%s: %+v", value, r)
		}
	}
}

func TestLoadsAttribution(t *testing.T) {
	const q = `"num_running_reqs":1,"num_waiting_reqs":0`
	for _, c := range []struct {
		name, loads string
		ranks       []int
		bad         []bool
	}{
		{"in any order", `{"dp_rank":1,` + q + `},{"dp_rank":0,` + q + `}`, []int{1, 0}, []bool{false, false}},
		{"a hole", `{"dp_rank":0,` + q + `},{"dp_rank":3,` + q + `}`, []int{0, 3}, []bool{false, false}},
		{"no dp_rank", `{` + q + `},{"dp_rank":null,` + q + `},{"dp_rank":-1,` + q + `},{"dp_rank":"3",` + q + `}`, []int{0, 1, 2, 3}, make([]bool, 4)},
		{"one rank twice", `{"dp_rank":0,` + q + `},{"dp_rank":1,` + q + `},{"dp_rank":0,` + q + `}`, []int{0, 1, 0}, []bool{true, false, true}},
		{"entries that are none", `7,null,{"dp_rank":2,` + q + `}`, []int{0, 1, 2}, []bool{true, true, false}},
	} {
		entries, err := parseLoads([]byte(`{"loads":[`+c.loads+`]}`), 8)
		if err != nil || len(entries) != len(c.ranks) {
			t.Fatalf("%s: %+v, %v", c.name, entries, err)
		}
		for i, e := range entries {
			if e.rank != c.ranks[i] || (e.err != nil) != c.bad[i] || (e.err != nil) != (e.reason != "") {
				t.Errorf("%s: entry %d: %+v", c.name, i, e)
			}
		}
	}
}

func TestLoadsThatSayNothing(t *testing.T) {
	for _, c := range []struct {
		body string
		want error
	}{
		{`{"loads":[]}`, errNoRanks},
		{`{"loads":null}`, errShape},
		{`{"loads":{}}`, errShape},
		{`{"loads":7}`, errShape},
		{`{}`, errShape},
		{`{"aggregate":{"total_running_reqs":0,"total_waiting_reqs":0}}`, errShape},
		{`[]`, errShape},
		{`{"loads":[{"num_running_reqs":NaN}]}`, errShape},
		{`{"loads":[{"dp_rank":8,"num_running_reqs":0,"num_waiting_reqs":0}]}`, errShape},
		{`{"loads":[{"dp_rank":1e18,"num_running_reqs":0,"num_waiting_reqs":0}]}`, errShape},
		{`{"loads":[1,2,3,4,5,6,7,8,9]}`, errShape},
		{`{"loads":[`, errCutOff},
		{``, errCutOff},
	} {
		if entries, err := parseLoads([]byte(c.body), 8); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v, want %v", c.body, entries, err, c.want)
		}
	}
}

func FuzzLoads(f *testing.F) {
	if body, err := os.ReadFile("testdata/loads.json"); err == nil {
		f.Add(body)
	}
	f.Add([]byte(`{"loads":[{"num_running_reqs":-1,"num_waiting_reqs":1e2,"token_usage":"NaN"},{"dp_rank":7}]}`))
	f.Add([]byte(`{"loads":[{"dp_rank":1,"num_running_reqs":9223372036854775807,"num_waiting_reqs":1.5e3,"max_total_num_tokens":0}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		entries, err := parseLoads(body, 64)
		if err != nil {
			if !errors.Is(err, errShape) && !errors.Is(err, errCutOff) {
				t.Fatalf("error of no kind: %v", err)
			}
			return
		}
		if len(entries) == 0 || len(entries) > 64 {
			t.Fatalf("%d entries", len(entries))
		}
		seen := make(map[int]bool)
		for _, e := range entries {
			if e.rank < 0 || e.rank >= 64 || (e.err == nil) != (e.reason == "") {
				t.Fatalf("entry %+v", e)
			}
			if e.err != nil {
				continue
			}
			if seen[e.rank] {
				t.Fatalf("rank %d is reported twice", e.rank)
			}
			seen[e.rank] = true
			s := &e.load
			if s.Present&s.Nil != 0 || s.Present&s.Refused != 0 || s.Nil&s.Refused != 0 {
				t.Fatalf("field in two sets: %+v", s)
			}
			if !s.Present.Has(snapshot.FieldNumRunningReqs) || !s.Present.Has(snapshot.FieldNumWaitingReqs) || s.NumRunningReqs < 0 || s.NumWaitingReqs < 0 {
				t.Fatalf("report without a queue: %+v", s)
			}
			for _, v := range []float64{s.Timestamp, s.TokenUsage, s.GenThroughput, s.CacheHitRate, s.Utilization} {
				if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
					t.Fatalf("ratio %v: %+v", v, s)
				}
			}
		}
	})
}
