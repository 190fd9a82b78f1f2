package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/plimsoll-go/plimsoll/load"
)

// rankHeader tells an SGLang engine which of its data-parallel ranks is to take a
// request. It is stronger than the body.
const rankHeader = "X-Data-Parallel-Rank"

// pinnedRank is the rank that the client asks for, in the header or in the body. A
// policy that chooses ranks must leave it alone. What is no rank is unknown here,
// and the engine's to complain about.
func pinnedRank(h http.Header, body []byte) load.Maybe[int] {
	if v := h.Get(rankHeader); v != "" {
		if rank, err := strconv.Atoi(v); err == nil && rank >= 0 {
			return load.Known(rank)
		}
		return load.Maybe[int]{}
	}
	if !bytes.Contains(body, []byte(`_rank"`)) { // nearly none has it
		return load.Maybe[int]{}
	}
	var pin struct {
		Routed *int `json:"routed_dp_rank"`
		Older  *int `json:"data_parallel_rank"`
	}
	if json.Unmarshal(body, &pin) != nil {
		return load.Maybe[int]{}
	}
	for _, rank := range []*int{pin.Routed, pin.Older} {
		if rank != nil && *rank >= 0 {
			return load.Known(*rank)
		}
	}
	return load.Maybe[int]{}
}
