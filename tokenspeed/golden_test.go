package tokenspeed

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The vectors under testdata come from the engine's own sender; see
// testdata/generate.py.

type hexBytes []byte

func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

type batchVector struct {
	Name      string
	Hex       hexBytes
	Canonical bool // every value has the type its field declares, and the length is one that is sent
	Elements  int
	Fields    goldenFields // as the engine's own decoder reads them
}

type goldenFields struct {
	RIDs             []string        `json:"rids"`
	OutputIDs        [][]int64       `json:"output_ids"`
	FinishedReasons  []string        `json:"finished_reasons"`
	PromptTokens     []int64         `json:"prompt_tokens"`
	CompletionTokens []int64         `json:"completion_tokens"`
	CachedTokens     []int64         `json:"cached_tokens"`
	Logprobs         [][]goldenFloat `json:"output_token_logprobs_val"`
	LogprobIDs       [][]int64       `json:"output_token_logprobs_idx"`
	EngineIndex      int             `json:"engine_index"`
	NumRunning       int64           `json:"num_running"`
	NumWaiting       int64           `json:"num_waiting"`
	KVActivePages    int64           `json:"kv_active_pages"`
	KVTotalPages     int64           `json:"kv_total_pages"`
}

// goldenFloat is a number, or one of the strings NaN, +Inf and -Inf.
type goldenFloat float64

func (f *goldenFloat) UnmarshalJSON(text []byte) error {
	v, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	if math.IsNaN(v) {
		v = math.Float64frombits(0x7ff8 << 48) // the engine's, of which there are many
	}
	*f = goldenFloat(v)
	return err
}

type brokenVector struct {
	Name        string
	Hex         hexBytes
	Reason      string   // why the batch is refused; empty if it is not
	Skipped     bool     // what is wrong is in a column that a Summary steps over
	Finished    []string // the requests that it ends all the same
	LoadRefused bool     `json:"load_refused"`
}

type messageVector struct {
	Name   string
	Frames []hexBytes
	Dead   bool
}

func readGolden[T any](t testing.TB, name string) []T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var vectors []T
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields() // a field that is new on the wire has to be decoded
	if err := d.Decode(&vectors); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(vectors) == 0 {
		t.Fatalf("%s has no vectors", name)
	}
	return vectors
}

// wantBatch builds what should be on the wire.
func wantBatch(v batchVector) *Batch {
	f := v.Fields
	b := &Batch{Summary: Summary{Elements: v.Elements, EngineIndex: f.EngineIndex}}
	b.Load = Load{f.KVTotalPages > 0, f.NumRunning, f.NumWaiting, f.KVActivePages, f.KVTotalPages}
	for i, id := range f.RIDs {
		r := Request{
			ID: []byte(id), OutputIDs: f.OutputIDs[i], FinishText: []byte(f.FinishedReasons[i]),
			PromptTokens: f.PromptTokens[i], CompletionTokens: f.CompletionTokens[i], CachedTokens: f.CachedTokens[i], LogprobIDs: f.LogprobIDs[i],
		}
		for _, x := range f.Logprobs[i] {
			r.Logprobs = append(r.Logprobs, float64(x))
		}
		b.Add(r)
	}
	return b
}

func TestEveryBatchOfTheEngineDecodesToTheValuesItWasMadeFrom(t *testing.T) {
	var batch Batch // the same throughout: nothing of one may show in the next
	var summary Summary
	for _, v := range readGolden[batchVector](t, "batches.json") {
		want := wantBatch(v)
		if !want.Load.Known {
			want.Load = Load{}
		}
		if err := summary.Decode(v.Hex); err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		checkSummary(t, v.Name, &summary, want.Summary, finished(&want.Summary))
		if err := batch.Decode(v.Hex); err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		checkSummary(t, v.Name, &batch.Summary, want.Summary, finished(&want.Summary))
		checkRequests(t, v.Name, &batch, want)
	}
}

// checkRequests compares by what is written of them, since a NaN is not equal to
// itself.
func checkRequests(t *testing.T, name string, got, want *Batch) {
	t.Helper()
	if got.Len() != want.Len() {
		t.Errorf("%s: %d requests, want %d", name, got.Len(), want.Len())
		return
	}
	encode := func(r Request) []byte {
		var b Batch
		b.Add(r)
		return b.Append(nil)
	}
	for i := range got.Len() {
		g, w := got.At(i), want.At(i)
		if g.FinishReason != w.FinishReason || !bytes.Equal(encode(g), encode(w)) {
			t.Errorf("%s: request %d:\n got %+v\nwant %+v", name, i, g, w)
		}
	}
}

func TestBatchesAreEncodedByteForByteAsTheEngineDoes(t *testing.T) {
	for _, v := range readGolden[batchVector](t, "batches.json") {
		if !v.Canonical {
			continue // values of types that ours cannot have, or elements that we do not know
		}
		if got := wantBatch(v).AppendN(nil, v.Elements); !bytes.Equal(got, v.Hex) {
			t.Errorf("%s:\n got %x\nwant %x", v.Name, got, []byte(v.Hex))
		}
	}
}

func TestWhatABrokenEngineEncodesIsRefusedAndEndsWhatItCan(t *testing.T) {
	for _, v := range readGolden[brokenVector](t, "broken.json") {
		var s Summary
		var b Batch
		errSummary, errBatch := s.Decode(v.Hex), b.Decode(v.Hex)
		if got := Reason(errBatch); got != v.Reason {
			t.Errorf("%s: reason %q (%v), want %q", v.Name, got, errBatch, v.Reason)
		}
		if v.Skipped {
			if errSummary != nil || finished(&s) != "b:length" || !s.Load.Known {
				t.Errorf("%s: %v, %+v", v.Name, errSummary, s)
			}
			continue
		}
		if got := Reason(errSummary); got != v.Reason {
			t.Errorf("%s: reason %q (%v), want %q", v.Name, got, errSummary, v.Reason)
		}
		for _, s := range []*Summary{&s, &b.Summary} {
			var got []string
			for _, id := range s.Finished {
				got = append(got, string(id))
			}
			if !slices.Equal(got, v.Finished) {
				t.Errorf("%s: finished %q, want %q", v.Name, got, v.Finished)
			}
			if s.Load.Known || (s.LoadErr != nil) != (v.LoadRefused && v.Reason == "") {
				t.Errorf("%s: %+v, %v", v.Name, s.Load, s.LoadErr)
			}
		}
	}
}

func TestFramesOfTheEngineAreSplit(t *testing.T) {
	for _, v := range readGolden[messageVector](t, "messages.json") {
		var frames [][]byte
		for _, f := range v.Frames {
			frames = append(frames, f)
		}
		payload, err := Split(frames)
		if errors.Is(err, ErrEngineDead) != v.Dead || (err != nil) != v.Dead {
			t.Errorf("%s: %v", v.Name, err)
		}
		var s Summary
		if err == nil {
			if err := s.Decode(payload); err != nil || finished(&s) != "a:length" {
				t.Errorf("%s: %v, %+v", v.Name, err, s)
			}
		}
	}
}
