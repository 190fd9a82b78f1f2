package snapshot

import "math"

// The fields of LoadSnapshot by type. What is in neither is a compound: the
// moments or a section.
const (
	counts Fields = 1<<FieldDPRank | 1<<FieldNumRunningReqs | 1<<FieldNumWaitingReqs |
		1<<FieldNumWaitingUncachedTokens | 1<<FieldNumUsedTokens | 1<<FieldNumTotalTokens |
		1<<FieldNumActiveTokens | 1<<FieldNumPreallocReadyTokens | 1<<FieldMaxTotalNumTokens |
		1<<FieldMaxRunningRequests | 1<<FieldTotalPrefillUncachedTokens | 1<<FieldTotalPrefillBusyUS
	amounts Fields = 1<<FieldTimestamp | 1<<FieldTokenUsage | 1<<FieldGenThroughput |
		1<<FieldCacheHitRate | 1<<FieldUtilization
)

// core are the fields no decision can do without: broken, they refuse the
// message. All others are advisory.
const core = counts &^ (1 << FieldDPRank)

// values holds the scalar fields of a LoadSnapshot: integers as they are, floats
// as their bits. Encoder and decoder loop over it and never name a field; the
// two functions below are the only ones that do.
type values [numFields]uint64

func (s *LoadSnapshot) store(v *values) {
	s.Timestamp = math.Float64frombits(v[FieldTimestamp])
	s.DPRank = int64(v[FieldDPRank])
	s.NumRunningReqs = int64(v[FieldNumRunningReqs])
	s.NumWaitingReqs = int64(v[FieldNumWaitingReqs])
	s.NumWaitingUncachedTokens = int64(v[FieldNumWaitingUncachedTokens])
	s.NumUsedTokens = int64(v[FieldNumUsedTokens])
	s.NumTotalTokens = int64(v[FieldNumTotalTokens])
	s.NumActiveTokens = int64(v[FieldNumActiveTokens])
	s.NumPreallocReadyTokens = int64(v[FieldNumPreallocReadyTokens])
	s.MaxTotalNumTokens = int64(v[FieldMaxTotalNumTokens])
	s.MaxRunningRequests = int64(v[FieldMaxRunningRequests])
	s.TokenUsage = math.Float64frombits(v[FieldTokenUsage])
	s.GenThroughput = math.Float64frombits(v[FieldGenThroughput])
	s.CacheHitRate = math.Float64frombits(v[FieldCacheHitRate])
	s.Utilization = math.Float64frombits(v[FieldUtilization])
	s.TotalPrefillUncachedTokens = int64(v[FieldTotalPrefillUncachedTokens])
	s.TotalPrefillBusyUS = int64(v[FieldTotalPrefillBusyUS])
}

func (s *LoadSnapshot) load() (v values) {
	v[FieldTimestamp] = math.Float64bits(s.Timestamp)
	v[FieldDPRank] = uint64(s.DPRank)
	v[FieldNumRunningReqs] = uint64(s.NumRunningReqs)
	v[FieldNumWaitingReqs] = uint64(s.NumWaitingReqs)
	v[FieldNumWaitingUncachedTokens] = uint64(s.NumWaitingUncachedTokens)
	v[FieldNumUsedTokens] = uint64(s.NumUsedTokens)
	v[FieldNumTotalTokens] = uint64(s.NumTotalTokens)
	v[FieldNumActiveTokens] = uint64(s.NumActiveTokens)
	v[FieldNumPreallocReadyTokens] = uint64(s.NumPreallocReadyTokens)
	v[FieldMaxTotalNumTokens] = uint64(s.MaxTotalNumTokens)
	v[FieldMaxRunningRequests] = uint64(s.MaxRunningRequests)
	v[FieldTokenUsage] = math.Float64bits(s.TokenUsage)
	v[FieldGenThroughput] = math.Float64bits(s.GenThroughput)
	v[FieldCacheHitRate] = math.Float64bits(s.CacheHitRate)
	v[FieldUtilization] = math.Float64bits(s.Utilization)
	v[FieldTotalPrefillUncachedTokens] = uint64(s.TotalPrefillUncachedTokens)
	v[FieldTotalPrefillBusyUS] = uint64(s.TotalPrefillBusyUS)
	return v
}
