package tokenspeed

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/tinylib/msgp/msgp"
)

func seeds(f *testing.F) (payloads [][]byte) {
	for _, v := range readGolden[batchVector](f, "batches.json") {
		payloads = append(payloads, v.Hex)
	}
	for _, v := range readGolden[brokenVector](f, "broken.json") {
		payloads = append(payloads, v.Hex)
	}
	for _, v := range vectors {
		payloads = append(payloads, unhex(f, v.hex))
	}
	for _, tt := range hostile {
		if len(tt.payload) < 1000 {
			payloads = append(payloads, []byte(tt.payload))
		}
	}
	return payloads
}

// naive is a batch as it is read by taking one value after the other off the
// payload, without a thought for speed or memory. It shares no code with the
// decoders.
type naive struct {
	elements    int
	ragged      bool
	engineIndex int
	load        Load
	loadErr     bool
	rids        []string
	reasons     []string
	counts      [3][]int64
	rows        [2][][]int64 // output ids, logprob ids
	logprobs    [][]float64
	columns     bool // everything in the columns is what it should be
}

// elementsOf takes an array apart into its elements as they stand on the wire.
func elementsOf(p []byte) (elements [][]byte, ok bool) {
	if msgp.NextType(p) != msgp.ArrayType {
		return nil, false
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(p)
	if err != nil {
		return nil, false
	}
	for range n {
		next, err := msgp.Skip(rest)
		if err != nil {
			return nil, false
		}
		elements = append(elements, rest[:len(rest)-len(next)])
		rest = next
	}
	return elements, len(rest) == 0
}

func stringOf(p []byte) (string, bool) {
	if msgp.NextType(p) != msgp.StrType {
		return "", false
	}
	s, _, err := msgp.ReadStringBytes(p)
	return s, err == nil
}

func floatOf(p []byte) (float64, bool) {
	v, _, err := msgp.ReadIntfBytes(p)
	if err != nil {
		return 0, false
	}
	switch v := v.(type) {
	case float32:
		return float64(v), true
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	}
	return 0, false
}

func countOf(p []byte) (int64, bool) {
	switch msgp.NextType(p) {
	case msgp.IntType, msgp.UintType:
		v, _, err := msgp.ReadInt64Bytes(p)
		return v, err == nil && v >= 0
	case msgp.Float32Type, msgp.Float64Type:
		f, ok := floatOf(p)
		return int64(f), ok && f >= 0 && f < 1<<63 && f == math.Floor(f)
	}
	return 0, false
}

func columnOf[T any](p []byte, of func([]byte) (T, bool)) (values []T, ok bool) {
	elements, ok := elementsOf(p)
	for _, e := range elements {
		v, is := of(e)
		values, ok = append(values, v), ok && is
	}
	return values, ok
}

func rowOf[T any](of func([]byte) (T, bool)) func([]byte) ([]T, bool) {
	return func(p []byte) ([]T, bool) { return columnOf(p, of) }
}

// readNaively returns what is in payload, or false if it is no batch at all.
func readNaively(payload []byte) (b naive, ok bool) {
	if _, err := msgp.Skip(payload); err != nil {
		return b, false
	}
	elements, ok := elementsOf(payload)
	if !ok || len(elements) < 9 {
		return b, false
	}
	b.elements = len(elements)
	if s, ok := stringOf(elements[0]); !ok || s != "BatchTokenIDOutSlim" {
		return b, false
	}
	if b.rids, ok = columnOf(elements[1], stringOf); !ok {
		return b, false
	}
	if b.reasons, ok = columnOf(elements[3], stringOf); !ok {
		return b, false
	}
	for _, e := range elements[1:9] {
		column, ok := elementsOf(e)
		if !ok {
			return b, false
		}
		b.ragged = b.ragged || len(column) != len(b.rids)
	}
	var is [6]bool
	b.rows[0], is[0] = columnOf(elements[2], rowOf(countOf))
	for k := range b.counts {
		b.counts[k], is[1+k] = columnOf(elements[4+k], countOf)
	}
	b.logprobs, is[4] = columnOf(elements[7], rowOf(floatOf))
	b.rows[1], is[5] = columnOf(elements[8], rowOf(countOf))
	b.columns = !slices.Contains(is[:], false)

	if len(elements) > 9 {
		index, ok := countOf(elements[9])
		if !ok || index > 65535 {
			return b, false
		}
		b.engineIndex = int(index)
	}
	if len(elements) > 13 {
		var v [4]int64
		for k := range v {
			if v[k], ok = countOf(elements[10+k]); !ok {
				b.loadErr = true
			}
		}
		b.loadErr = b.loadErr || v[3] > 0 && v[2] > v[3]
		if !b.loadErr && v[3] > 0 {
			b.load = Load{true, v[0], v[1], v[2], v[3]}
		}
	}
	return b, true
}

// checkDecoded compares what s says of payload with the naive reading.
func checkDecoded(t *testing.T, payload []byte, s *Summary, err error) {
	t.Helper()
	var d *DecodeError
	if err != nil && (!errors.As(err, &d) || Reason(err) == "other" || d.Offset < 0 || d.Offset > len(payload)) {
		t.Fatalf("%x: no error of ours: %v", payload, err)
	}
	if errors.Is(err, ErrTooDeep) {
		return // the naive reader goes deeper
	}
	want, ok := readNaively(payload)
	if (err == nil) != (ok && !want.ragged) || errors.Is(err, ErrRagged) != (ok && want.ragged) {
		t.Fatalf("%x: %v, read naively: %v, ragged: %v", payload, err, ok, want.ragged)
	}
	if err != nil && !errors.Is(err, ErrRagged) {
		if s.Elements+s.EngineIndex+s.Requests+len(s.Finished)+len(s.Reasons) != 0 || s.Load != (Load{}) || s.LoadErr != nil {
			t.Fatalf("%x: after %v there is %+v", payload, err, *s)
		}
		return
	}
	var ended []string
	for i, reason := range want.reasons {
		if len(want.reasons) == len(want.rids) && reason != "" {
			ended = append(ended, want.rids[i]+":"+finishReason([]byte(reason)).String())
		}
	}
	if got := finished(s); got != strings.Join(ended, " ") {
		t.Fatalf("%x: finished %q, want %q", payload, got, ended)
	}
	if err != nil {
		want.load, want.loadErr, want.rids = Load{}, false, nil
	}
	if s.Elements != want.elements || s.EngineIndex != want.engineIndex || s.Requests != len(want.rids) ||
		s.Load != want.load || (s.LoadErr != nil) != want.loadErr {
		t.Fatalf("%x:\n got %+v\nwant %+v", payload, *s, want)
	}
	if u := s.Load.KVUsage(); !(u >= 0 && u <= 1) {
		t.Fatalf("%x: usage %v", payload, u)
	}
	for _, id := range s.Finished {
		if !within(id, payload) {
			t.Fatalf("%x: id %q is not in the payload", payload, id)
		}
	}
}

// within reports whether b is a part of p, and not a copy.
func within(b, p []byte) bool {
	if len(b) == 0 {
		return true
	}
	offset := uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&p[0]))
	return offset <= uintptr(len(p)-len(b))
}

// FuzzSummary decodes two payloads into one Summary, and the second into a fresh
// one too: the first must not show in it.
func FuzzSummary(f *testing.F) {
	first := step(true).Append(nil)[:200]
	for _, p := range seeds(f) {
		f.Add(first, p)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		if len(first) > 1<<16 || len(second) > 1<<16 {
			return
		}
		var reused, fresh Summary
		checkDecoded(t, first, &reused, reused.Decode(first))
		err, wantErr := reused.Decode(second), fresh.Decode(second)
		if !reflect.DeepEqual(err, wantErr) || !reflect.DeepEqual(reused.LoadErr, fresh.LoadErr) {
			t.Fatalf("reused: %v, %v; fresh: %v, %v", err, reused.LoadErr, wantErr, fresh.LoadErr)
		}
		checkDecoded(t, second, &reused, err)
		checkDecoded(t, second, &fresh, wantErr)
	})
}

// FuzzBatch compares a Batch with the Summary of the same payload, with the naive
// reading, and with itself after it has been written and read again.
func FuzzBatch(f *testing.F) {
	first := step(true).Append(nil)[:200]
	for _, p := range seeds(f) {
		f.Add(first, p)
	}
	f.Fuzz(func(t *testing.T, first, payload []byte) {
		if len(first) > 1<<16 || len(payload) > 1<<16 {
			return
		}
		sent := bytes.Clone(payload)
		var b Batch
		_ = b.Decode(first)
		var s Summary
		err, summaryErr := b.Decode(payload), s.Decode(payload)
		if !bytes.Equal(payload, sent) {
			t.Fatal("the payload has changed")
		}

		want, ok := readNaively(payload)
		switch {
		case summaryErr != nil:
			if !reflect.DeepEqual(err, summaryErr) {
				t.Fatalf("%x: %v, its summary: %v", payload, err, summaryErr)
			}
			checkDecoded(t, payload, &b.Summary, err)
		case err != nil && ok && want.columns:
			t.Fatalf("%x: %v, but all is well", payload, err)
		case err == nil:
			if !ok || !want.columns {
				t.Fatalf("%x: accepted", payload)
			}
			checkDecoded(t, payload, &b.Summary, nil)
			if !reflect.DeepEqual(b.LoadErr, s.LoadErr) {
				t.Fatalf("%x: %v, its summary: %v", payload, b.LoadErr, s.LoadErr)
			}
			checkColumns(t, payload, &b, &want)
			checkRoundTrip(t, &b)
			return
		}
		if b.Len() != 0 {
			t.Fatalf("%x: %d requests after %v", payload, b.Len(), err)
		}
		if summaryErr == nil && (b.Requests != 0 || len(b.Finished) != 0 || b.Load != (Load{})) {
			t.Fatalf("%x: %+v after %v", payload, b.Summary, err)
		}
	})
}

func checkColumns(t *testing.T, payload []byte, b *Batch, want *naive) {
	t.Helper()
	if b.Len() != len(want.rids) || b.Len() != b.Requests {
		t.Fatalf("%x: %d requests of %d", payload, b.Len(), len(want.rids))
	}
	sameBits := func(a, b float64) bool {
		return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
	}
	for i := range b.Len() {
		r := b.At(i)
		if string(r.ID) != want.rids[i] || string(r.FinishText) != want.reasons[i] || (r.FinishReason == FinishNone) != (want.reasons[i] == "") ||
			r.PromptTokens != want.counts[0][i] || r.CompletionTokens != want.counts[1][i] || r.CachedTokens != want.counts[2][i] ||
			!slices.Equal(r.OutputIDs, want.rows[0][i]) || !slices.Equal(r.LogprobIDs, want.rows[1][i]) ||
			!slices.EqualFunc(r.Logprobs, want.logprobs[i], sameBits) {
			t.Fatalf("%x:\nrequest %d: %+v\nwant %+v", payload, i, r, *want)
		}
		if !within(r.ID, payload) || !within(r.FinishText, payload) {
			t.Fatalf("%x: request %d: copied", payload, i)
		}
	}
}

func checkRoundTrip(t *testing.T, b *Batch) {
	t.Helper()
	encoded := b.AppendN(nil, b.Elements)
	var again, built Batch
	if err := again.Decode(encoded); err != nil || again.LoadErr != nil {
		t.Fatalf("%x, which we wrote: %v, %v", encoded, err, again.LoadErr)
	}
	if again.Elements != min(b.Elements, 14) || again.EngineIndex != b.EngineIndex || again.Load != b.Load || again.Requests != b.Requests ||
		finished(&again.Summary) != finished(&b.Summary) {
		t.Fatalf("through %x:\n got %+v\nwant %+v", encoded, again.Summary, b.Summary)
	}
	if p := again.AppendN(nil, again.Elements); !bytes.Equal(p, encoded) {
		t.Fatalf("encoded as %x, then as %x", encoded, p)
	}
	built.EngineIndex, built.Load = b.EngineIndex, b.Load
	for i := range b.Len() {
		built.Add(b.At(i))
	}
	if p := built.AppendN(nil, b.Elements); !bytes.Equal(p, encoded) || finished(&built.Summary) != finished(&b.Summary) {
		t.Fatalf("encoded as %x, built again as %x", encoded, p)
	}
}
