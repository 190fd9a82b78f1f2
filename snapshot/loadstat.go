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

// statFields are the fields in the order of the array, after its tag.
var statFields = [...]Field{
	FieldNumRunningReqs,
	FieldNumWaitingReqs,
	FieldNumUsedTokens,
	FieldMaxTotalNumTokens,
	FieldDPRank,
	FieldNumWaitingUncachedTokens,
	FieldNumTotalTokens,
	FieldMaxRunningRequests,
	FieldTotalPrefillUncachedTokens,
	FieldTotalPrefillBusyUS,
}

// statKeys are the names of the same elements in the engine's LoadStat, which
// differ from those of LoadSnapshot in two places.
var statKeys = [len(statFields)]string{
	"num_running_reqs",
	"num_waiting_reqs",
	"num_tokens",
	"max_total_num_tokens",
	"attn_dp_rank",
	"num_waiting_uncached_tokens",
	"num_total_tokens",
	"max_running_requests",
	"total_prefill_uncached_tokens",
	"total_prefill_busy_us",
}

const (
	statTag      = "LoadStat"
	statRequired = 4 // counts every sender has
	statRank     = 4 // index of attn_dp_rank, the last of the shortest form
)

// StatForm returns the marks of a LoadStat of that many elements, tag included,
// for LoadStat.Present: 6 ends with attn_dp_rank, 7 adds
// num_waiting_uncached_tokens, 11 is everything.
func StatForm(elements int) Fields {
	return FieldsOf(statFields[:max(0, min(elements-1, len(statFields)))]...)
}

// statValues holds the elements after the tag.
type statValues [len(statFields)]uint64

func (s *LoadStat) store(v *statValues) {
	s.NumRunningReqs = int64(v[0])
	s.NumWaitingReqs = int64(v[1])
	s.NumTokens = int64(v[2])
	s.MaxTotalNumTokens = int64(v[3])
	s.AttnDPRank = int64(v[4])
	s.NumWaitingUncachedTokens = int64(v[5])
	s.NumTotalTokens = int64(v[6])
	s.MaxRunningRequests = int64(v[7])
	s.TotalPrefillUncachedTokens = int64(v[8])
	s.TotalPrefillBusyUS = int64(v[9])
}

func (s *LoadStat) load() statValues {
	return statValues{
		uint64(s.NumRunningReqs),
		uint64(s.NumWaitingReqs),
		uint64(s.NumTokens),
		uint64(s.MaxTotalNumTokens),
		uint64(s.AttnDPRank),
		uint64(s.NumWaitingUncachedTokens),
		uint64(s.NumTotalTokens),
		uint64(s.MaxRunningRequests),
		uint64(s.TotalPrefillUncachedTokens),
		uint64(s.TotalPrefillBusyUS),
	}
}
