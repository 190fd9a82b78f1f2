package vllm

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

// The vectors under testdata come from the engine's own code, of three versions;
// see testdata/generate.py.

type hexBytes []byte

func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

type outputsVector struct {
	Name   string
	Frames []hexBytes
	Fields struct {
		EngineIndex int `json:"engine_index"`
		Outputs     []struct {
			RequestID    string  `json:"request_id"`
			NewTokenIDs  []int64 `json:"new_token_ids"`
			FinishReason *int64  `json:"finish_reason"`
		}
		SchedulerStats *struct {
			Running *int64   `json:"num_running_reqs"`
			Waiting *int64   `json:"num_waiting_reqs"`
			KVUsage *float64 `json:"kv_cache_usage"`
		} `json:"scheduler_stats"`
		UtilityOutput    bool     `json:"utility_output"`
		FinishedRequests []string `json:"finished_requests"`
		WaveComplete     *int64   `json:"wave_complete"`
		StartWave        *int64   `json:"start_wave"`
	}
}

type brokenVector struct {
	Name     string
	Hex      hexBytes
	Reason   string   // why the message is refused, or
	Finished []string // what it ends and
	Unknown  []string // what is not known, while the rest stands
}

func readGolden[T any](t testing.TB, name string) []T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var vectors []T
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) == 0 {
		t.Fatalf("%s has no vectors", name)
	}
	return vectors
}

// goldenFiles returns the files of vectors, one for each version.
func goldenFiles(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", "outputs-*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 3 {
		t.Fatalf("vectors of %d versions", len(paths))
	}
	for i, path := range paths {
		paths[i] = filepath.Base(path)
	}
	return paths
}

func maybe[T int64 | float64](v *T) Maybe[T] {
	if v == nil {
		return Maybe[T]{}
	}
	return Known(*v)
}

// want is what a decoder should make of the fields on the wire, but for
// Load.Skipped.
func (v *outputsVector) want() reading {
	f := &v.Fields
	r := reading{EngineIndex: f.EngineIndex, WaveComplete: maybe(f.WaveComplete), StartWave: maybe(f.StartWave)}
	end := func(id string, reason FinishReason) {
		if !slices.Contains(r.Finished, id) {
			r.Finished, r.Reasons = append(r.Finished, id), append(r.Reasons, reason)
		}
	}
	for _, o := range f.Outputs {
		reason := FinishNone
		if o.FinishReason != nil {
			reason = FinishOther
			if n := *o.FinishReason; n >= 0 && n <= 4 {
				reason = []FinishReason{FinishStop, FinishLength, FinishAbort, FinishError, FinishRepetition}[n]
			}
			end(o.RequestID, reason)
		}
		r.Outputs = append(r.Outputs, readOutput{o.RequestID, len(o.NewTokenIDs), reason})
	}
	for _, id := range f.FinishedRequests {
		end(id, FinishUnsaid)
	}
	if s := f.SchedulerStats; s != nil {
		r.Load.KVUsage = maybe(s.KVUsage)
		if s.Running != nil && s.Waiting != nil {
			r.Load.Known, r.Load.Running, r.Load.Waiting = true, *s.Running, *s.Waiting
		}
	}
	switch {
	case len(f.Outputs) > 0 || f.SchedulerStats != nil || len(f.FinishedRequests) > 0:
		r.Kind = KindBatch
	case f.UtilityOutput:
		r.Kind = KindUtilityReply
	case f.WaveComplete != nil || f.StartWave != nil:
		r.Kind = KindWaveNotice
	default:
		r.Kind = KindBatch
	}
	return r
}

func TestEveryMessageOfTheEngineDecodesToTheValuesItWasMadeFrom(t *testing.T) {
	for _, file := range goldenFiles(t) {
		var o Outputs // the same throughout: nothing of one message may show in the next
		for _, v := range readGolden[outputsVector](t, file) {
			var frames [][]byte
			for _, f := range v.Frames {
				frames = append(frames, f)
			}
			payload, err := Split(frames)
			if err == nil {
				err = o.Decode(payload)
			}
			if err != nil {
				t.Errorf("%s: %s: %v", file, v.Name, err)
				continue
			}
			got := readingOf(&o)
			got.Load.Skipped = Maybe[int64]{}
			if want := v.want(); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s:\n got %+v\nwant %+v", file, v.Name, got, want)
				continue
			}
			for i, want := range v.Fields.Outputs {
				tokens, err := o.At(i).AppendTokens(nil)
				if err != nil || !slices.Equal(tokens, want.NewTokenIDs) {
					t.Errorf("%s: %s: output %d: tokens %v, %v, want %v", file, v.Name, i, tokens, err, want.NewTokenIDs)
				}
			}
		}
	}
}

func TestRequestsThatWerePutOffAreKnownFromNewerEnginesAlone(t *testing.T) {
	for file, want := range map[string]Maybe[int64]{
		"outputs-0.8.5.json":  {},
		"outputs-0.10.2.json": {},
		"outputs-0.33.0.json": Known[int64](0),
	} {
		for _, v := range readGolden[outputsVector](t, file) {
			want := want
			if v.Name == "load: with some waiting that were put off" {
				want.value = 6
			}
			if s := v.Fields.SchedulerStats; s == nil || s.Running == nil && s.Waiting == nil {
				want = Maybe[int64]{}
			}
			var o Outputs
			if err := o.Decode(v.Frames[0]); err != nil || o.Load.Skipped != want {
				t.Errorf("%s: %s: %+v, %v, want %+v", file, v.Name, o.Load.Skipped, err, want)
			}
		}
	}
}

func TestWhatABrokenEngineEncodesIsRefusedOrUnknown(t *testing.T) {
	for _, v := range readGolden[brokenVector](t, "broken.json") {
		var o Outputs
		err := o.Decode(v.Hex)
		if got := Reason(err); got != v.Reason {
			t.Errorf("%s: reason %q (%v), want %q", v.Name, got, err, v.Reason)
			continue
		}
		got := readingOf(&o)
		if err != nil {
			if !reflect.DeepEqual(got, reading{}) {
				t.Errorf("%s: left %+v", v.Name, got)
			}
			continue
		}
		if !slices.Equal(got.Finished, v.Finished) {
			t.Errorf("%s: finished %v, want %v", v.Name, got.Finished, v.Finished)
		}
		for what, known := range map[string]bool{
			"load":          got.Load.Known,
			"kv_usage":      got.Load.KVUsage.IsKnown(),
			"wave_complete": got.WaveComplete.IsKnown(),
			"start_wave":    got.StartWave.IsKnown(),
		} {
			unknown := slices.Contains(v.Unknown, what) || what == "kv_usage" && got.Refused != ""
			if known == unknown {
				t.Errorf("%s: %s is known: %v", v.Name, what, known)
			}
		}
	}
}

// seeds returns every vector there is, for fuzzing.
func seeds(t testing.TB) [][]byte {
	t.Helper()
	var all [][]byte
	for _, file := range goldenFiles(t) {
		for _, v := range readGolden[outputsVector](t, file) {
			all = append(all, v.Frames[0])
		}
	}
	for _, v := range readGolden[brokenVector](t, "broken.json") {
		all = append(all, v.Hex)
	}
	for _, tt := range hostile {
		if len(tt.payload) < 1000 {
			all = append(all, tt.payload)
		}
	}
	for _, tt := range messages {
		all = append(all, tt.payload)
	}
	return all
}
