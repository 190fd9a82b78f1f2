package load

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
)

func TestReportsWithImpossibleNumbersAreRefusedOrHaveThemMadeUnknown(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tt := range []struct {
		name  string
		put   Report
		want  Report // as stored, apart from Received and Source
		error error
	}{
		{
			name:  "a running count of -1 refuses the report",
			put:   Report{Running: -1, Waiting: 2},
			error: ErrBadReport,
		}, {
			name:  "a waiting count of -1 refuses the report",
			put:   Report{Running: 1, Waiting: -1},
			error: ErrBadReport,
		}, {
			name:  "the most negative count refuses the report",
			put:   Report{Running: math.MinInt64},
			error: ErrBadReport,
		}, {
			name: "a report of nothing but zeros is an idle rank's and is taken as it is",
			put:  Report{},
			want: Report{},
		}, {
			name: "negative advisory counts become unknown",
			put: Report{
				Running: 3, WaitingTokens: Known[int64](-1), MaxRunning: Known[int64](-2),
				PrefillTokens: Known[int64](math.MinInt64), PrefillBusyUS: Known[int64](-1),
			},
			want: Report{Running: 3, Flaws: FlawField},
		}, {
			name: "a negative KV count becomes unknown and so does nothing else",
			put:  Report{KVUsed: Known[int64](-1), KVCapacity: Known[int64](100), KVUsage: Known(0.5)},
			want: Report{KVCapacity: Known[int64](100), KVUsage: Known(0.5), Flaws: FlawField},
		}, {
			name: "a capacity of -1 is unknown and does not mean booting",
			put:  Report{KVUsed: Known[int64](5), KVCapacity: Known[int64](-1)},
			want: Report{KVUsed: Known[int64](5), Flaws: FlawField},
		}, {
			name: "more KV in use than there is leaves use and usage unknown",
			put:  Report{KVUsed: Known[int64](101), KVCapacity: Known[int64](100), KVUsage: Known(1.0)},
			want: Report{KVCapacity: Known[int64](100), Flaws: FlawKVUsed},
		}, {
			name: "as much KV in use as there is is a full cache",
			put:  Report{KVUsed: Known[int64](100), KVCapacity: Known[int64](100), KVUsage: Known(1.0)},
			want: Report{KVUsed: Known[int64](100), KVCapacity: Known[int64](100), KVUsage: Known(1.0)},
		}, {
			name: "KV in use of a capacity that is not known is no contradiction",
			put:  Report{KVUsed: Known[int64](100)},
			want: Report{KVUsed: Known[int64](100)},
		}, {
			name: "a usage that is NaN is unknown",
			put:  Report{Waiting: 1, KVUsage: Known(nan)},
			want: Report{Waiting: 1, Flaws: FlawKVUsage},
		}, {
			name: "an infinite usage is unknown",
			put:  Report{KVUsage: Known(inf)},
			want: Report{Flaws: FlawKVUsage},
		}, {
			name: "a usage just above 1 is unknown",
			put:  Report{KVUsage: Known(math.Nextafter(1, 2))},
			want: Report{Flaws: FlawKVUsage},
		}, {
			name: "a usage just below 0 is unknown",
			put:  Report{KVUsage: Known(math.Nextafter(0, -1))},
			want: Report{Flaws: FlawKVUsage},
		}, {
			name: "usages of 0 and 1 are what they say",
			put:  Report{KVUsage: Known(1.0)},
			want: Report{KVUsage: Known(1.0)},
		}, {
			name: "several flaws are named together",
			put:  Report{WaitingTokens: Known[int64](-1), KVUsed: Known[int64](2), KVCapacity: Known[int64](1), KVUsage: Known(nan)},
			want: Report{KVCapacity: Known[int64](1), Flaws: FlawField | FlawKVUsed},
		}, {
			name: "an engine clock that is NaN is unknown",
			put:  Report{EngineTime: Known(nan)},
			want: Report{Flaws: FlawField},
		}, {
			name: "an infinite engine clock is unknown",
			put:  Report{EngineTime: Known(-inf)},
			want: Report{Flaws: FlawField},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table, _ := newTestTable()
			w := table.Add("a", "")
			f := w.Advertise(1)
			err := f.Put(0, tt.put)
			if !errors.Is(err, tt.error) {
				t.Fatalf("error is %v, want %v", err, tt.error)
			}
			stats := w.Status().Ranks[0]
			if tt.error != nil {
				wantUntrusted(t, w, NeverReported)
				if stats.Report != nil || stats.Reports != 0 || len(stats.Dropped) == 0 {
					t.Errorf("a refused report is counted as %d taken and %v dropped", stats.Reports, stats.Dropped)
				}
				return
			}
			r, ok := entry(t, w).Report(0)
			if !ok {
				t.Fatal("the report was not stored")
			}
			got := *r
			got.Received, got.Source = tt.want.Received, tt.want.Source
			if got != tt.want {
				t.Errorf("stored %+v\nwant   %+v", got, tt.want)
			}
			if flawed := tt.want.Flaws != 0; (stats.Flawed == 1) != flawed || stats.Reports != 1 {
				t.Errorf("counted as %d flawed of %d, want flawed %v of 1", stats.Flawed, stats.Reports, flawed)
			}
			wantTrusted(t, w, tt.want.Running+tt.want.Waiting)
		})
	}
}

func TestARefusedReportLeavesTheOneBeforeItInPlace(t *testing.T) {
	table, clock := newTestTable()
	w, f := advertised(t, table, "a", Report{Running: 4})
	clock.advance(testWindow)
	if err := f.Put(0, Report{Running: -1}); !errors.Is(err, ErrBadReport) {
		t.Fatal(err)
	}
	wantTrusted(t, w, 4)
	clock.advance(1)
	wantUntrusted(t, w, Stale) // it was no sign of life either
}

func TestTheDepthOfAWorkerIsTheSumOverItsRanksAndSaturates(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ranks []Report
		want  int64
	}{
		{"ranks (5,1) and (3,2) make a worker depth of 11", []Report{{Running: 5, Waiting: 1}, {Running: 3, Waiting: 2}}, 11},
		{"an idle rank adds nothing", []Report{{Running: 7}, {}}, 7},
		{"running plus waiting past 64 bits stops at the largest", []Report{{Running: math.MaxInt64, Waiting: math.MaxInt64}}, math.MaxInt64},
		{"running plus waiting one past 64 bits stops at the largest", []Report{{Running: math.MaxInt64, Waiting: 1}}, math.MaxInt64},
		{"running plus waiting just within 64 bits is exact", []Report{{Running: math.MaxInt64 - 1, Waiting: 1}}, math.MaxInt64},
		{"the sum over ranks stops at the largest", []Report{{Running: math.MaxInt64}, {Running: 1}, {Waiting: math.MaxInt64}}, math.MaxInt64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table, _ := newTestTable()
			w, _ := advertised(t, table, "a", tt.ranks...)
			wantTrusted(t, w, tt.want)
			// With a request on top of it: no wrap-around there either.
			reserve(t, w, NoRank, 0)
			if got, want := depthNow(t, w), addSat(tt.want, 1); got != want {
				t.Errorf("with one request since, the depth is %d, want %d", got, want)
			}
		})
	}
}

func TestSumsOverWorkersWithTheLargestDepthsDoNotOverflow(t *testing.T) {
	table, _ := newTestTable()
	for _, id := range []string{"a", "b", "c", "d"} {
		advertised(t, table, id, Report{Running: math.MaxInt64, Waiting: math.MaxInt64})
	}
	w, f := advertised(t, table, "e", Report{Running: 1})
	for range 3 {
		mustPut(t, f, 0, Report{Running: 2})
		workers, depth, own := table.View().Trusted()
		if workers != 5 || depth <= 0 || own != 0 {
			t.Fatalf("sums are %d workers, depth %d, own %d", workers, depth, own)
		}
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		old, _ := table.Worker(id)
		table.Remove(old)
	}
	if workers, depth, _ := table.View().Trusted(); workers != 1 || depth != 2 {
		t.Errorf("with the giants gone the sums are %d workers and depth %d, want 1 and 2", workers, depth)
	}
	wantTrusted(t, w, 2)
}

func TestNamesOfSourcesFlawsAndReasons(t *testing.T) {
	type named interface {
		fmt.Stringer
		encoding.TextMarshaler
	}
	for _, tt := range []struct {
		v    named
		back encoding.TextUnmarshaler
		want string
	}{
		{SourcePoll, new(Source), "poll"}, {SourcePush, new(Source), "push"}, {SourceHost, new(Source), "host"}, {Source(0), new(Source), "unknown"},
		{Trusted, new(Why), "trusted"}, {NoFeed, new(Why), "no_feed"}, {NoAnswer, new(Why), "no_answer"},
		{NotPublishing, new(Why), "not_publishing"}, {NeverReported, new(Why), "never_reported"},
		{Stale, new(Why), "stale"}, {Booting, new(Why), "booting"},
		{FlawField | FlawKVUsage, new(Flaws), "field,kv_usage"}, {FlawKVUsed, new(Flaws), "kv_used"}, {Flaws(0), new(Flaws), ""},
	} {
		b, err := tt.v.MarshalText()
		if err != nil || string(b) != tt.want || tt.v.String() != tt.want {
			t.Errorf("%#v is %q, encoded %q (%v), want %q", tt.v, tt.v, b, err, tt.want)
		}
		if err := tt.back.UnmarshalText(b); err != nil || reflect.ValueOf(tt.back).Elem().Interface() != tt.v {
			t.Errorf("%q is decoded as %v (%v)", b, tt.back, err)
		}
		if tt.back.UnmarshalText([]byte("no such name")) == nil {
			t.Errorf("a %T was decoded from nonsense", tt.v)
		}
	}
	if Why(99).String() != "unknown" || Source(99).String() != "unknown" {
		t.Errorf("unheard-of values print as %q and %q", Why(99), Source(99))
	}
}
