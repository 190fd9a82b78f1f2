package snapshot

// LoadStat is the array-shaped load message of SGLang's load publisher
// (sglang.srt.managers.scheduler_components.load_publisher.LoadStat):
//
//	["LoadStat", num_running_reqs, num_waiting_reqs, num_tokens,
//	 max_total_num_tokens, attn_dp_rank|nil, num_waiting_uncached_tokens|nil,
//	 num_total_tokens, max_running_requests, total_prefill_uncached_tokens,
//	 total_prefill_busy_us]
//
// The tag and the first four counts are always there. What an older sender
// leaves off is not in Present and unknown, and so is what is in Nil.
//
// Values are never negative after a successful Decode.
type LoadStat struct {
	// Present holds the fields that were there with a usable value, Nil those
	// that were nil, Refused holds FieldDPRank when it was unusable. NumTokens
	// is FieldNumUsedTokens, AttnDPRank is FieldDPRank.
	Present, Nil, Refused Fields

	NumRunningReqs    int64 // requests in the running batch
	NumWaitingReqs    int64 // requests queued
	NumTokens         int64 // KV tokens in use
	MaxTotalNumTokens int64 // KV capacity in tokens; 0 = unknown or still booting

	AttnDPRank               int64 // informational, the socket's rank is the truth
	NumWaitingUncachedTokens int64 // queued prompt tokens still to be computed; nil on the wire is "not known"

	NumTotalTokens             int64 // KV tokens in use plus those of queued requests
	MaxRunningRequests         int64 // concurrency cap; 0 = unknown
	TotalPrefillUncachedTokens int64 // cumulative since the engine started
	TotalPrefillBusyUS         int64 // cumulative, microseconds
}

// Reset empties s.
func (s *LoadStat) Reset() { *s = LoadStat{} }

// Decode reads one msgpack array out of payload into s, which is reset first.
//
// Another tag, fewer than the tag and four counts, nil in one of those four,
// and any bad count (see LoadSnapshot.Decode) refuse the whole message; only
// attn_dp_rank is advisory. Elements past the eleventh are skipped.
//
// Every error is a *DecodeError. After one, the contents of s mean nothing.
// Decode does not allocate.
func (s *LoadStat) Decode(payload []byte) error {
	s.Reset()
	return nil
}

// Append appends s to dst as the engine's encoder writes it. The array reaches
// to the last field that is marked (in Present, Nil or Refused) or not 0, and
// at least to attn_dp_rank, the shortest form there is; a LoadStat without any
// mark gets all eleven elements, which is what the engine writes today. StatForm
// gives the marks of each form. An attn_dp_rank that is 0 and not in Present is
// written as nil, and so is everything in Nil or Refused. Append does not check
// what it is given.
func (s *LoadStat) Append(dst []byte) []byte {
	return dst
}

// StatForm returns the marks of a LoadStat of that many elements, tag included:
// 6 ends with attn_dp_rank, 7 adds num_waiting_uncached_tokens, 11 is everything.
func StatForm(elements int) Fields { return 0 }
