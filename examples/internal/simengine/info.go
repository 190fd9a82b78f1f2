package simengine

import "net/http"

// version is what the engine gives for its own.
const version = "plimsoll-sim"

// kvBlockSize is the advertised block size of KV events.
const kvBlockSize = 64

// kvEvents is the block of /server_info through which routers find the load
// sockets (sglang.srt.runtime_context.describe_kv_events_publisher). Keys without a
// value are absent, not null.
type kvEvents struct {
	Publisher    string `json:"publisher"`
	EndpointHost string `json:"endpoint_host"`
	PortBase     int    `json:"endpoint_port_base"`
	Topic        string `json:"topic"`
	BlockSize    int    `json:"block_size"`
	DPSize       int    `json:"dp_size"`
	LoadPortBase int    `json:"load_endpoint_port_base,omitempty"`
	LoadTopic    string `json:"load_topic,omitempty"` // engines that publish LoadSnapshot have no such key
	ReplayBase   int    `json:"replay_endpoint_port_base,omitempty"`
}

func (l *life) kvEvents() kvEvents {
	b := kvEvents{
		Publisher: "zmq",
		// A wildcard whatever the sockets are bound to: an engine packs its load range
		// only after a wildcard endpoint, and leaves the host to be taken from its URL.
		EndpointHost: "*",
		PortBase:     l.config.KVPortBase,
		BlockSize:    kvBlockSize,
		DPSize:       len(l.ranks),
		LoadPortBase: l.loadBase,
		ReplayBase:   l.config.ReplayPortBase,
	}
	if l.loadBase != 0 && l.config.Wire == WireLoadStat {
		b.LoadTopic = statTopic
	}
	return b
}

func (l *life) serveServerInfo(w http.ResponseWriter, _ *http.Request) {
	limits := l.ranks[0].core.Config()
	writeJSON(w, http.StatusOK, map[string]any{
		"model_path":           l.config.Model,
		"served_model_name":    l.config.Model,
		"dp_size":              len(l.ranks),
		"chunked_prefill_size": limits.ChunkTokens,
		"max_total_num_tokens": limits.KVTokens,
		"max_running_requests": limits.MaxRunning,
		"page_size":            kvBlockSize,
		"version":              version,
		"startup_time":         float64(l.started.UnixMicro()) / 1e6,
		"kv_events":            l.kvEvents(),
	})
}
