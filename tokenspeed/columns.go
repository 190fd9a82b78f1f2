package tokenspeed

// column is the position of a value in the array. They are in the order of the
// engine's struct (tokenspeed.runtime.engine.io_struct.BatchTokenIDOutSlim),
// which only ever grows at its end.
type column uint8

const (
	colTag column = iota
	colRIDs
	colOutputIDs
	colFinishedReasons
	colPromptTokens
	colCompletionTokens
	colCachedTokens
	colLogprobs
	colLogprobIDs
	colEngineIndex
	colNumRunning
	colNumWaiting
	colKVActivePages
	colKVTotalPages

	numColumns
)

// The lengths of the array that senders have had: of all, of those with an engine
// index, and of those with a load.
const (
	minElements   = int(colLogprobIDs) + 1
	indexElements = int(colEngineIndex) + 1
	loadElements  = int(colKVTotalPages) + 1
)

// columnNames are the names of the engine's fields.
var columnNames = [numColumns]string{
	colTag:              "", // an array has no name for it
	colRIDs:             "rids",
	colOutputIDs:        "output_ids",
	colFinishedReasons:  "finished_reasons",
	colPromptTokens:     "prompt_tokens",
	colCompletionTokens: "completion_tokens",
	colCachedTokens:     "cached_tokens",
	colLogprobs:         "output_token_logprobs_val",
	colLogprobIDs:       "output_token_logprobs_idx",
	colEngineIndex:      "engine_index",
	colNumRunning:       "num_running",
	colNumWaiting:       "num_waiting",
	colKVActivePages:    "kv_active_pages",
	colKVTotalPages:     "kv_total_pages",
}

const tag = "BatchTokenIDOutSlim"
