package load

import "github.com/plimsoll-go/plimsoll/snapshot"

// FromReading returns the report that a decoded SGLang message carries,
// whichever of the two it is. Of a Reading that nothing was decoded into it is
// one that Put refuses.
func FromReading(r *snapshot.Reading) Report {
	switch r.Kind {
	case snapshot.KindLoadSnapshot:
		return FromSnapshot(&r.Snapshot)
	case snapshot.KindLoadStat:
		return FromStat(&r.Stat)
	}
	return Report{Running: -1, Waiting: -1}
}

// FromSnapshot returns the report that a LoadSnapshot carries.
//
// Its writer omits what is zero, so an absent count is 0. Where an absent key
// can also mean that the engine does not know, it is unknown here: a KV capacity,
// which no running engine has at 0, and the tokens of a queue that is not empty,
// which builds without that field do not send. A capacity that is there and 0
// says that the engine is still booting.
//
// A running or waiting count that is nil is no reading at all: Put refuses the
// report, as ErrBadReport.
func FromSnapshot(s *snapshot.LoadSnapshot) Report {
	r := Report{
		Running:       s.NumRunningReqs,
		Waiting:       s.NumWaitingReqs,
		WaitingTokens: unless(s.Nil.Has(snapshot.FieldNumWaitingUncachedTokens), s.NumWaitingUncachedTokens),
		KVUsed:        unless(s.Nil.Has(snapshot.FieldNumUsedTokens), s.NumUsedTokens),
		KVCapacity:    unless(!s.Present.Has(snapshot.FieldMaxTotalNumTokens), s.MaxTotalNumTokens),
		KVUsage:       unless(!s.Present.Has(snapshot.FieldTokenUsage), s.TokenUsage),
		MaxRunning:    unless(s.MaxRunningRequests == 0, s.MaxRunningRequests),
		PrefillTokens: unless(!s.Present.Has(snapshot.FieldTotalPrefillUncachedTokens), s.TotalPrefillUncachedTokens),
		PrefillBusyUS: unless(!s.Present.Has(snapshot.FieldTotalPrefillBusyUS), s.TotalPrefillBusyUS),
		EngineTime:    unless(!s.Present.Has(snapshot.FieldTimestamp), s.Timestamp),
	}
	if s.Nil.Has(snapshot.FieldNumRunningReqs) {
		r.Running = -1
	}
	if s.Nil.Has(snapshot.FieldNumWaitingReqs) {
		r.Waiting = -1
	}
	if r.Waiting > 0 && !s.Present.Has(snapshot.FieldNumWaitingUncachedTokens) && s.Disaggregation.Mode != "decode" {
		r.WaitingTokens = Maybe[int64]{}
	}
	if s.Refused != 0 {
		r.Flaws |= FlawField
	}
	if !s.Present.Has(snapshot.FieldTokenUsage) {
		r.KVUsage = r.usageFromTokens()
	}
	return r
}

// FromStat returns the report that a LoadStat carries. Its four counts are
// always there, so a capacity of 0 is the engine's word that it is not up yet.
func FromStat(s *snapshot.LoadStat) Report {
	r := Report{
		Running:       s.NumRunningReqs,
		Waiting:       s.NumWaitingReqs,
		WaitingTokens: unless(!s.Present.Has(snapshot.FieldNumWaitingUncachedTokens), s.NumWaitingUncachedTokens),
		KVUsed:        Known(s.NumTokens),
		KVCapacity:    Known(s.MaxTotalNumTokens),
		MaxRunning:    unless(s.MaxRunningRequests == 0, s.MaxRunningRequests),
		PrefillTokens: unless(!s.Present.Has(snapshot.FieldTotalPrefillUncachedTokens), s.TotalPrefillUncachedTokens),
		PrefillBusyUS: unless(!s.Present.Has(snapshot.FieldTotalPrefillBusyUS), s.TotalPrefillBusyUS),
	}
	if s.Refused != 0 {
		r.Flaws |= FlawField
	}
	r.KVUsage = r.usageFromTokens()
	return r
}

func unless[T int64 | float64](unknown bool, v T) Maybe[T] {
	if unknown {
		return Maybe[T]{}
	}
	return Known(v)
}
