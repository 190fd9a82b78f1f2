package trace_test

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim/trace"
)

const azure = `TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:00:00.2500000,374,44
2023-11-16 18:00:00.7500001,20,0
2023-11-16 18:00:01,4808,10
`

func TestAzureFormat(t *testing.T) {
	tr, err := trace.Azure("conv", strings.NewReader(azure))
	if err != nil {
		t.Fatal(err)
	}
	want := []trace.Request{
		{At: 0, Prompt: 374, Output: 44},
		{At: 500*time.Millisecond + 100, Prompt: 20, Output: 1},
		{At: 750 * time.Millisecond, Prompt: 4808, Output: 10},
	}
	if tr.Name != "conv" || !reflect.DeepEqual(tr.Requests, want) {
		t.Errorf("%s: %+v", tr.Name, tr.Requests)
	}
}

// The published files have DOS line ends. That they are sorted is nowhere said.
func TestAzureFormatWithDOSLineEndsAndOutOfOrder(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(azure), "\n")
	lines[1], lines[3] = lines[3], lines[1]
	tr, err := trace.Azure("", strings.NewReader(strings.Join(lines, "\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	if r := tr.Requests; len(r) != 3 || r[0].At != 0 || r[0].Prompt != 374 || r[2].Prompt != 4808 {
		t.Errorf("%+v", r)
	}
}

func TestMooncakeFormat(t *testing.T) {
	tr, err := trace.Mooncake("moon", strings.NewReader(`
{"timestamp": 3000, "input_length": 1100, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 4500, "input_length": 600, "output_length": 1, "hash_ids": [0, 46], "later": true}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []trace.Request{
		{At: 0, Prompt: 1100, Output: 500, Blocks: []uint64{0, 1, 2}},
		{At: 1500 * time.Millisecond, Prompt: 600, Output: 1, Blocks: []uint64{0, 46}},
	}
	if !reflect.DeepEqual(tr.Requests, want) {
		t.Errorf("%+v", tr.Requests)
	}
}

func TestBadLinesAreNamed(t *testing.T) {
	const head = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,1,1\n"
	for name, c := range map[string]struct {
		parse func() (*trace.Trace, error)
		line  int
		field string
		err   error
	}{
		"no header":       {azureOf("2023-11-16 18:00:00,1,1"), 1, "", trace.ErrHeader},
		"few columns":     {azureOf(head + "2023-11-16 18:00:00,1"), 3, "", trace.ErrColumns},
		"negative prompt": {azureOf(head + "2023-11-16 18:00:00,-1,1"), 3, "ContextTokens", trace.ErrTokens},
		"huge output":     {azureOf(head + "2023-11-16 18:00:00,1,99999999"), 3, "GeneratedTokens", trace.ErrTokens},
		"not a number":    {azureOf(head + "2023-11-16 18:00:00,1,x"), 3, "GeneratedTokens", strconv.ErrSyntax},
		"a century later": {azureOf(head + "2123-11-16 18:00:00,1,1"), 3, "TIMESTAMP", trace.ErrTime},
		"no time":         {mooncakeOf(`{"input_length":1,"output_length":1}`), 1, "timestamp", trace.ErrTime},
		"negative time":   {mooncakeOf(`{"timestamp":-1,"input_length":1,"output_length":1}`), 1, "timestamp", trace.ErrTime},
		"end of time":     {mooncakeOf(`{"timestamp":1e300,"input_length":1,"output_length":1}`), 1, "timestamp", trace.ErrTime},
		"no prompt":       {mooncakeOf(`{"timestamp":1,"output_length":1}`), 1, "input_length", trace.ErrTokens},
		"negative output": {mooncakeOf(`{"timestamp":1,"input_length":1,"output_length":-1}`), 1, "output_length", trace.ErrTokens},
		"too many blocks": {mooncakeOf(`{"timestamp":1,"input_length":512,"output_length":1,"hash_ids":[1,2]}`), 1, "hash_ids", trace.ErrBlocks},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.parse()
			var bad *trace.ParseError
			if !errors.As(err, &bad) || bad.Line != c.line || bad.Field != c.field || !errors.Is(err, c.err) {
				t.Errorf("error is %v, want %v of field %q at line %d", err, c.err, c.field, c.line)
			}
		})
	}
	var syntax *json.SyntaxError
	if _, err := mooncakeOf("{")(); !errors.As(err, &syntax) {
		t.Errorf("error is %v, want that of encoding/json", err)
	}
	if _, err := mooncakeOf(strings.Repeat(" ", 2<<20))(); err == nil {
		t.Error("a line without end is accepted")
	}
}

func azureOf(s string) func() (*trace.Trace, error) {
	return func() (*trace.Trace, error) { return trace.Azure("", strings.NewReader(s)) }
}

func mooncakeOf(s string) func() (*trace.Trace, error) {
	return func() (*trace.Trace, error) { return trace.Mooncake("", strings.NewReader(s)) }
}

func FuzzAzure(f *testing.F) {
	f.Add(azure)
	f.Add("TIMESTAMP,ContextTokens,GeneratedTokens\n9999-12-31 23:59:59.9999999,1,1\n")
	f.Fuzz(func(t *testing.T, s string) { sane(t, trace.Azure, s) })
}

func FuzzMooncake(f *testing.F) {
	f.Add(`{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}`)
	f.Add(`{"timestamp": 1e5, "input_length": 0, "output_length": 0, "hash_ids": null}`)
	f.Fuzz(func(t *testing.T, s string) { sane(t, trace.Mooncake, s) })
}

// sane checks that what is accepted is in order.
func sane(t *testing.T, parse func(string, io.Reader) (*trace.Trace, error), s string) {
	tr, err := parse("", strings.NewReader(s))
	if err != nil {
		var bad *trace.ParseError
		if !errors.As(err, &bad) || bad.Line < 1 {
			t.Errorf("error %v", err)
		}
		return
	}
	last := time.Duration(0)
	for i, r := range tr.Requests {
		if i == 0 && r.At != 0 || r.At < last || r.Prompt < 1 || r.Output < 1 || len(r.Blocks) > r.Prompt/trace.BlockTokens+1 {
			t.Fatalf("request %d: %+v", i, r)
		}
		last = r.At
	}
	if tr.Fit(3*len(tr.Requests)).Span() < tr.Span() {
		t.Error("a repetition takes less time than one helping")
	}
}

func TestOverSpreadsArrivalsInProportion(t *testing.T) {
	tr := &trace.Trace{Requests: []trace.Request{{At: 10 * time.Second}, {At: 11 * time.Second}, {At: 14 * time.Second}}}
	if span := tr.Span(); span != 6*time.Second {
		t.Fatalf("span is %v, want 6s", span)
	}
	got := tr.Over(3 * time.Second)
	if got.Requests[0].At != 0 || got.Requests[1].At != 500*time.Millisecond || got.Requests[2].At != 2*time.Second || got.Span() != 3*time.Second {
		t.Errorf("%+v, span %v", got.Requests, got.Span())
	}
	if tr.Requests[1].At != 11*time.Second {
		t.Error("the original has changed")
	}
}

func TestFitCutsAndRepeats(t *testing.T) {
	tr := &trace.Trace{Name: "x", Requests: []trace.Request{
		{At: 0, Prompt: 600, Output: 1, Blocks: []uint64{7, 8}}, {At: time.Second, Prompt: 1, Output: 1},
	}}
	if got := tr.Fit(1); len(got.Requests) != 1 || got.Name != "x" || len(tr.Fit(0).Requests) != 0 {
		t.Errorf("%+v", got)
	}
	got := tr.Fit(5)
	var at []time.Duration
	blocks := map[uint64]bool{}
	for _, r := range got.Requests {
		at = append(at, r.At)
		for _, b := range r.Blocks {
			blocks[b] = true
		}
	}
	if want := []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second}; !slices.Equal(at, want) {
		t.Errorf("arrivals at %v, want %v", at, want)
	}
	if len(blocks) != 6 {
		t.Errorf("%d blocks in three repetitions of two", len(blocks))
	}
	if tr.Requests[0].Blocks[0] != 7 || len(tr.Requests) != 2 {
		t.Error("the original has changed")
	}
	if empty := new(trace.Trace).Fit(3); len(empty.Requests) != 0 || empty.Span() != 0 {
		t.Errorf("%+v", empty)
	}
}

func TestLimitLeavesRoomForTheAnswer(t *testing.T) {
	tr := &trace.Trace{Requests: []trace.Request{
		{Prompt: 100, Output: 100},
		{Prompt: 5000, Output: 100, Blocks: make([]uint64, 10)},
		{Prompt: 5000, Output: 5000},
	}}
	got := tr.Limit(2000).Requests
	for i, want := range [][3]int{{100, 100, 0}, {1900, 100, 4}, {1000, 1000, 0}} {
		if r := got[i]; r.Prompt != want[0] || r.Output != want[1] || len(r.Blocks) != want[2] {
			t.Errorf("request %d: %d and %d tokens, %d blocks, want %v", i, r.Prompt, r.Output, len(r.Blocks), want)
		}
	}
}

func TestGenerateIsAsDescribed(t *testing.T) {
	m := trace.Mix{Seed: 1, Requests: 50_000, Rate: 20, BurstRate: 4}
	tr := trace.Generate("mix", m)
	if again := trace.Generate("mix", m); !reflect.DeepEqual(tr, again) {
		t.Error("equal mixes give different traces")
	}
	m.Seed++
	if other := trace.Generate("mix", m); reflect.DeepEqual(tr, other) {
		t.Error("the seed makes no difference")
	}
	prompt, output := tr.Tokens()
	within(t, "mean prompt", float64(prompt)/50_000, 2_100, 0.05)
	within(t, "mean output", float64(output)/50_000, 410, 0.05)
	within(t, "rate", 50_000/tr.Span().Seconds(), 20, 0.05)
	within(t, "dispersion with bursts", dispersion(tr), 15, 0.3)

	m.BurstRate = 0
	within(t, "dispersion without", dispersion(trace.Generate("", m)), 1, 0.1)

	one := trace.Generate("", trace.Mix{Requests: 10_001, Classes: []trace.Class{{
		Weight: 3, PromptMedian: 1000, PromptSigma: 0.5, PromptMax: 3000, OutputMedian: 10, OutputSigma: 0, OutputMax: 10}}})
	prompts := make([]int, 0, len(one.Requests))
	for _, r := range one.Requests {
		prompts = append(prompts, r.Prompt)
		if r.Output < 9 || r.Output > 10 || r.Prompt > 3000 {
			t.Fatalf("%+v", r)
		}
	}
	slices.Sort(prompts)
	within(t, "median prompt", float64(prompts[5000]), 1000, 0.03)
	within(t, "prompt one sigma above", float64(prompts[8413]), 1000*math.Exp(0.5), 0.05)
}

// dispersion is the variance of the number of arrivals in a time, over its mean; a
// Poisson process has 1.
func dispersion(t *trace.Trace) float64 {
	const bins = 1000
	var counts [bins]float64
	for _, r := range t.Requests {
		counts[min(int(float64(r.At)/float64(t.Span())*bins), bins-1)]++
	}
	mean := float64(len(t.Requests)) / bins
	var variance float64
	for _, c := range counts {
		variance += (c - mean) * (c - mean) / bins
	}
	return variance / mean
}

func within(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if math.Abs(got-want) > want*share {
		t.Errorf("%s is %v, want %v ±%v %%", what, got, want, share*100)
	}
}
