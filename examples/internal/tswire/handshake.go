package tswire

import (
	"encoding/binary"
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// The handshake is made of maps, not of arrays like everything after it: fields go
// by their names, and either side may know more of them than the other.

const (
	statusHello = "HELLO"
	statusReady = "READY"
)

// identityOf returns the identity that an engine index dials under.
func identityOf(index int) []byte { return binary.LittleEndian.AppendUint16(nil, uint16(index)) }

func indexOf(identity []byte) (index int, ok bool) {
	if len(identity) != 2 {
		return 0, false
	}
	return int(binary.LittleEndian.Uint16(identity)), true
}

func appendStatus(dst []byte, status string) []byte {
	dst = msgp.AppendMapHeader(dst, 4)
	dst = msgp.AppendString(msgp.AppendString(dst, "status"), status)
	dst = msgp.AppendBool(msgp.AppendString(dst, "local"), true)
	dst = msgp.AppendBool(msgp.AppendString(dst, "headless"), true)
	return msgp.AppendNil(msgp.AppendString(dst, "parallel_config_hash"))
}

func readStatus(b []byte) (status string, err error) {
	r := reader{b: b}
	for range r.pairs("status message") {
		switch key := r.string("key"); {
		case r.null():
		case key == "status":
			status = r.string(key)
		default:
			r.skip(key)
		}
	}
	return status, r.err
}

// addresses is what an engine wants to know of a frontend.
type addresses struct{ input, output string }

func appendInit(dst []byte, a addresses) []byte {
	dst = msgp.AppendMapHeader(dst, 2)
	dst = msgp.AppendString(dst, "addresses")
	dst = msgp.AppendMapHeader(dst, 5)
	dst = msgp.AppendArrayHeader(msgp.AppendString(dst, "inputs"), 1)
	dst = msgp.AppendString(dst, a.input)
	dst = msgp.AppendArrayHeader(msgp.AppendString(dst, "outputs"), 1)
	dst = msgp.AppendString(dst, a.output)
	dst = msgp.AppendNil(msgp.AppendString(dst, "coordinator_input"))
	dst = msgp.AppendNil(msgp.AppendString(dst, "coordinator_output"))
	dst = msgp.AppendNil(msgp.AppendString(dst, "frontend_stats_publish_address"))
	return msgp.AppendMapHeader(msgp.AppendString(dst, "parallel_config"), 0)
}

// readInit takes the first address of either kind, as engines do.
func readInit(b []byte) (a addresses, err error) {
	r := reader{b: b}
	for range r.pairs("INIT") {
		if r.string("key") != "addresses" {
			r.skip("value")
			continue
		}
		for range r.pairs("addresses") {
			switch r.string("key") {
			case "inputs":
				a.input = r.first("inputs")
			case "outputs":
				a.output = r.first("outputs")
			default:
				r.skip("address")
			}
		}
	}
	if r.err == nil && (a.input == "" || a.output == "") {
		r.err = fmt.Errorf("INIT without an address: input %q, output %q", a.input, a.output)
	}
	return a, r.err
}

// first reads an array of strings and returns the first.
func (r *reader) first(what string) (s string) {
	for i := range r.array(what) {
		if i == 0 {
			s = r.string(what)
		} else {
			r.skip(what)
		}
	}
	return s
}

// Ready is what a rank says of itself when it registers; the part of it that a
// router can use.
type Ready struct {
	Model         string // "instance_id"
	Version       string // "vllm_version", such as "tokenspeed-0.1.1"
	Rank          int64  // "data_parallel_rank", from 0 within its engine
	Ranks         int64  // "data_parallel_size" of its engine
	MaxModelLen   int64  // tokens of a request, prompt and output
	MaxRunning    int64  // "max_num_seqs"
	MaxBatch      int64  // "max_num_batched_tokens": prompt tokens in a step
	KVPages       int64  // "num_gpu_blocks"
	PageTokens    int64  // "block_size"; newer engines call it "prefix_granularity"
	KVCacheTokens int64  // "kv_cache_size_tokens"; 0 = not said
}

func (m *Ready) append(dst []byte) []byte {
	ints := []struct {
		key   string
		value int64
	}{
		{"max_model_len", m.MaxModelLen},
		{"num_gpu_blocks", m.KVPages},
		{"block_size", m.PageTokens},
		{"prefix_granularity", m.PageTokens},
		{"world_size", m.Ranks},
		{"data_parallel_size", m.Ranks},
		{"tensor_parallel_size", 1},
		{"pipeline_parallel_size", 1},
		{"decode_context_parallel_size", 1},
		{"data_parallel_rank", m.Rank},
		{"max_num_seqs", m.MaxRunning},
		{"max_num_batched_tokens", m.MaxBatch},
		{"kv_cache_size_tokens", m.KVCacheTokens},
	}
	dst = msgp.AppendMapHeader(dst, uint32(len(ints)+3))
	for _, f := range ints {
		dst = msgp.AppendInt64(msgp.AppendString(dst, f.key), f.value)
	}
	dst = msgp.AppendString(msgp.AppendString(dst, "dtype"), "bfloat16")
	dst = msgp.AppendString(msgp.AppendString(dst, "vllm_version"), m.Version)
	return msgp.AppendString(msgp.AppendString(dst, "instance_id"), m.Model)
}

func readReady(b []byte) (m Ready, err error) {
	r := reader{b: b}
	for range r.pairs("ready message") {
		key := r.string("key")
		if r.null() {
			continue
		}
		switch key {
		case "instance_id":
			m.Model = r.string(key)
		case "vllm_version":
			m.Version = r.string(key)
		case "data_parallel_rank":
			m.Rank = r.int(key)
		case "data_parallel_size":
			m.Ranks = r.int(key)
		case "max_model_len":
			m.MaxModelLen = r.int(key)
		case "max_num_seqs":
			m.MaxRunning = r.int(key)
		case "max_num_batched_tokens":
			m.MaxBatch = r.int(key)
		case "num_gpu_blocks":
			m.KVPages = r.int(key)
		case "block_size", "prefix_granularity":
			m.PageTokens = r.int(key)
		case "kv_cache_size_tokens":
			m.KVCacheTokens = r.int(key)
		default:
			r.skip(key)
		}
	}
	return m, r.err
}
