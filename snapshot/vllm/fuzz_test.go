package vllm

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
)

// FuzzOutputs decodes a message between two others into one Outputs. Each has to
// be read as by the naive decoder, and none must show in the next.
func FuzzOutputs(f *testing.F) {
	for _, payload := range seeds(f) {
		f.Add(payload)
	}
	f.Add(batch(oldOut("a", nil, "###"), oldOut("b", 0, nil)))
	busy := step(20)
	f.Fuzz(func(t *testing.T, payload []byte) {
		var o Outputs
		checkDecode(t, &o, busy)
		checkDecode(t, &o, payload)
		checkDecode(t, &o, busy)
	})
}

func checkDecode(t *testing.T, o *Outputs, payload []byte) {
	t.Helper()
	// What lies behind the payload is none of the decoder's business.
	p := append(slices.Clone(payload), bytes.Repeat([]byte{0x90}, 64)...)[:len(payload)]
	err := o.Decode(p)
	want, wantErr := naiveDecode(payload)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%x: %v, but the naive decoder says %v", payload, err, wantErr)
	}
	if err != nil {
		d, ok := errors.AsType[*DecodeError](err)
		if !ok || Reason(err) == "other" || d.Offset < 0 || d.Offset > len(payload) {
			t.Fatalf("%x: not an error of this package: %#v", payload, err)
		}
		want = reading{}
	}
	if got := readingOf(o); !reflect.DeepEqual(got, want) || o.Requests != o.Len() {
		t.Fatalf("%x:\n got %+v of %d\nwant %+v", payload, got, o.Requests, want)
	}
	if !bytes.Equal(p, payload) {
		t.Fatalf("%x: written to", payload)
	}
	checkTokens(t, o)
}

// checkTokens reads the tokens of every output: as many counts as there are said
// to be, or an error.
func checkTokens(t *testing.T, o *Outputs) {
	t.Helper()
	for i := range o.Len() {
		out := o.At(i)
		tokens, err := out.AppendTokens(nil)
		if err != nil {
			if _, ok := errors.AsType[*DecodeError](err); !ok {
				t.Fatalf("output %d: %v", i, err)
			}
		} else if len(tokens) != out.NewTokens {
			t.Fatalf("output %d: %d tokens, %d are announced", i, len(tokens), out.NewTokens)
		}
		if slices.ContainsFunc(tokens, func(id int64) bool { return id < 0 }) {
			t.Fatalf("output %d: %v", i, tokens)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte(EngineDead), 1)
	f.Add([]byte(EngineDead), 2)
	f.Add([]byte{0x90}, 3)
	f.Add([]byte(nil), 0)
	f.Fuzz(func(t *testing.T, first []byte, n int) {
		frames := [][]byte{first, nil, []byte("tensor")}[:uint(n)%4]
		payload, err := Split(frames)
		dead := len(frames) == 1 && string(first) == EngineDead
		if errors.Is(err, ErrEngineDead) != dead || errors.Is(err, ErrFrameCount) != (len(frames) == 0) {
			t.Fatalf("%d frames, %q: %v", len(frames), first, err)
		}
		if err == nil && !bytes.Equal(payload, first) {
			t.Fatalf("%q of %q", payload, first)
		}
	})
}
