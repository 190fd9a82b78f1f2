package vllm

import (
	"errors"
	"math"
	"reflect"
	"testing"
)

func TestLoadsAreKnownUnknownOrRefused(t *testing.T) {
	with := func(more ...pair) []pair { return append(stats(3, 5), more...) }
	plain := Load{Known: true, Running: 3, Waiting: 5}
	usage := func(x float64) Load { l := plain; l.KVUsage = share(x); return l }

	for _, tt := range []struct {
		name    string
		stats   any
		want    Load
		refused string
	}{
		{"none", nil, Load{}, ""},
		{"empty", []pair{}, Load{}, ""},
		{"idle", stats(0, 0), Load{Known: true}, ""},
		{"counts alone", stats(3, 5), plain, ""},
		{"without the running", []pair{{"num_waiting_reqs", 5}, {"kv_cache_usage", 0.5}}, Load{KVUsage: share(0.5)}, ""},
		{"without the waiting", []pair{{"num_running_reqs", 5}, {"num_skipped_waiting_reqs", 2}}, Load{Skipped: count(2)}, ""},
		{"with running that are nil", stats(nil, 5), Load{}, ""},
		{"with waiting that are nil", stats(3, nil), Load{}, ""},
		{"with floats for counts", stats(3.0, 5.0), plain, ""},
		{"with the largest counts", stats(uint64(math.MaxInt64), uint64(math.MaxInt64)), Load{Known: true, Running: math.MaxInt64, Waiting: math.MaxInt64}, ""},
		{"with skipped", with(pair{"num_skipped_waiting_reqs", 2}), Load{Known: true, Running: 3, Waiting: 5, Skipped: count(2)}, ""},
		{"with skipped that are nil", with(pair{"num_skipped_waiting_reqs", nil}), plain, ""},

		{"running -1", stats(-1, 5), Load{}, "num_running_reqs: negative"},
		{"waiting -1", stats(3, -1), Load{}, "num_waiting_reqs: negative"},
		{"skipped -1", with(pair{"num_skipped_waiting_reqs", -1}), Load{}, "num_skipped_waiting_reqs: negative"},
		{"waiting -1 without the running", []pair{{"num_waiting_reqs", -1}}, Load{}, "num_waiting_reqs: negative"},
		{"half a request", stats(0.5, 5), Load{}, "num_running_reqs: not_integer"},
		{"running NaN", stats(nan, 5), Load{}, "num_running_reqs: not_finite"},
		{"waiting infinite", stats(3, inf), Load{}, "num_waiting_reqs: not_finite"},
		{"running 2^63", stats(uint64(1<<63), 5), Load{}, "num_running_reqs: out_of_range"},
		{"waiting 2^63 as a float", stats(3, float64(1<<63)), Load{}, "num_waiting_reqs: out_of_range"},
		{"running in words", stats("three", 5), Load{}, "num_running_reqs: type"},
		{"waiting in a list", stats(3, list(5)), Load{}, "num_waiting_reqs: type"},
		{"with a KV usage but waiting -1", append(stats(3, -1), pair{"kv_cache_usage", 0.5}), Load{}, "num_waiting_reqs: negative"},
		{"two that are wrong", stats(-1, nan), Load{}, "num_running_reqs: negative"},
		{"a list", list(3, 5, 0.75), Load{}, "scheduler_stats: type"},
		{"a number", 3, Load{}, "scheduler_stats: type"},

		{"KV usage 0", with(pair{"kv_cache_usage", 0.0}), usage(0), ""},
		{"KV usage -0", with(pair{"kv_cache_usage", math.Copysign(0, -1)}), usage(0), ""},
		{"KV usage 1", with(pair{"kv_cache_usage", 1.0}), usage(1), ""},
		{"KV usage 1 as an integer", with(pair{"kv_cache_usage", 1}), usage(1), ""},
		{"KV usage just above 1", with(pair{"kv_cache_usage", math.Nextafter(1, 2)}), plain, "kv_cache_usage: out_of_range"},
		{"KV usage in percent", with(pair{"kv_cache_usage", 75.0}), plain, "kv_cache_usage: out_of_range"},
		{"KV usage 2 as an integer", with(pair{"kv_cache_usage", 2}), plain, "kv_cache_usage: out_of_range"},
		{"KV usage -0.5", with(pair{"kv_cache_usage", -0.5}), plain, "kv_cache_usage: negative"},
		{"KV usage NaN", with(pair{"kv_cache_usage", nan}), plain, "kv_cache_usage: not_finite"},
		{"KV usage infinite", with(pair{"kv_cache_usage", inf}), plain, "kv_cache_usage: not_finite"},
		{"KV usage nil", with(pair{"kv_cache_usage", nil}), plain, ""},
		{"KV usage in words", with(pair{"kv_cache_usage", "half"}), plain, "kv_cache_usage: type"},
		{"KV usage NaN by its old name", with(pair{"gpu_cache_usage", nan}), plain, "gpu_cache_usage: not_finite"},
		{"KV usage NaN without the running", []pair{{"num_waiting_reqs", 5}, {"kv_cache_usage", nan}}, Load{}, "kv_cache_usage: not_finite"},
		{"KV usage by its old name", with(pair{"gpu_cache_usage", 0.25}), usage(0.25), ""},
		{"KV usage by both names", with(pair{"gpu_cache_usage", 0.25}, pair{"kv_cache_usage", 0.5}), usage(0.5), ""},
		{"KV usage by both names, the old one last", with(pair{"kv_cache_usage", 0.5}, pair{"gpu_cache_usage", 0.25}), usage(0.5), ""},
		{"KV usage by both names, of which the newer is no share", with(pair{"gpu_cache_usage", 0.25}, pair{"kv_cache_usage", nan}), plain, "kv_cache_usage: not_finite"},
		{"KV usage by both names, of which the newer is nil", with(pair{"gpu_cache_usage", 0.25}, pair{"kv_cache_usage", nil}), plain, ""},
		{"KV usage by both names, of which the old one is no share", with(pair{"gpu_cache_usage", nan}, pair{"kv_cache_usage", 0.5}), usage(0.5), ""},

		{"keys of every type", []pair{{nil, 1}, {7, 1}, {list("num_running_reqs"), 9}, {[]byte("num_running_reqs"), 9}, {"num_running_reqs", 3}, {"", 4}, {"num_waiting_reqs", 5}, {"num_waiting_reqs_", 6}}, plain, ""},
		{"values of every type", with(pair{"x", []pair{{"num_running_reqs", 9}}}, pair{"y", list(nested(31), 1.5)}, pair{"z", raw("\xd4\x01a")}), plain, ""},
		{"keys that come twice, of which the last counts", []pair{{"num_running_reqs", -1}, {"num_waiting_reqs", 9}, {"kv_cache_usage", 0.5}, {"num_running_reqs", 3}, {"num_waiting_reqs", 5}, {"kv_cache_usage", nan}}, plain, "kv_cache_usage: not_finite"},
		{"a KV usage that comes again as one that is right", with(pair{"kv_cache_usage", nan}, pair{"kv_cache_usage", 0.5}), usage(0.5), ""},
		{"a count that comes again as nil", append(stats(3, 5), stats(nil, 5)...), Load{}, ""},
		{"a count that comes again as one that is wrong", append(stats(3, 5), stats(3, -1)...), Load{}, "num_waiting_reqs: negative"},
	} {
		var o Outputs
		if err := o.Decode(message(2, list(out("a", nil), out("b", 0)), tt.stats, 1.5, nil, list("b", "c"))); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		want := reading{
			Kind: KindBatch, EngineIndex: 2, Load: tt.want, Refused: tt.refused, // the batch counts whatever the load is
			Finished: []string{"b", "c"}, Reasons: []FinishReason{FinishStop, FinishUnsaid},
			Outputs: []readOutput{{"a", 0, FinishNone}, {"b", 0, FinishStop}},
		}
		if got := readingOf(&o); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", tt.name, got, want)
		}
		if math.Signbit(o.Load.KVUsage.Or(0)) {
			t.Errorf("%s: KV usage is -0", tt.name)
		}
	}
}

func TestAKVUsageThatIsNoShareIsRefusedAndTheCountsStand(t *testing.T) {
	for value, want := range map[any]error{75.0: ErrOutOfRange, -1: ErrNegative, inf: ErrNotFinite, raw("\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"): ErrNotFinite} {
		var o Outputs
		if err := o.Decode(message(1, list(out("a", 0)), append(stats(3, 5), pair{"kv_cache_usage", value}))); err != nil {
			t.Errorf("%v: %v", value, err)
		}
		if o.Load != (Load{Known: true, Running: 3, Waiting: 5}) || len(o.Finished) != 1 {
			t.Errorf("%v: left %+v and %q", value, o.Load, o.Finished)
		}
		if d, ok := errors.AsType[*DecodeError](o.LoadErr); !ok || d.Err != want || d.Field != "kv_cache_usage" {
			t.Errorf("%v: %v, want %v", value, o.LoadErr, want)
		}
	}
}

func TestARefusedStatisticSaysWhere(t *testing.T) {
	for _, refused := range [][]pair{stats(3, -1), append(stats(3, 5), pair{"kv_cache_usage", 2})} {
		payload := message(2, list(), refused)
		var o Outputs
		if err := o.Decode(payload); err != nil {
			t.Fatal(err)
		}
		if d, ok := o.LoadErr.(*DecodeError); !ok || d.Offset != len(payload)-1 {
			t.Errorf("got %v, want byte %d", o.LoadErr, len(payload)-1)
		}
	}
}
