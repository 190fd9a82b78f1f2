package tokenspeed

// Batch is one message of a rank, whole:
//
//	["BatchTokenIDOutSlim", rids, output_ids, finished_reasons, prompt_tokens,
//	 completion_tokens, cached_tokens, output_token_logprobs_val,
//	 output_token_logprobs_idx, engine_index, num_running, num_waiting,
//	 kv_active_pages, kv_total_pages]
//
// The first eight after the tag are columns, with one element for each request.
// A Batch is either decoded into or filled with Add. Its Summary follows from
// both; decoding into that alone would leave it with the requests of another
// batch.
type Batch struct {
	Summary

	rids       [][]byte
	finishes   [][]byte // the reasons as they stand on the wire
	prompt     []int64
	completion []int64
	cached     []int64
	outputIDs  rows[int64]
	logprobs   rows[float64]
	logprobIDs rows[int64]
}

// rows is a column of lists. They lie behind one another, so that a batch that is
// reused need not allocate any of them.
type rows[T any] struct {
	values []T
	ends   []int // of each row, in values
}

func (r *rows[T]) reset() { r.values, r.ends = r.values[:0], r.ends[:0] }

func (r *rows[T]) add(values []T) {
	r.values = append(r.values, values...)
	r.ends = append(r.ends, len(r.values))
}

func (r *rows[T]) at(i int) []T {
	start, end := 0, r.ends[i]
	if i > 0 {
		start = r.ends[i-1]
	}
	return r.values[start:end:end]
}

// Request is what a batch says of one request. Its slices belong to the batch, or
// to the payload that this was decoded from.
type Request struct {
	ID []byte // as the client has named it

	// OutputIDs are the tokens since the last batch with this request.
	OutputIDs []int64

	FinishReason FinishReason
	// FinishText is the reason as it stands on the wire, empty while the request is
	// running. It is what tells the values of FinishOther apart.
	FinishText []byte

	PromptTokens     int64
	CompletionTokens int64 // generated so far, those of this batch included
	CachedTokens     int64 // of the prompt, found in the KV cache

	// Logprobs belong to LogprobIDs, which are OutputIDs, or both are empty because
	// the request did not ask for them. Neither is checked, and a Logprob may be
	// anything a float can be.
	Logprobs   []float64
	LogprobIDs []int64
}

// Len returns the number of requests, of which At can be asked for each.
func (b *Batch) Len() int { return len(b.rids) }

// At returns the request at position i, from 0 to Len()-1.
func (b *Batch) At(i int) Request {
	return Request{
		ID:               b.rids[i],
		OutputIDs:        b.outputIDs.at(i),
		FinishReason:     finishReason(b.finishes[i]),
		FinishText:       b.finishes[i],
		PromptTokens:     b.prompt[i],
		CompletionTokens: b.completion[i],
		CachedTokens:     b.cached[i],
		Logprobs:         b.logprobs.at(i),
		LogprobIDs:       b.logprobIDs.at(i),
	}
}

// Add appends a request to the batch, and to Finished if it has ended. The ID and
// the FinishText are not copied, the other slices are. Where FinishText is empty
// the text is that of FinishReason.
func (b *Batch) Add(r Request) {
	text := r.FinishText
	if len(text) == 0 {
		text = finishTexts[min(r.FinishReason, FinishOther)]
	}
	b.rids = append(b.rids, r.ID)
	b.finishes = append(b.finishes, text)
	b.prompt = append(b.prompt, r.PromptTokens)
	b.completion = append(b.completion, r.CompletionTokens)
	b.cached = append(b.cached, r.CachedTokens)
	b.outputIDs.add(r.OutputIDs)
	b.logprobs.add(r.Logprobs)
	b.logprobIDs.add(r.LogprobIDs)

	b.Requests++
	if reason := finishReason(text); reason != FinishNone {
		b.Finished = append(b.Finished, r.ID)
		b.Reasons = append(b.Reasons, reason)
	}
}

// Reset empties b but keeps the capacity of its columns.
func (b *Batch) Reset() {
	b.Summary.Reset()
	b.resetColumns()
}

func (b *Batch) resetColumns() {
	clear(b.rids) // as in Summary.Reset
	clear(b.finishes)
	b.rids, b.finishes = b.rids[:0], b.finishes[:0]
	b.prompt, b.completion, b.cached = b.prompt[:0], b.completion[:0], b.cached[:0]
	b.outputIDs.reset()
	b.logprobs.reset()
	b.logprobIDs.reset()
}
