package simengine

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// loads reads every rank.
func (l *life) loads(now time.Time) []snapshot.LoadSnapshot {
	loads := make([]snapshot.LoadSnapshot, len(l.ranks))
	for i, r := range l.ranks {
		loads[i] = r.load(now)
	}
	return loads
}

// loadJSON is one entry of /v1/loads: every core field, 0 or not, and the sections
// as objects.
type loadJSON struct {
	Timestamp                  float64   `json:"timestamp"`
	DPRank                     int64     `json:"dp_rank"`
	NumRunningReqs             int64     `json:"num_running_reqs"`
	NumWaitingReqs             int64     `json:"num_waiting_reqs"`
	NumWaitingUncachedTokens   int64     `json:"num_waiting_uncached_tokens"`
	NumUsedTokens              int64     `json:"num_used_tokens"`
	NumTotalTokens             int64     `json:"num_total_tokens"`
	NumActiveTokens            int64     `json:"num_active_tokens"`
	NumPreallocReadyTokens     int64     `json:"num_prealloc_ready_tokens"`
	MaxTotalNumTokens          int64     `json:"max_total_num_tokens"`
	MaxRunningRequests         int64     `json:"max_running_requests"`
	TokenUsage                 float64   `json:"token_usage"`
	GenThroughput              float64   `json:"gen_throughput"`
	CacheHitRate               float64   `json:"cache_hit_rate"`
	Utilization                float64   `json:"utilization"`
	TotalPrefillUncachedTokens int64     `json:"total_prefill_uncached_tokens"`
	TotalPrefillBusyUS         int64     `json:"total_prefill_busy_us"`
	DecodeMoments              []float64 `json:"decode_moments"`

	Memory         *memoryJSON         `json:"memory,omitempty"`
	Disaggregation *disaggregationJSON `json:"disaggregation,omitempty"`
	Queues         *queuesJSON         `json:"queues,omitempty"`
}

type memoryJSON struct {
	WeightGB      float64 `json:"weight_gb"`
	KVCacheGB     float64 `json:"kv_cache_gb"`
	GraphGB       float64 `json:"graph_gb"`
	TokenCapacity int64   `json:"token_capacity"`
}

type disaggregationJSON struct {
	Mode                      string  `json:"mode"`
	PrefillBootstrapQueueReqs int64   `json:"prefill_bootstrap_queue_reqs"`
	PrefillInflightQueueReqs  int64   `json:"prefill_inflight_queue_reqs"`
	DecodePreallocQueueReqs   int64   `json:"decode_prealloc_queue_reqs"`
	DecodeTransferQueueReqs   int64   `json:"decode_transfer_queue_reqs"`
	DecodeRetractedQueueReqs  int64   `json:"decode_retracted_queue_reqs"`
	KVTransferSpeedGBs        float64 `json:"kv_transfer_speed_gb_s"`
	KVTransferLatencyMS       float64 `json:"kv_transfer_latency_ms"`
}

type queuesJSON struct {
	Waiting       int64 `json:"waiting"`
	Grammar       int64 `json:"grammar"`
	Paused        int64 `json:"paused"`
	Retracted     int64 `json:"retracted"`
	PreallocReady int64 `json:"prealloc_ready"`
}

// sections is what include= may name. Core fields are always there; speculative and
// LoRA sections never are, in an engine that does neither.
var sections = []string{"core", "memory", "spec", "lora", "disagg", "queues", "all"}

// parseInclude reads include=; an absent one includes everything.
func parseInclude(text string) (func(section string) bool, error) {
	if text == "" {
		return func(string) bool { return true }, nil
	}
	named := map[string]bool{}
	for name := range strings.SplitSeq(text, ",") {
		named[strings.TrimSpace(name)] = true
	}
	known := 0
	for _, s := range sections {
		if named[s] {
			known++
		}
	}
	if known != len(named) {
		return nil, fmt.Errorf("include=%q: valid sections are %s", text, strings.Join(sections, ", "))
	}
	return func(section string) bool { return named["all"] || named[section] }, nil
}

func toJSON(s *snapshot.LoadSnapshot, include func(string) bool) loadJSON {
	j := loadJSON{
		Timestamp:                  s.Timestamp,
		DPRank:                     s.DPRank,
		NumRunningReqs:             s.NumRunningReqs,
		NumWaitingReqs:             s.NumWaitingReqs,
		NumWaitingUncachedTokens:   s.NumWaitingUncachedTokens,
		NumUsedTokens:              s.NumUsedTokens,
		NumTotalTokens:             s.NumTotalTokens,
		NumActiveTokens:            s.NumActiveTokens,
		NumPreallocReadyTokens:     s.NumPreallocReadyTokens,
		MaxTotalNumTokens:          s.MaxTotalNumTokens,
		MaxRunningRequests:         s.MaxRunningRequests,
		TokenUsage:                 s.TokenUsage,
		GenThroughput:              s.GenThroughput,
		CacheHitRate:               s.CacheHitRate,
		Utilization:                s.Utilization,
		TotalPrefillUncachedTokens: s.TotalPrefillUncachedTokens,
		TotalPrefillBusyUS:         s.TotalPrefillBusyUS,
		DecodeMoments:              s.DecodeMoments,
	}
	if m := s.Memory; include("memory") {
		j.Memory = &memoryJSON{m.WeightGB, m.KVCacheGB, m.GraphGB, m.TokenCapacity}
	}
	if d := s.Disaggregation; include("disagg") {
		j.Disaggregation = &disaggregationJSON{
			d.Mode, d.PrefillBootstrapQueueReqs, d.PrefillInflightQueueReqs, d.DecodePreallocQueueReqs,
			d.DecodeTransferQueueReqs, d.DecodeRetractedQueueReqs, d.KVTransferSpeedGBs, d.KVTransferLatencyMS,
		}
	}
	if q := s.Queues; include("queues") {
		j.Queues = &queuesJSON{q.Waiting, q.Grammar, q.Paused, q.Retracted, q.PreallocReady}
	}
	return j
}

func (l *life) serveLoads(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	include, err := parseInclude(query.Get("include"))
	if err != nil {
		writeBadRequest(w, err)
		return
	}
	now := time.Now()
	loads := l.loads(now)
	if text := query.Get("dp_rank"); text != "" {
		rank, err := strconv.Atoi(text)
		if err != nil {
			writeBadRequest(w, fmt.Errorf("dp_rank=%q: want an integer", text))
			return
		}
		// A rank that there is not has no loads, and that is no error.
		if rank < 0 || rank >= len(loads) {
			loads = nil
		} else {
			loads = loads[rank : rank+1]
		}
	}
	entries := make([]loadJSON, len(loads))
	for i := range loads {
		entries[i] = toJSON(&loads[i], include)
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"timestamp":        isoTime(now),
		"version":          version,
		"accelerator":      nil,
		"num_accelerators": 1,
		"loads":            entries,
	})
}
