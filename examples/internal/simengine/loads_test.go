package simengine

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// busy is an engine of two ranks at a standstill: rank 0 runs one request of 100
// tokens and has one of 50 waiting, rank 1 runs one of 30.
func busy(t *testing.T, wire Wire) *Engine {
	t.Helper()
	e := start(t, Config{Ranks: 2, Wire: wire, Speed: standstill, MaxRunning: 1, KVTokens: 1000})
	subs := []*subscription{subscribe(t, e.LoadEndpoints()[0]), subscribe(t, e.LoadEndpoints()[1])}
	for i, tt := range []struct{ rank, tokens int }{{1, 30}, {0, 100}, {0, 50}} {
		inBackground(t, e, fmt.Sprintf(`{"prompt":%s,"routed_dp_rank":%d}`, ids(tt.tokens), tt.rank))
		// One after the other, so that the order of arrival is as written.
		subs[tt.rank].until(t, func(r reading) bool {
			running, waiting := r.counts()
			return running == 1 && (i < 2 || waiting == 1)
		})
	}
	return e
}

func ids(n int) string {
	b, _ := json.Marshal(make([]int, n))
	return string(b)
}

// loadsOf reads /v1/loads.
func loadsOf(t *testing.T, e *Engine, query string) []map[string]any {
	t.Helper()
	var answer struct {
		Timestamp, Version string
		Loads              []map[string]any
	}
	r := get(t, e.URL()+"/v1/loads"+query)
	r.decode(t, &answer)
	if r.status != http.StatusOK || answer.Timestamp == "" || answer.Version == "" || answer.Loads == nil {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	return answer.Loads
}

func TestLoadsTellWhatTheRanksDo(t *testing.T) {
	loads := loadsOf(t, busy(t, WireLoadSnapshot), "")
	if len(loads) != 2 {
		t.Fatalf("%d loads, want 2", len(loads))
	}
	for rank, want := range []map[string]float64{
		{
			"dp_rank": 0, "num_running_reqs": 1, "num_waiting_reqs": 1, "num_waiting_uncached_tokens": 150,
			"num_used_tokens": 100, "num_total_tokens": 150, "num_active_tokens": 150, "num_prealloc_ready_tokens": 0,
			"max_total_num_tokens": 1000, "max_running_requests": 1, "token_usage": 0.1, "gen_throughput": 0,
			"cache_hit_rate": 0, "utilization": 1, "total_prefill_uncached_tokens": 0, "total_prefill_busy_us": 0,
		},
		{"dp_rank": 1, "num_running_reqs": 1, "num_waiting_reqs": 0, "num_waiting_uncached_tokens": 30, "num_used_tokens": 30},
	} {
		for key, value := range want {
			if got, ok := loads[rank][key].(float64); !ok || got != value {
				t.Errorf("rank %d: %s is %v, want %v", rank, key, loads[rank][key], value)
			}
		}
	}
	if queues := loads[0]["queues"].(map[string]any); queues["waiting"] != 1.0 {
		t.Errorf("queues %v", queues)
	}
	if mode := loads[0]["disaggregation"].(map[string]any)["mode"]; mode != "null" {
		t.Errorf("disaggregation mode %v", mode)
	}
}

// The keys of /v1/loads are those of the wire, so that a reader of one can read
// the other.
func TestLoadsHaveEveryKeyOfTheWire(t *testing.T) {
	entry := loadsOf(t, fast(t, Config{}), "")[0]
	optional := snapshot.FieldsOf(snapshot.FieldSpeculative, snapshot.FieldLoRA)
	for f := snapshot.FieldTimestamp; f <= snapshot.FieldQueues; f++ {
		if _, ok := entry[f.String()]; ok == optional.Has(f) {
			t.Errorf("%s: there %v", f, ok)
		}
		delete(entry, f.String())
	}
	if len(entry) != 0 {
		t.Errorf("keys that the wire does not have: %v", entry)
	}
}

func TestLoadsQueries(t *testing.T) {
	e := fast(t, Config{Ranks: 2})
	for _, tt := range []struct{ query, ranks, sections string }{
		{"?include=core", "0,1", ""},
		{"?include=core,queues", "0,1", "queues"},
		{"?include=memory,%20disagg", "0,1", "memory,disaggregation"},
		{"?include=spec,lora", "0,1", ""},
		{"?include=all&dp_rank=1", "1", "memory,disaggregation,queues"},
		{"?dp_rank=2", "", ""},
		{"?dp_rank=-1", "", ""},
	} {
		var ranks []string
		for _, l := range loadsOf(t, e, tt.query) {
			ranks = append(ranks, fmt.Sprint(l["dp_rank"]))
			var sections []string
			for _, s := range []string{"memory", "speculative", "lora", "disaggregation", "queues"} {
				if l[s] != nil {
					sections = append(sections, s)
				}
			}
			if got := strings.Join(sections, ","); got != tt.sections {
				t.Errorf("%s: sections %q, want %q", tt.query, got, tt.sections)
			}
		}
		if got := strings.Join(ranks, ","); got != tt.ranks {
			t.Errorf("%s: ranks %q, want %q", tt.query, got, tt.ranks)
		}
	}
	for _, query := range []string{"?include=everything", "?include=core,,queues", "?dp_rank=one"} {
		if r := get(t, e.URL()+"/v1/loads"+query); r.status != http.StatusBadRequest {
			t.Errorf("%s: status %d", query, r.status)
		}
	}
}

func TestServerInfoAdvertisesLoad(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config Config
		want   string // K and L stand for the KV and load port bases
	}{
		{"load_stat", Config{Ranks: 2},
			`{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":K,"topic":"","block_size":64,"dp_size":2,"load_endpoint_port_base":L,"load_topic":"load"}`},
		{"load_snapshot", Config{Wire: WireLoadSnapshot},
			`{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":K,"topic":"","block_size":64,"dp_size":1,"load_endpoint_port_base":L}`},
		{"no load socket", Config{Ranks: 3, NoLoadSocket: true},
			`{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":K,"topic":"","block_size":64,"dp_size":3}`},
		{"replay", Config{ReplayPortBase: 9000},
			`{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":K,"topic":"","block_size":64,"dp_size":1,"load_endpoint_port_base":L,"load_topic":"load","replay_endpoint_port_base":9000}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := fast(t, tt.config)
			var info struct {
				KVEvents json.RawMessage `json:"kv_events"`
				DPSize   int             `json:"dp_size"`
			}
			get(t, e.URL()+"/server_info").decode(t, &info)
			ranks := max(tt.config.Ranks, 1)
			want := strings.NewReplacer("K", fmt.Sprint(e.last.KVPortBase), "L", fmt.Sprint(e.last.KVPortBase+ranks)).Replace(tt.want)
			if got := string(info.KVEvents); got != want {
				t.Errorf("kv_events\n%s, want\n%s", got, want)
			}
			if info.DPSize != ranks {
				t.Errorf("dp_size %d, want %d", info.DPSize, ranks)
			}
			endpoints := e.LoadEndpoints()
			if tt.config.NoLoadSocket {
				ranks = 0
			}
			if len(endpoints) != ranks {
				t.Errorf("load endpoints %v, want %d", endpoints, ranks)
			}
		})
	}
}
