package discovery

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// rankLoad is one entry of /v1/loads: the load of one rank, or why there is
// none.
type rankLoad struct {
	rank   int
	load   snapshot.LoadSnapshot // valid if err is nil
	reason string                // label of err
	err    error
}

// loadFields are the core fields of an entry, by key.
var loadFields = func() map[string]snapshot.Field {
	fields := make(map[string]snapshot.Field)
	for f := snapshot.FieldTimestamp; f <= lastLoadField; f++ {
		fields[f.String()] = f
	}
	return fields
}()

const lastLoadField = snapshot.FieldTotalPrefillBusyUS

// errNoRanks: an engine that runs has at least one rank. One that lists none is
// broken, and must not pass for one that is idle.
var errNoRanks = errors.New("loads is empty")

// parseLoads reads the body of GET /v1/loads (sglang.srt.entrypoints.v1_loads),
// by entry: one broken entry says nothing about the other ranks.
//
// A count of -1, null or none at all is unknown, which is the difference to the
// load socket, whose messages leave out what is zero. Unknown counts end up in
// LoadSnapshot.Nil. A count that is no count (negative, fractional, a string) and
// an unknown number of running or waiting requests cost the entry. Bad ratios
// and throughputs go to LoadSnapshot.Refused and leave the rest standing. The
// aggregate of older engines is not looked at.
//
// An error means that nothing can be said about any rank.
func parseLoads(body []byte, maxRanks int) ([]rankLoad, error) {
	object, err := objectIn(body)
	if err != nil {
		return nil, err
	}
	var loads json.RawMessage
	for key, value := range members(object) {
		if string(key) == "loads" {
			loads = value
		}
	}
	if loads == nil || loads[0] != '[' {
		return nil, fmt.Errorf("%w: loads is %s, not an array", errShape, kindOf(loads))
	}
	var out []rankLoad
	byRank := make(map[int]int)
	for raw := range elements(loads) {
		i := len(out)
		if i == maxRanks {
			return nil, fmt.Errorf("%w: more ranks than the bound of %d", errShape, maxRanks)
		}
		out = append(out, parseLoad(raw, i))
		if out[i].rank >= maxRanks {
			return nil, fmt.Errorf("%w: dp_rank %d is above the bound of %d ranks", errShape, out[i].rank, maxRanks)
		}
		first, twice := byRank[out[i].rank]
		if !twice {
			byRank[out[i].rank] = i
			continue
		}
		for _, j := range []int{first, i} {
			out[j].reason, out[j].err = "duplicate_rank", fmt.Errorf("dp_rank %d is there more than once", out[j].rank)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: %w", errShape, errNoRanks)
	}
	return out, nil
}

func parseLoad(raw json.RawMessage, position int) rankLoad {
	e := rankLoad{rank: position}
	if raw[0] != '{' {
		e.reason, e.err = "type", fmt.Errorf("entry is %s, not an object", kindOf(raw))
		return e
	}
	var fields [lastLoadField + 1]json.RawMessage
	for key, value := range members(raw) {
		if f, ok := loadFields[string(key)]; ok {
			fields[f] = value
		}
	}
	s := &e.load
	// Here, unlike on a load socket, nothing but dp_rank says whose load it is.
	// An engine that leaves it out lists its ranks in order.
	if n, err := integer(fields[snapshot.FieldDPRank]); err == nil && n >= 0 {
		e.rank = int(min(n, 1<<30))
		s.DPRank = n
		s.Present |= snapshot.FieldsOf(snapshot.FieldDPRank)
	}
	for _, c := range [...]struct {
		field snapshot.Field
		value *int64
	}{
		{snapshot.FieldNumRunningReqs, &s.NumRunningReqs},
		{snapshot.FieldNumWaitingReqs, &s.NumWaitingReqs},
		{snapshot.FieldNumWaitingUncachedTokens, &s.NumWaitingUncachedTokens},
		{snapshot.FieldNumUsedTokens, &s.NumUsedTokens},
		{snapshot.FieldNumTotalTokens, &s.NumTotalTokens},
		{snapshot.FieldNumActiveTokens, &s.NumActiveTokens},
		{snapshot.FieldNumPreallocReadyTokens, &s.NumPreallocReadyTokens},
		{snapshot.FieldMaxTotalNumTokens, &s.MaxTotalNumTokens},
		{snapshot.FieldMaxRunningRequests, &s.MaxRunningRequests},
		{snapshot.FieldTotalPrefillUncachedTokens, &s.TotalPrefillUncachedTokens},
		{snapshot.FieldTotalPrefillBusyUS, &s.TotalPrefillBusyUS},
	} {
		n, known, err := count(fields[c.field])
		switch {
		case err != nil:
			e.reason, e.err = numberReason(err), fmt.Errorf("%s: %w", c.field, err)
			return e
		case !known:
			s.Nil |= snapshot.FieldsOf(c.field)
		default:
			*c.value = n
			s.Present |= snapshot.FieldsOf(c.field)
		}
	}
	for _, c := range [...]struct {
		field snapshot.Field
		value *float64
	}{
		{snapshot.FieldTimestamp, &s.Timestamp},
		{snapshot.FieldTokenUsage, &s.TokenUsage},
		{snapshot.FieldGenThroughput, &s.GenThroughput},
		{snapshot.FieldCacheHitRate, &s.CacheHitRate},
		{snapshot.FieldUtilization, &s.Utilization},
	} {
		f, known, err := ratio(fields[c.field])
		switch {
		case err != nil:
			s.Refused |= snapshot.FieldsOf(c.field)
		case !known:
			s.Nil |= snapshot.FieldsOf(c.field)
		default:
			*c.value = f
			s.Present |= snapshot.FieldsOf(c.field)
		}
	}
	if f, unknown := unknownQueue(s); unknown {
		e.reason, e.err = "unknown", fmt.Errorf("%s is unknown", f)
	}
	return e
}

// unknownQueue says which of the two counts, without which there is no report,
// is unknown.
func unknownQueue(s *snapshot.LoadSnapshot) (snapshot.Field, bool) {
	for _, f := range [...]snapshot.Field{snapshot.FieldNumRunningReqs, snapshot.FieldNumWaitingReqs} {
		if s.Nil.Has(f) {
			return f, true
		}
	}
	return 0, false
}

// count reads a number of things; -1, null and absent are unknown.
func count(raw json.RawMessage) (n int64, known bool, err error) {
	if absent(raw) {
		return 0, false, nil
	}
	n, err = integer(raw)
	switch {
	case err != nil:
		return 0, false, err
	case n == -1:
		return 0, false, nil
	case n < 0:
		return 0, false, badNumber("negative", "%d is negative", n)
	}
	return n, true, nil
}

// ratio reads a number that is no count; -1, null and absent are unknown.
func ratio(raw json.RawMessage) (f float64, known bool, err error) {
	if absent(raw) {
		return 0, false, nil
	}
	s, err := number(raw)
	if err != nil {
		return 0, false, err
	}
	f, err = strconv.ParseFloat(s, 64)
	switch {
	case err != nil:
		return 0, false, badNumber("out_of_range", "%s is out of range", clip(s))
	case f == -1:
		return 0, false, nil
	case f < 0:
		return 0, false, badNumber("negative", "%s is negative", clip(s))
	}
	return f, true, nil
}

func numberReason(err error) string {
	if n, ok := errors.AsType[*numberError](err); ok {
		return n.reason
	}
	return "other"
}
