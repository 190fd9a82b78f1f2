package load

import (
	"errors"
	"math"
	"testing"

	"github.com/plimsoll-go/plimsoll/snapshot"
)

// snap is a LoadSnapshot as a decoder leaves it, of which these fields came.
func snap(set func(s *snapshot.LoadSnapshot), present ...snapshot.Field) snapshot.LoadSnapshot {
	var s snapshot.LoadSnapshot
	if set != nil {
		set(&s)
	}
	s.Present = snapshot.FieldsOf(present...)
	return s
}

func nils(s snapshot.LoadSnapshot, fields ...snapshot.Field) snapshot.LoadSnapshot {
	s.Nil = snapshot.FieldsOf(fields...)
	s.Present &^= s.Nil
	return s
}

func refused(s snapshot.LoadSnapshot, fields ...snapshot.Field) snapshot.LoadSnapshot {
	s.Refused = snapshot.FieldsOf(fields...)
	s.Present &^= s.Refused
	return s
}

func TestAReportOfALoadSnapshotTellsAbsentFromNilFromZero(t *testing.T) {
	zero, one := Known[int64](0), Known[int64](1)
	idle := Report{WaitingTokens: zero, KVUsed: zero}
	waiting3 := func(s *snapshot.LoadSnapshot) { s.NumWaitingReqs = 3 }
	for _, tt := range []struct {
		name string
		in   snapshot.LoadSnapshot
		want Report
		why  Why
	}{
		{
			name: "an empty map is an idle rank and its worker is trusted",
			in:   snap(nil),
			want: idle,
		}, {
			name: "a map with a timestamp alone is an idle rank too",
			in:   snap(func(s *snapshot.LoadSnapshot) { s.Timestamp = 1.5 }, snapshot.FieldTimestamp),
			want: with(idle, func(r *Report) { r.EngineTime = Known(1.5) }),
		}, {
			name: "a capacity that is there and 0 is an engine still booting",
			in:   snap(nil, snapshot.FieldMaxTotalNumTokens),
			want: with(idle, func(r *Report) { r.KVCapacity = zero }),
			why:  Booting,
		}, {
			name: "a capacity that is nil is unknown and no sign of booting",
			in:   nils(snap(nil), snapshot.FieldMaxTotalNumTokens),
			want: idle,
		}, {
			name: "running and waiting are taken over",
			in: snap(func(s *snapshot.LoadSnapshot) {
				s.NumRunningReqs, s.NumWaitingReqs, s.NumWaitingUncachedTokens = 5, 2, 700
			},
				snapshot.FieldNumRunningReqs, snapshot.FieldNumWaitingReqs, snapshot.FieldNumWaitingUncachedTokens),
			want: with(idle, func(r *Report) { r.Running, r.Waiting, r.WaitingTokens = 5, 2, Known[int64](700) }),
		}, {
			name: "the waiting tokens of a queue that is not empty are unknown where the key is absent",
			in:   snap(waiting3, snapshot.FieldNumWaitingReqs),
			want: Report{Waiting: 3, KVUsed: zero},
		}, {
			name: "the waiting tokens of a queue that is not empty are 0 where the key says 0",
			in:   snap(waiting3, snapshot.FieldNumWaitingReqs, snapshot.FieldNumWaitingUncachedTokens),
			want: Report{Waiting: 3, WaitingTokens: zero, KVUsed: zero},
		}, {
			name: "waiting tokens that are nil are unknown",
			in:   nils(snap(waiting3, snapshot.FieldNumWaitingReqs), snapshot.FieldNumWaitingUncachedTokens),
			want: Report{Waiting: 3, KVUsed: zero},
		}, {
			name: "waiting tokens that are nil are unknown on a decode engine as well",
			in: nils(snap(func(s *snapshot.LoadSnapshot) { s.NumWaitingReqs, s.Disaggregation.Mode = 3, "decode" }, snapshot.FieldNumWaitingReqs),
				snapshot.FieldNumWaitingUncachedTokens),
			want: Report{Waiting: 3, KVUsed: zero},
		}, {
			name: "a decode engine's waiting tokens are 0 though its queue is not empty",
			in:   snap(func(s *snapshot.LoadSnapshot) { s.NumWaitingReqs, s.Disaggregation.Mode = 3, "decode" }, snapshot.FieldNumWaitingReqs),
			want: Report{Waiting: 3, WaitingTokens: zero, KVUsed: zero},
		}, {
			name: "a prefill engine's absent waiting tokens are unknown",
			in:   snap(func(s *snapshot.LoadSnapshot) { s.NumWaitingReqs, s.Disaggregation.Mode = 3, "prefill" }, snapshot.FieldNumWaitingReqs),
			want: Report{Waiting: 3, KVUsed: zero},
		}, {
			name: "KV in use that is nil is unknown",
			in:   nils(snap(nil), snapshot.FieldNumUsedTokens),
			want: Report{WaitingTokens: zero},
		}, {
			name: "KV usage is the engine's own where it gives one",
			in: snap(func(s *snapshot.LoadSnapshot) { s.NumUsedTokens, s.MaxTotalNumTokens, s.TokenUsage = 10, 100, 0.25 },
				snapshot.FieldNumUsedTokens, snapshot.FieldMaxTotalNumTokens, snapshot.FieldTokenUsage),
			want: Report{WaitingTokens: zero, KVUsed: Known[int64](10), KVCapacity: Known[int64](100), KVUsage: Known(0.25)},
		}, {
			name: "KV usage follows from use and capacity where the engine gives none",
			in: snap(func(s *snapshot.LoadSnapshot) { s.NumUsedTokens, s.MaxTotalNumTokens = 10, 100 },
				snapshot.FieldNumUsedTokens, snapshot.FieldMaxTotalNumTokens),
			want: Report{WaitingTokens: zero, KVUsed: Known[int64](10), KVCapacity: Known[int64](100), KVUsage: Known(0.1)},
		}, {
			name: "KV usage of an unused cache is a known 0",
			in:   snap(func(s *snapshot.LoadSnapshot) { s.MaxTotalNumTokens = 100 }, snapshot.FieldMaxTotalNumTokens),
			want: Report{WaitingTokens: zero, KVUsed: zero, KVCapacity: Known[int64](100), KVUsage: Known(0.0)},
		}, {
			name: "KV usage that was refused is a flaw, and follows from use and capacity",
			in: refused(snap(func(s *snapshot.LoadSnapshot) { s.NumUsedTokens, s.MaxTotalNumTokens = 50, 100 },
				snapshot.FieldNumUsedTokens, snapshot.FieldMaxTotalNumTokens), snapshot.FieldTokenUsage),
			want: Report{WaitingTokens: zero, KVUsed: Known[int64](50), KVCapacity: Known[int64](100), KVUsage: Known(0.5), Flaws: FlawField},
		}, {
			name: "more KV in use than there is leaves use and usage unknown",
			in: snap(func(s *snapshot.LoadSnapshot) { s.NumUsedTokens, s.MaxTotalNumTokens = 101, 100 },
				snapshot.FieldNumUsedTokens, snapshot.FieldMaxTotalNumTokens),
			want: Report{WaitingTokens: zero, KVCapacity: Known[int64](100), Flaws: FlawKVUsed},
		}, {
			name: "a usage above 1 is a flaw and unknown",
			in:   snap(func(s *snapshot.LoadSnapshot) { s.TokenUsage = 1.5 }, snapshot.FieldTokenUsage),
			want: with(idle, func(r *Report) { r.Flaws = FlawKVUsage }),
		}, {
			name: "a concurrency cap of 0 is unknown",
			in:   snap(nil, snapshot.FieldMaxRunningRequests),
			want: idle,
		}, {
			name: "a concurrency cap is taken over",
			in:   snap(func(s *snapshot.LoadSnapshot) { s.MaxRunningRequests = 1 }, snapshot.FieldMaxRunningRequests),
			want: with(idle, func(r *Report) { r.MaxRunning = one }),
		}, {
			name: "cumulative counters that are there and 0 are known",
			in:   snap(nil, snapshot.FieldTotalPrefillUncachedTokens, snapshot.FieldTotalPrefillBusyUS),
			want: with(idle, func(r *Report) { r.PrefillTokens, r.PrefillBusyUS = zero, zero }),
		}, {
			name: "a refused section is a flaw and nothing else",
			in:   refused(snap(nil), snapshot.FieldMemory),
			want: with(idle, func(r *Report) { r.Flaws = FlawField }),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkStored(t, FromSnapshot(&tt.in), tt.want, tt.why)
		})
	}
}

func TestANilCountOfRequestsIsNoReadingAtAll(t *testing.T) {
	for _, f := range []snapshot.Field{snapshot.FieldNumRunningReqs, snapshot.FieldNumWaitingReqs} {
		t.Run(f.String(), func(t *testing.T) {
			s := nils(snap(nil), f)
			table, _ := newTestTable()
			w := table.Add("a", "")
			if err := w.Advertise(1).Put(0, FromSnapshot(&s)); !errors.Is(err, ErrBadReport) {
				t.Errorf("error is %v, want ErrBadReport", err)
			}
			wantUntrusted(t, w, NeverReported)
		})
	}
}

func with(r Report, change func(*Report)) Report {
	change(&r)
	return r
}

// checkStored puts a report and compares what a view has of it.
func checkStored(t *testing.T, r, want Report, why Why) {
	t.Helper()
	table, _ := newTestTable()
	w := table.Add("a", "")
	mustPut(t, w.Advertise(1), 0, r)
	stored, _ := entry(t, w).Report(0)
	got := *stored
	got.Received, got.Source = want.Received, want.Source
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if why == Trusted {
		wantTrusted(t, w, want.Running+want.Waiting)
	} else {
		wantUntrusted(t, w, why)
	}
}

func TestAReportOfALoadStatTellsAbsentFromNilFromZero(t *testing.T) {
	zero := Known[int64](0)
	stat := func(elements int, set func(*snapshot.LoadStat)) snapshot.LoadStat {
		s := snapshot.LoadStat{NumRunningReqs: 2, NumWaitingReqs: 3, NumTokens: 25, MaxTotalNumTokens: 100, Present: snapshot.StatForm(elements)}
		if set != nil {
			set(&s)
		}
		return s
	}
	base := Report{Running: 2, Waiting: 3, KVUsed: Known[int64](25), KVCapacity: Known[int64](100), KVUsage: Known(0.25)}
	for _, tt := range []struct {
		name string
		in   snapshot.LoadStat
		want Report
		why  Why
	}{
		{
			name: "the form of six elements knows no waiting tokens",
			in:   stat(6, nil),
			want: base,
		}, {
			name: "a seventh element gives the waiting tokens",
			in:   stat(7, func(s *snapshot.LoadStat) { s.NumWaitingUncachedTokens = 900 }),
			want: with(base, func(r *Report) { r.WaitingTokens = Known[int64](900) }),
		}, {
			name: "a seventh element of 0 says that there are none",
			in:   stat(7, nil),
			want: with(base, func(r *Report) { r.WaitingTokens = zero }),
		}, {
			name: "a seventh element that is nil says that they are not known",
			in: stat(7, func(s *snapshot.LoadStat) {
				s.Nil = snapshot.FieldsOf(snapshot.FieldNumWaitingUncachedTokens)
				s.Present &^= s.Nil
			}),
			want: base,
		}, {
			name: "the form of eleven elements gives the cap and the counters",
			in: stat(11, func(s *snapshot.LoadStat) {
				s.NumWaitingUncachedTokens, s.NumTotalTokens, s.MaxRunningRequests = 900, 40, 64
				s.TotalPrefillUncachedTokens, s.TotalPrefillBusyUS = 12345, 678
			}),
			want: with(base, func(r *Report) {
				r.WaitingTokens, r.MaxRunning = Known[int64](900), Known[int64](64)
				r.PrefillTokens, r.PrefillBusyUS = Known[int64](12345), Known[int64](678)
			}),
		}, {
			name: "a cap of 0 is unknown and counters of 0 are 0",
			in:   stat(11, nil),
			want: with(base, func(r *Report) { r.WaitingTokens, r.PrefillTokens, r.PrefillBusyUS = zero, zero, zero }),
		}, {
			name: "a capacity of 0 is an engine still booting",
			in:   stat(6, func(s *snapshot.LoadStat) { s.NumTokens, s.MaxTotalNumTokens = 0, 0 }),
			want: Report{Running: 2, Waiting: 3, KVUsed: zero, KVCapacity: zero},
			why:  Booting,
		}, {
			name: "more KV in use than there is leaves use and usage unknown",
			in:   stat(6, func(s *snapshot.LoadStat) { s.NumTokens = 101 }),
			want: Report{Running: 2, Waiting: 3, KVCapacity: Known[int64](100), Flaws: FlawKVUsed},
		}, {
			name: "an unusable rank is a flaw and nothing else",
			in:   stat(6, func(s *snapshot.LoadStat) { s.Refused = snapshot.FieldsOf(snapshot.FieldDPRank) }),
			want: with(base, func(r *Report) { r.Flaws = FlawField }),
		}, {
			name: "the largest counts are taken without wrapping",
			in: stat(6, func(s *snapshot.LoadStat) {
				s.NumRunningReqs, s.NumWaitingReqs, s.NumTokens, s.MaxTotalNumTokens = math.MaxInt64-3, 3, math.MaxInt64, math.MaxInt64
			}),
			want: Report{
				Running: math.MaxInt64 - 3, Waiting: 3,
				KVUsed: Known[int64](math.MaxInt64), KVCapacity: Known[int64](math.MaxInt64), KVUsage: Known(1.0),
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkStored(t, FromStat(&tt.in), tt.want, tt.why)
		})
	}
}

func TestAReadingBecomesTheReportOfWhicheverMessageItIs(t *testing.T) {
	for _, tt := range []struct {
		name, payload string
		want          Report
	}{
		{
			"an empty map on the wire", "\x80",
			Report{WaitingTokens: Known[int64](0), KVUsed: Known[int64](0)},
		}, {
			"a map on the wire", "\x82\xb0num_running_reqs\x05\xb0num_waiting_reqs\x01",
			Report{Running: 5, Waiting: 1, KVUsed: Known[int64](0)},
		}, {
			"an array on the wire", "\x97\xa8LoadStat\x03\x02\x0a\x14\x00\xc0",
			Report{Running: 3, Waiting: 2, KVUsed: Known[int64](10), KVCapacity: Known[int64](20), KVUsage: Known(0.5)},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// One after another in the same Reading, as a transport reuses it.
			var r snapshot.Reading
			for _, payload := range []string{"\x96\xa8LoadStat\x09\x09\x09\x09\x01", "\x81\xb0num_running_reqs\x07", tt.payload} {
				if err := r.Decode([]byte(payload)); err != nil {
					t.Fatal(err)
				}
			}
			checkStored(t, FromReading(&r), tt.want, Trusted)
		})
	}
}

func TestReadingThatNothingWasDecodedIntoIsNoReport(t *testing.T) {
	f := NewTable(Config{}).Add("a", "").Advertise(1)
	if err := f.Put(0, FromReading(new(snapshot.Reading))); !errors.Is(err, ErrBadReport) {
		t.Errorf("error is %v, want ErrBadReport", err)
	}
}
