package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/plimsoll-go/plimsoll/internal/fleetsim"
	"github.com/plimsoll-go/plimsoll/internal/fleetsim/trace"
)

// The traces that cells name. The published ones are read from a folder of the
// user's.
const (
	azureConv = "azure_conv"
	azureCode = "azure_code"
	mooncake  = "mooncake"

	longTail    = "longtail"
	longAnswers = "long_answers"
	bursts      = "bursts"
)

var published = map[string]struct {
	file string
	read func(name string, r io.Reader) (*trace.Trace, error)
}{
	azureConv: {"AzureLLMInferenceTrace_conv.csv", trace.Azure},
	azureCode: {"AzureLLMInferenceTrace_code.csv", trace.Azure},
	mooncake:  {"mooncake_conversation_trace.jsonl", trace.Mooncake},
}

// generated are the traces that are made here. The grid has the first only.
var generated = map[string]trace.Mix{
	longTail: {BurstRate: 3},
	longAnswers: {BurstRate: 3, Classes: []trace.Class{
		{Weight: 1, PromptMedian: 300, PromptSigma: 0.9, PromptMax: 8_000, OutputMedian: 1_500, OutputSigma: 0.7, OutputMax: 10_000},
	}},
	bursts: {BurstRate: 10},
}

// traces are the ones that are there, by name, and what was made of them. They may
// be used from several goroutines.
type traces struct {
	read         map[string]*trace.Trace
	calibrations fleetsim.Calibrations

	mu     sync.Mutex
	scaled map[string]*scaled
}

// scaled is a trace at its load, made by whoever needs it first.
type scaled struct {
	once  sync.Once
	trace *trace.Trace
	err   error
}

// readTraces reads those of the published traces that the folder has; none if it
// is "".
func readTraces(folder string) (*traces, error) {
	t := &traces{read: make(map[string]*trace.Trace), scaled: make(map[string]*scaled)}
	if folder == "" {
		return t, nil
	}
	for name, p := range published {
		err := t.add(name, filepath.Join(folder, p.file), p.read)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if len(t.read) == 0 {
		return nil, fmt.Errorf("no trace in %s; the lab knows %s, %s and %s",
			folder, published[azureConv].file, published[azureCode].file, published[mooncake].file)
	}
	return t, nil
}

func (t *traces) add(name, file string, read func(string, io.Reader) (*trace.Trace, error)) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if t.read[name], err = read(name, f); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// named makes sure that a trace is there that the user asked for: by its name in
// the grid, or as a file.
func (t *traces) named(text string) (name string, err error) {
	if text == "gen" {
		text = longTail
	}
	if t.has(text) {
		return text, nil
	}
	if _, ok := published[text]; ok {
		return "", fmt.Errorf("the trace %s is not there; name its folder with -traces or $%s", text, tracesEnv)
	}
	read := trace.Azure
	if ext := filepath.Ext(text); ext == ".jsonl" || ext == ".json" {
		read = trace.Mooncake
	}
	name = strings.TrimSuffix(filepath.Base(text), filepath.Ext(text))
	return name, t.add(name, text, read)
}

func (t *traces) has(name string) bool {
	_, ok := generated[name]
	return ok || t.read[name] != nil
}

// have leaves out those that are not there.
func (t *traces) have(names []string) (have, missing []string) {
	for _, name := range names {
		if t.has(name) {
			have = append(have, name)
		} else {
			missing = append(missing, name)
		}
	}
	return have, missing
}

// of returns the requests of a cell, at its load. Cells that differ in nothing
// that matters here get the same.
func (t *traces) of(c *cell, seed int) (*trace.Trace, error) {
	n := c.ranks() * c.Requests
	key := fmt.Sprintln(c.Trace, c.Load, n, c.context(), c.fleet(), seed)
	t.mu.Lock()
	s := t.scaled[key]
	if s == nil {
		s = new(scaled)
		t.scaled[key] = s
	}
	t.mu.Unlock()
	s.once.Do(func() {
		s.trace, s.err = t.calibrations.AtLoad(t.cut(c.Trace, n, seed).Limit(c.context()), c.fleet(), c.Load)
	})
	return s.trace, s.err
}

// cut returns n requests of a trace. Each seed has a part of its own, as far as
// there are any.
func (t *traces) cut(name string, n, seed int) *trace.Trace {
	if mix, ok := generated[name]; ok {
		mix.Seed, mix.Requests = uint64(seed), n
		return trace.Generate(name, mix)
	}
	whole := t.read[name]
	spare := len(whole.Requests) - n
	if spare <= 0 {
		return whole.Fit(n)
	}
	from := (seed - 1) * n % (spare + 1)
	part := &trace.Trace{Name: name, Requests: append([]trace.Request(nil), whole.Requests[from:from+n]...)}
	first := part.Requests[0].At
	for i := range part.Requests {
		part.Requests[i].At -= first
	}
	return part
}
